// SPDX-License-Identifier: Apache-2.0
// RMS normalisation of rows, forward and backward.
#pragma once

#include "imbrex/kernels/rows/flat_tile.h"
#include "imbrex/kernels/rows/persistent_rows.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

/// y = x / sqrt(mean(x^2) + epsilon) * weight along the last dimension. x and y [rows, columns] or [batch, rows, columns],
/// float16, bfloat16 or float32, y of x's type or another of these; any number of columns, which are neighbours in
/// memory; the other strides may be any. weight [columns], dense, of any of these types. y may be x. Sums are float32.
/// On a CUDA GPU it returns without waiting. What is compiled, at a first call, serves all numbers of rows, and of
/// columns up to the next power of two. LaunchError names the condition that a call does not meet.
LaunchReport rms_norm(const DeviceTensor& x, const DeviceTensor& weight, const DeviceTensor& y,
                      float epsilon = 1e-6f, const Stream& stream = {},
                      SourceLocation where = SourceLocation::current());

/// factors[i] = 1 / sqrt(mean(x[i, :]^2) + epsilon), of each row: RMS normalisation before a product costs no tensor of its
/// own where they are the product's scale_a (imbrex/kernels/matmul.h), and the norm's weights are multiplied into those of
/// the product beforehand. x [rows, columns], as for rms_norm(); factors [rows], float32, dense. Otherwise as there.
LaunchReport rms_factors(const DeviceTensor& x, const DeviceTensor& factors, float epsilon = 1e-6f,
                         const Stream& stream = {}, SourceLocation where = SourceLocation::current());

/// The gradients of rms_norm(): from dy, that of y, those of x and of weight, of which either may be null.
///
///   dx = r * (dy * weight - x * r^2 * mean(dy * weight * x)),   r = 1 / sqrt(mean(x^2) + epsilon)
///   dweight = the sum over all rows of dy * x * r
///
/// Shapes and types as there, dx as x, dweight as weight; at most 16384 columns. dx may be dy or x. dweight has the same
/// bits in every run on devices with as many multiprocessors.
LaunchReport rms_norm_backward(const DeviceTensor& dy, const DeviceTensor& x, const DeviceTensor& weight,
                               const DeviceTensor& dx, const DeviceTensor& dweight, float epsilon = 1e-6f,
                               const Stream& stream = {}, SourceLocation where = SourceLocation::current());

namespace kernels {

struct RmsNormRows {
  int thread_bytes = 64;  // of x, per thread

  static auto space() { return Space<RmsNormRows>().choose<&RmsNormRows::thread_bytes>({64, 32, 128}); }

  /// y[i, :] = x[i, :] / sqrt(mean(x[i, :]^2) + epsilon) * weight[:] for each row of each matrix. `is_whole`: a row has
  /// no more columns than a tile.
  void operator()(RowShape shape, bool is_whole, Float32 epsilon, RowOperand x, ColumnOperand weight,
                  RowOperand y) const {
    const RowTile tile(shape, x.dtype.bytes(), is_whole, thread_bytes);
    const RowPlace at = tile.place_of_cta();
    TileRows values(tile, x, at);
    auto squares = sum_of_rows(tile, [&](const ScalarArg& column) {
      auto part = values.at(column);
      return part * part;
    });
    RegisterTensor scale = rsqrt(squares / shape.columns() + epsilon);
    tile.each_part([&](const ScalarArg& column) {
      store_tile(tile, y, at, column, values.at(column) * scale * weight.load(shape, column, tile.columns));
    });
  }
};

struct RmsFactors {
  int thread_bytes = 64;  // of x, per thread

  static auto space() { return Space<RmsFactors>().choose<&RmsFactors::thread_bytes>({64, 32, 128}); }

  /// factors[i] = 1 / sqrt(mean(x[i, :]^2) + epsilon).
  void operator()(RowShape shape, bool is_whole, Float32 epsilon, RowOperand x,
                  Ptr<float32> factors_ptr) const {
    const RowTile tile(shape, x.dtype.bytes(), is_whole, thread_bytes);
    const RowPlace at = tile.place_of_cta();
    TileRows values(tile, x, at);
    auto squares = sum_of_rows(tile, [&](const ScalarArg& column) {
      auto part = values.at(column);
      return part * part;
    });
    auto factors = rsqrt(squares / shape.columns() + epsilon);
    store_global(global_view(factors_ptr, {shape.rows}), factors.reshape({tile.rows}), {at.row});
  }
};

/// dx, and each CTA's part of dweight, which SumsOfParts adds up. `kOverlaps`: these begin while it ends.
template <bool kOverlaps>
struct RmsNormBackwardOf {
  static constexpr const char* target = kOverlaps ? "sm_90" : "sm_80";
  int thread_bytes = 32;  // of x, per thread

