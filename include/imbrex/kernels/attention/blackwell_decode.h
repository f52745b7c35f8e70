// SPDX-License-Identifier: Apache-2.0
// Attention of few rows of Q to a long cache of K and V on Blackwell, as in decoding: bound by reading the cache once. As
// DecodeAttention on Hopper, but scores, weights and sums are in tensor memory, and a warp of its own starts the products:
// scores of the next block are computed while a warp group weighs those of this one. Sums are rescaled only where a row's
// maximum has grown enough to matter.
#pragma once

#include <limits>

#include "imbrex/kernels/attention/decode_columns.h"
#include "imbrex/kernels/attention/head_strides.h"
#include "imbrex/kernels/attention/kv_cache.h"
#include "imbrex/kernels/attention/merge.h"
#include "imbrex/kernels/attention/partial_results.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

template <class... Steps>
struct BlackwellDecodeAttention {
  static constexpr const char* target = "sm_100a";
  static constexpr int kRows = 128;    // of a tile: the lanes of tensor memory
  static constexpr float kGrowth = 8;  // of a maximum, as an exponent of 2, before sums are rescaled
  static constexpr int kBuffers = 2;   // of scores
  int block_kv = 64, stages = 2;       // so that two CTAs share a multiprocessor

  static auto space() {
    return Space<BlackwellDecodeAttention>()
        .template choose<&BlackwellDecodeAttention::block_kv, &BlackwellDecodeAttention::stages>(
            {{64, 2}, {64, 4}, {128, 2}, {32, 4}});
  }

  /// The configuration for heads of this size.
  static BlackwellDecodeAttention for_heads(int64_t) { return {}; }

