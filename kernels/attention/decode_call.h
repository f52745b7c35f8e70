// SPDX-License-Identifier: Apache-2.0
// What calls of attention_decode and attention_latent_decode have alike: checks of options, and the parts that CTAs
// make of one sequence with the launch that merges them.
#pragma once

#include <fmt/format.h>

#include <vector>

#include "attention/configured_kernel.h"
#include "attention/decode_launch.h"
#include "attention/kv_arguments.h"
#include "attention/tensors.h"
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

inline void check_cache_rows(const AttentionCall& call, const DeviceTensor& cache) {
  if (!has_tma_rows(cache))
    call.refuse("TMA does not reach the cache as it lies",
                "its address and strides must be multiples of 16 bytes, and elements of a row neighbours");
}

/// Where the parts of a sequence leave their rows of values and the logarithms of their sums. Memory that the launches
/// need goes to `held`.
struct DecodeParts {
  DecodeParts(const DecodeSizes& s, int64_t value_size, int64_t parts, const DeviceTensor& q,
              const AttentionDecodeOptions& options, std::vector<Workspace>& held)
      : is_divided(parts > 1),
        wants_log_sum(!options.log_sum_exp.is_null()),
        parts(parts),
        value_size(value_size) {
    const int64_t rows = s.batches * s.heads_kv * s.group * s.q_size;
    const auto floats = [&](int64_t n) {
      held.push_back(Workspace::on(options.stream, q.device(), 4 * n));
      return held.back().address();
    };
    partial = is_divided ? floats(parts * rows * value_size) : q.address();
    log_sum = is_divided || !wants_log_sum ? floats(parts * rows) : options.log_sum_exp.address();
  }

  /// Launches the merge of the parts into O.
  LaunchReport merge(const DecodeSizes& s, const DeviceTensor& q, const HeadArguments& o,
                     const AttentionDecodeOptions& options) const {
    const kernels::MergeAttention tiles = merge_tiles(parts);
    return configured_kernel(q.device(), tiles, {tiles.block_parts, 0, 0})
        .on(options.stream)(s.batches, s.heads_kv * s.group, s.q_size, parts, value_size, q.dtype(),
                            wants_log_sum, partial, log_sum, o,
                            wants_log_sum ? options.log_sum_exp.address() : log_sum);
  }

  bool is_divided, wants_log_sum;
  int64_t parts, value_size;
  uint64_t partial, log_sum;
};

}  // namespace imbrex
