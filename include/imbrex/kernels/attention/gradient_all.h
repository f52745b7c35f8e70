// SPDX-License-Identifier: Apache-2.0
// The backward pass of attention in five products: a CTA has a block of rows of K and V and goes through those of Q and of the
// result's gradient, as AttentionGradientKv, and adds what the block has to the gradient of Q to float32 sums in global
// memory. CTAs add in the order in which they come, so that the last bits of dQ may differ between calls; or, `in_order`, each
// when the one before it in the head has added to these rows, of which it therefore stays some steps behind.
#pragma once

#include <algorithm>
#include <limits>
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
struct AttentionGradientAll {
  static constexpr const char* target = "sm_90a";
  static constexpr int kRows = 64, kConsumers = 2, kLine = 32;  // floats that TMA adds at a time
  int block_q = 64, stages = 2;
  bool slopes_shared = true;  // the sum for dK reads its weights from shared memory, not from registers
  bool staggers = true;       // where no mask is, blocks of K and V begin with different rows of Q
  bool in_order = false;      // the same bits in each call; without masks, which let some blocks see no rows

  static auto space() {
    return Space<AttentionGradientAll>()
        .template choose<&AttentionGradientAll::block_q, &AttentionGradientAll::stages>({{64, 2}})
        .template choose<&AttentionGradientAll::slopes_shared, &AttentionGradientAll::staggers>(
            {{true, true}, {false, true}, {true, false}, {false, false}})
        .template choose<&AttentionGradientAll::in_order>({false, true});
  }

