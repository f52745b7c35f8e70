// SPDX-License-Identifier: Apache-2.0
// The gradient of Q from the float32 sums that AttentionGradientAll leaves.
#pragma once

#include "imbrex/kernels/attention/head_strides.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

struct AttentionGradientSums {
  static constexpr const char* target = "sm_90a";
  static constexpr int kRows = 64, kColumns = 8;  // that lie together
  int num_warps = 4;

  static auto space() {
    return Space<AttentionGradientSums>().choose<&AttentionGradientSums::num_warps>({4, 8, 16});
  }

  /// sum_ptr is [batches * heads, blocks of 64 rows, head_size / 8, 64, 8]; dQ, of `dtype`, [batches, heads, q_size, head_size], is
  /// that times `scale`.
  void operator()(Int32 batches, Int32 heads, Int32 q_size, int head_size, float scale, DataType dtype,
                  Ptr<float32> sum_ptr, Ptr<> dq_ptr, HeadStrides dq_strides) const {
    grid(cdiv(q_size, kRows), heads, batches);
    warps(num_warps);
    griddepcontrol::wait();  // the grid before writes the sums
    griddepcontrol::launch_dependents();
    Int32 block = block_idx.x, head = block_idx.y, batch = block_idx.z;
    const int groups = head_size / kColumns;
    auto g_sums = global_view(sum_ptr, {batches * heads, cdiv(q_size, kRows), groups, kRows, kColumns})
                      .permute({0, 1, 3, 2, 4});
    const int unit = 128 / dtype.bits();
    auto g_dq =
        global_view(dq_ptr, dtype, {batches, heads, q_size, groups, kColumns},
                    {dq_strides.batch * unit, dq_strides.head * unit, dq_strides.row * unit, kColumns, 1});
    auto sums = load_global(g_sums[batch * heads + head][block], {0, 0, 0}, {kRows, groups, kColumns});
    store_global(g_dq[batch][head], (sums * scale).to(dtype), {block * kRows, 0, 0});
  }
};

}  // namespace imbrex::kernels
