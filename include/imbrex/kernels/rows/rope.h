// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding.
#pragma once

#include "imbrex/kernels/rows/row_tile.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

struct RopeOptions {
  bool interleaved = false;  ///< pairs are elements 2i and 2i + 1; else i and i + d / 2
  bool inverse = false;      ///< rotates back: the gradient of the rotation
  DeviceTensor positions;  ///< [tokens], int32, dense: each token's row of the table; null: token t has row t
  Stream stream;
};

/// Rotates the d elements of each head by the angles of its token's position:
///
///   y[t, h, i] = x[t, h, i] cos - x[t, h, j] sin,   y[t, h, j] = x[t, h, j] cos + x[t, h, i] sin
///
/// for each pair (i, j), with cos and sin [positions, d / 2], float32, dense. x and y [tokens, heads, d], float16,
/// bfloat16 or float32, d even and at most 1024; elements of a head are neighbours in memory, the other strides may be
/// any. y may be x. Positions must be rows of the table: that is not tested on a GPU. Otherwise as rms_norm().
LaunchReport rope(const DeviceTensor& x, const DeviceTensor& cos, const DeviceTensor& sin,
                  const DeviceTensor& y, const RopeOptions& options = {},
                  SourceLocation where = SourceLocation::current());

namespace kernels {

struct Rope {
  int thread_bytes = 32;  // of x, per thread
  int tiles = 4;  // of heads that a CTA turns one after the other by the same angles, which it reads once

  static auto space() {
    return Space<Rope>().choose<&Rope::thread_bytes, &Rope::tiles>({{32, 4}, {32, 1}, {16, 4}, {64, 2}});
  }

  /// `tokens` of `heads`, each of 2 * half_units * half_unit elements; tiles are of tile_half pairs.
  void operator()(Int32 tokens, Int32 heads, Int32 half_units, int half_unit, int tile_half, DataType dtype,
                  Ptr<> x_ptr, MatrixStrides x_strides, Ptr<float32> cos_ptr, Ptr<float32> sin_ptr,
                  Int32 table_rows, bool has_positions, Ptr<int32> positions_ptr, Ptr<> y_ptr,
                  MatrixStrides y_strides, bool interleaved, bool inverse) const {
    constexpr int kThreads = 128;
    warps(kThreads / 32);
    const int rows =
        std::max(1, kThreads * (thread_bytes / dtype.bytes()) / (2 * tile_half));  // heads of a tile
    auto half = half_units * half_unit;
    const int cta_heads = rows * tiles;
    grid(tokens, cdiv(heads, cta_heads));
    Int32 token = block_idx.x, first_head = block_idx.y * cta_heads;
    Int32 position = token;
    if (has_positions) position = global_view(positions_ptr, {tokens})[token];
    const auto table = [&](const Ptr<float32>& pointer) {
      return load_global(global_view(pointer, {table_rows, half}), {position, 0}, {1, tile_half});
    };
    auto cos = table(cos_ptr);
    auto sin = table(sin_ptr) * (inverse ? -1.0f : 1.0f);
    const auto view = [&](const Ptr<>& pointer, const MatrixStrides& strides) {
      return strides.view(pointer, dtype, tokens, heads, half * 2)[token];
    };
    auto g_x = view(x_ptr, x_strides), g_y = view(y_ptr, y_strides);
    const auto halves = [&](const Ptr<>& pointer, const MatrixStrides& strides) {
      return global_view(pointer, dtype, {tokens, heads, 2, half},
                         {strides.batch * strides.unit, strides.row * strides.unit, half, 1})[token];
    };
    auto h_x = halves(x_ptr, x_strides), h_y = halves(y_ptr, y_strides);
    const auto turn_interleaved = [&](const ScalarArg& head) {
      auto x = load_global(g_x, {head, 0}, {rows, 2 * tile_half}).to(float32).reshape({rows, tile_half, 2});
      const auto part = [&](bool second) {
        auto chosen =
            register_tensor(boolean, {1, 1, 2}, [&](auto, auto, auto i) { return i == (second ? 1 : 0); });
        return sum(select(chosen, x, 0.0f), {.axis = 2, .keep = true});
      };
      auto first = part(false), second = part(true);
      auto c = cos.reshape({1, tile_half, 1}), s = sin.reshape({1, tile_half, 1});
      auto is_second = register_tensor(boolean, {1, 1, 2}, [&](auto, auto, auto i) { return i == 1; });
      auto turned = select(is_second, second * c + first * s, first * c - second * s);
      store_global(g_y, turned.reshape({rows, 2 * tile_half}).to(dtype), {head, 0});
    };
    const auto turn = [&](const ScalarArg& head) {
      if (interleaved) return turn_interleaved(head);
      auto first = load_global(h_x, {head, 0, 0}, {rows, tile_half}, {.dims = {0, 2}}).to(float32);
      auto second = load_global(h_x, {head, 1, 0}, {rows, tile_half}, {.dims = {0, 2}}).to(float32);
      store_global(h_y, (first * cos - second * sin).to(dtype), {head, 0, 0}, {.dims = {0, 2}});
      store_global(h_y, (second * cos + first * sin).to(dtype), {head, 1, 0}, {.dims = {0, 2}});
    };
    if (tiles == 1) return turn(first_head);
    for (Int32 head : range(first_head, min(heads, first_head + cta_heads), rows)) turn(head);
  }
};

}  // namespace kernels
}  // namespace imbrex
