// SPDX-License-Identifier: Apache-2.0
#include "vgpu/race.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "vgpu/checks.h"

namespace imbrex::vgpu {

namespace {

constexpr uint32_t kWordBytes = 4;

bool is_unit(const Who& who) { return who.unit[0] != 0; }
/// cp.async goes through the generic proxy, as threads do.
bool uses_async_proxy(const Who& who) { return is_unit(who) && std::string_view(who.unit) != "cp.async"; }

void join(std::vector<uint32_t>& into, const std::vector<uint32_t>& from) {
  if (into.size() < from.size()) into.resize(from.size(), 0);
  for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

}  // namespace

void RaceChecker::Knowledge::learn(const Knowledge& other) {
  join(seen, other.seen);
  join(fenced, other.fenced);
  ++version;
}

void RaceChecker::advance(size_t agent) {
  ++agents_[agent].seen[agent];
  ++agents_[agent].version;
}

RaceChecker::RaceChecker(Cluster& cluster)
    : cluster_(&cluster), warps_per_cta_(static_cast<size_t>(cluster.launch().warps())) {
  warps_ = cluster.ctas().size() * warps_per_cta_;
  agents_.assign(2 * warps_, {VectorClock(2 * warps_, 0), VectorClock(2 * warps_, 0)});
  for (size_t a = 0; a < agents_.size(); ++a) agents_[a].seen[a] = 1;
  words_.resize(cluster.ctas().size());
}

size_t RaceChecker::agent_of(const Who& who) {
  const size_t warp = static_cast<size_t>(who.cta->rank()) * warps_per_cta_ + static_cast<size_t>(who.warp);
  if (!is_unit(who)) return warp;
  Knowledge& unit = agents_[warps_ + warp];
  if (unit.learned != agents_[warp].version) {
    unit.learn(agents_[warp]);
    unit.learned = agents_[warp].version;
  }
  return warps_ + warp;
}

Who RaceChecker::who_did(const Access& access) const {
  const size_t warp = access.agent % warps_;
  return {cluster_->ctas()[warp / warps_per_cta_].get(), static_cast<int>(warp % warps_per_cta_), access.lane,
          &cluster_->program().code[access.insn], unit_names_[access.unit]};
}

void RaceChecker::release(const Who& who, SyncKey key) {
  if (who.cta == nullptr || who.warp < 0) return;
  const size_t agent = agent_of(who);
  at_objects_[key].learn(agents_[agent]);
  advance(agent);
}

void RaceChecker::acquire(const Who& who, SyncKey key) {
  if (who.cta == nullptr || who.warp < 0) return;
  const auto at = at_objects_.find(key);
  if (at != at_objects_.end()) agents_[agent_of(who)].learn(at->second);
}

void RaceChecker::wait_for_units(const Who& waiter, int starter) {
  const size_t first = static_cast<size_t>(waiter.cta->rank()) * warps_per_cta_;
  agents_[first + static_cast<size_t>(waiter.warp)].learn(
      agents_[warps_ + first + static_cast<size_t>(starter)]);
  // What those units do from now on has not been waited for.
  const size_t unit = warps_ + first + static_cast<size_t>(starter);
  advance(unit);
}

void RaceChecker::proxy_fence(const Who& who) {
  const size_t agent = agent_of(who);
  join(agents_[agent].fenced, agents_[agent].seen);
  advance(agent);
}

uint8_t RaceChecker::unit_index(const char* unit) {
  for (size_t i = 0; i < unit_names_.size(); ++i)
    if (std::string_view(unit_names_[i]) == unit) return static_cast<uint8_t>(i);
  unit_names_.push_back(unit);
  return static_cast<uint8_t>(unit_names_.size() - 1);
}

void RaceChecker::report_race(const Who& who, const Place& place, const Access& earlier, bool writes,
                              bool wrote) {
  if (!cluster_->launch().options.checks.races) return;
  const Who other = who_did(earlier);
  Finding* finding = cluster_->log().open(FindingKind::kRace, who, place.address, &other);
  if (finding == nullptr) return;
  const auto name = [](const Who& w) {
    return is_unit(w) ? fmt::format("{} for warp {}", w.unit, w.warp) : fmt::format("warp {}", w.warp);
  };
  finding->message =
      fmt::format("{} {} shared memory at 0x{:x}, which {} {} with nothing that orders the two", name(who),
                  writes ? "writes" : "reads", place.address, name(other), wrote ? "wrote" : "read");
  finding->hint =
      is_unit(other)
          ? "wait for the asynchronous operation, by its mbarrier or its group, and let the waiting "
            "thread synchronise with this one"
          : "a barrier between them, waited for by the later one";
}

void RaceChecker::report_missing_fence(const Who& who, const Place& place, const Access& write) {
  if (!cluster_->launch().options.checks.proxy_fences) return;
  const Who other = who_did(write);
  Finding* finding = cluster_->log().open(FindingKind::kMissingProxyFence, who, place.address, &other);
  if (finding == nullptr) return;
  finding->message = fmt::format(
      "{} reads shared memory at 0x{:x} through the async proxy, which warp {} wrote through the "
      "generic proxy, with no proxy fence in between",
      who.unit, place.address, other.warp);
  finding->hint = "fence.proxy.async by the writing threads, between the write and the barrier";
}

void RaceChecker::access(const Who& who, const Place& place, uint32_t bytes, AccessKind kind) {
  if (who.cta == nullptr || who.warp < 0) return;
  std::vector<Word>& words = words_[static_cast<size_t>(place.cta->rank())];
  if (words.empty()) words.resize((place.cta->shared().end() + kWordBytes - 1) / kWordBytes);
  const size_t agent = agent_of(who);
  const bool writes = is_write(kind);
  Access now;
  now.clock = agents_[agent].seen[agent];
  now.insn = who.insn->index;
  now.agent = static_cast<uint16_t>(agent);
  now.lane = static_cast<uint8_t>(std::max(who.lane, 0));
  now.strong = is_strong(kind);
  now.async_proxy = uses_async_proxy(who);
  now.unit = unit_index(who.unit);
  const uint32_t begin = static_cast<uint32_t>(place.address), end = begin + bytes;
  for (uint32_t at = begin; at < end;) {
    const uint32_t in_word = at % kWordBytes, count = std::min(kWordBytes - in_word, end - at);
    now.bytes = ((1u << count) - 1) << in_word & 0xF;
    Word& word = words[at / kWordBytes];
    at += count;
    const bool repeats = kind == AccessKind::kSameWrite && word.write.insn == now.insn;
    if (!repeats && conflicts(word.write, now)) report_race(who, place, word.write, writes, true);
    if (now.async_proxy && is_read(kind) && lacks_fence(word.write, now))
      report_missing_fence(who, place, word.write);
    if (writes) {
      for (Access& read : word.reads) {
        if (conflicts(read, now)) report_race(who, place, read, true, false);
        read.clock = 0;
      }
      word.write = now;
      continue;
    }
    // Keep a read of every agent, as far as there is room; those ordered before this one need not be kept.
    Access* slot = &word.reads[agent % kReaders];
    for (Access& read : word.reads)
      if (ordered(read, agent)) {
        slot = &read;
        break;
      }
    *slot = now;
  }
}

}  // namespace imbrex::vgpu
