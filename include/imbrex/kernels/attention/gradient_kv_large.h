// SPDX-License-Identifier: Apache-2.0
// The backward pass of attention, gradients of K and V of large heads, of which the registers of one warp group hold one. A CTA has
// 64 rows of K and V, and goes through the rows of Q and of the result's gradient. One warp group computes the weights and the
// gradient of V, and hands the weights on to another one, which computes the gradient of K: each product is computed once, and each of
// the two that sum takes its weights from registers.
#pragma once

#include <optional>

#include "imbrex/kernels/attention/gradient_rows.h"
#include "imbrex/kernels/attention/head_strides.h"
#include "imbrex/kernels/attention/packed_sequences.h"
#include "imbrex/kernels/attention/score_steps.h"
#include "imbrex/kernels/attention/tile_order.h"
#include "imbrex/kernels/parts/kept_numbers.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

template <class... Steps>
struct AttentionGradientKvLarge {
  static constexpr const char* target = "sm_90a";
  static constexpr int kRows = 64;
  int block_q = 32, stages = 4;

  static auto space() {
    using K = AttentionGradientKvLarge;
    return Space<K>().template choose<&K::block_q, &K::stages>({{32, 4}, {64, 3}, {64, 2}});
  }

  /// Sizes and tensors as AttentionGradientKv's.
  void operator()(Int32 batches, Int32 heads_kv, Int32 q_size, Int32 padded, Int32 kv_size, int head_size,
                  int value_size, int group, float scale, DataType dtype, Ptr<> q_ptr, HeadStrides q_strides,
                  Ptr<> k_ptr, HeadStrides k_strides, Ptr<> v_ptr, HeadStrides v_strides, Ptr<> do_ptr,
                  HeadStrides do_strides, Ptr<float32> row_ptr, Ptr<> dk_ptr, HeadStrides dk_strides,
                  Ptr<> dv_ptr, HeadStrides dv_strides, PackedSequences packed,
                  ScoreSteps<Steps...> steps) const {
    for (const int size : {head_size, value_size})
      require(size % 16 == 0 && size <= 256, "heads of {}: a multiple of 16, at most 256", size);
    // Q and the result's gradient of a head.
    auto [block, head_kv, batch] =
        BlockOfHead::enter(packed.blocks(kv_size, kRows), heads_kv, batches,
                           q_size.to(int64) * ((head_size + value_size) * dtype.bits() / 8),
                           steps.masks() ? BlockOfHead::Longest::kFirst : BlockOfHead::Longest::kNone);
    warps(12);
    griddepcontrol::wait();  // the grid before writes what rows need, and may still read what this one writes
    griddepcontrol::launch_dependents();
    Int32 heads = heads_kv * group, sequence = batch + 0;
    SequenceRows sizes{0, q_size, 0, kv_size};
    const bool is_packed = packed.is_packed;
    if (is_packed) packed.enter(block, kRows, true, sequence, sizes);
    Int32 offset_kv = block * kRows, shift = sizes.kv_size - sizes.q_size;

    auto g_q = q_strides.view(q_ptr, dtype, batches, heads, q_size, head_size);
    auto g_do = do_strides.view(do_ptr, dtype, batches, heads, q_size, value_size);
    auto g_k = k_strides.view(k_ptr, dtype, batches, heads_kv, kv_size, head_size);
    auto g_v = v_strides.view(v_ptr, dtype, batches, heads_kv, kv_size, value_size);
    auto g_rows = global_view(row_ptr, {2, batches * heads, padded});
    auto s_k = shared_tensor(dtype, {kRows, head_size});
    auto s_v = shared_tensor(dtype, {kRows, value_size});
    auto s_q = shared_tensor(dtype, {stages, block_q, head_size});
    auto s_do = shared_tensor(dtype, {stages, block_q, value_size});
    auto s_rows = shared_tensor(float32, {stages, 2, 1, block_q});
    // By groups of columns, so that threads store without conflicts.
    auto s_weights =
        shared_tensor(float32, {block_q / 8, kRows, 8}).permute({1, 0, 2}).reshape({kRows, block_q});
    Pipeline pipe(stages, 1, 256);  // every thread reads the rows' numbers
    auto kv_full = mbarrier::alloc(1), weights_full = mbarrier::alloc(128),
         weights_empty = mbarrier::alloc(128);
    Barrier both_read = mbarrier::alloc(256);  // K and V, by the last products
    std::optional<EndOfSequence> ends;
    if (is_packed) ends.emplace(2);
    sync();

    // Rows of Q that see any of these columns.
    Int32 first = 0, last = sizes.q_size - 1;
    steps.narrow_blocks({offset_kv, min(offset_kv + kRows, sizes.kv_size) - 1, sequence}, shift, block_q,
                        first, last);
    if (is_packed) last = select(offset_kv < sizes.kv_size, last, -1);  // no such block of rows
    Int32 blocks = max(last - first + block_q, 0) / block_q * group;
    const KeptNumbers kept(
        is_packed, {&offset_kv, &shift, &head_kv, &batch, &sequence, &first, &last, &blocks, &sizes.q_begin,
                    &sizes.q_size, &sizes.kv_begin, &sizes.kv_size});
    const auto advance = [&](Int32& head, Int32& row) {
      row += block_q;
      if (group == 1) return;
      head += select(row > last, 1, 0);
      row = select(row > last, first, row);
    };

    // Rows that are no multiple of a swizzle's 128 bytes: each load of them is many, for which the producer needs registers.
    const bool loads_by_many = head_size % 64 != 0 || value_size % 64 != 0;

    if (auto producer = warp_group(0, 4)) {
      setmaxnreg(loads_by_many ? 40 : 24);
      if (auto warp = single_warp()) {
        kept.reload();
        if (auto thread = single_thread())
          mbarrier::arrive_and_expect_tx(kv_full, s_k.nbytes() + s_v.nbytes());
        tma::global_to_shared(g_k, s_k, {batch, head_kv, sizes.kv_begin + offset_kv, 0}, kv_full);
        tma::global_to_shared(g_v, s_v, {batch, head_kv, sizes.kv_begin + offset_kv, 0}, kv_full);
        Int32 begin_of_rows = 0;
        if (is_packed)
          begin_of_rows = packed.begin_of_blocks(sizes.q_begin, sequence, AttentionGradientRows::kPackedRows);
        Int32 head = head_kv * group, row = first + 0;
        for (Int32 i : range(blocks)) {
          (void)i;
          pipe.producer_acquire();
          auto q = s_q[pipe.producer_stage], d_o = s_do[pipe.producer_stage];
          auto rows = s_rows[pipe.producer_stage];
          Barrier full = pipe.producer_barrier();
          if (auto thread = single_thread())
            mbarrier::arrive_and_expect_tx(full, q.nbytes() + d_o.nbytes() + rows.nbytes());
          tma::global_to_shared(g_q, q, {batch, head, sizes.q_begin + row, 0}, full);
          tma::global_to_shared(g_do, d_o, {batch, head, sizes.q_begin + row, 0}, full);
          for (int which = 0; which < 2; ++which)
            tma::global_to_shared(g_rows, rows[which], {which, batch * heads + head, begin_of_rows + row},
                                  full);
          pipe.producer_advance();
          advance(head, row);
        }
      }
    }

    Int32 next = 0;  // the stage of the scores, one ahead of that of the sums
    UInt32 next_phase = mbarrier::consumer_initial_phase, cleared_phase = mbarrier::consumer_initial_phase;
    // What begins with the next block's product, whose first row is `row`. `part`: 0 and 1 for the two warp groups.
    const auto start = [&](int part, const SharedTensor& own, const SharedTensor& of_q,
                           RegisterTensor& product, const Int32& row) {
      mbarrier::wait(pipe.full_barriers[next], next_phase);
      if (is_packed) {
        if (auto edge = when(row + block_q > sizes.q_size))
          ends->clear(sizes.q_size - row, {s_q[next], s_do[next]}, part, cleared_phase,
                      [&](const Int32& of) { AttentionGradientRows::clear(s_rows[next], of); });
      }
      wgmma::fence();
      wgmma::mma(own, of_q[next].transpose(), product, {.scale_d = false});
      wgmma::commit_group();
      next = select(next == stages - 1, 0, next + 1);
      next_phase ^= next == 0;
    };
    const auto add = [&](const RegisterTensor& weights, const SharedTensor& of_q, RegisterTensor& sum) {
      wgmma::fence();
      wgmma::mma(weights, of_q[pipe.consumer_stage], sum, {.scale_d = true});
      wgmma::commit_group();
    };
    const auto release = [&] {
      mbarrier::arrive(pipe.consumer_barrier());
      pipe.consumer_advance();
    };
    // Adds up blocks: what `find` makes of the product `own` x `of_q` of a block, times `of_sum`. The sums are one block behind, so
    // that the tensor core has them to do meanwhile. `row`, from which on a block has them, and `head` go through the blocks.
    const auto sum_blocks = [&](int part, const SharedTensor& own, const SharedTensor& of_q,
                                RegisterTensor& product, const auto& find, const SharedTensor& of_sum,
                                RegisterTensor& sum, Int32& head, Int32& row) {
      RegisterTensor factors = zeros(dtype, {kRows, block_q});
      mbarrier::wait(kv_full, 0);
      if (auto some = when(blocks > 0)) {
        auto rows = s_rows[next];
        start(part, own, of_q, product, row);
        wgmma::wait_group(0);
        find(rows);
        factors = product;
        for (Int32 i : range(1, blocks)) {
          (void)i;
          advance(head, row);
          auto rows = s_rows[next];
          start(part, own, of_q, product, row);
          add(factors, of_sum, sum);  // of the block before
          wgmma::wait_group(1);
          find(rows);
          wgmma::wait_group(0);
          release();
          factors = product;
        }
        add(factors, of_sum, sum);
        wgmma::wait_group(0);
        release();
      }
    };
    // The sum goes to memory by way of the place of K, or of V, when neither is read any more.
    const auto store = [&](const SharedTensor& place, const RegisterValue& sum, const Ptr<>& pointer,
                           const HeadStrides& strides, int size) {
      kept.reload();
      auto g = strides.view(pointer, dtype, batches, heads_kv, kv_size, size);
      mbarrier::arrive(both_read);
      mbarrier::wait(both_read, 0);
      const auto store_whole = [&] {
        store_shared(place, sum);
        fence::proxy_async();
        sync();
        if (auto warp = single_warp()) {
          tma::shared_to_global(place, g, {batch, head_kv, sizes.kv_begin + offset_kv, 0});
          tma::commit_group();
          tma::wait_group(0, {.read = true});
        }
      };
      if (!is_packed) return store_whole();
      if (auto whole = when(offset_kv + kRows <= sizes.kv_size)) store_whole();
      if (auto end_of_sequence = otherwise()) {
        auto row = register_tensor(int32, {kRows, 1}, [&](auto r, auto) { return offset_kv + r; });
        scatter(g, sum, {batch, head_kv, row + sizes.kv_begin, 0}, {.mask = row < sizes.kv_size});
      }
    };

    if (auto of_v = warp_group(4, 4)) {
      setmaxnreg(loads_by_many ? 232 : 240);
      kept.reload();
      RegisterTensor dv = zeros(float32, {kRows, value_size});
      auto scores = wgmma::accumulator(float32, {kRows, block_q});
      UInt32 empty_phase = mbarrier::producer_initial_phase;
      Int32 head = head_kv * group, row = first + 0;
      const auto weigh = [&](const SharedTensor& rows) {
        const ScoreTile at = transposed_score_tile(block_q, row, shift, kRows, offset_kv, head, sequence);
        const float factor = (steps.changes() ? 1 : scale) * 1.44269504f;
        RegisterTensor slope = full(float32, {kRows, block_q}, 1);
        if (steps.changes()) scores = scores * scale;
        if (steps.has_slopes())
          steps.change_with_slopes(scores, slope, at);
        else
          steps.change(scores, at);
        if (steps.masks()) {
          auto is_edge = steps.is_edge(
              {row + shift, row + (block_q - 1) + shift, offset_kv, offset_kv + (kRows - 1), sequence});
          if (auto edge = when(is_edge)) steps.mask_seen(scores, at);
        }
        // Rows of K beyond the end have gradients that nobody stores.
        scores = exp2(fma(scores, factor, -load_shared(rows[0])));  // now weights
        mbarrier::wait(weights_empty, empty_phase);
        empty_phase ^= 1;
        if (steps.has_slopes())
          store_shared(s_weights, scores * slope);
        else
          store_shared(s_weights, scores);
        mbarrier::arrive(weights_full);
      };
      sum_blocks(0, s_k, s_q, scores, weigh, s_do, dv, head, row);
      store(s_v, dv.to(dtype), dv_ptr, dv_strides, value_size);
    }

    if (auto of_k = warp_group(8, 4)) {
      setmaxnreg(loads_by_many ? 232 : 240);
      kept.reload();
      RegisterTensor dk = zeros(float32, {kRows, head_size});
      auto along = wgmma::accumulator(float32, {kRows, block_q});
      UInt32 full_phase = mbarrier::consumer_initial_phase;
      Int32 head = head_kv * group, row = first + 0;
      const auto find_slopes = [&](const SharedTensor& rows) {
        along = along - load_shared(rows[1]);
        mbarrier::wait(weights_full, full_phase);
        full_phase ^= 1;
        along = along * load_shared(s_weights);  // now slopes
        mbarrier::arrive(weights_empty);
      };
      sum_blocks(1, s_v, s_do, along, find_slopes, s_q, dk, head, row);
      store(s_k, (dk * scale).to(dtype), dk_ptr, dk_strides, head_size);
    }
  }
};

}  // namespace imbrex::kernels
