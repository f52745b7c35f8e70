// SPDX-License-Identifier: Apache-2.0
// Attention of at most some tens of rows of Q to a long cache of float8, as in decoding: bound by reading the cache once. Each warp
// takes rows of K and V of its own and has a softmax of its own; they meet at the end. A warp's rows of K and V go from
// shared memory to its registers as words, become float16 there, exactly, and are operands of mma.sync where they are: nothing
// is written back, and nobody waits for another warp. The order of the head's columns is the one in which four of them
// make a word. DecodeAttention, which this replaces for float8, has one warp group that waits for its own conversions.
#pragma once

#include <vector>

#include "imbrex/kernels/attention/decode_columns.h"
#include "imbrex/kernels/attention/head_strides.h"
#include "imbrex/kernels/attention/kv_cache.h"
#include "imbrex/kernels/attention/online_softmax.h"
#include "imbrex/kernels/attention/partial_results.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/lang.h"
#include "imbrex/lang/view.h"

namespace imbrex::kernels {

template <class... Steps>
struct DecodeFloat8Attention {
  static constexpr const char* target = "sm_90a";
  static constexpr int kRows = 16;  // of Q in a tile: those of mma.sync
  int consumers = 4, warp_rows = 32, stages = 2;

  static auto space() {
    using K = DecodeFloat8Attention;
    return Space<K>().template choose<&K::consumers, &K::warp_rows, &K::stages>(
        {{4, 32, 2}, {4, 32, 3}, {8, 16, 2}, {4, 16, 3}, {2, 32, 4}, {4, 16, 2}});
  }
  int block_kv() const { return consumers * warp_rows; }

  /// The configuration for heads of this size.
  static DecodeFloat8Attention for_heads(int64_t head_size) {
    DecodeFloat8Attention kernel;
    if (head_size > 128) kernel.warp_rows = 16;
    return kernel;
  }

