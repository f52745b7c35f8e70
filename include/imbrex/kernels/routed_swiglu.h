// SPDX-License-Identifier: Apache-2.0
// Between the two products of a mixture of experts: SwiGLU of the rows that tokens were copied to, times the weight that the
// router gave the token there, as float8 with a scale for every 128 columns. Bound by reading the rows once.
#pragma once

#include "imbrex/kernels/parts/steps/activations.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

struct RoutedSwiglu {
  static constexpr const char* target = "sm_89";
  static constexpr int kBlock = 128;      // columns that share a scale
  static constexpr float kLargest = 448;  // of float8_e4m3
  int blocks = 8, num_warps = 4;

  static auto space() {
    return Space<RoutedSwiglu>().choose<&RoutedSwiglu::blocks, &RoutedSwiglu::num_warps>(
        {{8, 4}, {4, 2}, {16, 4}, {4, 4}, {16, 8}, {2, 1}, {8, 2}, {16, 2}, {32, 8}});
  }

  /// y[i, j] = g / (1 + exp(-g)) * u * weights[choice[i]] / scales[i, j / 128], with g = x[i, j] and u = x[i, width + j].
  /// x [rows, 2 * width] of `dtype`, y [rows, width], scales [rows, width / 128]: the largest magnitude of a block is 448 in
  /// y, and the scale of a block of zeros 1. width is a multiple of 128.
  ///
  /// `choice` has for each row the number of the token's choice of an expert among weights [choices], or a negative number for
  /// weight 1; `expert` the row's expert: rows where it is negative hold no token, and are neither read nor written. With
  /// has_limit, g is at most `limit` and u lies between -limit and limit.
  void operator()(Int32 rows, int width, Int32 choices, bool has_limit, Float32 limit, DataType dtype,
                  Ptr<> x_ptr, Ptr<int32> expert_ptr, Ptr<int32> choice_ptr, Ptr<float32> weights_ptr,
                  Ptr<float8_e4m3> y_ptr, Ptr<float32> scales_ptr) const {
    require(width % kBlock == 0, "width {} is not a multiple of {}", width, kBlock);
    grid(cdiv(width, blocks * kBlock), rows);
    warps(num_warps);
    Int32 block = blocks * block_idx.x, row = block_idx.y;
    // Three loads deep at most: of the expert and the choice, of the row and its weight.
    Int32 expert = global_view(expert_ptr, {rows})[row], choice = global_view(choice_ptr, {rows})[row];
    if (auto none = when(expert < 0)) return_();

    auto g_x = global_view(x_ptr, dtype, {rows, 2, width / kBlock, kBlock})[row];
    const auto half = [&](int which) { return load_global(g_x[which], {block, 0}, {blocks, kBlock}); };
    auto loaded_gate = half(0), loaded_up = half(1);
    Float32 weight = 1;
    if (auto has = when(choice >= 0)) weight = global_view(weights_ptr, {choices})[choice];
    RegisterTensor gate = loaded_gate.to(float32), up = loaded_up.to(float32);
    if (has_limit) {
      gate = min(gate, limit);
      up = max(min(up, limit), -limit);
    }
    auto value = Silu()(gate, OutputTile{0, 0, float32, 0, 0}) * up * weight;
    auto largest = max(abs(value), {.axis = 1, .keep = true});
    auto scaled = value * select(largest > 0.0f, kLargest / largest, 1.0f);
    store_global(global_view(y_ptr, {rows, width / kBlock, kBlock})[row], scaled.to(float8_e4m3), {block, 0});
    store_global(global_view(scales_ptr, {rows, width / kBlock})[row],
                 select(largest > 0.0f, largest * (1 / kLargest), 1.0f).reshape({blocks}), {block});
  }
};

}  // namespace imbrex::kernels
