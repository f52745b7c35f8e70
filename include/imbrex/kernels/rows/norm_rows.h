// SPDX-License-Identifier: Apache-2.0
// Layer normalisation of rows of any length, forward and backward. (layer_norm.h has the simplest form.)
#pragma once

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
  /// tile.
  void operator()(RowShape shape, bool is_whole, Float32 epsilon, RowOperand x, ColumnOperand weight,
                  ColumnOperand bias, RowOperand y) const {
    const RowTile tile(shape, x.dtype.bytes(), is_whole, thread_bytes);
    const auto [row, matrix] = tile.place_of_cta();
    const TileRows values(tile, x.view(shape, matrix), row);
    RegisterTensor mean =
        sum_of_rows(tile, [&](const ScalarArg& column) { return values.at(column); }) / shape.columns();
    auto squares = sum_of_rows(tile, [&](const ScalarArg& column) {
      auto centred = centred_rows(tile, values.at(column), mean, column);
      return centred * centred;
    });
    RegisterTensor scale = rsqrt(squares / shape.columns() + epsilon);
    auto g_y = y.view(shape, matrix);
    tile.each_part([&, &row = row](const ScalarArg& column) {
      auto scaled = (values.at(column) - mean) * scale * weight.load(shape, column, tile.columns) +
                    bias.load(shape, column, tile.columns);
      store_global(g_y, scaled.to(y.dtype), {row, column});
    });
  }
};

/// dx, and each CTA's parts of dweight and dbias, which SumOfParts adds up.
struct LayerNormBackward {
  int thread_bytes = 32;  // of x, per thread

  static auto space() {
    return Space<LayerNormBackward>().choose<&LayerNormBackward::thread_bytes>({32, 16});
  }

  /// weight_parts[ctas, columns] and bias_parts = the sums of dy * normal and of dy over the rows that a CTA has; normal =
  /// (x - mean) / sqrt(variance + epsilon). Rows are whole; `is_full`: as wide as the tile.
  void operator()(RowShape shape, bool is_full, Int32 ctas, Float32 epsilon, RowOperand dy, RowOperand x,
                  ColumnOperand weight, bool has_dx, RowOperand dx, bool has_weight_parts,
                  Ptr<float32> weight_parts_ptr, bool has_bias_parts, Ptr<float32> bias_parts_ptr) const {
    const RowTile tile = PersistentRows::tile(shape, x.dtype.bytes(), thread_bytes);
    grid(ctas);
    const PersistentRows rows(tile, shape);
    std::optional<ColumnSum> weight_part, bias_part;
    if (has_weight_parts) weight_part.emplace(tile);
    if (has_bias_parts) bias_part.emplace(tile);
    AheadRows ahead(rows, {&x, &dy});
    const ColumnFactors factors(weight, tile, shape);
    Float32 share = 1.0f / cast<float32>(shape.columns());
    for (Int32 i : range(block_idx.x, rows.count(), grid_dim.x)) {
      const RowPlace at = rows.place(i);
      ahead.take(i);
      auto value = ahead[0];
      const auto mean_of = [&](const RegisterBase& terms) {
        return sum(terms, {.axis = 1, .keep = true}) * share;
      };
      RegisterTensor mean = mean_of(value);
      RegisterTensor centred =
          is_full ? RegisterTensor(value - mean) : RegisterTensor(centred_rows(tile, value, mean, 0));
      RegisterTensor scale = rsqrt(mean_of(centred * centred) + epsilon);
      auto normal = centred * scale, gradient = ahead[1];
      if (has_weight_parts) weight_part->add_product(gradient, normal);
      if (has_bias_parts) bias_part->add(gradient);
      if (has_dx) {
        auto scaled = gradient * factors();
        RegisterTensor along = -mean_of(scaled * normal), shift = mean_of(scaled);
        store_global(dx.view(shape, at.matrix), (fma(normal, along, scaled - shift) * scale).to(dx.dtype),
                     {at.row, 0});
      }
    }
    if (has_weight_parts) weight_part->store(shape, weight_parts_ptr);
    if (has_bias_parts) bias_part->store(shape, bias_parts_ptr);
  }
};

}  // namespace imbrex::kernels
