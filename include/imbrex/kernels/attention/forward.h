// SPDX-License-Identifier: Apache-2.0
// Attention of many query rows in one persistent kernel: O = softmax(scale Q K^T) V for every head; the matrix of scores
// is never in global memory. A tile is 64 rows of Q for each consumer; blocks of K and V stream through a ring. The scores
// of the next block are computed while the exponentials of this one are, and a tile's loads begin while the one before
// it ends.
#pragma once

#include <optional>

#include "imbrex/kernels/attention/float8_operands.h"
#include "imbrex/kernels/attention/head_strides.h"
#include "imbrex/kernels/attention/online_softmax.h"
#include "imbrex/kernels/attention/packed_sequences.h"
#include "imbrex/kernels/attention/score_steps.h"
#include "imbrex/kernels/attention/tile_order.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

template <class... Steps>
struct ForwardAttention {
  static constexpr const char* target = "sm_90a";
  static constexpr int kRows = 64;                     // of a consumer
  static constexpr int64_t kSharedBytes = 224 * 1024;  // of tiles
  int block_kv = 128, stages = 2, consumers = 2, ctas = 132;
  bool takes_turns = false;  // two consumers start products in turns
  int q_stages = 1;          // 2: the rows of Q of the next tile come while this one is worked on

  static auto space() {
    return Space<ForwardAttention>()
        .template choose<&ForwardAttention::block_kv, &ForwardAttention::stages,
                         &ForwardAttention::consumers>(
            {{128, 2, 2}, {160, 2, 2}, {96, 2, 2}, {80, 2, 2}, {64, 4, 2}, {64, 2, 3}})
        .template choose<&ForwardAttention::takes_turns, &ForwardAttention::q_stages>(
            {{false, 1}, {false, 2}, {true, 2}, {true, 1}})
        .template choose<&ForwardAttention::ctas>({132});
  }

