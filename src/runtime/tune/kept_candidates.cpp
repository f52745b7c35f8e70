// SPDX-License-Identifier: Apache-2.0
#include "runtime/tune/kept_candidates.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace imbrex::runtime {

using nlohmann::json;

CacheKey candidate_key(CacheKey tuning, const std::string& config, const std::string& ptx_digest,
                       uint64_t seed) {
  CacheKey key = std::move(tuning);
  key.kind = "measured";
  key.parts.emplace_back("config", config);
  key.parts.emplace_back("ptx", ptx_digest);
  key.parts.emplace_back("seed", std::to_string(seed));
  return key;
}

void keep_candidate(Cache& cache, const CacheKey& key, const Candidate& candidate) {
  cache.store(key, json{{"status", static_cast<int>(candidate.status)},
                        {"reason", candidate.reason},
                        {"microseconds", candidate.microseconds},
                        {"launches", candidate.launches},
                        {"predicted", candidate.predicted},
                        {"sampling_error", candidate.sampling_error},
                        {"spill_bytes", candidate.spill_bytes}}
                       .dump(-1, ' ', false, json::error_handler_t::replace));
}

bool recall_candidate(Cache& cache, const CacheKey& key, Candidate& candidate) {
  const std::optional<std::string> payload = cache.load(key);
  if (!payload) return false;
  const json kept = json::parse(*payload, nullptr, false);
  if (!kept.is_object()) return false;
  candidate.status = static_cast<Candidate::Status>(kept.value("status", 0));
  candidate.reason = kept.value("reason", "");
  candidate.microseconds = kept.value("microseconds", 0.0);
  candidate.launches = kept.value("launches", 0);
  candidate.predicted = kept.value("predicted", 0.0);
  candidate.sampling_error = kept.value("sampling_error", 0.0);
  candidate.spill_bytes = kept.value("spill_bytes", int64_t{0});
  candidate.is_remembered = true;
  return true;
}

}  // namespace imbrex::runtime
