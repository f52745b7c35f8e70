// SPDX-License-Identifier: Apache-2.0
// Quantising rows to float8, with a scale per row or per 128 columns.
#pragma once

#include "imbrex/kernels/activation.h"
#include "imbrex/kernels/parts/steps/activations.h"
#include "imbrex/kernels/rows/flat_tile.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

struct QuantiseOptions {
  int block = 0;  ///< columns that share a scale: 128, or 0 for all of a row
  /// Like x: what is quantised is activation(gate) * x, which makes SwiGLU and quantising one kernel; null: x itself.
  DeviceTensor gate;
  Activation activation = Activation::kSilu;
  Stream stream;
};

/// q = x / scale in float8_e4m3, with scale = (the largest |x| of the row or block) / 448, and 1 where that is 0. x
/// [rows, columns] or [batch, rows, columns], float16, bfloat16 or float32; q like x, float8_e4m3; scale float32,
/// [rows, blocks] or [batch, rows, blocks] with one block per row or one per 128 columns, of any strides: grouped
/// products take scales whose rows are neighbours, [blocks, rows] transposed. Otherwise as rms_norm().
LaunchReport quantise_float8(const DeviceTensor& x, const DeviceTensor& q, const DeviceTensor& scale,
                             const QuantiseOptions& options = {},
                             SourceLocation where = SourceLocation::current());

namespace kernels {

struct QuantiseRows {
  static constexpr const char* target = "sm_90";  // of those the compiler knows, the first with float8
  static constexpr float kLargest = 448;
  int thread_bytes = 64;  // of x, per thread

  static auto space() { return Space<QuantiseRows>().choose<&QuantiseRows::thread_bytes>({64, 32, 128}); }

  /// Strides of the scales are in elements: from row to row, from block to block, from matrix to matrix. `block`: columns of
  /// a scale; 0: all.
  void operator()(RowShape shape, bool is_whole, int block, RowOperand x, bool has_gate, RowOperand gate,
                  Activation activation, RowOperand q, Ptr<float32> scale_ptr, Int64 scale_row,
                  Int64 scale_block, Int64 scale_matrix) const {
    const RowTile tile(shape, x.dtype.bytes(), is_whole, thread_bytes);
    const RowPlace at = tile.place_of_cta();
    TileRows values(tile, x, at);
    std::optional<TileRows> gates;
    if (has_gate) gates.emplace(tile, gate, at);
    const auto value = [&](const ScalarArg& column) -> RegisterValue {
      if (!has_gate) return values.at(column);
      return Activate{activation}(gates->at(column), OutputTile{0, 0, float32, 0, 0}) * values.at(column);
    };
    const ScalarArg blocks = block == 0 ? ScalarArg(1) : ScalarArg(cdiv(shape.columns(), block));
    auto g_scale = global_view(scale_ptr, {shape.matrices, shape.rows, blocks},
                               {scale_matrix, scale_row, scale_block})[at.matrix];
    if (block > 0) {
      const int width = std::min(block, tile.columns), count = tile.columns / width;
      tile.each_part([&](const ScalarArg& column) {
        auto x_blocks = value(column).reshape({tile.rows, count, width});
        auto largest = max(abs(x_blocks), {.axis = 2, .keep = true});
        auto scaled = x_blocks * select(largest > 0.0f, kLargest / largest, 1.0f);
        store_tile(tile, q, at, column, scaled.reshape({tile.rows, tile.columns}));
        auto scale = select(largest > 0.0f, largest * (1 / kLargest), 1.0f);
        store_global(g_scale, scale.reshape({tile.rows, count}), {at.row, column / block});
      });
      return;
    }
    RegisterTensor largest = zeros(float32, {tile.rows, 1});
    tile.each_part([&](const ScalarArg& column) {
      largest = max(largest, max(abs(value(column)), {.axis = 1, .keep = true}));
    });
    RegisterTensor factor = select(largest > 0.0f, kLargest / largest, 1.0f);
    tile.each_part([&](const ScalarArg& column) { store_tile(tile, q, at, column, value(column) * factor); });
    store_global(g_scale, select(largest > 0.0f, largest * (1 / kLargest), 1.0f), {at.row, 0});
  }
};

}  // namespace kernels
}  // namespace imbrex