  static auto space() {
    return Space<RmsNormBackwardOf>().template choose<&RmsNormBackwardOf::thread_bytes>({32, 16});
  }

  /// parts[ctas, columns] = the sums of dy * x * r over the rows that a CTA has; see rms_norm_backward(). Rows are whole.
  /// `late_ctas`: of the CTAs, see PersistentRows.
  /// `room`: bytes of a multiprocessor's shared memory for tiles that are loaded ahead.
  /// `is_one_matrix`: shape.matrices is 1.
  void operator()(RowShape shape, bool is_one_matrix, Int32 ctas, Int32 late_ctas, int room, Float32 epsilon,
                  RowOperand dy, RowOperand x, ColumnOperand weight, bool has_dx, RowOperand dx,
                  bool has_parts, Ptr<float32> parts_ptr) const {
    grid(ctas);
    const PersistentRows rows(shape, is_one_matrix, x.dtype.bytes(),
                              std::max(x.dtype.bytes(), dy.dtype.bytes()), thread_bytes, late_ctas);
    if (kOverlaps) griddepcontrol::launch_dependents();
    std::optional<ColumnSum> part;
    if (has_parts) part.emplace(rows);
    AheadRows ahead(rows, {&x, &dy}, room);
    RowSums sums(rows, 2);
    const ColumnFactors factors(weight, rows);
    Float32 share = 1.0f / cast<float32>(shape.columns());
    const auto prepare = [&](const ScalarArg& i, bool is_next) {
      std::vector<RegisterTensor> terms;  // x^2, dy * weight * x
      for (int s = 0; s < rows.slabs(); ++s) {
        auto value = ahead.slab(0, s, i, is_next), gradient = ahead.slab(1, s, i, is_next);
        add_terms(terms, {{value, value}, {gradient * factors.slab(s), value}});
      }
      sums.put(terms);
    };
    ahead.begin();
    prepare(rows.first(), false);
    sums.advance();
    for (Int32 i : range(rows.first(), rows.end(), rows.step())) {
      ahead.advance(i);
      if (auto is_there = when(i + rows.step() < rows.end())) prepare(i + rows.step(), true);
      const RowPlace at = rows.place(i);
      const std::vector<RegisterTensor> of_row = sums.get();
      RegisterTensor scale = rsqrt(of_row[0] * share + epsilon);
      RegisterTensor along = -(of_row[1] * share) * scale * scale * scale;
      for (int s = 0; s < rows.slabs(); ++s) {
        auto value = ahead.slab(0, s, i, false), gradient = ahead.slab(1, s, i, false);
        auto scaled = gradient * scale;
        if (has_parts) part->add_product(s, scaled, value);
        if (has_dx)
          store_global(dx.view(shape, at.matrix), fma(scaled, factors.slab(s), value * along).to(dx.dtype),
                       {at.row, s * rows.slab_columns()});
      }
      sums.advance();
      ahead.end();
    }
    if (has_parts) part->store(parts_ptr);
  }
};

using RmsNormBackward = RmsNormBackwardOf<false>;
using HopperRmsNormBackward = RmsNormBackwardOf<true>;

/// The same of rows that are too wide for registers.
struct WideRmsNormBackward {
  int thread_bytes = 32;  // of x, per thread

  void operator()(RowShape shape, Int32 ctas, Float32 epsilon, RowOperand dy, RowOperand x,
                  ColumnOperand weight, bool has_dx, RowOperand dx, bool has_parts,
                  Ptr<float32> parts_ptr) const {
    const WideRows rows(shape, ctas, x.dtype.bytes(), thread_bytes);
    std::optional<SharedTensor> part;
    if (has_parts) part.emplace(rows.sum_of_columns());
    Float32 share = 1.0f / cast<float32>(shape.columns());
    for (Int32 i : range(block_idx.x, rows.count(), grid_dim.x)) {
      const RowPlace at = rows.place(i);
      auto value = rows.load(x, at), gradient = rows.load(dy, at), scaled = gradient * rows.load(weight);
      const auto mean_of = [&](const RegisterBase& terms) {
        return sum(terms, {.axis = 1, .keep = true}) * share;
      };
      auto squares = mean_of(value * value), products = mean_of(scaled * value);
      RegisterTensor scale = rsqrt(squares + epsilon);
      auto normal = value * scale;
      if (has_parts) WideRows::add(*part, gradient * normal);
      if (has_dx) {
        RegisterTensor along = -products * scale;
        store_global(dx.view(shape, at.matrix), (fma(normal, along, scaled) * scale).to(dx.dtype),
                     {at.row, 0});
      }
    }
    if (has_parts) rows.store(*part, parts_ptr);
  }
};

}  // namespace kernels
}  // namespace imbrex
