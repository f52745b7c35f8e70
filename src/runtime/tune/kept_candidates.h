// SPDX-License-Identifier: Apache-2.0
// The first measurement of each candidate in the cache, for a tuning that is interrupted and started again.
#pragma once

#include <cstdint>
#include <string>

#include "imbrex/runtime/cache.h"
#include "imbrex/runtime/tuner.h"

namespace imbrex::runtime {

/// The key of a candidate of the tuning with this key: `config` as text, the digest of its PTX, the seed
/// of the inputs.
CacheKey candidate_key(CacheKey tuning, const std::string& config, const std::string& ptx_digest,
                       uint64_t seed);
/// Stores status, reason and measurement.
void keep_candidate(Cache& cache, const CacheKey& key, const Candidate& candidate);
/// Fills in what was kept; false when nothing was.
bool recall_candidate(Cache& cache, const CacheKey& key, Candidate& candidate);

}  // namespace imbrex::runtime
