// SPDX-License-Identifier: Apache-2.0
// The backward pass of attention, the gradient of Q: a CTA has rows of Q and goes through the columns that they see.
#pragma once

#include <algorithm>
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
struct AttentionGradientQ {
  static constexpr const char* target = "sm_90a";
  static constexpr int kRows = 64;
  int block_kv = 64, stages = 3;
  bool one_value =
      false;  // one stage of V, which one product reads, however many of K: room for blocks of large heads
  int consumers =
      2;  // warp groups with kRows each; 3, with 160 registers per thread, for heads of at most 64
  /// Begins while AttentionGradientKv, the grid before, ends: that one has waited for all that this one reads. So its last CTAs do
  /// not leave multiprocessors idle.
  bool overlaps = false;

  static auto space() {
    return Space<AttentionGradientQ>()
        .template choose<&AttentionGradientQ::block_kv, &AttentionGradientQ::stages,
                         &AttentionGradientQ::consumers>(
            {{64, 3, 2}, {64, 2, 2}, {48, 2, 2}, {32, 2, 2}, {128, 2, 2}, {64, 4, 3}})
        .template choose<&AttentionGradientQ::one_value>({false, true});
  }

  /// Sizes and tensors as AttentionGradientKv's; dQ is like Q.
  void operator()(Int32 batches, Int32 heads, Int32 q_size, Int32 padded, Int32 kv_size, int head_size,
                  int value_size, int group, float scale, DataType dtype, Ptr<> q_ptr, HeadStrides q_strides,
                  Ptr<> k_ptr, HeadStrides k_strides, Ptr<> v_ptr, HeadStrides v_strides, Ptr<> do_ptr,
                  HeadStrides do_strides, Ptr<float32> row_ptr, Ptr<> dq_ptr, HeadStrides dq_strides,
                  PackedSequences packed, ScoreSteps<Steps...> steps) const {
    for (const int size : {head_size, value_size})
      require(size % 16 == 0 && size <= 256, "heads of {}: a multiple of 16, at most 256", size);
    require(consumers == 2 || (consumers == 3 && !packed.is_packed),
            "consumers = {}: 2, or 3 of sequences that are not packed", consumers);
    const int block_q = consumers * kRows;
    // K and V of a head.
    auto [block, head, batch] =
        BlockOfHead::enter(packed.blocks(q_size, block_q), heads, batches,
                           kv_size.to(int64) * ((head_size + value_size) * dtype.bits() / 8),
                           steps.masks() ? BlockOfHead::Longest::kLast : BlockOfHead::Longest::kNone);
    warps(4 + 4 * consumers);
    Int32 sequence = batch + 0;
    SequenceRows rows{0, q_size, 0, kv_size};
    const bool is_packed = packed.is_packed;
    if (is_packed) packed.enter(block, block_q, false, sequence, rows);
    Int32 offset_q = block * block_q, shift = rows.kv_size - rows.q_size;

    auto g_q = q_strides.view(q_ptr, dtype, batches, heads, q_size, head_size);
    auto g_do = do_strides.view(do_ptr, dtype, batches, heads, q_size, value_size);
    auto g_k = k_strides.view(k_ptr, dtype, batches, heads / group, kv_size, head_size);
    auto g_v = v_strides.view(v_ptr, dtype, batches, heads / group, kv_size, value_size);
    auto g_rows = global_view(row_ptr, {2, batches * heads, padded, 1});
    auto s_q = shared_tensor(dtype, {block_q, head_size});
    auto s_do = shared_tensor(dtype, {block_q, value_size});
    auto s_k = shared_tensor(dtype, {stages, block_kv, head_size});
    auto s_v = shared_tensor(dtype, {one_value ? 1 : stages, block_kv, value_size});
    Pipeline pipe(stages, 1, consumers);
    std::optional<Barrier> v_full, v_empty;
    if (one_value) v_full = mbarrier::alloc(1), v_empty = mbarrier::alloc(consumers);
    Barrier q_full = mbarrier::alloc({1})[0];
    std::optional<EndOfSequence> ends;
    if (is_packed) ends.emplace(consumers);
    sync();

    Int32 begin = 0, end = rows.kv_size;
    steps.narrow({offset_q + shift, min(offset_q + block_q, rows.q_size) - 1 + shift, sequence}, begin, end);
    begin = max(begin, 0) / block_kv * block_kv;
    if (is_packed) end = select(offset_q < rows.q_size, end, begin);  // no such block of rows
    const KeptNumbers kept(std::max(head_size, value_size) > (is_packed ? 128 : 192),
                           {&offset_q, &shift, &head, &batch, &sequence, &begin, &end, &rows.q_begin,
                            &rows.q_size, &rows.kv_begin, &rows.kv_size});

    // Large heads whose rows are no multiple of a swizzle's 128 bytes: each load of them is many, for which the producer needs
    // registers.
    const bool loads_by_many = consumers == 2 && std::max(head_size, value_size) > 128 &&
                               (head_size % 64 != 0 || value_size % 64 != 0);

    if (auto producer = warp_group(0, 4)) {
      setmaxnreg(loads_by_many ? 40 : consumers == 2 ? 24 : 32);
      if (auto warp = single_warp()) {
        kept.reload();
        Int32 head_kv = head / group;
        if (auto thread = single_thread())
          mbarrier::arrive_and_expect_tx(q_full, s_q.nbytes() + s_do.nbytes());
        tma::global_to_shared(g_q, s_q, {batch, head, rows.q_begin + offset_q, 0}, q_full);
        tma::global_to_shared(g_do, s_do, {batch, head, rows.q_begin + offset_q, 0}, q_full);
        UInt32 v_phase = mbarrier::producer_initial_phase;
        for (Int32 row : range(rows.kv_begin + begin, rows.kv_begin + end, block_kv)) {
          pipe.producer_acquire();
          auto k = s_k[pipe.producer_stage];
          Barrier full = pipe.producer_barrier();
          if (one_value) {
            if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(full, k.nbytes());
            tma::global_to_shared(g_k, k, {batch, head_kv, row, 0}, full);
            mbarrier::wait(*v_empty, v_phase);
            v_phase ^= 1;
            if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(*v_full, s_v.nbytes());
            tma::global_to_shared(g_v, s_v[0], {batch, head_kv, row, 0}, *v_full);
          } else {
            auto v = s_v[pipe.producer_stage];
            if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(full, k.nbytes() + v.nbytes());
            tma::global_to_shared(g_k, k, {batch, head_kv, row, 0}, full);
            tma::global_to_shared(g_v, v, {batch, head_kv, row, 0}, full);
          }
          pipe.producer_advance();
        }
      }
    }

    for (int i = 0; i < consumers; ++i) {
      if (auto consumer = warp_group(4 + 4 * i, 4)) {
        setmaxnreg(loads_by_many ? 232 : consumers == 2 ? 240 : 160);
        kept.reload();
        Int32 first_row = offset_q + i * kRows, of = batch * heads + head;
        auto q = s_q.slice({i * kRows, 0}, {kRows, head_size});
        auto d_o = s_do.slice({i * kRows, 0}, {kRows, value_size});
        RegisterTensor dq = zeros(float32, {kRows, head_size});
        auto scores = wgmma::accumulator(float32, {kRows, block_kv});
        auto along = wgmma::accumulator(float32, {kRows, block_kv});
        RegisterTensor slopes = zeros(dtype, {kRows, block_kv});
        Int32 at_row = first_row + 0;
        if (is_packed)
          at_row += packed.begin_of_blocks(rows.q_begin, sequence, AttentionGradientRows::kPackedRows);
        auto log_sum = load_global(g_rows[0][of], {at_row, 0}, {kRows, 1});
        auto own = load_global(g_rows[1][of], {at_row, 0}, {kRows, 1});
        Int32 next = 0;
        UInt32 next_phase = mbarrier::consumer_initial_phase, v_phase = mbarrier::consumer_initial_phase;
        mbarrier::wait(q_full, 0);
        const auto start = [&] {  // the products of scores and of what runs along the result's gradient
          wgmma::fence();
          wgmma::mma(q, s_k[next].transpose(), scores, {.scale_d = false});
          wgmma::commit_group();
          if (one_value) {
            mbarrier::wait(*v_full, v_phase);
            v_phase ^= 1;
            wgmma::fence();
          }
          wgmma::mma(d_o, s_v[one_value ? ScalarArg(0) : ScalarArg(next)].transpose(), along,
                     {.scale_d = false});
          wgmma::commit_group();
        };
        const auto release = [&] {
          if (auto thread = single_thread()) mbarrier::arrive(pipe.consumer_barrier());
          pipe.consumer_advance();
        };
        const auto find_slopes = [&](const ScalarArg& offset_kv, int behind) {
          wgmma::wait_group(1 + behind);
          const ScoreTile at = score_tile(kRows, first_row, shift, block_kv, offset_kv, head, sequence);
          const float factor = (steps.changes() ? 1 : scale) * 1.44269504f;
          RegisterTensor slope = full(float32, {kRows, block_kv}, 1);
          if (steps.changes()) scores = scores * scale;
          if (steps.has_slopes())
            steps.change_with_slopes(scores, slope, at);
          else
            steps.change(scores, at);
          scores = exp2(fma(scores, factor, -log_sum));  // now weights
          auto is_edge = steps.is_edge({first_row + shift, first_row + (kRows - 1) + shift, offset_kv,
                                        offset_kv + (block_kv - 1), sequence},
                                       rows.kv_size);
          if (auto edge = when(is_edge)) steps.mask(scores, at, rows.kv_size, 0);
          wgmma::wait_group(behind);
          if (one_value)
            if (auto thread = single_thread()) mbarrier::arrive(*v_empty);
          scores = scores * (along - own);
          if (steps.has_slopes()) scores = scores * slope;
          if (behind > 0) {
            wgmma::wait_group(0);
            release();
          }
          slopes = scores;
        };
        const auto add = [&] {
          wgmma::fence();
          wgmma::mma(slopes, s_k[pipe.consumer_stage], dq, {.scale_d = true});
          wgmma::commit_group();
        };
        UInt32 cleared_phase = mbarrier::consumer_initial_phase;
        const auto wait_next = [&](const ScalarArg& offset_kv) {
          mbarrier::wait(pipe.full_barriers[next], next_phase);
          if (!is_packed) return;
          if (auto edge = when(offset_kv + block_kv > rows.kv_size)) {
            if (one_value) mbarrier::wait(*v_full, v_phase);
            ends->clear(rows.kv_size - offset_kv,
                        {s_k[next], s_v[one_value ? ScalarArg(0) : ScalarArg(next)]}, i, cleared_phase);
          }
        };
        const auto advance_next = [&] {
          next = select(next == stages - 1, 0, next + 1);
          next_phase ^= next == 0;
        };
        // The product that sums runs under the weights of the next block.
        if (auto some = when(begin < end)) {
          wait_next(begin);
          start();
          advance_next();
          find_slopes(begin, 0);
          for (Int32 offset_kv : range(begin + block_kv, end, block_kv)) {
            wait_next(offset_kv);
            start();
            advance_next();
            add();  // of the block before
            find_slopes(offset_kv, 1);
          }
          add();
          wgmma::wait_group(0);
          release();
        }
        kept.reload();
        first_row = offset_q + i * kRows;
        auto g_dq = dq_strides.view(dq_ptr, dtype, batches, heads, q_size, head_size);
        auto result = (dq * scale).to(dtype);
        const auto store = [&] {
          store_shared(q, result);  // which this consumer alone has read
          fence::proxy_async();
          sync();
          if (auto warp = single_warp()) {
            tma::shared_to_global(q, g_dq, {batch, head, rows.q_begin + first_row, 0});
            tma::commit_group();
            tma::wait_group(0, {.read = true});
          }
        };
        if (is_packed) {
          if (auto whole = when(first_row + kRows <= rows.q_size)) store();
          if (auto end_of_sequence = otherwise()) {
            auto row = register_tensor(int32, {kRows, 1}, [&](auto r, auto) { return first_row + r; });
            scatter(g_dq, result, {batch, head, row + rows.q_begin, 0}, {.mask = row < rows.q_size});
          }
        } else {
          store();
        }
        if (overlaps)
          griddepcontrol::wait();  // who waits for this grid expects that the one before has ended
      }
    }
  }
};

}  // namespace imbrex::kernels
