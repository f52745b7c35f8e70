// SPDX-License-Identifier: Apache-2.0
// What the forward and the backward pass of the library's attention share: the options as steps on scores, and the tiles.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "attention/kv_arguments.h"
#include "attention/score_arguments.h"
#include "attention/tensors.h"
#include "imbrex/kernels/attention/forward.h"

namespace imbrex {

/// Checks the options' numbers and tensors.
inline ScoreArguments score_arguments(const AttentionCall& call, const AttentionOptions& o,
                                      const AttentionSizes& s, uint64_t any_address) {
  call.check_extra("alibi_slopes", o.alibi_slopes, float32, {s.heads});
  call.check_extra("sinks", o.sinks, float32, {s.heads});
  if (o.window_left < -1 || o.window_right < -1)
    call.refuse("a window of " + std::to_string(o.window_left) + " columns before and " +
                    std::to_string(o.window_right) + " behind",
                "give numbers of columns, or -1 for all");
  if (o.prefix < 0)
    call.refuse("a prefix of " + std::to_string(o.prefix) + " columns",
                "give their number, or 0 for no such mask");
  if (!(o.soft_cap >= 0) || std::isinf(o.soft_cap))
    call.refuse("a soft_cap of " + std::to_string(o.soft_cap), "give a positive number, or 0 for none");
  constexpr int64_t kAll = std::numeric_limits<int32_t>::max() / 2;  // sums with positions stay in range
  const auto bounded = [&](int64_t columns) { return columns < 0 ? kAll : std::min(columns, kAll); };
  ScoreArguments a;
  a.causal = o.causal && o.prefix == 0;  // which sees the columns up to the own one as well
  a.prefix = o.prefix > 0;
  a.window = o.window_left >= 0 || o.window_right >= 0;
  a.left = bounded(o.window_left), a.right = bounded(o.window_right);
  a.length = std::min(o.prefix, kAll);
  a.soft_cap = o.soft_cap > 0, a.cap = o.soft_cap;
  a.alibi = !o.alibi_slopes.is_null(), a.sink = !o.sinks.is_null();
  a.heads = s.heads;
  a.slopes = a.alibi ? o.alibi_slopes.address() : any_address;
  a.sinks = a.sink ? o.sinks.address() : any_address;
  return a;
}

/// Whether steps take registers that smaller tiles must leave.
inline bool needs_registers(const ScoreArguments& steps) {
  return steps.window || steps.prefix || steps.soft_cap || steps.alibi;
}

/// The tiles of the forward pass.
template <class Forward>
Forward forward_tiles(const AttentionSizes& s, const ScoreArguments& steps, int multiprocessors,
                      bool is_float8, bool is_packed, bool wants_log_sum) {
  Forward kernel;
  kernel.ctas = multiprocessors;
  const int64_t larger = std::max(s.head_size, s.value_size), both = s.head_size + s.value_size;
  // A third consumer fills the time in which the others wait for their scores, where its registers suffice: without masks.
  const bool has_room =
      !steps.causal && !steps.sink && !needs_registers(steps) && !is_packed && s.rows_kv > 2048;
  if (is_float8) {
    kernel.block_kv = s.value_size > 128                    ? 96
                      : steps.alibi                         ? 64
                      : needs_registers(steps) || is_packed ? 128
                                                            : 160;
    if (has_room && larger <= 128) kernel.consumers = 3, kernel.block_kv = 96, kernel.stages = 3;
    return kernel;
  }
  if (has_room && larger <= 64 && !wants_log_sum) {
    kernel.consumers = 3;
    return kernel;
  }
  // Where there is room, the rows of Q of the next tile are on their way; else consumers of short rows take turns.
  if (larger <= 128)
    kernel.q_stages = 2;
  else
    kernel.takes_turns = s.rows_kv <= 2048;
  // The place of a tile takes registers too, and so do loads in many pieces.
  const bool is_tight = is_packed && (both > 384 || s.head_size % 32 != 0 || s.value_size % 32 != 0);
  if (larger > 128) kernel.block_kv = is_tight ? 48 : both > 384 ? 80 : both > 320 ? 96 : 112;
  if (steps.alibi) {  // both positions of every score
    kernel.block_kv = is_tight ? 32 : larger > 128 ? 48 : 64;
    kernel.stages = larger > 128 ? 2 : 4;
  }
  if (s.value_size > s.head_size) {  // O has no room in the memory of Q
    const int64_t others = Forward::kRows * kernel.consumers * (kernel.q_stages * s.head_size + s.value_size),
                  room = (Forward::kSharedBytes / 2 - others) / (kernel.stages * both);
    kernel.block_kv = static_cast<int>(std::min<int64_t>(kernel.block_kv, room / 16 * 16));
  }
  return kernel;
}

/// Of float8 with scales of rows: blocks that have one scale each.
template <class Forward>
void use_blocks_of_scaled_rows(Forward& kernel, const AttentionSizes& s, const ScoreArguments& steps) {
  const bool is_small = s.value_size > 128 || needs_registers(steps);
  kernel.consumers = 2, kernel.block_kv = is_small ? 64 : kernels::kScaledRows,
  kernel.stages = is_small ? 3 : 2;
}

/// V of float8 as TransposeValues leaves it.
inline std::vector<int64_t> transposed_shape(const AttentionSizes& s, const PackedArguments& packed) {
  constexpr int64_t kUnit = kernels::kFloat8Columns;
  const int64_t units =
      packed.is_packed ? s.rows_kv / kUnit + packed.sequences : (s.rows_kv + kUnit - 1) / kUnit;
  return {s.batch, s.heads_kv, s.value_size, units * kUnit};
}

/// Heads of Q whose K and V stay in the L2 cache together.
inline int64_t heads_of_section(const AttentionSizes& s) {
  constexpr int64_t kBytes = int64_t{24} << 20;
  return std::max<int64_t>(1, kBytes / (s.rows_kv * (s.head_size + s.value_size) * 2)) * s.group();
}

}  // namespace imbrex
