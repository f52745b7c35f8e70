// SPDX-License-Identifier: Apache-2.0
// Attention of many query rows on Blackwell. A CTA has two tiles of 128 rows of Q. Each has a softmax warp group, which works
// while the tensor cores multiply for the other tile. Scores and sums are in tensor memory, one row per thread; weights take
// the place of the scores that they were computed from, and are an operand from there, while the next scores go elsewhere.
// Four more warps correct: each rescales what has been summed in its lanes, off the path from scores to weights, and only
// where a row's maximum has grown enough to matter (a weight may be as large as 2^8 until then); in the end it divides and
// stores.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "imbrex/kernels/attention/head_strides.h"
#include "imbrex/kernels/attention/score_steps.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

template <class... Steps>
struct BlackwellAttention {
  static constexpr const char* target = "sm_100a";
  static constexpr int kTiles = 2, kRows = 128, kBuffers = 2;  // of scores
  static constexpr float kGrowth = 8;  // of a maximum, as an exponent of 2, before sums are rescaled
  int block_kv = 64, stages = 3, slice = 32;

  static auto space() {
    return Space<BlackwellAttention>()
        .template choose<&BlackwellAttention::block_kv, &BlackwellAttention::stages>(
            {{64, 3}, {64, 2}, {32, 4}})
        .template choose<&BlackwellAttention::slice>({32, 64, 16});
  }

