// SPDX-License-Identifier: Apache-2.0
// RMS normalisation of rows, forward and backward.
#pragma once

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
    const auto [row, matrix] = tile.place_of_cta();
    const TileRows values(tile, x.view(shape, matrix), row);
    auto squares = sum_of_rows(tile, [&](const ScalarArg& column) {
      auto part = values.at(column);
      return part * part;
    });
    RegisterTensor scale = rsqrt(squares / shape.columns() + epsilon);
    auto g_y = y.view(shape, matrix);
    tile.each_part([&, &row = row](const ScalarArg& column) {
      auto scaled = values.at(column) * scale * weight.load(shape, column, tile.columns);
      store_global(g_y, scaled.to(y.dtype), {row, column});
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
    const auto [row, matrix] = tile.place_of_cta();
    const TileRows values(tile, x.view(shape, matrix), row);
    auto squares = sum_of_rows(tile, [&](const ScalarArg& column) {
      auto part = values.at(column);
      return part * part;
    });
    auto factors = rsqrt(squares / shape.columns() + epsilon);
    store_global(global_view(factors_ptr, {shape.rows}), factors.reshape({tile.rows}), {row});
  }
};

/// dx, and each CTA's part of dweight, which SumOfParts adds up.
struct RmsNormBackward {
  int thread_bytes = 32;  // of x, per thread

  static auto space() { return Space<RmsNormBackward>().choose<&RmsNormBackward::thread_bytes>({32, 16}); }

  /// parts[ctas, columns] = the sums of dy * x * r over the rows that a CTA has; see rms_norm_backward(). Rows are whole.
  void operator()(RowShape shape, Int32 ctas, Float32 epsilon, RowOperand dy, RowOperand x,
                  ColumnOperand weight, bool has_dx, RowOperand dx, bool has_parts,
                  Ptr<float32> parts_ptr) const {
    const RowTile tile = PersistentRows::tile(shape, x.dtype.bytes(), thread_bytes);
    grid(ctas);
    const PersistentRows rows(tile, shape);
    std::optional<ColumnSum> part;
    if (has_parts) part.emplace(tile);
    AheadRows ahead(rows, {&x, &dy});
    const ColumnFactors factors(weight, tile, shape);
    Float32 share = 1.0f / cast<float32>(shape.columns());
    for (Int32 i : range(block_idx.x, rows.count(), grid_dim.x)) {
      const RowPlace at = rows.place(i);
      ahead.take(i);
      auto value = ahead[0], gradient = ahead[1];
      auto scaled = gradient * factors();
      const auto mean_of = [&](const RegisterBase& terms) {
        return sum(terms, {.axis = 1, .keep = true}) * share;
      };
      auto squares = mean_of(value * value), products = mean_of(scaled * value);
      RegisterTensor scale = rsqrt(squares + epsilon);
      auto normal = value * scale;
      if (has_parts) part->add_product(gradient, normal);
      if (has_dx) {
        RegisterTensor along = -products * scale;
        store_global(dx.view(shape, at.matrix), (fma(normal, along, scaled) * scale).to(dx.dtype),
                     {at.row, 0});
      }
    }
    if (has_parts) part->store(shape, parts_ptr);
  }
};

}  // namespace kernels
}  // namespace imbrex
