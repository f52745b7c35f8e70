// SPDX-License-Identifier: Apache-2.0
#include "vgpu/checks/global_races.h"

#include <sys/mman.h>

#include <iterator>
#include <thread>

#include "vgpu/memory/memory.h"

namespace imbrex::vgpu {

namespace {

constexpr const char* kPurpose = "to look for races on global memory";
constexpr const char* kHelp = "lower Options::memory_bytes, or switch CheckSet::global_races off";
constexpr int kSpins = 64;

constexpr uint64_t cell_index(uint64_t address) { return (address - kGlobalBase) / ShadowCell::kBytes; }

/// Whole reads by four clusters: a writer is ordered with at most one of them.
bool is_read_by_four(const ShadowCell& cell) {
  const Access* slots = cell.slots;
  for (size_t i = 0; i < std::size(cell.slots); ++i) {
    if (slots[i].clock == 0 || slots[i].bytes != 0xFFFF || slots[i].write != 0 || slots[i].strong != 0)
      return false;
    for (size_t k = 0; k < i; ++k)
      if (cluster_of(slots[k].agent) == cluster_of(slots[i].agent)) return false;
  }
  return true;
}

}  // namespace

// Zero bytes are cells without accesses.
GlobalRaces::GlobalRaces(uint64_t bytes)
    : shadow_bytes_((bytes + ShadowCell::kBytes) / ShadowCell::kBytes * sizeof(ShadowCell)),
      read_bytes_((bytes / ShadowCell::kBytes / 64 + 1) * sizeof(uint64_t)),
      cells_(static_cast<ShadowCell*>(reserve(shadow_bytes_, kPurpose, kHelp))),
      read_by_many_(static_cast<std::atomic<uint64_t>*>(reserve(read_bytes_, kPurpose, kHelp))) {}

GlobalRaces::~GlobalRaces() {
  munmap(cells_, shadow_bytes_);
  munmap(read_by_many_, read_bytes_);
}

bool GlobalRaces::is_read_by_many(uint64_t begin, uint64_t end) const {
  if (has_released_.load(std::memory_order_relaxed)) return false;
  for (uint64_t i = cell_index(begin); i <= cell_index(end - 1); ++i)
    if ((read_by_many_[i / 64].load(std::memory_order_relaxed) >> i % 64 & 1) == 0) return false;
  return true;
}

void GlobalRaces::note_reads(uint64_t begin, uint64_t end, bool by_write) {
  for (uint64_t i = cell_index(begin); i <= cell_index(end - 1); ++i) {
    std::atomic<uint64_t>& word = read_by_many_[i / 64];
    const uint64_t bit = uint64_t{1} << i % 64;
    const bool is_set = (word.load(std::memory_order_relaxed) & bit) != 0;
    const bool becomes = !by_write && is_read_by_four(cells_[i]);
    if (is_set && !becomes) word.fetch_and(~bit, std::memory_order_relaxed);
    if (!is_set && becomes) word.fetch_or(bit, std::memory_order_relaxed);
  }
}

ShadowCell& GlobalRaces::cell(uint64_t address) const { return cells_[cell_index(address)]; }

GlobalRaces::PageLock::PageLock(GlobalRaces& races, uint64_t address)
    : flag_(races.locks_[address / kPageBytes % kLocks]) {
  for (int spins = 1; flag_.test_and_set(std::memory_order_acquire); ++spins)
    if (spins % kSpins == 0) std::this_thread::yield();  // its holder may not be running
}

void GlobalRaces::name_agent(AgentId agent, const Actor& actor) {
  const std::lock_guard lock(mutex_);
  actors_[agent] = actor;
}

Actor GlobalRaces::actor(AgentId agent) {
  const std::lock_guard lock(mutex_);
  const auto at = actors_.find(agent);
  return at == actors_.end() ? Actor{} : at->second;
}

std::shared_ptr<const Foreign> GlobalRaces::released_at(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto at = objects_.find(address);
  return at == objects_.end() ? nullptr : at->second;
}

void GlobalRaces::release_at(uint64_t address, const std::shared_ptr<const Foreign>& what) {
  if (what == nullptr) return;
  has_released_.store(true, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Foreign>& object = objects_[address];
  object = join(object, what);
}

}  // namespace imbrex::vgpu
