// SPDX-License-Identifier: Apache-2.0
// A kernel in the shape of the later matmuls: helper objects, warp roles, a ring of stages, tile order by
// fast_divmod.
#pragma once

#include "imbrex/lang.h"

namespace imbrex::testing {

/// A helper object: an ordinary struct whose members are run-time variables.
struct Pipeline {
  int stages;
  BarrierArray empty = mbarrier::alloc(std::vector<int64_t>(stages, 1));
  BarrierArray full = mbarrier::alloc(std::vector<int64_t>(stages, 1));
  Int32 producer_stage = 0;
  Int32 consumer_stage = 0;
  UInt32 producer_phase = mbarrier::producer_initial_phase;
  UInt32 consumer_phase = mbarrier::consumer_initial_phase;

  void producer_acquire() { mbarrier::wait(empty[producer_stage], producer_phase, {.sem = Sem::kRelaxed}); }
  Barrier producer_barrier() { return full[producer_stage]; }
  void producer_advance() {
    producer_stage = (producer_stage + 1) % stages;
    producer_phase ^= producer_stage == 0;
  }
  void consumer_acquire() { mbarrier::wait(full[consumer_stage], consumer_phase, {.sem = Sem::kRelaxed}); }
  Barrier consumer_barrier() { return empty[consumer_stage]; }
  void consumer_advance() {
    consumer_stage = (consumer_stage + 1) % stages;
    consumer_phase ^= consumer_stage == 0;
  }
};

/// Two warps and a ring between them, and the tile order of the later steps of the ladder.
struct Specialised {
  int stages = 3, swizzle = 4;

  Divmod block_of(const Int32& index, const Expr& m_blocks, int n_blocks) const {
    auto [group, in_group] = fast_divmod(index, m_blocks * swizzle);
    Int32 first_n = group * swizzle;
    Int32 m_block = 0, n_block = 0;
    const int last_width = n_blocks % swizzle > 0 ? n_blocks % swizzle : swizzle;
    if (auto arm = when(first_n + swizzle <= n_blocks)) {
      auto [row, column] = fast_divmod(in_group, swizzle);
      m_block = row;
      n_block = first_n + column;
    }
    if (auto arm = otherwise()) {
      auto [row, column] = fast_divmod(in_group, last_width);
      m_block = row;
      n_block = first_n + column;
    }
    return {m_block + 0, n_block + 0};
  }

  void operator()(Int32 m_size, int n_size, int k_size) const {
    auto m_blocks = cdiv(m_size, 128);
    const int n_blocks = cdiv(n_size, 128);
    grid(m_blocks * n_blocks);
    auto [m_block, n_block] = block_of(block_idx.x, m_blocks, n_blocks);
    auto ring = shared_tensor(float16, {stages, 64});
    Pipeline pipe{stages};
    sync();
    if (auto warp = thread_group(0, 32)) {
      for (Int32 offset_k : range(0, k_size, 64, {.unroll = stages})) {
        pipe.producer_acquire();
        store_shared(ring[pipe.producer_stage], full(float16, {64}, offset_k + m_block));
        if (auto thread = single_thread()) mbarrier::arrive(pipe.producer_barrier());
        pipe.producer_advance();
      }
    }
    if (auto warp = thread_group(32, 32)) {
      for (Int32 offset_k : range(0, k_size, 64, {.unroll = stages})) {
        pipe.consumer_acquire();
        print_tensor(load_shared(ring[pipe.consumer_stage]) + n_block.to(float16));
        if (auto thread = single_thread(offset_k.dtype().bytes())) mbarrier::arrive(pipe.consumer_barrier());
        pipe.consumer_advance();
      }
    }
  }
};

}  // namespace imbrex::testing
