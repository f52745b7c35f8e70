// SPDX-License-Identifier: Apache-2.0
// What calls of attention_decode and attention_latent_decode have alike: checks of options, memory for the parts that CTAs make
// of one sequence, and the launch that merges them.
#pragma once

#include <fmt/format.h>

#include <vector>

#include "attention/configured_kernel.h"
#include "attention/decode_launch.h"
#include "attention/forward_launch.h"
#include "attention/kv_arguments.h"
#include "attention/tensors.h"
#include "imbrex/kernels/attention/blackwell_decode.h"
#include "imbrex/kernels/attention/merge.h"

namespace imbrex {

/// Page table, lengths, log_sum_exp and parts.
inline void check_decode_options(const AttentionCall& call, int64_t batches, const DeviceTensor& q,
                                 const AttentionDecodeOptions& options) {
  if (!options.page_table.is_null()) {
    const DeviceTensor& table = options.page_table;
    if (table.shape().size() != 2 || table.shape()[0] != batches || table.shape()[1] < 1)
      call.refuse("page_table has another shape than [batch, pages of a sequence]",
                  fmt::format("give {} rows of page numbers, int32", batches));
    call.check_extra("page_table", table, int32, table.shape());
    if (options.lengths.is_null())
      call.refuse("a page table without lengths", "give the rows that each sequence has");
  }
  call.check_extra("lengths", options.lengths, int32, {batches});
  std::vector<int64_t> rows = q.shape();
  rows.pop_back();
  call.check_extra("log_sum_exp", options.log_sum_exp, float32, rows);
  if (options.parts < 0 || options.parts > 4096)
    call.refuse(fmt::format("{} parts", options.parts), "give 1 to 4096, or 0 for as many as fill the GPU");
}

/// Checks the numbers and tensors of masks and modifications, of `heads` heads of Q.
inline ScoreArguments decode_score_arguments(const AttentionCall& call, const AttentionDecodeOptions& options,
                                             int64_t heads, uint64_t any_address) {
  AttentionOptions scores;
  scores.causal = options.causal, scores.window_left = options.window_left;
  scores.soft_cap = options.soft_cap;
  scores.alibi_slopes = options.alibi_slopes, scores.sinks = options.sinks;
  return score_arguments(call, scores, {.heads = heads}, any_address);
}

inline void check_cache_rows(const AttentionCall& call, const DeviceTensor& cache) {
  if (!has_tma_rows(cache))
    call.refuse("TMA does not reach the cache as it lies",
                "its address and strides must be multiples of 16 bytes, and elements of a row neighbours");
}

/// What a launch passes for kernels::PartialResults.
struct PartialArguments {
  kernels::Division division;
  bool wants_log_sum;
  uint64_t partial, log_sum, tickets, all_log_sum;
  auto arguments() const { return std::tie(division, wants_log_sum, partial, log_sum, tickets, all_log_sum); }
};

/// Memory that the launches need goes to `held`. `tile_rows`: rows of Q of a CTA.
inline PartialArguments partial_arguments(const DecodeSizes& s, int64_t value_size, int64_t parts,
                                          kernels::Division division, int64_t tile_rows,
                                          const DeviceTensor& q, const AttentionDecodeOptions& options,
                                          std::vector<Workspace>& held) {
  const int64_t rows = s.group * s.q_size, groups = s.batches * s.heads_kv;
  const auto memory = [&](int64_t elements, Workspace::Contents contents = Workspace::Contents::kUndefined) {
    held.push_back(Workspace::on(options.stream, q.device(), 4 * elements, contents));
    return held.back().address();
  };
  const bool is_divided = division != kernels::Division::kNone,
             wants_log_sum = !options.log_sum_exp.is_null();
  const uint64_t unused = q.address();  // a pointer must not be null
  return {
      .division = division,
      .wants_log_sum = wants_log_sum,
      .partial = is_divided ? memory(parts * groups * rows * value_size) : unused,
      .log_sum = is_divided || !wants_log_sum ? memory(parts * groups * rows) : options.log_sum_exp.address(),
      .tickets = division == kernels::Division::kMerged
                     ? memory(groups * ((rows + tile_rows - 1) / tile_rows), Workspace::Contents::kLeftZero)
                     : unused,
      .all_log_sum = wants_log_sum ? options.log_sum_exp.address() : unused};
}

/// Launches the merge of kLeft into O.
inline LaunchReport merge_parts(const DecodeSizes& s, int64_t value_size, int64_t parts, DataType dtype,
                                const PartialArguments& results, const HeadArguments& o, const Device& device,
                                const Stream& stream) {
  const kernels::MergeAttention tiles = merge_tiles(parts);
  const auto launch = [&](const auto& kernel) {
    return configured_kernel(device, kernel, {tiles.block_parts, 0, 0})
        .on(stream)(s.batches, s.heads_kv * s.group, s.q_size, parts, value_size, dtype,
                    results.wants_log_sum, results.partial, results.log_sum, o, results.all_log_sum);
  };
  return is_blackwell(device) ? launch(kernels::BlackwellMergeAttention{tiles.block_parts, tiles.num_warps})
                              : launch(tiles);
}

}  // namespace imbrex