  /// Sizes and tensors as AttentionGradientKv's, heads of one size, of at most 128, a multiple of 32. `sum_ptr`,
  /// float32, holds zeros, or sums to add to, as AttentionGradientSums reads them: [batches * heads, blocks of 64
  /// rows, head_size / 8, 64, 8], so that threads store without conflicts and TMA adds whole lines. What is added is
  /// not yet multiplied by `scale`. `in_order` what sums hold is not looked at, and `turn_ptr`, of one more than [batches * heads,
  /// blocks of block_q rows], is 0, and 0 again at the end.
  void operator()(Int32 batches, Int32 heads_kv, Int32 q_size, Int32 padded, Int32 kv_size, int head_size,
                  int group, float scale, DataType dtype, Ptr<> q_ptr, HeadStrides q_strides, Ptr<> k_ptr,
                  HeadStrides k_strides, Ptr<> v_ptr, HeadStrides v_strides, Ptr<> do_ptr,
                  HeadStrides do_strides, Ptr<float32> row_ptr, Ptr<float32> sum_ptr, Ptr<int32> turn_ptr,
                  Ptr<> dk_ptr, HeadStrides dk_strides, Ptr<> dv_ptr, HeadStrides dv_strides,
                  ScoreSteps<Steps...> steps) const {
    require(head_size % 32 == 0 && head_size <= 128, "heads of {}: a multiple of 32, at most 128", head_size);
    constexpr int kBlock = kConsumers * kRows;
    require(stages == 2 || stages == 4, "stages = {}: 2 or 4", stages);
    require(block_q == kRows || block_q == kBlock, "block_q = {}: {} or {}", block_q, kRows, kBlock);
    // A block of dQ is divided among the consumers: its rows, or, where they are too few, its columns.
    const bool by_rows = block_q == kBlock;
    require(!in_order || (!steps.masks() && !by_rows), "in_order: without masks, and with block_q = {}",
            kRows);
    const int columns = by_rows ? head_size : head_size / kConsumers, lines = kRows * columns / kLine;
    warps(4 + 4 * kConsumers);
    // A grid before writes what rows need, and may still read what this one writes, or count by the same counter.
    griddepcontrol::wait();
    // Q, the result's gradient and the sums of a head. Of masks, those by which first columns are seen by most rows. In order, blocks
    // of several heads alternate, so that those that begin together do not wait for each other.
    auto blocks_kv = cdiv(kv_size, kBlock);
    auto bytes = q_size.to(int64) * (2 * head_size * dtype.bits() / 8 + 4 * head_size);
    Int32 turns_of_all =
        batches * heads_kv * group * cdiv(q_size, block_q);  // and behind them the tickets' counter
    auto [number, head_kv, batch] =
        in_order
            ? BlockOfHead::enter_by_ticket(blocks_kv, heads_kv, batches, bytes,
                                           global_view(turn_ptr, {turns_of_all + 1})[turns_of_all])
            : BlockOfHead::enter(blocks_kv, heads_kv, batches, bytes,
                                 steps.masks() ? BlockOfHead::Longest::kFirst : BlockOfHead::Longest::kNone);
    griddepcontrol::launch_dependents();
    Int32 heads = heads_kv * group, offset_kv = number * kBlock, shift = kv_size - q_size;

    auto g_q = q_strides.view(q_ptr, dtype, batches, heads, q_size, head_size);
    auto g_do = do_strides.view(do_ptr, dtype, batches, heads, q_size, head_size);
    auto g_k = k_strides.view(k_ptr, dtype, batches, heads_kv, kv_size, head_size);
    auto g_v = v_strides.view(v_ptr, dtype, batches, heads_kv, kv_size, head_size);
    auto g_rows = global_view(row_ptr, {2, batches * heads, padded});
    auto g_sums =
        global_view(sum_ptr, {batches * heads, cdiv(q_size, kRows), kRows * head_size / kLine, kLine});
    auto s_k = shared_tensor(dtype, {kBlock, head_size});
    auto s_v = shared_tensor(dtype, {kBlock, head_size});
    auto s_q = shared_tensor(dtype, {stages, block_q, head_size});
    auto s_do = shared_tensor(dtype, {stages, block_q, head_size});
    auto s_slopes = shared_tensor(dtype, {kBlock, block_q});
    auto s_sums = shared_tensor(float32, {kConsumers, lines, kLine});
    auto s_rows = shared_tensor(float32, {stages, 2, 1, block_q});
    Pipeline pipe(stages, 1, kConsumers * 128);  // every thread reads the rows' numbers
    Barrier kv_full = mbarrier::alloc({1})[0];
    Barrier slopes_full = mbarrier::alloc({kConsumers * 128})[0];
    auto sums_full = mbarrier::alloc({128, 128}), sums_empty = mbarrier::alloc({1, 1});
    Barrier k_read = mbarrier::alloc({kConsumers * 128})[0];  // by the last products
    sync();

    // Rows of Q that see any of these columns, in blocks.
    Int32 first = 0, last = q_size - 1;
    steps.narrow_blocks({offset_kv, min(offset_kv + kBlock, kv_size) - 1, batch}, shift, block_q, first,
                        last);
    Int32 blocks = max(last - first + block_q, 0) / block_q, all_blocks = blocks * group;
    const KeptNumbers kept(in_order, {&offset_kv, &head_kv, &batch});

    // Else all CTAs add to the same rows at the same time.
    const bool is_staggered = staggers && !in_order && !steps.masks();
    Int32 begin = first + 0;
    if (is_staggered) begin = first + number * (kBlock / block_q) % max(blocks, 1) * block_q;
    const auto advance = [&](Int32& head, Int32& row) {
      row += block_q;
      if (group == 1 && !is_staggered) return;
      row = select(row > last, first, row);
      head += select(row == begin, 1, 0);
    };

    if (auto producer = warp_group(0, 4)) {
      setmaxnreg(24);
      if (auto warp = single_warp(0)) {
        kept.reload();
        if (auto thread = single_thread())
          mbarrier::arrive_and_expect_tx(kv_full, s_k.nbytes() + s_v.nbytes());
        tma::global_to_shared(g_k, s_k, {batch, head_kv, offset_kv, 0}, kv_full);
        tma::global_to_shared(g_v, s_v, {batch, head_kv, offset_kv, 0}, kv_full);
        Int32 head = head_kv * group, row = begin + 0;
        for (Int32 block : range(all_blocks)) {
          (void)block;
          pipe.producer_acquire();
          auto q = s_q[pipe.producer_stage], d_o = s_do[pipe.producer_stage];
          auto rows = s_rows[pipe.producer_stage];
          Barrier full = pipe.producer_barrier();
          if (auto thread = single_thread())
            mbarrier::arrive_and_expect_tx(full, q.nbytes() + d_o.nbytes() + rows.nbytes());
          tma::global_to_shared(g_q, q, {batch, head, row, 0}, full);
          tma::global_to_shared(g_do, d_o, {batch, head, row, 0}, full);
          Int32 of = batch * heads + head;
          for (int i = 0; i < 2; ++i) tma::global_to_shared(g_rows, rows[i], {i, of, row}, full);
          pipe.producer_advance();
          advance(head, row);
        }
      }
      if (auto warp = single_warp(1)) {  // adds to the sums in global memory
        UInt32 phase = mbarrier::consumer_initial_phase;
        const auto send = [&](const GlobalTensor& to, int i, std::vector<ScalarArg> at, tma::Reduce reduce) {
          at.insert(at.end(), {by_rows ? 0 : i * lines, 0});
          tma::shared_to_global(s_sums[i], to, at, {.reduce = reduce});
        };
        const auto give_back = [&] {
          for (int i = 0; i < kConsumers; ++i) {
            tma::wait_group(kConsumers - 1 - i, {.read = true});
            if (auto thread = single_thread()) mbarrier::arrive(sums_empty[i]);
          }
          phase ^= 1;
        };
        if (in_order) {  // all blocks of all rows, one behind the other
          auto g_blocks = global_view(sum_ptr, {batches * heads * blocks, kRows * head_size / kLine, kLine});
          auto turns = global_view(turn_ptr, {turns_of_all});
          kept.reload();
          Int32 at = (batch * heads + head_kv * group) * blocks, turn = offset_kv / kBlock;
          Int32 next = select(offset_kv + kBlock < kv_size, turn + 1, 0);
          if (auto thread = single_thread()) {  // who waits for the turn adds
            for (Int32 block : range(at, at + all_blocks)) {
              semaphore::wait(turns[block], turn);
              for (int i = 0; i < kConsumers; ++i) {
                mbarrier::wait(sums_full[i], phase);
                if (auto first_of_all = when(turn == 0)) send(g_blocks, i, {block}, tma::Reduce::kNone);
                if (auto later = otherwise()) send(g_blocks, i, {block}, tma::Reduce::kAdd);
                tma::commit_group();
              }
              give_back();
              tma::wait_group(0);  // it has been added
              semaphore::release(turns[block], next);
            }
          }
        } else {
          Int32 head = head_kv * group, row = begin + 0;
          for (Int32 block : range(all_blocks)) {
            (void)block;
            Int32 of = batch * heads + head;
            for (int i = 0; i < kConsumers; ++i) {
              mbarrier::wait(sums_full[i], phase);
              send(g_sums, i, {of, row / kRows + (by_rows ? i : 0)}, tma::Reduce::kAdd);
              tma::commit_group();
            }
            give_back();
            advance(head, row);
          }
        }
      }
    }

    for (int i = 0; i < kConsumers; ++i) {
      if (auto consumer = warp_group(4 + 4 * i, 4)) {
        setmaxnreg(240);
        kept.reload();
        auto k = s_k.slice({i * kRows, 0}, {kRows, head_size});
        auto v = s_v.slice({i * kRows, 0}, {kRows, head_size});
        auto k_columns = by_rows ? s_k : s_k.slice({0, i * columns}, {kBlock, columns});
        auto own_slopes = s_slopes.slice({i * kRows, 0}, {kRows, block_q});
        Int32 first_column = offset_kv + i * kRows;
        RegisterTensor dk = zeros(float32, {kRows, head_size}), dv = zeros(float32, {kRows, head_size});
        auto scores = wgmma::accumulator(float32, {kRows, block_q});
        RegisterTensor weights = zeros(dtype, {kRows, block_q}), slopes = zeros(dtype, {kRows, block_q});
        mbarrier::wait(kv_full, 0);
        // Of a block by its number, which says everything that rings need: registers are scarce.
        const auto stage = [&](const ScalarArg& block) { return block % stages; };
        const auto start_scores = [&](const ScalarArg& block) {
          mbarrier::wait(pipe.full_barriers[stage(block)], (block / stages % 2).to(uint32));
          wgmma::fence();
          wgmma::mma(k, s_q[stage(block)].transpose(), scores, {.scale_d = false});
          wgmma::commit_group();
        };
        const auto weigh = [&](const ScalarArg& block, const Int32& head, const Int32& row,
                               std::optional<RegisterTensor>& slope) {
          const ScoreTile at = transposed_score_tile(block_q, row, shift, kRows, first_column, head, batch);
          const float factor = (steps.changes() ? 1 : scale) * 1.44269504f;
          if (steps.changes()) scores = scores * scale;
          if (steps.has_slopes()) {
            slope.emplace(full(float32, {kRows, block_q}, 1));
            steps.change_with_slopes(scores, *slope, at);
          } else {
            steps.change(scores, at);
          }
          Bool is_edge = steps.is_edge(
              {row + shift, row + (block_q - 1) + shift, first_column, first_column + (kRows - 1), batch});
          // With a test of the row, which is always met, it is not the same for all blocks: what the loop would keep for
          // that are registers too many.
          if (!steps.hide_beyond()) is_edge = is_edge || (first_column + kRows > kv_size && row <= last);
          if (auto edge = when(is_edge)) steps.mask(scores, at, kv_size);
          scores = exp2(fma(scores, factor, -load_shared(s_rows[stage(block)][0])));  // now weights
        };
        // The products that begin with what is to be subtracted need no registers for it later.
        const auto start_along = [&](const ScalarArg& block, RegisterTensor& along) {
          wgmma::fence();
          wgmma::mma(v, s_do[stage(block)].transpose(), along, {.scale_d = true});
          wgmma::commit_group();
        };
        const auto own = [&](const ScalarArg& block) {
          return full(float32, {kRows, block_q}, 0) - load_shared(s_rows[stage(block)][1]);
        };
        const auto phase = [](const ScalarArg& block) { return (block % 2).to(uint32); };
        const auto start_sum = [&](const ScalarArg& block, RegisterTensor& sum) {
          mbarrier::wait(slopes_full, phase(block));
          wgmma::fence();
          auto all = s_slopes.transpose();
          wgmma::mma(by_rows ? all.slice({i * kRows, 0}, {kRows, kBlock}) : all, k_columns, sum,
                     {.scale_d = false});
          wgmma::commit_group();
        };
        const auto add = [&](const ScalarArg& block) {
          wgmma::fence();
          wgmma::mma(weights, s_do[stage(block)], dv, {.scale_d = true});
          if (slopes_shared)
            wgmma::mma(own_slopes, s_q[stage(block)], dk, {.scale_d = true});
          else
            wgmma::mma(slopes, s_q[stage(block)], dk, {.scale_d = true});
          wgmma::commit_group();
        };
        const auto hand_over = [&](const ScalarArg& block, const RegisterTensor& sum) {
          mbarrier::wait(sums_empty[i], phase(block) ^ 1);
          auto groups = s_sums[i].reshape({columns / 8, kRows, 8});
          for (int group = 0; group < columns / 8; ++group)
            store_shared(groups[group], sum.slice({0, 8 * group}, {kRows, 8}));
          fence::proxy_async();
          mbarrier::arrive(sums_full[i]);
        };
        const auto find_slopes = [&](const RegisterTensor& along,
                                     const std::optional<RegisterTensor>& slope) {
          auto gradient = scores * along;
          slopes = steps.has_slopes() ? gradient * *slope : gradient;
        };
        const auto share_slopes = [&] {
          store_shared(own_slopes, slopes);
          fence::proxy_async();
          mbarrier::arrive(slopes_full);
        };
        const auto release = [&](const ScalarArg& block) {
          mbarrier::arrive(pipe.empty_barriers[stage(block)]);
        };

        if (auto some = when(all_blocks > 0)) {
          Int32 row = begin + 0, head = head_kv * group;
          {
            start_scores(0);
            wgmma::wait_group(0);
            std::optional<RegisterTensor> slope;
            weigh(0, head, row, slope);
            RegisterTensor along = own(0);
            start_along(0, along);
            weights = scores;
            wgmma::wait_group(0);
            find_slopes(along, slope);
            share_slopes();
          }
          for (Int32 block : range(1, all_blocks)) {
            advance(head, row);
            auto sum = wgmma::accumulator(float32, {kRows, columns});
            start_scores(block);
            add(block - 1);
            wgmma::wait_group(1);
            std::optional<RegisterTensor> slope;
            weigh(block, head, row, slope);
            wgmma::wait_group(0);
            release(block - 1);
            start_sum(block - 1, sum);
            wgmma::wait_group(0);
            hand_over(block - 1, sum);
            RegisterTensor along = own(block);
            start_along(block, along);
            wgmma::wait_group(0);
            weights = scores;
            find_slopes(along, slope);
            mbarrier::wait(sums_full[1 - i],
                           phase(block - 1));  // the other consumer has read the slopes before
            share_slopes();
          }
          auto sum = wgmma::accumulator(float32, {kRows, columns});
          add(all_blocks - 1);
          start_sum(all_blocks - 1, sum);
          wgmma::wait_group(0);
          hand_over(all_blocks - 1, sum);
        }

        if (in_order) {
          kept.reload();
          first_column = offset_kv + i * kRows;
        }
        // This consumer's rows of V and K take their gradients; those of K when the other consumer too has read them.
        mbarrier::arrive(k_read);
        const auto store = [&](const SharedTensor& s, const RegisterValue& value, const Ptr<>& pointer,
                               const HeadStrides& strides) {
          auto g = strides.view(pointer, dtype, batches, heads_kv, kv_size, head_size);
          store_shared(s, value);
          fence::proxy_async();
          sync();
          if (auto warp = single_warp()) {
            tma::shared_to_global(s, g, {batch, head_kv, first_column, 0});
            tma::commit_group();
          }
        };
        store(v, dv.to(dtype), dv_ptr, dv_strides);
        mbarrier::wait(k_read, 0);
        store(k, (dk * scale).to(dtype), dk_ptr, dk_strides);
        if (auto warp = single_warp()) tma::wait_group(0, {.read = true});
      }
    }
  }
};

}  // namespace imbrex::kernels
