// SPDX-License-Identifier: Apache-2.0
#include "vgpu/race.h"

#include <fmt/format.h>

#include <algorithm>

#include "vgpu/checks.h"

namespace imbrex::vgpu {

namespace {
constexpr uint32_t kWordBytes = 4;
}

RaceChecker::RaceChecker(Cluster& cluster)
    : cluster_(&cluster), warps_per_cta_(static_cast<size_t>(cluster.launch().warps())) {
  const size_t ctas = cluster.ctas().size(), agents = ctas * warps_per_cta_;
  clocks_.assign(agents, VectorClock(agents, 0));
  for (size_t a = 0; a < agents; ++a) clocks_[a][a] = 1;
  words_.resize(ctas);
}

size_t RaceChecker::agent_of(const Who& who) const {
  return static_cast<size_t>(who.cta->rank()) * warps_per_cta_ + static_cast<size_t>(who.warp);
}

void RaceChecker::join(VectorClock& into, const VectorClock& from) {
  if (into.size() < from.size()) into.resize(from.size(), 0);
  for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

void RaceChecker::release(const Who& who, SyncKey key) {
  if (who.cta == nullptr || who.warp < 0) return;
  VectorClock& mine = clocks_[agent_of(who)];
  join(at_objects_[key], mine);
  ++mine[agent_of(who)];
}

void RaceChecker::acquire(const Who& who, SyncKey key) {
  if (who.cta == nullptr || who.warp < 0) return;
  const auto at = at_objects_.find(key);
  if (at != at_objects_.end()) join(clocks_[agent_of(who)], at->second);
}

bool RaceChecker::ordered(const Access& earlier, size_t agent) const {
  return earlier.clock == 0 || earlier.agent == agent || clocks_[agent][earlier.agent] >= earlier.clock;
}

void RaceChecker::check(const Who& who, const Place& place, const Access& now, const Access& earlier,
                        bool writes, bool wrote) {
  if (ordered(earlier, now.agent) || (earlier.bytes & now.bytes) == 0 || (earlier.strong && now.strong))
    return;
  const Cta& cta = *cluster_->ctas()[earlier.agent / warps_per_cta_];
  const Who other{&cta, static_cast<int>(earlier.agent % warps_per_cta_), earlier.lane,
                  &cluster_->program().code[earlier.insn], ""};
  Finding* finding = cluster_->log().open(FindingKind::kRace, who, place.address, &other);
  if (finding == nullptr) return;
  finding->message =
      fmt::format("{} shared memory at 0x{:x}, which warp {} {} with nothing that orders the two",
                  writes ? "writes" : "reads", place.address, other.warp, wrote ? "wrote" : "read");
  finding->hint = "a barrier between them, waited for by the later one";
}

void RaceChecker::access(const Who& who, const Place& place, uint32_t bytes, AccessKind kind) {
  std::vector<Word>& words = words_[static_cast<size_t>(place.cta->rank())];
  if (words.empty()) words.resize((place.cta->shared().end() + kWordBytes - 1) / kWordBytes);
  const size_t agent = agent_of(who);
  Access now;
  now.clock = clocks_[agent][agent];
  now.agent = static_cast<uint16_t>(agent);
  now.lane = static_cast<uint8_t>(std::max(who.lane, 0));
  now.strong = is_strong(kind);
  now.insn = who.insn->index;
  const uint32_t begin = static_cast<uint32_t>(place.address), end = begin + bytes;
  for (uint32_t at = begin; at < end;) {
    const uint32_t in_word = at % kWordBytes, count = std::min(kWordBytes - in_word, end - at);
    now.bytes = static_cast<uint8_t>(((1u << count) - 1) << in_word);
    Word& word = words[at / kWordBytes];
    const bool writes = is_write(kind);
    check(who, place, now, word.write, writes, true);
    if (writes) {
      for (Access& read : word.reads) {
        check(who, place, now, read, true, false);
        read = {};
      }
      word.write = now;
    } else {
      // Keep a read of every warp, as far as there is room; those ordered before this one need not be kept.
      Access* place_for = &word.reads[at / kWordBytes % kReaders];
      for (Access& read : word.reads)
        if (ordered(read, agent)) {
          place_for = &read;
          break;
        }
      *place_for = now;
    }
    at += count;
  }
}

}  // namespace imbrex::vgpu
