// SPDX-License-Identifier: Apache-2.0
// Attention of few rows of Q to a long cache of K and V, as in decoding: bound by reading the cache once. The heads of Q
// that share one of K and V are rows of one tile. The cache of a sequence is divided among CTAs, of which the last one to end
// merges the results, or MergeAttention does. Two CTAs share a multiprocessor, so that one reads while the other begins or ends.
#pragma once

#include <optional>

#include "imbrex/kernels/attention/decode_columns.h"
#include "imbrex/kernels/attention/head_strides.h"
#include "imbrex/kernels/attention/kv_cache.h"
#include "imbrex/kernels/attention/online_softmax.h"
#include "imbrex/kernels/attention/partial_results.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

template <class... Steps>
struct DecodeAttention {
  static constexpr const char* target = "sm_90a";
  static constexpr int kRows = 64;  // of a tile: those of wgmma
  int block_kv = 64, stages = 3;

  static auto space() {
    return Space<DecodeAttention>().template choose<&DecodeAttention::block_kv, &DecodeAttention::stages>(
        {{64, 3}, {128, 3}, {64, 2}, {64, 6}, {32, 6}});
  }

  /// The configuration for heads of this size.
  static DecodeAttention for_heads(int64_t head_size) {
    DecodeAttention kernel;
    if (head_size > 192) kernel.stages = 2;
    return kernel;
  }

