// SPDX-License-Identifier: Apache-2.0
#include "vgpu/checks/global_races.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <thread>

#include "vgpu/memory/memory.h"

namespace imbrex::vgpu {

namespace {

constexpr const char* kPurpose = "to look for races on global memory";
constexpr const char* kHelp = "lower Options::memory_bytes, or switch CheckSet::global_races off";
constexpr int kSpins = 64;

constexpr uint64_t cell_index(uint64_t address) { return (address - kGlobalBase) / ShadowCell::kBytes; }

/// Bits of `first` to `last` in the word that `first` lies in.
constexpr uint64_t bits_of(uint64_t first, uint64_t last) {
  const uint64_t end = std::min(last - first / 64 * 64, uint64_t{63});
  return ~uint64_t{0} >> (63 - end) & ~uint64_t{0} << first % 64;
}

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

GlobalRaces::GlobalRaces(uint64_t bytes, bool is_concurrent)
    : is_concurrent_(is_concurrent),
      block_bytes_((bytes / kBlockBytes + 1) * sizeof(ShadowCell)),
      cell_bytes_(block_bytes_ * kCellsInBlock),
      read_bytes_((bytes / ShadowCell::kBytes / 64 + 1) * sizeof(uint64_t)),
      blocks_(static_cast<ShadowCell*>(reserve(block_bytes_, kPurpose, kHelp))),
      cells_(static_cast<ShadowCell*>(reserve(cell_bytes_, kPurpose, kHelp))),
      read_by_many_(static_cast<std::atomic<uint64_t>*>(reserve(read_bytes_, kPurpose, kHelp))) {}

GlobalRaces::~GlobalRaces() {
  munmap(blocks_, block_bytes_);
  munmap(cells_, cell_bytes_);
  munmap(read_by_many_, read_bytes_);
}

bool GlobalRaces::is_read_by_many(uint64_t begin, uint64_t end) const {
  if (has_released_.load(std::memory_order_relaxed)) return false;
  const uint64_t last = cell_index(end - 1);
  for (uint64_t i = cell_index(begin); i <= last; i = (i / 64 + 1) * 64)
    if ((~read_by_many_[i / 64].load(std::memory_order_relaxed) & bits_of(i, last)) != 0) return false;
  return true;
}

void GlobalRaces::note_reads(uint64_t begin, uint64_t end, bool by_write) {
  const auto note = [&](uint64_t first, uint64_t last, const ShadowCell& cell) {
    std::atomic<uint64_t>& word = read_by_many_[first / 64];
    const uint64_t bits = bits_of(first, last), set = word.load(std::memory_order_relaxed) & bits;
    const bool becomes = !by_write && is_read_by_four(cell);
    if (set != 0 && !becomes) word.fetch_and(~bits, std::memory_order_relaxed);
    if (set != bits && becomes) word.fetch_or(bits, std::memory_order_relaxed);
  };
  const uint64_t last = cell_index(end - 1);
  for (uint64_t i = cell_index(begin); i <= last;) {
    const uint64_t of_block = std::min(last, i / kCellsInBlock * kCellsInBlock + kCellsInBlock - 1);
    const ShadowCell& block = blocks_[i / kCellsInBlock];
    if (!is_split(block)) {
      note(i, of_block, block);
      i = of_block + 1;
    } else {
      for (; i <= of_block; ++i) note(i, i, cells_[i]);
    }
  }
}

GlobalRaces::PageLock::PageLock(GlobalRaces& races, uint64_t address) {
  if (!races.is_concurrent_) return;
  flag_ = &races.locks_[address / kPageBytes % kLocks];
  for (int spins = 1; flag_->test_and_set(std::memory_order_acquire); ++spins)
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

GlobalRaces::Released GlobalRaces::released_at(uint64_t address, int rank, bool is_system) {
  const std::lock_guard lock(mutex_);
  const auto at = objects_.find(address);
  if (at == objects_.end()) return {};
  Released there;
  for (const auto& [of, what] : at->second.by_rank) {
    std::shared_ptr<const Foreign>& to = of == rank ? there.seen : there.narrow;
    to = join(to, what);
  }
  if (is_system) there.seen = join(there.seen, at->second.to_system);
  there.unfenced = at->second.unfenced;
  return there;
}

void GlobalRaces::release_at(uint64_t address, int rank, const std::shared_ptr<const Foreign>& what,
                             const std::shared_ptr<const Foreign>& to_system,
                             const std::shared_ptr<const Foreign>& unfenced) {
  has_released_.store(true, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  ReleasedAt& at = objects_[address];
  std::shared_ptr<const Foreign>& own = at.by_rank[rank];
  own = join(own, what);
  at.to_system = join(at.to_system, to_system);
  at.unfenced = join(at.unfenced, unfenced);
}

void GlobalRaces::add_launch(Launched launch) {
  has_released_.store(true, std::memory_order_relaxed);  // to the next launch of its rank
  next_cluster_ = launch.first + launch.count;
  launches_.push_back(std::move(launch));
}

const GlobalRaces::Launched* GlobalRaces::launch_of(uint32_t cluster) const {
  auto after = std::upper_bound(launches_.begin(), launches_.end(), cluster,
                                [](uint32_t c, const Launched& launch) { return c < launch.first; });
  return after == launches_.begin() ? nullptr : &*(after - 1);
}

std::shared_ptr<const Foreign> GlobalRaces::known_before(int rank) const {
  const auto at = known_.find(rank);
  return at == known_.end() ? nullptr : at->second;
}

void GlobalRaces::cluster_finished(int rank, const std::shared_ptr<const Foreign>& known) {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Foreign>& ended = ended_[rank];
  ended = join(ended, known);
}

void GlobalRaces::launches_finished() {
  for (; running_from_ < launches_.size(); ++running_from_) {
    const Launched& launch = launches_[running_from_];
    auto all = std::make_shared<VectorClock>();
    all->join(AgentId{0}, Known(launch.first + launch.count));
    const Foreign own{{whole_rank(launch.rank), all}};
    const std::shared_ptr<const Foreign> joined =
        join(join(known_[launch.rank], ended_[launch.rank]), std::make_shared<const Foreign>(own));
    // Clusters of launches that are known as a whole need no entries of their own.
    auto kept = std::make_shared<Foreign>();
    for (const auto& [key, clock] : *joined)
      if (is_whole_rank(key) || !is_known_whole(*joined, key)) kept->emplace(key, clock);
    known_[launch.rank] = std::move(kept);
    ended_[launch.rank] = nullptr;
  }
}

bool GlobalRaces::is_known_whole(const Foreign& foreign, uint32_t cluster) const {
  const Launched* launch = launch_of(cluster);
  if (launch == nullptr) return false;
  const auto at = foreign.find(whole_rank(launch->rank));
  return at != foreign.end() && at->second->covers_all(0, cluster);
}

}  // namespace imbrex::vgpu
