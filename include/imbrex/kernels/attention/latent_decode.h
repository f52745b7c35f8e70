// SPDX-License-Identifier: Apache-2.0
// Multi-head latent attention of few rows of Q, as in decoding: all heads share one cache, whose rows are keys of 576 numbers,
// and the first 512 of each are its value. So a block is loaded once for both products, and 64 rows of Q (heads, mostly)
// meet it at a time. One warp group computes the scores, their weights, and the first half of the result's columns; another
// one takes the weights from shared memory and computes the second half, while the first turns the next scores into weights.
// Shared memory has room for two blocks only. So the columns of each half are given back on their own, as soon as they have
// been multiplied, and the product that frees the first half goes ahead of the next scores: most of a block has the time of
// another one to arrive in.
// A cache of float8 comes into a ring of its own, as it lies in memory; the warps that load make blocks of it that products take.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "imbrex/kernels/attention/decode_columns.h"
#include "imbrex/kernels/attention/head_strides.h"
#include "imbrex/kernels/attention/kv_cache.h"
#include "imbrex/kernels/attention/latent_float8.h"
#include "imbrex/kernels/attention/online_softmax.h"
#include "imbrex/kernels/attention/score_steps.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

template <class... Steps>
struct LatentDecodeAttention {
  static constexpr const char* target = "sm_90a";
  static constexpr int kRows = 64;   // of a tile: those of wgmma
  static constexpr int kPanel = 64;  // columns that are moved at a time where registers hold them
  int block_kv = 64, stages = 2;
  /// The second warp group multiplies as soon as weights are there, not under the next ones: blocks are given back earlier, which
  /// suits a cache that is read for few rows of Q; with many, tensor cores are what is scarce.
  bool helps_early = false;
  int float8_stages = 3;  // of a cache of float8, as it lies in memory

  static auto space() {
    using K = LatentDecodeAttention;
    return Space<K>()
        .template choose<&K::helps_early>({false, true})
        .template choose<&K::block_kv, &K::stages>({{64, 2}, {32, 4}, {32, 3}});
  }

  /// The configuration for a cache of float8.
  static LatentDecodeAttention for_float8() {
    return {.block_kv = 32, .stages = 3, .helps_early = true, .float8_stages = 2};
  }