  /// Q and O are [batches, heads_kv * group, q_size, head_size]. Row i of a sequence of `length` rows is the one of
  /// position length - q_size + i, which the steps count as its own. A cache of `kv_dtype` float8_e4m3, with `scales`, is
  /// converted to float16, exactly, and so is Q; else it is dtype. `parts`: CTAs that the columns of a sequence are divided
  /// among, whose results are merged as `results` says; with one part they go to O and its log_sum.
  void operator()(Int32 batches, Int32 heads_kv, Int32 group, Int32 q_size, Int32 parts, int head_size,
                  float scale, DataType dtype, DataType kv_dtype, Ptr<> q_ptr, HeadStrides q_strides,
                  KvCache cache, CacheScales scales, Ptr<> o_ptr, HeadStrides o_strides,
                  PartialResults results, ScoreSteps<Steps...> steps) const {
    require(head_size % 16 == 0 && head_size <= 256, "head_size is {}: a multiple of 16, at most 256",
            head_size);
    Int32 q_rows = group * q_size;  // that share one head of K and V
    const bool is_float8 = kv_dtype == float8_e4m3;
    const DataType product = is_float8 ? float16 : dtype;  // the type of what tensor cores multiply
    grid(cdiv(q_rows, kRows) * parts, heads_kv, batches);
    warps(4 + cache.warps_needed(block_kv));
    // Two CTAs of eight warps fit only if those that load leave registers to those that compute.
    const bool shares_registers = cache.warps_needed(block_kv) == 4 && head_size <= 128;
    if (shares_registers)
      max_registers(128);
    else if (is_float8 && head_size <= 128)
      max_registers(168);  // of three warps on a quarter of a multiprocessor
    Int32 tile = block_idx.x / parts, part = block_idx.x % parts, head_kv = block_idx.y, batch = block_idx.z;
    griddepcontrol::wait();  // the grid before may still write Q or the cache, or read what this one writes
    griddepcontrol::launch_dependents();

    KvBlocks blocks(cache, kv_dtype, block_kv, stages, batches, heads_kv, head_size, batch, head_kv);
    auto s_q = shared_tensor(product, {kRows, head_size});
    std::optional<SharedTensor> converted_k, converted_v;
    if (is_float8) {
      converted_k = shared_tensor(product, {block_kv, head_size});
      converted_v = shared_tensor(product, {block_kv, head_size});
    }
    Pipeline k_pipe(stages, blocks.arrivals(), 1), v_pipe(stages, blocks.arrivals(), 1);
    sync();
    Int32 length = cache.length_of(batch);
    DecodeColumns columns(steps, length, q_size, batch, block_kv);
    Int32 first = columns.first_of(part, parts), last = columns.first_of(part + 1, parts);

    if (auto producer = warp_group(4, cache.warps_needed(block_kv))) {
      if (shares_registers) setmaxnreg(80);
      blocks.load(first, last, length, k_pipe, v_pipe);
    }

    if (auto consumer = warp_group(0, 4)) {
      if (shares_registers) setmaxnreg(176);
      const auto release = [&](Pipeline& pipe) {
        if (auto thread = single_thread()) mbarrier::arrive(pipe.consumer_barrier());
        pipe.consumer_advance();
      };
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
                            {kRows, head_size}, {.mask = r < q_rows})
                         .to(product));
      }
      fence::proxy_async();
      sync();

      RegisterTensor out = zeros(float32, {kRows, head_size});
      const ScalarArg factor = is_float8 ? scales.of_k(heads_kv, head_kv) * scale : ScalarArg(scale);
      OnlineSoftmax softmax(kRows, factor, steps.changes());
      auto scores = wgmma::accumulator(float32, {kRows, block_kv});
      RegisterTensor weights = zeros(product, {kRows, block_kv});
      // A block of float8 as tensor cores take it; the products that read the one before have ended. Rows from `end` on
      // become zero.
      const auto convert = [&](Pipeline& pipe, const SharedTensor& stage, const SharedTensor& converted,
                               const std::optional<ScalarArg>& end = {}) {
        auto values = load_shared(stage).to(product);
        if (end) {
          auto is_inside =
              register_tensor(boolean, {block_kv, 1}, [&](auto r, auto) { return r < end.value(); });
          store_shared(converted, select(is_inside, values, 0));
        } else {
          store_shared(converted, values);
        }
        fence::proxy_async();
        sync();
        release(pipe);
      };
      const auto start_scores = [&] {
        k_pipe.consumer_acquire();
        auto k = blocks.k(k_pipe.consumer_stage);
        if (is_float8) convert(k_pipe, k, *converted_k);
        wgmma::fence();
        wgmma::mma(s_q, (is_float8 ? *converted_k : k).transpose(), scores, {.scale_d = false});
        wgmma::commit_group();
      };
      const auto start_output = [&](const std::optional<ScalarArg>& end = {}) {
        v_pipe.consumer_acquire();
        auto v = blocks.v(v_pipe.consumer_stage);
        if (is_float8) convert(v_pipe, v, *converted_v, end);
        wgmma::fence();
        wgmma::mma(weights, is_float8 ? *converted_v : v, out, {.scale_d = true});
        wgmma::commit_group();
      };
      const auto release_read = [&](Pipeline& pipe) {  // what products have read as it was loaded
        if (!is_float8) release(pipe);
      };
      const auto tile_of = [&](const Int32& offset) {
        return ScoreTile{
            [&] { return row() % q_size + (length - q_size); },
            [&] {
              return register_tensor(int32, {1, block_kv}, [&](auto, auto j) { return offset + j; });
            },
            [&] { return min(row() / q_size, group - 1) + head_kv * group; }, batch};
      };
      const auto weigh = [&](const ScalarArg& block) {
        Int32 offset = block * block_kv;
        columns.apply(scores, offset, factor, tile_of(offset));
        return softmax.weigh(scores);
      };
      Int32 first_column = first * block_kv;
      steps.with_sink(tile_of(first_column), [&](const RegisterValue& sink) {
        softmax.begin_with(sink, register_tensor(boolean, {kRows, 1}, [&](auto, auto) { return part == 0; }));
      });

      if (auto some = when(first < last)) {
        start_scores();
        wgmma::wait_group(0);
        release_read(k_pipe);
        weigh(first);
        weights = scores;
        for (Int32 block : range(first + 1, last)) {
          start_scores();  // of this block; below, the output of the block before
          start_output();
          wgmma::wait_group(1);
          release_read(k_pipe);
          auto shrink = weigh(block);
          wgmma::wait_group(0);
          release_read(v_pipe);
          out = out * shrink;
          weights = scores;
        }
        if (is_float8) {
          start_output(length - (last - 1) * block_kv);
        } else {
          blocks.clear_beyond(length, last - 1, v_pipe);
          start_output();
        }
        wgmma::wait_group(0);
        release_read(v_pipe);
      }

      auto inverse = softmax.inverse();
      auto result = out * (is_float8 ? inverse * scales.of_v(heads_kv, head_kv) : inverse);
      Int32 of = batch * heads_kv + head_kv, groups = batches * heads_kv, first_row = tile * kRows;
      const PartialResults::Rows rows{parts, of, groups, first_row, q_rows, kRows, head_size};
      const auto store = [&](const RegisterBase& values, const Int32& from) {
        auto r = register_tensor(int32, {values.shape(0), 1}, [&](auto i, auto) { return from + i; });
        scatter(all_q(o_ptr, o_strides), values.to(dtype),
                {batch, r / q_size + head_kv * group, r % q_size, 0}, {.mask = r < q_rows});
      };
      results.store_log_sum(rows, part, softmax.log_sum_exp());
      if (results.is_divided())
        results.store_values(rows, part, result);
      else
        store(result, first_row);
      results.merge_if_last(tile, store, rows);
    }
  }
};

}  // namespace imbrex::kernels
