// SPDX-License-Identifier: Apache-2.0
// How decoding is launched: into how many parts the caches are divided, and the memory for their results.
#pragma once

#include <algorithm>
#include <cstdint>

#include "imbrex/kernels/attention/merge.h"
#include "imbrex/kernels/attention/partial_results.h"

namespace imbrex {

struct DecodeSizes {
  int64_t batches, heads_kv, group, q_size, capacity, head_size;
};

/// Into how many parts the cache of each sequence is divided, so that as many CTAs run as the GPU has room for.
inline int64_t decode_parts(const DecodeSizes& s, int64_t multiprocessors, int64_t block_kv) {
  const int64_t tiles = s.batches * s.heads_kv * ((s.group * s.q_size + 63) / 64);
  const int64_t room = multiprocessors * (s.head_size <= 128 ? 2 : 1);
  const int64_t blocks = (s.capacity + block_kv - 1) / block_kv;
  // Part of the room that is busy, over all rounds of CTAs.
  const auto busy = [&](int64_t parts) {
    const int64_t ctas = tiles * parts, rounds = (ctas + room - 1) / room;
    return static_cast<double>(ctas) / static_cast<double>(rounds * room);
  };
  const int64_t most = std::clamp<int64_t>(std::max<int64_t>(room / tiles, 8), 1,
                                           std::max<int64_t>(blocks / 2, 1));  // no part of a single block
  int64_t best = 1;
  for (int64_t parts = 2; parts <= most; ++parts)
    if (busy(parts) > busy(best) + 0.05) best = parts;  // a part costs a result to be merged
  return best;
}

/// Who merges the parts. The last CTA of `tile_rows` rows reads what a launch has many CTAs for, but needs no launch.
inline kernels::Division decode_division(const DecodeSizes& s, int64_t value_size, int64_t parts,
                                         int64_t tile_rows) {
  constexpr int64_t kMostBytes = int64_t{64} << 10;
  const int64_t rows = std::min(s.group * s.q_size, tile_rows);
  return parts == 1                                    ? kernels::Division::kNone
         : parts * rows * value_size * 4 <= kMostBytes ? kernels::Division::kMerged
                                                       : kernels::Division::kLeft;
}

/// The merge reads all parts at once as far as registers hold them: each further block of them waits for memory again.
inline kernels::MergeAttention merge_tiles(int64_t parts) {
  kernels::MergeAttention kernel;
  kernel.block_parts = parts <= 8 ? 8 : parts <= 16 ? 16 : parts <= 32 ? 32 : 64;
  if (kernel.block_parts == 64) kernel.num_warps = 8;
  return kernel;
}

}  // namespace imbrex