  /// Q is [batches, heads, q_size, head_size], O [batches, heads, q_size, value_size], the cache's rows have head_size
  /// elements, of which the first value_size are the value; its V is not read. Of float8 its rows are as LatentFloat8 says.
  /// Row i of a sequence of `length` rows is the one of position length - q_size + i. `parts`, `is_divided`, partial_ptr and
  /// log_sum_ptr are DecodeAttention's.
  void operator()(Int32 batches, Int32 heads, Int32 q_size, Int32 parts, int head_size, int value_size,
                  bool is_divided, float scale, DataType dtype, Ptr<> q_ptr, HeadStrides q_strides,
                  KvCache cache, LatentFloat8 float8, Ptr<> o_ptr, HeadStrides o_strides,
                  Ptr<float32> partial_ptr, Ptr<float32> log_sum_ptr, ScoreSteps<Steps...> steps) const {
    require(head_size % kPanel == 0 && head_size <= 576, "head_size is {}: a multiple of {}, at most 576",
            head_size, kPanel);
    require(value_size % 128 == 0 && value_size <= std::min(head_size, 512),
            "value_size is {}: a multiple of 128, at most 512 and head_size", value_size);
    require(cache.has_tma_pages(block_kv),
            "pages of {} rows: a multiple of 8 that divides {}, or is divided by it", cache.rows_of_page,
            block_kv);
    const int half = value_size / 2;
    // A block of several pages is loaded by as many copies, each with addresses of its own.
    const int copies = cache.is_paged && cache.rows_of_page < block_kv ? block_kv / cache.rows_of_page : 1;
    const bool is_float8 = float8.is_there;
    const int loading_registers = is_float8    ? 88
                                  : copies > 1 ? 40
                                               : 24,
              registers = is_float8    ? 208
                          : copies > 1 ? 232
                                       : 240;
    Int32 q_rows = heads * q_size;
    Int32 tiles = cdiv(q_rows, kRows);
    grid(tiles * parts, batches);
    warps(12);
    // Tiles of Q that read the same rows of the cache run at the same time.
    Int32 tile = block_idx.x % tiles, part = block_idx.x / tiles, batch = block_idx.y;
    griddepcontrol::wait();  // the grid before may still write Q or the cache, or read what this one writes
    griddepcontrol::launch_dependents();

    auto s_q = shared_tensor(dtype, {kRows, head_size});
    // The columns of a block: first half of the values, second half, and those that are no values.
    const int rest = head_size - value_size;
    auto s_first = shared_tensor(dtype, {stages, block_kv, half}),
         s_second = shared_tensor(dtype, {stages, block_kv, half});
    std::optional<SharedTensor> s_rest;
    if (rest > 0) s_rest = shared_tensor(dtype, {stages, block_kv, rest});
    auto s_weights = shared_tensor(dtype, {kRows, block_kv});
    auto s_factors = shared_tensor(float32, {kRows, 1});  // by which sums shrink
    const int filling = is_float8 ? 128 : 1;
    Pipeline first_pipe(stages, filling), second_pipe(stages, filling);  // the rest goes with the first half
    std::optional<LatentFloat8::Ring> ring;
    if (is_float8) ring.emplace(float8_stages, block_kv, rest, value_size, dtype);
    auto weights_full = mbarrier::alloc(128), weights_empty = mbarrier::alloc(1);
    std::optional<Barrier> scored;
    if (!helps_early) scored = mbarrier::alloc(1);
    sync();
    Int32 length = cache.length_of(batch);
    DecodeColumns columns(steps, length, q_size, batch, block_kv);
    Int32 first = columns.first_of(part, parts), last = columns.first_of(part + 1, parts);

    // Row r of the tile: head r / q_size, row r % q_size. Made for each use, whose layout it takes.
    const auto row = [&] {
      return register_tensor(int32, {kRows, 1}, [&](auto r, auto) { return tile * kRows + r; });
    };
    const auto store = [&](const RegisterBase& result, int column) {
      if (is_divided) {
        auto g_partial = global_view(partial_ptr, {parts, batches, q_rows, value_size});
        store_global(g_partial[part][batch], result, {tile * kRows, column});
      } else {
        // By way of Q's place, which nobody reads any more, so that threads store 16 bytes.
        auto g_o = o_strides.view(o_ptr, dtype, batches, heads, q_size, value_size);
        store_shared(s_q.slice({0, column}, {kRows, half}), result.to(dtype));
        sync();
        for (int i = column; i < column + half; i += kPanel) {
          auto r = row();
          scatter(g_o, load_shared(s_q.slice({0, i}, {kRows, kPanel})), {batch, r / q_size, r % q_size, i},
                  {.mask = r < q_rows});
        }
      }
    };

    if (auto producer = warp_group(8, 4)) {
      setmaxnreg(loading_registers);
      const auto view = [&](const Ptr<>& pointer, DataType type, int size) {
        return cache.k_strides.view(
            pointer, type, cache.is_paged ? cache.pages : batches, 1,
            cache.is_paged ? ScalarArg(cache.rows_of_page) : ScalarArg(cache.pages_per_sequence), size);
      };
      const int of_page = cache.is_paged ? std::min(block_kv, cache.rows_of_page) : block_kv;
      // Where the block's rows from i * of_page on lie.
      const auto page_of = [&](const Int32& block, int i) {
        auto table = global_view(cache.table_ptr, {batches, cache.pages_per_sequence})[batch];
        // Rows beyond the sequence's end come from its last page: the table need not list more.
        Int32 at = min(block * block_kv + i * of_page, (length - 1) / of_page * of_page);
        Int32 page = table[at / cache.rows_of_page];
        const bool is_whole = of_page == cache.rows_of_page;
        return std::pair<Int32, ScalarArg>(page,
                                           is_whole ? ScalarArg(0) : ScalarArg(at % cache.rows_of_page));
      };

      if (is_float8) {
        LatentFloat8::Places places;
        const auto find = [&](const Int32& block) {
          places.clear();
          for (int i = 0; i < block_kv / of_page; ++i) {
            if (cache.is_paged) {
              auto [page, row] = page_of(block, i);
              places.emplace_back(page, row);
            } else {
              places.emplace_back(batch + 0, block * block_kv);
            }
          }
        };
        ring->read_from(view(cache.k_ptr, float8_e4m3, value_size),
                        view(float8.scale_ptr, float32, ring->scales()),
                        rest > 0 ? std::optional(view(float8.rest_ptr, dtype, rest)) : std::nullopt);
        for (int i = 0; i < float8_stages; ++i) {
          Int32 block = first + i;
          if (auto is_there = when(block < last)) {
            find(block);
            if (auto warp = single_warp()) ring->load(i, places);
          }
        }
        for (Int32 block : range(first, last)) {
          Int32 later = block + float8_stages;
          find(later);  // the numbers of pages come while this block is converted
          ring->acquire();
          const auto convert = [&](Pipeline& pipe, const SharedTensor& columns, int first_column,
                                   const std::optional<SharedTensor>& others) {
            pipe.producer_acquire();
            ring->convert(first_column, columns[pipe.producer_stage],
                          others ? std::optional((*others)[pipe.producer_stage]) : std::nullopt, kPanel,
                          block, length);
            fence::proxy_async();
            mbarrier::arrive(pipe.producer_barrier());
            pipe.producer_advance();
          };
          convert(first_pipe, s_first, 0, s_rest);
          convert(second_pipe, s_second, half, {});
          sync();  // all have read the stage
          if (auto is_there = when(later < last))
            if (auto warp = single_warp()) ring->load(ring->stage, places);
          ring->advance();
        }
      } else if (auto warp = single_warp()) {
        auto g_kv = view(cache.k_ptr, dtype, head_size);
        for (Int32 block : range(first, last)) {
          const auto load = [&](Pipeline& pipe, const SharedTensor& columns, int first_column,
                                const std::optional<SharedTensor>& others) {
            pipe.producer_acquire();
            Barrier full = pipe.producer_barrier();
            auto stage = columns[pipe.producer_stage];
            std::optional<SharedTensor> other;
            if (others) other = (*others)[pipe.producer_stage];
            if (auto thread = single_thread())
              mbarrier::arrive_and_expect_tx(full, stage.nbytes() + (other ? other->nbytes() : 0));
            const auto copy = [&](const ScalarArg& page, const ScalarArg& row, int to) {
              const auto part = [&](const SharedTensor& s) {
                return s.slice({to, 0}, {of_page, s.shape(1)});
              };
              tma::global_to_shared(g_kv, part(stage), {page, 0, row, first_column}, full);
              if (other) tma::global_to_shared(g_kv, part(*other), {page, 0, row, value_size}, full);
            };
            if (cache.is_paged) {
              for (int i = 0; i < block_kv / of_page; ++i) {
                auto [page, row] = page_of(block, i);
                copy(page, row, i * of_page);
              }
            } else {
              copy(batch, block * block_kv, 0);
            }
            pipe.producer_advance();
          };
          load(first_pipe, s_first, 0, s_rest);
          load(second_pipe, s_second, half, {});
        }
      }
    }

    if (auto scorer = warp_group(0, 4)) {
      setmaxnreg(registers);
      auto g_q = q_strides.view(q_ptr, dtype, batches, heads, q_size, head_size);
      auto r = min(row(), q_rows - 1);  // what rows beyond the end get is not stored
      copy_async_gather(g_q, s_q, {batch, r / q_size, r % q_size, 0});
      copy_async_wait_all();
      fence::proxy_async();
      sync();

      RegisterTensor out = zeros(float32, {kRows, half});
      OnlineSoftmax softmax(kRows, scale, steps.changes());
      auto scores = wgmma::accumulator(float32, {kRows, block_kv});
      RegisterTensor weights = zeros(dtype, {kRows, block_kv});
      UInt32 weights_phase = mbarrier::producer_initial_phase;
      Int32 next = 0;  // the stage after that of the weights
      UInt32 next_phase = mbarrier::consumer_initial_phase;
      const auto start_scores = [&](const ScalarArg& block) {
        const auto arrive_and_multiply = [&](const Pipeline& pipe, const SharedTensor& columns,
                                             int first_column, bool adds) {
          mbarrier::wait(pipe.full_barriers[next], next_phase);
          auto stage = columns[next];
          const int size = static_cast<int>(stage.shape(1));
          // Weights of rows beyond the end are zero, but what is there may be no number. Of float8 these rows are zero.
          if (is_float8) {
          } else if (auto edge = when((block + 1) * block_kv > length)) {
            auto is_inside = register_tensor(boolean, {block_kv, 1},
                                             [&](auto r, auto) { return block * block_kv + r < length; });
            for (int column = 0; column < size; column += kPanel) {
              auto panel = stage.slice({0, column}, {block_kv, kPanel});
              store_shared(panel, select(is_inside, load_shared(panel), 0));
            }
            fence::proxy_async();
            sync();
          }
          wgmma::fence();
          wgmma::mma(s_q.slice({0, first_column}, {kRows, size}), stage.transpose(), scores,
                     {.scale_d = adds});
        };
        arrive_and_multiply(first_pipe, s_first, 0, false);
        if (s_rest) arrive_and_multiply(first_pipe, *s_rest, value_size, true);
        arrive_and_multiply(second_pipe, s_second, half, true);
        wgmma::commit_group();
        next = select(next == stages - 1, 0, next + 1);
        next_phase ^= next == 0;
      };
      const auto start_output = [&] {
        wgmma::fence();
        wgmma::mma(weights, s_first[first_pipe.consumer_stage], out, {.scale_d = true});
        wgmma::commit_group();
      };
      const auto release = [&] {
        if (auto thread = single_thread()) mbarrier::arrive(first_pipe.consumer_barrier());
        first_pipe.consumer_advance();
      };
      // The other warp group's product of the block before fills the time of the next weights.
      const auto let_the_other_multiply = [&] {
        if (!scored) return;
        if (auto thread = single_thread()) mbarrier::arrive(*scored);
      };
      const auto tile_of = [&](const Int32& offset) {
        return ScoreTile{
            [&] { return row() % q_size + (length - q_size); },
            [&] {
              return register_tensor(int32, {1, block_kv}, [&](auto, auto j) { return offset + j; });
            },
            [&] { return min(row() / q_size, heads - 1); }, batch};
      };
      const auto weigh = [&](const ScalarArg& block) {
        Int32 offset = block * block_kv;
        columns.apply(scores, offset, scale, tile_of(offset));
        return softmax.weigh(scores);
      };
      Int32 first_column = first * block_kv;
      steps.with_sink(tile_of(first_column), [&](const RegisterValue& sink) {
        softmax.begin_with(sink, register_tensor(boolean, {kRows, 1}, [&](auto, auto) { return part == 0; }));
      });
      // Hands the factors to the other warp group, and the weights if there are any.
      const auto hand_over = [&](const RegisterBase& factors, bool has_weights) {
        mbarrier::wait(weights_empty, weights_phase);
        weights_phase ^= 1;
        store_shared(s_factors, factors);
        if (has_weights) store_shared(s_weights, weights);
        fence::proxy_async();
        mbarrier::arrive(weights_full);
      };

      if (auto some = when(first < last)) {
        start_scores(first);
        wgmma::wait_group(0);
        auto none = weigh(first);
        weights = scores;
        hand_over(none, true);
        for (Int32 block : range(first + 1, last)) {
          start_output();  // of the block before
          start_scores(block);
          wgmma::wait_group(1);
          release();
          wgmma::wait_group(0);
          let_the_other_multiply();
          auto shrink = weigh(block);
          out = out * shrink;
          weights = scores;
          hand_over(shrink, true);
        }
        start_output();
        let_the_other_multiply();
        wgmma::wait_group(0);
        release();
      }
      auto inverse = softmax.inverse();
      hand_over(inverse, false);
      auto g_log_sum = global_view(log_sum_ptr, {parts, batches, q_rows, 1});
      store_global(g_log_sum[part][batch], softmax.log_sum_exp(), {tile * kRows, 0});
      store(out * inverse, 0);
    }

    if (auto helper = warp_group(4, 4)) {
      setmaxnreg(registers);
      RegisterTensor out = zeros(float32, {kRows, half});
      UInt32 weights_phase = mbarrier::consumer_initial_phase,
             scored_phase = mbarrier::consumer_initial_phase;
      const auto take = [&] {
        mbarrier::wait(weights_full, weights_phase);
        weights_phase ^= 1;
        out = out * load_shared(s_factors);
      };
      for (Int32 block : range(first, last)) {
        second_pipe.consumer_acquire();
        take();
        if (scored) {
          mbarrier::wait(*scored, scored_phase);
          scored_phase ^= 1;
        }
        wgmma::fence();
        wgmma::mma(s_weights, s_second[second_pipe.consumer_stage], out, {.scale_d = true});
        wgmma::commit_group();
        wgmma::wait_group(0);
        sync();  // all threads have read the factors
        if (auto thread = single_thread()) {
          mbarrier::arrive(weights_empty);
          mbarrier::arrive(second_pipe.consumer_barrier());
        }
        second_pipe.consumer_advance();
        (void)block;
      }
      take();
      store(out, half);
    }
  }
};

}  // namespace imbrex::kernels
