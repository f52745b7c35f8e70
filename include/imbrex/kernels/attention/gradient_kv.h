// SPDX-License-Identifier: Apache-2.0
// The backward pass of attention, gradients of K and V. A CTA has a block of their rows and goes through those of Q and of
// the result's gradient, of all heads that share K and V; weights are computed again, transposed, so that they are in the
// registers where the products that sum over rows of Q need them. Sums have one order: results are the same each time.
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
struct AttentionGradientKv {
  static constexpr const char* target = "sm_90a";
  static constexpr int kRows = 64;
  int block_q = 64, stages = 3;
  int consumers =
      2;  // warp groups with kRows each; 3, with 160 registers per thread, for heads of at most 64

  static auto space() {
    return Space<AttentionGradientKv>()
        .template choose<&AttentionGradientKv::block_q, &AttentionGradientKv::stages,
                         &AttentionGradientKv::consumers>(
            {{64, 3, 2}, {64, 2, 2}, {128, 2, 2}, {32, 3, 2}, {64, 3, 3}, {64, 4, 3}});
  }

  /// Sizes and tensors as ForwardAttention's; `row_ptr` as AttentionGradientRows leaves it. dK and dV are like K and V.
  void operator()(Int32 batches, Int32 heads_kv, Int32 q_size, Int32 padded, Int32 kv_size, int head_size,
                  int value_size, int group, float scale, DataType dtype, Ptr<> q_ptr, HeadStrides q_strides,
                  Ptr<> k_ptr, HeadStrides k_strides, Ptr<> v_ptr, HeadStrides v_strides, Ptr<> do_ptr,
                  HeadStrides do_strides, Ptr<float32> row_ptr, Ptr<> dk_ptr, HeadStrides dk_strides,
                  Ptr<> dv_ptr, HeadStrides dv_strides, PackedSequences packed,
                  ScoreSteps<Steps...> steps) const {
    for (const int size : {head_size, value_size})
      require(size % 16 == 0 && size <= 128, "heads of {}: a multiple of 16, at most 128", size);
    require(consumers == 2 || (consumers == 3 && !packed.is_packed),
            "consumers = {}: 2, or 3 of sequences that are not packed", consumers);
    const int block_kv = consumers * kRows;
    // Q and the result's gradient of a head.
    auto [block, head_kv, batch] =
        BlockOfHead::enter(packed.blocks(kv_size, block_kv), heads_kv, batches,
                           q_size.to(int64) * ((head_size + value_size) * dtype.bits() / 8),
                           steps.masks() ? BlockOfHead::Longest::kFirst : BlockOfHead::Longest::kNone);
    warps(4 + 4 * consumers);
    griddepcontrol::wait();  // the grid before writes what rows need, and may still read what this one writes
    griddepcontrol::launch_dependents();
    Int32 heads = heads_kv * group, sequence = batch + 0;
    SequenceRows sizes{0, q_size, 0, kv_size};
    const bool is_packed = packed.is_packed;
    if (is_packed) packed.enter(block, block_kv, true, sequence, sizes);
    Int32 offset_kv = block * block_kv, shift = sizes.kv_size - sizes.q_size;

    auto g_q = q_strides.view(q_ptr, dtype, batches, heads, q_size, head_size);
    auto g_do = do_strides.view(do_ptr, dtype, batches, heads, q_size, value_size);
    auto g_k = k_strides.view(k_ptr, dtype, batches, heads_kv, kv_size, head_size);
    auto g_v = v_strides.view(v_ptr, dtype, batches, heads_kv, kv_size, value_size);
    auto g_rows = global_view(row_ptr, {2, batches * heads, padded});
    auto s_k = shared_tensor(dtype, {block_kv, head_size});
    auto s_v = shared_tensor(dtype, {block_kv, value_size});
    auto s_q = shared_tensor(dtype, {stages, block_q, head_size});
    auto s_do = shared_tensor(dtype, {stages, block_q, value_size});
    auto s_rows = shared_tensor(float32, {stages, 2, 1, block_q});
    Pipeline pipe(stages, 1, consumers * 128);  // every thread reads the rows' numbers
    Barrier kv_full = mbarrier::alloc({1})[0];
    std::optional<EndOfSequence> ends;
    if (is_packed) ends.emplace(consumers);
    sync();

    // Rows of Q that see any of these columns.
    Int32 first = 0, last = sizes.q_size - 1;
    steps.narrow_blocks({offset_kv, min(offset_kv + block_kv, sizes.kv_size) - 1, sequence}, shift, block_q,
                        first, last);
    if (is_packed) last = select(offset_kv < sizes.kv_size, last, -1);  // no such block of rows
    const KeptNumbers kept(is_packed, {&offset_kv, &shift, &head_kv, &batch, &sequence, &first, &last,
                                       &sizes.q_begin, &sizes.q_size, &sizes.kv_begin, &sizes.kv_size});

    if (auto producer = warp_group(0, 4)) {
      setmaxnreg(consumers == 2 ? 24 : 32);
      if (auto warp = single_warp()) {
        kept.reload();
        if (auto thread = single_thread())
          mbarrier::arrive_and_expect_tx(kv_full, s_k.nbytes() + s_v.nbytes());
        tma::global_to_shared(g_k, s_k, {batch, head_kv, sizes.kv_begin + offset_kv, 0}, kv_full);
        tma::global_to_shared(g_v, s_v, {batch, head_kv, sizes.kv_begin + offset_kv, 0}, kv_full);
        Int32 begin_of_rows = 0;
        if (is_packed)
          begin_of_rows = packed.begin_of_blocks(sizes.q_begin, sequence, AttentionGradientRows::kPackedRows);
        for (Int32 in_group : range(group)) {
          Int32 head = head_kv * group + in_group, of = batch * heads + head;
          for (Int32 row : range(first, last + 1, block_q)) {
            pipe.producer_acquire();
            auto q = s_q[pipe.producer_stage], d_o = s_do[pipe.producer_stage];
            auto rows = s_rows[pipe.producer_stage];
            Barrier full = pipe.producer_barrier();
            if (auto thread = single_thread())
              mbarrier::arrive_and_expect_tx(full, q.nbytes() + d_o.nbytes() + rows.nbytes());
            Int32 at = sizes.q_begin + row;
            tma::global_to_shared(g_q, q, {batch, head, at, 0}, full);
            tma::global_to_shared(g_do, d_o, {batch, head, at, 0}, full);
            for (int i = 0; i < 2; ++i)
              tma::global_to_shared(g_rows, rows[i], {i, of, begin_of_rows + row}, full);
            pipe.producer_advance();
          }
        }
      }
    }

    for (int i = 0; i < consumers; ++i) {
      if (auto consumer = warp_group(4 + 4 * i, 4)) {
        setmaxnreg(consumers == 2 ? 240 : 160);
        kept.reload();
        auto k = s_k.slice({i * kRows, 0}, {kRows, head_size});
        auto v = s_v.slice({i * kRows, 0}, {kRows, value_size});
        Int32 first_column = offset_kv + i * kRows;
        RegisterTensor dk = zeros(float32, {kRows, head_size});
        RegisterTensor dv = zeros(float32, {kRows, value_size});
        auto scores = wgmma::accumulator(float32, {kRows, block_q});
        auto along = wgmma::accumulator(float32, {kRows, block_q});
        RegisterTensor weights = zeros(dtype, {kRows, block_q}), slopes = zeros(dtype, {kRows, block_q});
        mbarrier::wait(kv_full, 0);
        Int32 next = 0;
        UInt32 next_phase = mbarrier::consumer_initial_phase;
        UInt32 cleared_phase = mbarrier::consumer_initial_phase;
        const auto start_scores = [&](const Int32& row) {
          mbarrier::wait(pipe.full_barriers[next], next_phase);
          if (is_packed) {
            if (auto edge = when(row + block_q > sizes.q_size))
              ends->clear(sizes.q_size - row, {s_q[next], s_do[next]}, i, cleared_phase,
                          [&](const Int32& of) { AttentionGradientRows::clear(s_rows[next], of); });
          }
          wgmma::fence();
          wgmma::mma(k, s_q[next].transpose(), scores, {.scale_d = false});
          wgmma::commit_group();
          next = select(next == stages - 1, 0, next + 1);
          next_phase ^= next == 0;
        };
        const auto no_slope = [&] { return full(float32, {kRows, block_q}, 1); };
        const auto start_along = [&] {
          wgmma::fence();
          wgmma::mma(v, s_do[pipe.consumer_stage].transpose(), along, {.scale_d = false});
          wgmma::commit_group();
        };
        const auto weigh = [&](const Int32& head, const Int32& row, RegisterTensor& slope,
                               const SharedTensor& rows) {
          const ScoreTile at =
              transposed_score_tile(block_q, row, shift, kRows, first_column, head, sequence);
          const float factor = (steps.changes() ? 1 : scale) * 1.44269504f;
          if (steps.changes()) scores = scores * scale;
          if (steps.has_slopes())
            steps.change_with_slopes(scores, slope, at);
          else
            steps.change(scores, at);
          if (steps.masks()) {
            auto is_edge = steps.is_edge({row + shift, row + (block_q - 1) + shift, first_column,
                                          first_column + (kRows - 1), sequence});
            if (auto edge = when(is_edge)) steps.mask_seen(scores, at);
          }
          // Rows of K beyond the end have gradients that nobody stores.
          scores = exp2(fma(scores, factor, -load_shared(rows[0])));  // now weights
        };
        const auto find_slopes = [&](const RegisterTensor& slope, const SharedTensor& rows) {
          auto gradient = scores * (along - load_shared(rows[1]));
          slopes = steps.has_slopes() ? gradient * slope : gradient;
        };
        const auto add = [&] {
          wgmma::fence();
          wgmma::mma(weights, s_do[pipe.consumer_stage], dv, {.scale_d = true});
          wgmma::mma(slopes, s_q[pipe.consumer_stage], dk, {.scale_d = true});
          wgmma::commit_group();
        };
        const auto release = [&] {
          mbarrier::arrive(pipe.consumer_barrier());
          pipe.consumer_advance();
        };
        // The products of one block that sum run under the weights of the next.
        Int32 blocks = max(last - first + block_q, 0) / block_q * group;
        if (auto some = when(blocks > 0)) {
          Int32 row = first + 0, head = head_kv * group;
          {
            start_scores(row);
            start_along();
            wgmma::wait_group(0);
            RegisterTensor slope = no_slope();
            auto rows = s_rows[pipe.consumer_stage];
            weigh(head, row, slope, rows);
            weights = scores;
            find_slopes(slope, rows);
          }
          for (Int32 block : range(1, blocks)) {
            (void)block;
            row += block_q;
            if (group > 1) {
              head += select(row > last, 1, 0);
              row = select(row > last, first, row);
            }
            auto rows = s_rows[next];
            start_scores(row);
            add();  // of the block before
            wgmma::wait_group(1);
            RegisterTensor slope = no_slope();
            weigh(head, row, slope, rows);
            wgmma::wait_group(0);
            release();
            start_along();
            weights = scores;
            wgmma::wait_group(0);
            find_slopes(slope, rows);
          }
          add();
          wgmma::wait_group(0);
          release();
        }

        // This consumer's rows of K and V, which it alone has read, take their gradients.
        kept.reload();
        first_column = offset_kv + i * kRows;
        const auto store = [&](const SharedTensor& s, const RegisterValue& value, const Ptr<>& pointer,
                               const HeadStrides& strides, int size) {
          auto g = strides.view(pointer, dtype, batches, heads_kv, kv_size, size);
          const auto store_whole = [&] {
            store_shared(s, value);
            fence::proxy_async();
            sync();
            if (auto warp = single_warp()) {
              tma::shared_to_global(s, g, {batch, head_kv, sizes.kv_begin + first_column, 0});
              tma::commit_group();
            }
          };
          if (is_packed) {
            if (auto whole = when(first_column + kRows <= sizes.kv_size)) store_whole();
            if (auto end_of_sequence = otherwise()) {
              auto row = register_tensor(int32, {kRows, 1}, [&](auto r, auto) { return first_column + r; });
              scatter(g, value, {batch, head_kv, row + sizes.kv_begin, 0}, {.mask = row < sizes.kv_size});
            }
          } else {
            store_whole();
          }
        };
        store(k, (dk * scale).to(dtype), dk_ptr, dk_strides, head_size);
        store(v, dv.to(dtype), dv_ptr, dv_strides, value_size);
        if (auto warp = single_warp()) tma::wait_group(0, {.read = true});
      }
    }
  }
};

}  // namespace imbrex::kernels
