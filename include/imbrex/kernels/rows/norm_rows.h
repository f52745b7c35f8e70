// SPDX-License-Identifier: Apache-2.0
// Layer normalisation of rows of any length, forward and backward. (layer_norm.h has the simplest form.)
#pragma once

#include "imbrex/kernels/rows/flat_tile.h"
#include "imbrex/kernels/rows/persistent_rows.h"

namespace imbrex::kernels {

/// Elements of `values` less `mean`, zero beyond the row: there a row was loaded as 0, which would add mean^2 to the
/// variance.
inline RegisterValue centred_rows(const RowTile& tile, const RegisterBase& values, const RegisterBase& mean,
                                  const ScalarArg& column) {
  return select(tile.in_row(column), values - mean, 0.0f);
}

struct LayerNormRows {
  int thread_bytes = 64;  // of x, per thread

  static auto space() { return Space<LayerNormRows>().choose<&LayerNormRows::thread_bytes>({64, 32, 128}); }

  /// y[i, :] = (x[i, :] - mean) / sqrt(variance + epsilon) * weight + bias. `is_whole`: a row has no more columns than a
  /// tile; `is_full`: it has as many.
  void operator()(RowShape shape, bool is_whole, bool is_full, Float32 epsilon, RowOperand x,
                  ColumnOperand weight, ColumnOperand bias, RowOperand y) const {
    const RowTile tile(shape, x.dtype.bytes(), is_whole, thread_bytes);
    const RowPlace at = tile.place_of_cta();
    TileRows values(tile, x, at);
    RegisterTensor mean =
        sum_of_rows(tile, [&](const ScalarArg& column) { return values.at(column); }) / shape.columns();
    auto squares = sum_of_rows(tile, [&](const ScalarArg& column) {
      const RegisterValue centred =
          is_full ? values.at(column) - mean : centred_rows(tile, values.at(column), mean, column);
      return centred * centred;
    });
    RegisterTensor scale = rsqrt(squares / shape.columns() + epsilon);
    tile.each_part([&](const ScalarArg& column) {
      auto scaled = (values.at(column) - mean) * scale * weight.load(shape, column, tile.columns) +
                    bias.load(shape, column, tile.columns);
      store_tile(tile, y, at, column, scaled);
    });
  }
};

/// dx, and each CTA's parts of dweight and dbias, which SumsOfParts adds up. `kOverlaps`: these begin while it ends.
template <bool kOverlaps>
struct LayerNormBackwardOf {
  static constexpr const char* target = kOverlaps ? "sm_90" : "sm_80";
  int thread_bytes = 32;  // of x, per thread

  static auto space() {
    return Space<LayerNormBackwardOf>().template choose<&LayerNormBackwardOf::thread_bytes>({32, 16});
  }