  /// Q and O are [batches, heads, q_size, ...], K and V [batches, heads / group, kv_size, ...], of `dtype` (float16,
  /// bfloat16, or float8_e4m3 with `scales`; then V is what TransposeValues leaves, and O is of `o_dtype`, else of dtype); rows
  /// of Q and K have head_size elements, those of V and O value_size. Position of row i: i + kv_size - q_size. With
  /// `wants_log_sum`, the logarithm of each row's sum of weights goes to log_sum [batches, heads, q_size]. `packed`: rows
  /// are of several sequences, which do not see each other; positions are then those in the sequence.
  void operator()(Int32 batches, Int32 heads, Int32 q_size, Int32 kv_size, int head_size, int value_size,
                  int group, float scale, DataType dtype, DataType o_dtype, Ptr<> q_ptr,
                  HeadStrides q_strides, Ptr<> k_ptr, HeadStrides k_strides, Ptr<> v_ptr,
                  HeadStrides v_strides, Ptr<> o_ptr, HeadStrides o_strides, bool wants_log_sum,
                  Ptr<float32> log_sum_ptr, AttentionTileOrder order, PackedSequences packed,
                  Float8Scales scales, ScoreSteps<Steps...> steps) const {
    for (const int size : {head_size, value_size})
      require(size % 16 == 0 && size <= 256, "heads of {}: a multiple of 16, at most 256", size);
    const bool is_float8 = dtype == float8_e4m3, is_packed = packed.is_packed;
    require(!is_float8 || head_size % 32 == 0, "heads of {}: of float8, a multiple of 32", head_size);
    const int block_q = consumers * kRows;
    const bool scales_rows = is_float8 && scales.are_of_rows();
    require(!scales_rows || kScaledRows % block_kv == 0, "scales of {} rows with blocks of {}: a divisor",
            kScaledRows, block_kv);
    Int32 blocks = packed.blocks(q_size, block_q);
    Int32 num_tiles = blocks * heads * batches;
    grid(min(num_tiles, ctas));
    warps(4 + 4 * consumers);

    auto g_q = q_strides.view(q_ptr, dtype, batches, heads, q_size, head_size);
    auto g_k = k_strides.view(k_ptr, dtype, batches, heads / group, kv_size, head_size);
    auto g_v = is_float8 ? v_strides.view(v_ptr, dtype, batches, heads / group, value_size,
                                          float8_columns(kv_size, packed))
                         : v_strides.view(v_ptr, dtype, batches, heads / group, kv_size, value_size);
    auto g_o = o_strides.view(o_ptr, o_dtype, batches, heads, q_size, value_size);
    // O has memory of its own where there is room; else it takes that of Q, whose next rows come later then.
    const int64_t taken =
        (q_stages * block_q * head_size + stages * block_kv * (head_size + value_size)) * (dtype.bits() / 8);
    const bool o_in_q = taken + block_q * value_size * (o_dtype.bits() / 8) > kSharedBytes;
    require(!o_in_q || value_size <= head_size,
            "blocks of {}: fewer leave room for rows of O, which are longer than Q's", block_kv);
    auto s_q = shared_tensor(dtype, {q_stages, block_q, head_size});
    std::optional<SharedTensor> own_o;
    if (!o_in_q) own_o = shared_tensor(o_dtype, {block_q, value_size});
    auto s_k = shared_tensor(dtype, {stages, block_kv, head_size});
    auto s_v = shared_tensor(
        dtype, is_float8 ? Shape{stages, value_size, block_kv} : Shape{stages, block_kv, value_size});
    Pipeline k_pipe(stages, 1, consumers), v_pipe(stages, 1, consumers);
    const std::vector<int64_t> of_q(static_cast<size_t>(q_stages * consumers), 1);
    auto q_full = mbarrier::alloc(of_q), q_empty = mbarrier::alloc(of_q);
    // Of consumer i in a stage; and the step to the next stage.
    const auto q_barrier = [&](const BarrierArray& barriers, int i, const Int32& stage) {
      return q_stages == 1 ? barriers[i] : barriers[stage * consumers + i];
    };
    const auto q_rows_of = [&](int i, const Int32& stage) {
      return (q_stages == 1 ? s_q[0] : s_q[stage]).slice({i * kRows, 0}, {kRows, head_size});
    };
    const auto advance_q = [&](Int32& stage, UInt32& phase) {
      if (q_stages == 1) {
        phase ^= 1;
      } else {
        stage = select(stage == q_stages - 1, 0, stage + 1);
        phase ^= stage == 0;
      }
    };
    const bool in_turns = takes_turns && consumers == 2;
    std::optional<BarrierArray> turns;
    if (in_turns) turns = mbarrier::alloc({128, 128});
    std::optional<EndOfSequence> ends;
    if (is_packed) ends.emplace(consumers);
    sync();

    // Calls `work` for each of this CTA's tiles: the rows from first_row on of a sequence, of a head.
    struct Tile {
      const Int32 &first_row, &head, &batch, &sequence;
      const SequenceRows& rows;
      Expr shift() const { return rows.kv_size - rows.q_size; }  // from rows to positions
    };
    const auto each_tile = [&](const auto& work) {
      order.each(blocks, heads, batches, [&](const Int32& block, const Int32& head, const Int32& batch) {
        if (is_packed) {
          Int32 sequence = 0, of_sequence = 0;
          SequenceRows rows;
          packed.find(block, block_q, false, sequence, of_sequence);
          packed.rows_of(sequence, rows);
          Int32 first_row = of_sequence * block_q;
          if (auto is_there = when(first_row < rows.q_size)) work({first_row, head, batch, sequence, rows});
        } else {
          Int32 first_row = block * block_q;
          work({first_row, head, batch, batch, {0, q_size, 0, kv_size}});
        }
      });
    };
    // The block of scaled rows that a row of a tile's sequence is in, whose rows begin at `begin` among `rows`.
    const auto scaled_block = [&](const Tile& t, const ScalarArg& row, const Int32& begin,
                                  const Int32& rows) -> Float8Scales::Block {
      return {packed.block_of(begin, t.sequence, row, kScaledRows), packed.blocks(rows, kScaledRows)};
    };
    // Blocks of columns that rows of a tile see: from `begin`, a multiple of block_kv, to `end`. At least one, so that all
    // rings turn; its scores are masked.
    const auto columns_of = [&](const Tile& t, Int32& begin, Int32& end) {
      begin = 0;
      end = t.rows.kv_size;
      steps.narrow(
          {t.first_row + t.shift(), min(t.first_row + block_q, t.rows.q_size) - 1 + t.shift(), t.sequence},
          begin, end);
      begin = max(min(max(begin, 0), t.rows.kv_size - 1), 0) / block_kv * block_kv;
      end = max(end, begin + 1);
    };

    // Large heads whose rows are no multiple of a swizzle's bytes: each load of them is many, for which the producer needs
    // registers.
    const int swizzled = is_packed ? 64 : 32;
    const bool loads_by_many = consumers == 2 && std::max(head_size, value_size) > 128 &&
                               (head_size % swizzled != 0 || value_size % swizzled != 0);
    const int loading_registers = !loads_by_many ? (consumers == 2 ? 24 : 32) : is_packed ? 56 : 40;

    if (auto producer = warp_group(0, 4)) {
      setmaxnreg(loading_registers);
      if (auto warp = single_warp()) {
        UInt32 q_phase = mbarrier::producer_initial_phase;
        Int32 q_stage = 0;
        each_tile([&](const Tile& t) {
          Int32 head_kv = t.head / group, begin = 0, end = 0;
          columns_of(t, begin, end);
          for (int i = 0; i < consumers; ++i) {
            auto rows = q_rows_of(i, q_stage);
            Barrier full = q_barrier(q_full, i, q_stage);
            mbarrier::wait(q_barrier(q_empty, i, q_stage), q_phase);
            if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(full, rows.nbytes());
            tma::global_to_shared(g_q, rows, {t.batch, t.head, t.rows.q_begin + t.first_row + i * kRows, 0},
                                  full);
          }
          advance_q(q_stage, q_phase);
          Int32 begin_of_values = t.rows.kv_begin + 0;
          if (is_float8 && is_packed)
            begin_of_values = packed.begin_of_blocks(t.rows.kv_begin, t.sequence, kFloat8Columns);
          for (Int32 offset_kv : range(begin, end, block_kv)) {
            Int32 row = t.rows.kv_begin + offset_kv, column = begin_of_values + offset_kv;
            const auto load = [&](Pipeline& pipe, const GlobalTensor& g, const SharedTensor& s,
                                  bool is_transposed) {
              pipe.producer_acquire();
              auto stage = s[pipe.producer_stage];
              if (auto thread = single_thread())
                mbarrier::arrive_and_expect_tx(pipe.producer_barrier(), stage.nbytes());
              const Scalars rows{t.batch, head_kv, row, 0}, columns{t.batch, head_kv, 0, column};
              tma::global_to_shared(g, stage, is_transposed ? columns : rows, pipe.producer_barrier());
              pipe.producer_advance();
            };
            load(k_pipe, g_k, s_k, false);
            load(v_pipe, g_v, s_v, is_float8);
          }
        });
      }
    }

    for (int i = 0; i < consumers; ++i) {
      if (auto consumer = warp_group(4 + 4 * i, 4)) {
        setmaxnreg((512 - loading_registers) / consumers / 8 * 8);
        Int32 q_stage = 0;
        UInt32 q_phase = mbarrier::consumer_initial_phase, cleared_phase = mbarrier::consumer_initial_phase;
        const auto release = [&](Pipeline& pipe) {
          if (auto thread = single_thread()) mbarrier::arrive(pipe.consumer_barrier());
          pipe.consumer_advance();
        };
        UInt32 turn_phase = i == 0 ? mbarrier::producer_initial_phase : mbarrier::consumer_initial_phase;
        const auto take_turn = [&] {
          if (!in_turns) return;
          mbarrier::wait((*turns)[i], turn_phase);
          turn_phase ^= 1;
        };
        const auto give_turn = [&] {
          if (in_turns) mbarrier::arrive((*turns)[1 - i]);
        };
        auto scores = wgmma::accumulator(float32, {kRows, block_kv});
        RegisterTensor out = zeros(float32, {kRows, value_size});
        RegisterTensor weights = zeros(dtype, {kRows, block_kv});
        const auto start_scores = [&] {
          k_pipe.consumer_acquire();
          wgmma::fence();
          wgmma::mma(q_rows_of(i, q_stage), s_k[k_pipe.consumer_stage].transpose(), scores,
                     {.scale_d = false});
          wgmma::commit_group();
        };
        const auto start_output = [&](const ScalarArg& adds) {
          v_pipe.consumer_acquire();
          auto stage = s_v[v_pipe.consumer_stage];
          wgmma::fence();
          wgmma::mma(weights, is_float8 ? stage.transpose() : stage, out, {.scale_d = adds});
          wgmma::commit_group();
        };
        const auto take_weights = [&] {
          if (is_float8)
            weights = float8_weights(scores);
          else
            weights = scores;
        };

        each_tile([&](const Tile& t) {
          Int32 first_row = t.first_row + i * kRows, shift = t.shift(), begin = 0, end = 0;
          columns_of(t, begin, end);
          const Int32& kv_end = t.rows.kv_size;
          const ScalarArg factor =
              is_float8 ? scales.of_scores(
                              t.batch, t.head, group,
                              scaled_block(t, min(first_row, t.rows.q_size - 1), t.rows.q_begin, q_size)) *
                              scale
                        : ScalarArg(scale);
          OnlineSoftmax softmax(kRows, factor, steps.changes(), is_float8 ? kFloat8WeightExponent : 0);
          const auto tile_of = [&](const Int32& offset_kv) {
            return score_tile(kRows, first_row, shift, block_kv, offset_kv, t.head, t.sequence);
          };
          // Scales of the block's rows of K and V: read before its scores are there.
          Float32 scale_of_keys = 1.f, scale_of_values = 1.f;
          const auto read_scales = [&](const Int32& offset_kv) {
            const auto block = scaled_block(t, offset_kv, t.rows.kv_begin, kv_size);
            const auto read = [&] {
              scale_of_keys = scales.of_keys(t.batch, t.head, group, block);
              scale_of_values = scales.of_values(t.batch, t.head, group, block);
            };
            if (!is_packed) return read();
            if (auto some = when(t.rows.kv_size > 0)) read();  // a sequence without rows has no scales
          };
          const auto weigh = [&](const Int32& offset_kv) {
            const ScoreTile at = tile_of(offset_kv);
            if (steps.changes()) {
              scores = scales_rows ? scores * (factor * scale_of_keys) : scores * factor;
              steps.change(scores, at);
            }
            auto is_edge = steps.is_edge({first_row + shift, first_row + (kRows - 1) + shift, offset_kv,
                                          offset_kv + (block_kv - 1), t.sequence},
                                         kv_end);
            if (auto edge = when(is_edge)) steps.mask(scores, at, kv_end);
            return scales_rows && !steps.changes() ? softmax.weigh(scores, scale_of_keys)
                                                   : softmax.weigh(scores);
          };
          steps.with_sink(tile_of(begin), [&](const RegisterValue& sink) { softmax.begin_with(sink); });

          mbarrier::wait(q_barrier(q_full, i, q_stage), q_phase);
          take_turn();
          start_scores();
          give_turn();
          if (scales_rows) read_scales(begin);
          wgmma::wait_group(0);
          release(k_pipe);
          weigh(begin);
          take_weights();
          for (Int32 offset_kv : range(begin + block_kv, end, block_kv)) {
            take_turn();
            start_scores();  // of this block; below, the output of the block before
            start_output(offset_kv > begin + block_kv);
            give_turn();
            Float32 scale_before = 1.f;
            if (scales_rows) {
              scale_before = scale_of_values;
              read_scales(offset_kv);
            }
            wgmma::wait_group(1);
            release(k_pipe);
            auto shrink = weigh(offset_kv);
            wgmma::wait_group(0);
            release(v_pipe);
            if (scales_rows)  // the sum has been in units of the block before
              out = out * (shrink * (scale_before / scale_of_values));
            else
              out = out * shrink;
            take_weights();
          }
          if (!o_in_q)
            if (auto thread = single_thread())  // the last scores are there
              mbarrier::arrive(q_barrier(q_empty, i, q_stage));
          if (is_packed) {
            Int32 last = begin + (end - 1 - begin) / block_kv * block_kv;
            if (auto edge = when(last + block_kv > kv_end)) {
              v_pipe.consumer_acquire();
              auto stage = s_v[v_pipe.consumer_stage];
              if (is_float8 || value_size <= 128) {                 // all at once, where registers suffice
                const int all = is_float8 ? value_size : block_kv;  // of float8 the rows are the columns
                const int parts = all % (8 * consumers) == 0 ? consumers : 1, rows = all / parts;
                if (i < parts) {
                  auto part = stage.slice({i * rows, 0}, {rows, is_float8 ? block_kv : value_size});
                  if (is_float8) {  // of the last 16, which are not in order, what is behind the end is zero already
                    auto is_inside = register_tensor(boolean, {1, block_kv}, [&](auto, auto c) {
                      return last + c / kFloat8Columns * kFloat8Columns < kv_end;
                    });
                    store_shared(part, select(is_inside, load_shared(part), 0));
                  } else {
                    auto is_inside = register_tensor(
                        boolean, {rows, 1}, [&](auto r, auto) { return last + i * rows + r < kv_end; });
                    store_shared(part, select(is_inside, load_shared(part), 0));
                  }
                  fence::proxy_async();
                }
                ends->wait(cleared_phase);
              } else {
                ends->clear(kv_end - last, {stage}, i, cleared_phase);
              }
            }
          }
          start_output(end > begin + block_kv);
          wgmma::wait_group(0);
          release(v_pipe);

          // Rows of the tensors, and which of them are this sequence's. Made for each use, whose layout it takes.
          const auto row = [&] {
            return register_tensor(int32, {kRows, 1}, [&](auto r, auto) { return first_row + r; });
          };
          if (wants_log_sum) {
            auto g_log_sum = global_view(log_sum_ptr, {batches, heads, q_size, 1});
            if (is_packed)
              scatter(g_log_sum, softmax.log_sum_exp(), {t.batch, t.head, row() + t.rows.q_begin, 0},
                      {.mask = row() < t.rows.q_size});
            else
              store_global(g_log_sum[t.batch][t.head], softmax.log_sum_exp(), {first_row, 0});
          }
          auto inverse = softmax.inverse();
          auto result = (out * (scales_rows ? inverse * scale_of_values
                                : is_float8 ? inverse * scales.of_values(t.batch, t.head, group)
                                            : inverse))
                            .to(o_dtype);
          const auto store = [&] {
            if (!o_in_q) {
              if (auto warp = single_warp()) tma::wait_group(0, {.read = true});
              sync();  // the tile before has been stored
            }
            auto s_o_rows = o_in_q ? q_rows_of(i, q_stage).slice({0, 0}, {kRows, value_size})
                                   : own_o->slice({i * kRows, 0}, {kRows, value_size});
            store_shared(s_o_rows, result);
            fence::proxy_async();
            sync();
            if (auto warp = single_warp()) {
              tma::shared_to_global(s_o_rows, g_o, {t.batch, t.head, t.rows.q_begin + first_row, 0});
              tma::commit_group();
              if (o_in_q) {
                tma::wait_group(0, {.read = true});
                if (auto thread = single_thread()) mbarrier::arrive(q_barrier(q_empty, i, q_stage));
              }
            }
          };
          if (is_packed) {
            if (auto whole = when(first_row + kRows <= t.rows.q_size)) store();
            if (auto end_of_sequence = otherwise()) {
              scatter(g_o, result, {t.batch, t.head, row() + t.rows.q_begin, 0},
                      {.mask = row() < t.rows.q_size});
              if (o_in_q)
                if (auto thread = single_thread()) mbarrier::arrive(q_barrier(q_empty, i, q_stage));
            }
          } else {
            store();
          }
          advance_q(q_stage, q_phase);
        });
        if (auto warp = single_warp()) tma::wait_group(0, {.read = true});
      }
    }
  }
};

}  // namespace imbrex::kernels
