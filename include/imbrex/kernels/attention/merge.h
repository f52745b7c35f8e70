// SPDX-License-Identifier: Apache-2.0
// The result of attention from those of parts of its columns: their mean, weighted by their sums of weights.
#pragma once

#include <limits>

#include "imbrex/kernels/attention/head_strides.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

struct MergeAttention {
  static constexpr const char* target = "sm_90a";
  int block_parts = 16, num_warps = 4;

  static auto space() {
    return Space<MergeAttention>().choose<&MergeAttention::block_parts, &MergeAttention::num_warps>(
        {{16, 4}, {32, 4}, {8, 4}, {64, 8}});
  }

  /// O is [batches, heads, q_size, head_size], of `dtype`; partial [parts, batches, heads, q_size, head_size] and log_sum
  /// without the last dimension, as DecodeAttention leaves them. The logarithms of the sums of all go to
  /// `all_log_sum` if `wants_log_sum`.
  void operator()(Int32 batches, Int32 heads, Int32 q_size, Int32 parts, int head_size, DataType dtype,
                  bool wants_log_sum, Ptr<float32> partial_ptr, Ptr<float32> log_sum_ptr, Ptr<> o_ptr,
                  HeadStrides o_strides, Ptr<float32> all_log_sum_ptr) const {
    grid(q_size, heads, batches);
    warps(num_warps);
    griddepcontrol::wait();
    griddepcontrol::launch_dependents();
    Int32 i = block_idx.x, head = block_idx.y, batch = block_idx.z;
    Int32 row = (batch * heads + head) * q_size + i, rows = batches * heads * q_size;
    auto g_partial = global_view(partial_ptr, {parts, rows, head_size});
    auto g_log_sum = global_view(log_sum_ptr, {parts, rows});
    constexpr float kNone = -std::numeric_limits<float>::infinity();

    RegisterTensor sum_here = zeros(float32, {1, head_size});
    Float32 largest = -1e30f, total = 0.f;
    for (Int32 part : range(0, parts, block_parts)) {
      auto logs = load_global(g_log_sum, {part, row}, {block_parts, 1}, {.other = kNone});
      auto values = load_global(g_partial, {part, row, 0}, {block_parts, head_size}, {.dims = {0, 2}});
      Float32 larger = max(largest, max(logs));
      Float32 shrink = exp(largest - larger);
      auto weights = exp(logs - larger);
      total = total * shrink + sum(weights);
      sum_here = sum_here * shrink + sum(weights * values, {.axis = 0, .keep = true});
      largest = larger;
    }
    auto inverse = select(total > 0, 1 / total, 0);
    auto g_o = o_strides.view(o_ptr, dtype, batches, heads, q_size, head_size);
    store_global(g_o[batch][head], (sum_here * inverse).to(dtype), {i, 0});
    if (wants_log_sum) {
      auto g_all = global_view(all_log_sum_ptr, {rows});
      store_global(g_all, full(float32, {1}, select(total > 0, largest + log(total), kNone)), {row});
    }
  }
};

}  // namespace imbrex::kernels