  /// Q and O are [batches, heads, q_size, head_size], K and V [batches, heads / group, kv_size, head_size], of `dtype`
  /// (float16 or bfloat16). Position of row i: i + kv_size - q_size. With `wants_log_sum`, the logarithm of each row's sum of
  /// weights goes to log_sum [batches, heads, q_size].
  void operator()(Int32 batches, Int32 heads, Int32 q_size, Int32 kv_size, int head_size, int group,
                  float scale, DataType dtype, Ptr<> q_ptr, HeadStrides q_strides, Ptr<> k_ptr,
                  HeadStrides k_strides, Ptr<> v_ptr, HeadStrides v_strides, Ptr<> o_ptr,
                  HeadStrides o_strides, bool wants_log_sum, Ptr<float32> log_sum_ptr,
                  ScoreSteps<Steps...> steps) const {
    require(head_size % slice == 0 && head_size <= 128, "head_size is {}: a multiple of {}, at most 128",
            head_size, slice);
    require(block_kv % 32 == 0 && block_kv <= 64, "block_kv = {}: 32 or 64", block_kv);
    grid(cdiv(q_size, kTiles * kRows), heads, batches);
    warps(8 + 4 * kTiles);
    Int32 head = block_idx.y, batch = block_idx.z, head_kv = head / group;
    // The last rows, which take longest when causal, start first.
    Int32 offset_q = (grid_dim.x - 1 - block_idx.x) * (kTiles * kRows), shift = kv_size - q_size;
    // Columns that rows of the tiles see: at least one block, so that all rings turn; its scores are masked.
    Int32 begin_kv = 0, end_kv = kv_size;
    steps.narrow({offset_q + shift, min(offset_q + kTiles * kRows, q_size) - 1 + shift, batch}, begin_kv,
                 end_kv);
    begin_kv = max(min(max(begin_kv, 0), kv_size - 1), 0) / block_kv * block_kv;
    end_kv = max(end_kv, begin_kv + 1);

    const auto of_head = [&](const HeadStrides& strides, const Ptr<>& pointer, const Int32& rows,
                             const Int32& which, const ScalarArg& all) {
      return strides.view(pointer, dtype, batches, all, rows, head_size)[batch][which];
    };
    auto g_q = of_head(q_strides, q_ptr, q_size, head, heads),
         g_k = of_head(k_strides, k_ptr, kv_size, head_kv, heads / group),
         g_v = of_head(v_strides, v_ptr, kv_size, head_kv, heads / group),
         g_o = of_head(o_strides, o_ptr, q_size, head, heads);
    auto s_q = shared_tensor(dtype, {kTiles, kRows, head_size});
    auto s_k = shared_tensor(dtype, {stages, block_kv, head_size});
    auto s_v = shared_tensor(dtype, {stages, block_kv, head_size});
    auto s_factors = shared_tensor(float32, {kTiles, kRows, 1});  // from softmax to correction
    // From the largest.
    const auto alloc = [](int tiles, int columns) {
      return tcgen05::alloc(float32, {tiles, kRows, columns});
    };
    const bool scores_first = kBuffers * block_kv > head_size;
    std::optional<TMemoryTensor> all_scores, all_sums;
    if (scores_first) all_scores = alloc(kTiles * kBuffers, block_kv);
    all_sums = alloc(kTiles, head_size);
    if (!scores_first) all_scores = alloc(kTiles * kBuffers, block_kv);
    const TMemoryTensor &t_scores = *all_scores, &t_out = *all_sums;
    const auto weights_of = [&](const ScalarArg& place) {
      return tcgen05::view(t_scores[place].slice({0, 0}, {kRows, block_kv / 2}), dtype, {kRows, block_kv});
    };

    Barrier q_full = mbarrier::alloc(1);
    Pipeline k_pipe(stages), v_pipe(stages);
    // Of each place for scores: they are there; weights are there.
    const auto of_places = [](int64_t arrivals) {
      return mbarrier::alloc(std::vector<int64_t>(kTiles * kBuffers, arrivals));
    };
    auto scores_full = of_places(1), weights_full = of_places(kRows);
    // Of each tile: factors are there, have been read; sums are rescaled; the product of weights has been added to them.
    const auto of_tiles = [](int64_t arrivals) { return mbarrier::alloc({arrivals, arrivals}); };
    auto factors_full = of_tiles(kRows), factors_empty = of_tiles(kRows), rescaled = of_tiles(kRows),
         added = of_tiles(1);
    sync();

    if (auto loader = single_warp(0)) {
      if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(q_full, s_q.nbytes());
      for (int t = 0; t < kTiles; ++t) tma::global_to_shared(g_q, s_q[t], {offset_q + t * kRows, 0}, q_full);
      for (Int32 offset_kv : range(begin_kv, end_kv, block_kv)) {
        const auto load = [&](Pipeline& pipe, const GlobalTensor& g, const SharedTensor& s) {
          pipe.producer_acquire();
          auto stage = s[pipe.producer_stage];
          if (auto thread = single_thread())
            mbarrier::arrive_and_expect_tx(pipe.producer_barrier(), stage.nbytes());
          tma::global_to_shared(g, stage, {offset_kv, 0}, pipe.producer_barrier());
          pipe.producer_advance();
        };
        load(k_pipe, g_k, s_k);
        load(v_pipe, g_v, s_v);
      }
      // The last products give their stages back some time after others know of them: the barriers must be there until then.
      for (int i = 0; i < stages; ++i)
        for (Pipeline* pipe : {&k_pipe, &v_pipe}) {
          pipe->producer_acquire();
          pipe->producer_advance();
        }
    }

    if (auto multiplier = single_warp(1)) {
      UInt32 weights_phase = mbarrier::consumer_initial_phase,
             rescaled_phase = mbarrier::consumer_initial_phase;
      Int32 scores_buffer = 0, weights_buffer = 0;
      const auto start_scores = [&] {
        k_pipe.consumer_acquire();
        for (int t = 0; t < kTiles; ++t) {
          Int32 place = t * kBuffers + scores_buffer;
          tcgen05::mma(s_q[t], s_k[k_pipe.consumer_stage].transpose(), t_scores[place],
                       {.enable_input_d = false});
          tcgen05::commit(scores_full[place]);
        }
        scores_buffer = 1 - scores_buffer;
        tcgen05::commit(k_pipe.consumer_barrier());
        k_pipe.consumer_advance();
      };
      const auto start_output = [&](const ScalarArg& adds) {
        v_pipe.consumer_acquire();
        for (int t = 0; t < kTiles; ++t) {
          Int32 place = t * kBuffers + weights_buffer;
          mbarrier::wait(weights_full[place], weights_phase);
          mbarrier::wait(rescaled[t], rescaled_phase);
          tcgen05::mma(weights_of(place), s_v[v_pipe.consumer_stage], t_out[t], {.enable_input_d = adds});
          tcgen05::commit(added[t]);
        }
        weights_buffer = 1 - weights_buffer;
        weights_phase ^= weights_buffer == 0;
        rescaled_phase ^= 1;
        tcgen05::commit(v_pipe.consumer_barrier());
        v_pipe.consumer_advance();
      };
      mbarrier::wait(q_full, 0);
      start_scores();
      Int32 second = begin_kv + block_kv;
      for (Int32 offset_kv : range(second, end_kv, block_kv)) {
        start_scores();  // of this block; below, the output of the block before
        start_output(offset_kv > second);
      }
      start_output(end_kv > second);
    }

    for (int t = 0; t < kTiles; ++t) {
      if (auto softmax = warp_group(4 + 4 * t, 4)) {
        Int32 first_row = offset_q + t * kRows;
        const float factor = steps.changes() ? 1 : scale, to_exponent = factor * 1.44269504f;
        RegisterTensor largest = full(float32, {kRows, 1}, -1e30f), total = zeros(float32, {kRows, 1});
        const auto tile_of = [&](const Int32& offset_kv) {
          return score_tile(kRows, first_row, shift, block_kv, offset_kv, head, batch);
        };
        steps.with_sink(tile_of(begin_kv), [&](const RegisterValue& sink) {
          largest = sink * (1 / factor);
          total = total + 1;
        });
        UInt32 phase = mbarrier::consumer_initial_phase, empty_phase = mbarrier::producer_initial_phase;
        Int32 buffer = 0;
        const auto hand_over = [&](const RegisterBase& factors) {
          mbarrier::wait(factors_empty[t], empty_phase);
          empty_phase ^= 1;
          store_shared(s_factors[t], factors);
          mbarrier::arrive(factors_full[t]);
        };
        for (Int32 offset_kv : range(begin_kv, end_kv, block_kv)) {
          Int32 place = t * kBuffers + buffer;
          mbarrier::wait(scores_full[place], phase);
          RegisterTensor scores = tcgen05::load(t_scores[place]);
          const ScoreTile at = tile_of(offset_kv);
          if (steps.changes()) {
            scores = scores * scale;
            steps.change(scores, at);
          }
          auto is_edge = steps.is_edge({first_row + shift, first_row + (kRows - 1) + shift, offset_kv,
                                        offset_kv + (block_kv - 1), batch},
                                       kv_size);
          if (auto edge = when(is_edge)) steps.mask(scores, at, kv_size);
          auto larger = max(largest, max(scores, {.axis = 1, .keep = true}));
          auto has_grown = (larger - largest) * to_exponent > kGrowth;
          auto shrink = select(has_grown, exp2((largest - larger) * to_exponent), 1);
          hand_over(shrink);
          largest = select(has_grown, larger, largest);
          scores = exp2(fma(scores, to_exponent, -(largest * to_exponent)));
          tcgen05::store(weights_of(place), scores.to(dtype));
          tcgen05::wait_store();
          mbarrier::arrive(weights_full[place]);
          total = total * shrink + sum(scores, {.axis = 1, .keep = true});
          buffer = 1 - buffer;
          phase ^= buffer == 0;
        }
        hand_over(total);
        if (wants_log_sum) {
          constexpr float kNone = -std::numeric_limits<float>::infinity();
          auto g_log_sum = global_view(log_sum_ptr, {batches, heads, q_size, 1});
          store_global(g_log_sum[batch][head], select(total > 0, largest * factor + log(total), kNone),
                       {first_row, 0});
        }
      }
    }

    constexpr int kLanes = 32;  // of a warp
    for (int first = 0; first < kRows; first += kLanes) {
      if (auto correction = single_warp(4 + 4 * kTiles + first / kLanes)) {
        UInt32 phase = mbarrier::consumer_initial_phase, added_phase = mbarrier::consumer_initial_phase;
        const auto factors_of = [&](int t) { return s_factors[t].slice({first, 0}, {kLanes, 1}); };
        const auto each_slice = [&](int t, const auto& use) {
          for (int c = 0; c < head_size; c += slice) use(t_out[t].slice({first, c}, {kLanes, slice}), c);
        };
        for (Int32 offset_kv : range(begin_kv, end_kv, block_kv)) {
          for (int t = 0; t < kTiles; ++t) {
            mbarrier::wait(factors_full[t], phase);
            RegisterTensor factors = load_shared(factors_of(t));
            mbarrier::arrive(factors_empty[t]);
            if (auto later = when(offset_kv > begin_kv)) {
              mbarrier::wait(added[t], added_phase);
              if (auto grown = when(any(factors < 1))) {
                each_slice(t, [&](const TMemoryTensor& sums, int) {
                  tcgen05::store(sums, tcgen05::load(sums) * factors);
                });
                tcgen05::wait_store();
              }
            }
            mbarrier::arrive(rescaled[t]);
          }
          phase ^= 1;
          added_phase = select(offset_kv > begin_kv, added_phase ^ 1, added_phase);
        }
        for (int t = 0; t < kTiles; ++t) {
          mbarrier::wait(factors_full[t], phase);
          auto total = load_shared(factors_of(t));
          RegisterTensor inverse = select(total > 0, 1 / total, 0);  // a row that sees nothing is 0
          mbarrier::wait(added[t], added_phase);
          each_slice(t, [&](const TMemoryTensor& sums, int c) {
            store_shared(s_q[t].slice({first, c}, {kLanes, slice}),
                         (tcgen05::load(sums) * inverse).to(dtype));
          });
          fence::proxy_async();
          sync();
          tma::shared_to_global(s_q[t].slice({first, 0}, {kLanes, head_size}), g_o,
                                {offset_q + t * kRows + first, 0});
          tma::commit_group();
        }
        tma::wait_group(0, {.read = true});
      }
    }
    sync();
    tcgen05::dealloc(t_scores);
    tcgen05::dealloc(t_out);
  }
};

}  // namespace imbrex::kernels