  /// weight_parts[ctas, columns] and bias_parts = the sums of dy * normal and of dy over the rows that a CTA has; normal =
  /// (x - mean) / sqrt(variance + epsilon). Rows are whole; `is_full`: as wide as the tile.
  /// `late_ctas`: of the CTAs, see PersistentRows.
  /// `room`: bytes of a multiprocessor's shared memory for tiles that are loaded ahead. `is_one_matrix`: shape.matrices is 1.
  void operator()(RowShape shape, bool is_one_matrix, bool is_full, Int32 ctas, Int32 late_ctas, int room,
                  Float32 epsilon, RowOperand dy, RowOperand x, ColumnOperand weight, bool has_dx,
                  RowOperand dx, bool has_weight_parts, Ptr<float32> weight_parts_ptr, bool has_bias_parts,
                  Ptr<float32> bias_parts_ptr) const {
    grid(ctas);
    const PersistentRows rows(shape, is_one_matrix, x.dtype.bytes(),
                              std::max(x.dtype.bytes(), dy.dtype.bytes()), thread_bytes, late_ctas);
    if (kOverlaps) griddepcontrol::launch_dependents();
    std::optional<ColumnSum> weight_part, bias_part;
    if (has_weight_parts) weight_part.emplace(rows);
    if (has_bias_parts) bias_part.emplace(rows);
    AheadRows ahead(rows, {&x, &dy}, room);
    RowSums sums(rows, 4);
    const ColumnFactors factors(weight, rows);
    Float32 share = 1.0f / cast<float32>(shape.columns());
    // Sums are of what a row's numbers are above the mean of its first ones, so that little is lost where the mean of all is
    // taken from them afterwards. The same in all threads of the row.
    Float32 first_share = 1.0f / cast<float32>(min(shape.columns(), PersistentRows::kLeastColumns));
    RegisterTensor next_pivot = zeros(float32, {rows.tile_rows(), 1}), pivot = next_pivot;
    const auto prepare = [&](const ScalarArg& i, bool is_next) {
      std::vector<RegisterTensor> terms;  // above, above^2, dy * weight, dy * weight * above
      next_pivot = sum(ahead.least_columns(0, i, is_next), {.axis = 1, .keep = true}) * first_share;
      for (int s = 0; s < rows.slabs(); ++s) {
        auto difference = ahead.slab(0, s, i, is_next) - next_pivot, gradient = ahead.slab(1, s, i, is_next);
        RegisterTensor above = difference;
        if (!is_full) {
          const Expr end = shape.columns() - s * rows.slab_columns();
          auto in_row =
              register_tensor(boolean, {1, rows.slab_columns()}, [&](auto, auto j) { return j < end; });
          above = select(in_row, difference, 0.0f);
        }
        auto weighted = gradient * factors.slab(s);
        add_terms(terms, {{above, {}}, {above, above}, {weighted, {}}, {weighted, above}});
      }
      sums.put(terms);
    };
    ahead.begin();
    prepare(rows.first(), false);
    sums.advance();
    pivot = next_pivot;
    for (Int32 i : range(rows.first(), rows.end(), rows.step())) {
      ahead.advance(i);
      if (auto is_there = when(i + rows.step() < rows.end())) prepare(i + rows.step(), true);
      const RowPlace at = rows.place(i);
      const std::vector<RegisterTensor> of_row = sums.get();
      RegisterTensor above = of_row[0] * share, shift = of_row[2] * share;
      RegisterTensor mean = pivot + above;
      RegisterTensor scale = rsqrt(of_row[1] * share - above * above + epsilon);
      RegisterTensor along = (above * shift - of_row[3] * share) * scale * scale * scale;
      for (int s = 0; s < rows.slabs(); ++s) {
        auto gradient = ahead.slab(1, s, i, false), centred = ahead.slab(0, s, i, false) - mean;
        if (has_weight_parts) weight_part->add_product(s, gradient, centred * scale);
        if (has_bias_parts) bias_part->add(s, gradient);
        if (has_dx) {
          // Products of float32 are rounded in the sums, too: of a single column nothing is left.
          auto less_shift = dy.dtype == float32 || weight.dtype == float32
                                ? gradient * factors.slab(s) - shift
                                : fma(gradient, factors.slab(s), -shift);
          store_global(dx.view(shape, at.matrix), fma(less_shift, scale, centred * along).to(dx.dtype),
                       {at.row, s * rows.slab_columns()});
        }
      }
      sums.advance();
      pivot = next_pivot;
      ahead.end();
    }
    if (has_weight_parts) weight_part->store(weight_parts_ptr);
    if (has_bias_parts) bias_part->store(bias_parts_ptr);
  }
};

using LayerNormBackward = LayerNormBackwardOf<false>;
using HopperLayerNormBackward = LayerNormBackwardOf<true>;

/// The same of rows that are too wide for registers.
struct WideLayerNormBackward {
  int thread_bytes = 32;  // of x, per thread

  void operator()(RowShape shape, bool is_full, Int32 ctas, Float32 epsilon, RowOperand dy, RowOperand x,
                  ColumnOperand weight, bool has_dx, RowOperand dx, bool has_weight_parts,
                  Ptr<float32> weight_parts_ptr, bool has_bias_parts, Ptr<float32> bias_parts_ptr) const {
    const WideRows rows(shape, ctas, x.dtype.bytes(), thread_bytes);
    std::optional<SharedTensor> weight_part, bias_part;
    if (has_weight_parts) weight_part.emplace(rows.sum_of_columns());
    if (has_bias_parts) bias_part.emplace(rows.sum_of_columns());
    Float32 share = 1.0f / cast<float32>(shape.columns());
    for (Int32 i : range(block_idx.x, rows.count(), grid_dim.x)) {
      const RowPlace at = rows.place(i);
      auto value = rows.load(x, at);
      const auto mean_of = [&](const RegisterBase& terms) {
        return sum(terms, {.axis = 1, .keep = true}) * share;
      };
      RegisterTensor mean = mean_of(value);
      RegisterTensor centred =
          is_full ? RegisterTensor(value - mean) : RegisterTensor(centred_rows(rows.tile(), value, mean, 0));
      RegisterTensor scale = rsqrt(mean_of(centred * centred) + epsilon);
      auto normal = centred * scale, gradient = rows.load(dy, at);
      if (has_weight_parts) WideRows::add(*weight_part, gradient * normal);
      if (has_bias_parts) WideRows::add(*bias_part, gradient);
      if (has_dx) {
        auto scaled = gradient * rows.load(weight);
        RegisterTensor along = -mean_of(scaled * normal), shift = mean_of(scaled);
        store_global(dx.view(shape, at.matrix), (fma(normal, along, scaled - shift) * scale).to(dx.dtype),
                     {at.row, 0});
      }
    }
    if (has_weight_parts) rows.store(*weight_part, weight_parts_ptr);
    if (has_bias_parts) rows.store(*bias_part, bias_parts_ptr);
  }
};

}  // namespace imbrex::kernels