  /// As DecodeAttention's, with K and V of float8_e4m3. The head size is a multiple of 32.
  void operator()(Int32 batches, Int32 heads_kv, Int32 group, Int32 q_size, Int32 parts, int head_size,
                  float scale, DataType dtype, DataType kv_dtype, Ptr<> q_ptr, HeadStrides q_strides,
                  KvCache cache, CacheScales scales, Ptr<> o_ptr, HeadStrides o_strides,
                  PartialResults results, ScoreSteps<Steps...> steps) const {
    require(kv_dtype == float8_e4m3, "a cache of {}: of float8_e4m3", kv_dtype.name());
    require(head_size % 32 == 0 && head_size <= 256, "head_size is {}: a multiple of 32, at most 256",
            head_size);
    require(warp_rows % 16 == 0, "{} rows of a warp: a multiple of 16", warp_rows);
    const int block = block_kv(), rows = consumers * kRows;
    Int32 q_rows = group * q_size;  // that share one head of K and V
    grid(cdiv(q_rows, kRows) * parts, heads_kv, batches);
    warps(consumers + cache.warps_needed(block));
    Int32 tile = block_idx.x / parts, part = block_idx.x % parts, head_kv = block_idx.y, batch = block_idx.z;
    griddepcontrol::wait();  // the grid before may still write Q or the cache, or read what this one writes
    griddepcontrol::launch_dependents();

    KvBlocks blocks(cache, uint32, block, stages, batches, heads_kv, head_size / 4, batch, head_kv);
    auto s_q = shared_tensor(float16, {rows, head_size});  // each warp's copy of the tile
    auto s_out = shared_tensor(float32, {rows, head_size});
    auto s_sums = shared_tensor(float32, {2, rows, 1});
    Pipeline k_pipe(stages, blocks.arrivals(), consumers), v_pipe(stages, blocks.arrivals(), consumers);
    sync();
    Int32 length = cache.length_of(batch);
    DecodeColumns columns(steps, length, q_size, batch, block);
    Int32 first = columns.first_of(part, parts), last = columns.first_of(part + 1, parts);

    if (auto producer = warp_group(consumers, cache.warps_needed(block)))
      blocks.load(first, last, length, k_pipe, v_pipe);

    if (auto consumer = warp_group(0, consumers)) {
      const auto release = [&](Pipeline& pipe) {
        for (int i = 0; i < consumers; ++i)
          if (auto warp = single_warp(i)) {
            sync();  // all its threads have read
            if (auto thread = single_thread()) mbarrier::arrive(pipe.consumer_barrier());
          }
        pipe.consumer_advance();
      };
      const MmaOptions each_warp{.warps_m = consumers, .warps_n = 1};
      const auto all_q = [&](const Ptr<>& pointer, const HeadStrides& strides) {
        return strides.view(pointer, dtype, batches, heads_kv * group, q_size, head_size);
      };
      {
        auto r = register_tensor(int32, {rows, 1}, [&](auto i, auto) { return tile * kRows + i % kRows; });
        store_shared(s_q,
                     gather(all_q(q_ptr, q_strides), {batch, r / q_size + head_kv * group, r % q_size, 0},
                            {rows, head_size}, {.mask = r < q_rows})
                         .to(float16));
      }
      sync();
      std::vector<RegisterValue> q;
      for (int c = 0; c < head_size; c += 16)
        q.push_back(load_shared(s_q.slice({0, c}, {rows, 16})
                                    .reshape({rows, 4, 2, 2})
                                    .permute({0, 2, 1, 3})
                                    .reshape({rows, 16})));
      // What lies in shared memory and registers as rows of all warps is read by each warp as one tile, its own.
      UInt32 warp = UInt32(thread_index()) / 32u % static_cast<uint32_t>(consumers);

      const ScalarArg factor = scales.of_k(heads_kv, head_kv) * scale;
      OnlineSoftmax softmax(rows, factor, steps.changes());
      const auto row_of_q = [&] {
        return register_tensor(int32, {rows, 1}, [&](auto i, auto) { return tile * kRows + i % kRows; });
      };
      const auto tile_of = [&](const Int32& offset) {
        return ScoreTile{[&] { return row_of_q() % q_size + (length - q_size); },
                         [&] {
                           return register_tensor(int32, {rows, warp_rows}, [&](auto i, auto j) {
                             return offset + i / kRows * warp_rows + j;
                           });
                         },
                         [&] { return min(row_of_q() / q_size, group - 1) + head_kv * group; }, batch};
      };
      Int32 first_column = first * block;
      steps.with_sink(tile_of(first_column), [&](const RegisterValue& sink) {
        // Of the warps that meet at the end, one has it as well.
        auto is_first =
            register_tensor(boolean, {rows, 1}, [&](auto i, auto) { return i < kRows && part == 0; });
        softmax.begin_with(sink, is_first);
      });
      std::vector<RegisterTensor> out;  // [i]: columns i, i + 4, i + 8, ... of the head
      for (int i = 0; i < 4; ++i) out.push_back(zeros(float32, {rows, head_size / 4}));
      for (Int32 number : range(first, last)) {
        Int32 offset = number * block;
        k_pipe.consumer_acquire();
        auto k = blocks.k(k_pipe.consumer_stage)
                     .reshape({consumers, warp_rows, head_size / 16, 4})
                     .permute({0, 2, 1, 3})[warp];
        RegisterTensor scores = zeros(float32, {rows, warp_rows});
        for (int step = 0; step < head_size / 16; ++step)
          scores = mma(q[static_cast<size_t>(step)], operand_of(load_shared(k[step])), scores, each_warp);
        release(k_pipe);
        columns.apply(scores, offset, factor, tile_of(offset));
        auto shrink = softmax.weigh(scores);
        auto weights = scores.to(float16);
        for (RegisterTensor& part_of_out : out) part_of_out = part_of_out * shrink;

        blocks.clear_beyond(length, number, v_pipe);
        v_pipe.consumer_acquire();
        auto v = blocks.v(v_pipe.consumer_stage)
                     .reshape({consumers, warp_rows / 16, 2, 4, 2, head_size / 4})
                     .permute({0, 1, 2, 4, 5, 3})[warp];
        for (int step = 0; step < warp_rows / 16; ++step) {
          // Four rows of four columns each become four columns of four rows each.
          constexpr int64_t kEven = 0x00ff00ff, kOdd = 0xff00ff00, kLow = 0xffff, kHigh = 0xffff0000;
          const auto row = [&](int half, int odd) { return load_shared(v[step][half][odd]); };
          const auto of_step = weights.slice({0, 16 * step}, {rows, 16});
          const auto add = [&](int column, const RegisterValue& words) {
            RegisterTensor& sum = out[static_cast<size_t>(column)];
            sum = mma(of_step, operand_of(words), sum, each_warp);
          };
          auto a = row(0, 0), b = row(0, 1), c = row(1, 0), d = row(1, 1);
          for (int odd = 0; odd < 2; ++odd) {
            const auto pairs = [&](const RegisterValue& x, const RegisterValue& y) {
              return odd ? ((x >> 8) & kEven) | (y & kOdd) : (x & kEven) | ((y << 8) & kOdd);
            };
            auto low = pairs(a, b), high = pairs(c, d);
            add(odd, (low & kLow) | (high << 16));
            add(odd + 2, (low >> 16) | (high & kHigh));
          }
        }
        release(v_pipe);
      }

      // The warps' results become one.
      for (int i = 0; i < 4; ++i)
        store_shared(s_out.reshape({rows, head_size / 4, 4}).permute({2, 0, 1})[i],
                     out[static_cast<size_t>(i)]);
      store_shared(s_sums[0], softmax.largest);
      store_shared(s_sums[1], softmax.total);
      sync();
      const auto of_warp = [&](const SharedTensor& s, int warp) {
        return load_shared(s.slice({warp * kRows, 0}, {kRows, s.shape(1)}));
      };
      RegisterTensor largest = of_warp(s_sums[0], 0);
      for (int warp = 1; warp < consumers; ++warp) largest = max(largest, of_warp(s_sums[0], warp));
      RegisterTensor total = zeros(float32, {kRows, 1}), result = zeros(float32, {kRows, head_size});
      for (int warp = 0; warp < consumers; ++warp) {
        auto part_of_all = exp2((of_warp(s_sums[0], warp) - largest) * (softmax.scale() * 1.44269504f));
        total = total + of_warp(s_sums[1], warp) * part_of_all;
        result = result + of_warp(s_out, warp) * part_of_all;
      }
      result = result * (select(total > 0, 1 / total, 0) * scales.of_v(heads_kv, head_kv));
      constexpr float kNone = -std::numeric_limits<float>::infinity();
      Int32 of = batch * heads_kv + head_kv, groups = batches * heads_kv, first_row = tile * kRows;
      const PartialResults::Rows at{parts, of, groups, first_row, q_rows, kRows, head_size};
      const auto store = [&](const RegisterBase& values, const Int32& from) {
        auto r = register_tensor(int32, {values.shape(0), 1}, [&](auto i, auto) { return from + i; });
        scatter(all_q(o_ptr, o_strides), values.to(dtype),
                {batch, r / q_size + head_kv * group, r % q_size, 0}, {.mask = r < q_rows});
      };
      results.store_log_sum(at, part, select(total > 0, largest * softmax.scale() + log(total), kNone));
      if (results.is_divided())
        results.store_values(at, part, result);
      else
        store(result, first_row);
      results.merge_if_last(tile, store, at);
    }
  }

 private:
  /// Words [n, 4] of four elements each, those along k, as the B operand of mma.sync, [16, n]: a thread has the elements of
  /// a word as k = 2t, 2t + 1, 2t + 8 and 2t + 9.
  static RegisterValue operand_of(const RegisterBase& words) {
    const int64_t n = words.shape(0);
    return view(words, float8_e4m3)
        .reshape({n, 4, 2, 2})
        .permute({0, 2, 1, 3})
        .reshape({n, 16})
        .transpose()
        .to(float16);
  }
};

}  // namespace imbrex::kernels