  /// Everything as DecodeAttention's; K and V are of `dtype`, and head_size is at most 128.
  void operator()(Int32 batches, Int32 heads_kv, Int32 group, Int32 q_size, Int32 parts, int head_size,
                  float scale, DataType dtype, DataType kv_dtype, Ptr<> q_ptr, HeadStrides q_strides,
                  KvCache cache, CacheScales scales, Ptr<> o_ptr, HeadStrides o_strides,
                  PartialResults results, ScoreSteps<Steps...> steps) const {
    require(kv_dtype == dtype && !scales.are_given, "a cache of {}: of {}, without scales", kv_dtype.name(),
            dtype.name());
    require(head_size % 16 == 0 && head_size <= 128, "head_size is {}: a multiple of 16, at most 128",
            head_size);
    const int loaders = cache.warps_needed(block_kv), slice = head_size % 32 == 0 ? 32 : 16;
    Int32 q_rows = group * q_size;  // that share one head of K and V
    grid(cdiv(q_rows, kRows) * parts, heads_kv, batches);
    warps(4 + loaders + 1);
    Int32 tile = block_idx.x / parts, part = block_idx.x % parts, head_kv = block_idx.y, batch = block_idx.z;
    griddepcontrol::wait();  // the grid before may still write Q or the cache, or read what this one writes
    griddepcontrol::launch_dependents();

    KvBlocks blocks(cache, dtype, block_kv, stages, batches, heads_kv, head_size, batch, head_kv);
    auto s_q = shared_tensor(dtype, {kRows, head_size});
    auto t_scores = tcgen05::alloc(float32, {kBuffers, kRows, block_kv});
    auto t_out = tcgen05::alloc(float32, {kRows, head_size});
    const auto weights_of = [&](const Int32& buffer) {
      return tcgen05::view(t_scores[buffer].slice({0, 0}, {kRows, block_kv / 2}), dtype, {kRows, block_kv});
    };
    Pipeline k_pipe(stages, blocks.arrivals(), 1), v_pipe(stages, blocks.arrivals(), 1);
    Barrier q_full = mbarrier::alloc(128), weights_full = mbarrier::alloc(128), added = mbarrier::alloc(1);
    auto scores_full = mbarrier::alloc({1, 1});
    sync();
    Int32 length = cache.length_of(batch);
    DecodeColumns columns(steps, length, q_size, batch, block_kv);
    Int32 first = columns.first_of(part, parts), last = columns.first_of(part + 1, parts);

    if (auto producer = warp_group(4, loaders)) {
      blocks.load(first, last, length, k_pipe, v_pipe);
      // The last products give their stages back some time after others know of them: the barriers must be there until then.
      for (int i = 0; i < stages; ++i)
        for (Pipeline* pipe : {&k_pipe, &v_pipe}) {
          pipe->producer_acquire();
          pipe->producer_advance();
        }
    }

    if (auto multiplier = single_warp(4 + loaders)) {
      UInt32 phase = mbarrier::consumer_initial_phase;
      Int32 buffer = 0;
      const auto release = [&](Pipeline& pipe) {
        tcgen05::commit(pipe.consumer_barrier());
        pipe.consumer_advance();
      };
      const auto start_scores = [&] {
        k_pipe.consumer_acquire();
        tcgen05::mma(s_q, blocks.k(k_pipe.consumer_stage).transpose(), t_scores[buffer],
                     {.enable_input_d = false});
        tcgen05::commit(scores_full[buffer]);
        release(k_pipe);
        buffer = 1 - buffer;
      };
      const auto start_output = [&](const Int32& of, const ScalarArg& adds) {
        v_pipe.consumer_acquire();
        mbarrier::wait(weights_full, phase);
        phase ^= 1;
        tcgen05::mma(weights_of(of), blocks.v(v_pipe.consumer_stage), t_out, {.enable_input_d = adds});
        tcgen05::commit(added);
        release(v_pipe);
      };
      mbarrier::wait(q_full, 0);
      if (auto some = when(first < last)) {
        start_scores();
        for (Int32 block : range(first + 1, last)) {
          start_scores();  // of this block; below, the output of the block before
          start_output(buffer, block > first + 1);
        }
        Int32 of = 1 - buffer;
        start_output(of, last > first + 1);
      }
    }

    if (auto softmax = warp_group(0, 4)) {
      // Row r of the tile: head r / q_size of the group, row r % q_size. Made for each use, whose layout it takes.
      const auto row = [&] {
        return register_tensor(int32, {kRows, 1}, [&](auto r, auto) { return tile * kRows + r; });
      };
      const auto all_q = [&](const Ptr<>& pointer, const HeadStrides& strides) {
        return strides.view(pointer, dtype, batches, heads_kv * group, q_size, head_size);
      };
      {
        auto r = row();
        store_shared(s_q,
                     gather(all_q(q_ptr, q_strides), {batch, r / q_size + head_kv * group, r % q_size, 0},
                            {kRows, head_size}, {.mask = r < q_rows}));
      }
      fence::proxy_async();
      mbarrier::arrive(q_full);

      const float factor = steps.changes() ? 1 : scale, to_exponent = factor * 1.44269504f;
      RegisterTensor largest = full(float32, {kRows, 1}, -1e30f), total = zeros(float32, {kRows, 1});
      const auto tile_of = [&](const Int32& offset) {
        return ScoreTile{
            [&] { return row() % q_size + (length - q_size); },
            [&] {
              return register_tensor(int32, {1, block_kv}, [&](auto, auto c) { return offset + c; });
            },
            [&] { return min(row() / q_size, group - 1) + head_kv * group; }, batch};
      };
      Int32 first_column = first * block_kv;
      steps.with_sink(tile_of(first_column), [&](const RegisterValue& sink) {
        auto takes_part = register_tensor(boolean, {kRows, 1}, [&](auto, auto) { return part == 0; });
        largest = select(takes_part, sink * (1 / factor), largest);
        total = total + select(takes_part, 1.f, 0.f);
      });
      UInt32 phase = mbarrier::consumer_initial_phase, added_phase = mbarrier::consumer_initial_phase;
      Int32 buffer = 0;
      const auto each_slice = [&](const auto& use) {
        for (int c = 0; c < head_size; c += slice) use(t_out.slice({0, c}, {kRows, slice}), c);
      };
      for (Int32 block : range(first, last)) {
        mbarrier::wait(scores_full[buffer], phase);
        RegisterTensor scores = tcgen05::load(t_scores[buffer]);
        Int32 offset = block * block_kv;
        columns.apply(scores, offset, scale, tile_of(offset));
        auto larger = max(largest, max(scores, {.axis = 1, .keep = true}));
        auto has_grown = (larger - largest) * to_exponent > kGrowth;
        auto shrink = select(has_grown, exp2((largest - larger) * to_exponent), 1);
        if (auto later = when(block > first)) {
          mbarrier::wait(added, added_phase);
          added_phase ^= 1;
          if (auto grown = when(any(has_grown))) {
            each_slice(
                [&](const TMemoryTensor& sums, int) { tcgen05::store(sums, tcgen05::load(sums) * shrink); });
          }
        }
        largest = select(has_grown, larger, largest);
        scores = exp2(fma(scores, to_exponent, -(largest * to_exponent)));
        tcgen05::store(weights_of(buffer), scores.to(dtype));
        tcgen05::wait_store();
        blocks.clear_beyond(length, block, v_pipe);
        mbarrier::arrive(weights_full);
        total = total * shrink + sum(scores, {.axis = 1, .keep = true});
        v_pipe.consumer_advance();
        buffer = 1 - buffer;
        phase ^= buffer == 0;
      }

      auto inverse = select(total > 0, 1 / total, 0);
      constexpr float kNone = -std::numeric_limits<float>::infinity();
      Int32 of = batch * heads_kv + head_kv, groups = batches * heads_kv, first_row = tile * kRows;
      const PartialResults::Rows rows{parts, of, groups, first_row, q_rows, kRows, head_size};
      const auto store_o = [&](const RegisterBase& values, const Int32& from, int column) {
        auto r = register_tensor(int32, {values.shape(0), 1}, [&](auto i, auto) { return from + i; });
        scatter(all_q(o_ptr, o_strides), values.to(dtype),
                {batch, r / q_size + head_kv * group, r % q_size, column}, {.mask = r < q_rows});
      };
      const auto store = [&](const RegisterBase& values, int column) {
        if (results.is_divided())
          results.store_values(rows, part, values, column);
        else
          store_o(values, first_row, column);
      };
      results.store_log_sum(rows, part, select(total > 0, largest * factor + log(total), kNone));
      if (auto some = when(first < last)) {
        mbarrier::wait(added, added_phase);
        each_slice([&](const TMemoryTensor& sums, int c) { store(tcgen05::load(sums) * inverse, c); });
      }
      if (auto none = otherwise()) {
        for (int c = 0; c < head_size; c += slice) store(zeros(float32, {kRows, slice}), c);
      }
      results.merge_if_last(
          tile, [&](const RegisterBase& values, const Int32& from) { store_o(values, from, 0); }, rows);
    }
    sync();
    tcgen05::dealloc(t_scores);
    tcgen05::dealloc(t_out);
  }
};

/// MergeAttention where BlackwellDecodeAttention runs.
struct BlackwellMergeAttention {
  static constexpr const char* target = "sm_100a";
  int block_parts = 16, num_warps = 4;

  static auto space() {
    return Space<BlackwellMergeAttention>()
        .choose<&BlackwellMergeAttention::block_parts, &BlackwellMergeAttention::num_warps>(
            {{16, 4}, {32, 4}, {8, 4}, {64, 8}});
  }

  void operator()(Int32 batches, Int32 heads, Int32 q_size, Int32 parts, int head_size, DataType dtype,
                  bool wants_log_sum, Ptr<float32> partial_ptr, Ptr<float32> log_sum_ptr, Ptr<> o_ptr,
                  HeadStrides o_strides, Ptr<float32> all_log_sum_ptr) const {
    MergeAttention{block_parts, num_warps}(batches, heads, q_size, parts, head_size, dtype, wants_log_sum,
                                           partial_ptr, log_sum_ptr, o_ptr, o_strides, all_log_sum_ptr);
  }
};

}  // namespace imbrex::kernels
