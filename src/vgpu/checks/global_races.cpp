// SPDX-License-Identifier: Apache-2.0
#include "vgpu/checks/global_races.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <thread>
#include <utility>

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
    if (slots[i].is_none() || slots[i].bytes() != 0xFFFF || slots[i].is_write() || slots[i].is_strong())
      return false;
    for (size_t k = 0; k < i; ++k)
      if (cluster_of(slots[k].agent()) == cluster_of(slots[i].agent())) return false;
  }
  return true;
}

/// Of the shadow of more pages than these nothing is kept: they are at most 18 KiB each.
constexpr size_t kMostKeptPages = 2048;

struct Sizes {
  explicit Sizes(uint64_t bytes)
      : is_used(bytes / GlobalRaces::kPageBytes + 1),
        blocks(is_used * (GlobalRaces::kPageBytes / kBlockBytes) * sizeof(ShadowCell)),
        cells(blocks * kCellsInBlock),
        read_by_many(is_used * (GlobalRaces::kPageBytes / ShadowCell::kBytes / 8)) {}
  uint64_t is_used, blocks, cells, read_by_many;
};

void unmap(const GlobalShadow& shadow) {
  const Sizes sizes(shadow.bytes);
  munmap(shadow.blocks, sizes.blocks);
  munmap(shadow.cells, sizes.cells);
  munmap(shadow.read_by_many, sizes.read_by_many);
  munmap(shadow.is_used, sizes.is_used);
}

/// The shadow that no launch uses at the moment, if there is one.
struct SpareShadow {
  std::mutex mutex;
  GlobalShadow shadow;
};
SpareShadow& spare_shadow() {
  static SpareShadow spare;
  return spare;
}

GlobalShadow take_shadow(uint64_t bytes) {
  {
    SpareShadow& spare = spare_shadow();
    const std::lock_guard lock(spare.mutex);
    if (spare.shadow.bytes == bytes) return std::exchange(spare.shadow, {});
  }
  const Sizes sizes(bytes);
  return {.bytes = bytes,
          .blocks = static_cast<ShadowCell*>(reserve(sizes.blocks, kPurpose, kHelp)),
          .cells = static_cast<ShadowCell*>(reserve(sizes.cells, kPurpose, kHelp)),
          .read_by_many = static_cast<std::atomic<uint64_t>*>(reserve(sizes.read_by_many, kPurpose, kHelp)),
          .is_used = static_cast<uint8_t*>(reserve(sizes.is_used, kPurpose, kHelp))};
}

void keep_shadow(GlobalShadow shadow) {
  {
    SpareShadow& spare = spare_shadow();
    const std::lock_guard lock(spare.mutex);
    std::swap(spare.shadow, shadow);
  }
  if (shadow.bytes != 0) unmap(shadow);
}

}  // namespace

GlobalRaces::GlobalRaces(uint64_t bytes, bool is_concurrent)
    : is_concurrent_(is_concurrent), shadow_(take_shadow(bytes)) {}

GlobalRaces::~GlobalRaces() {
  if (used_pages_.size() > kMostKeptPages) {
    unmap(shadow_);
    return;
  }
  for (const uint64_t page : used_pages_) {
    std::memset(static_cast<void*>(&block(page)), 0, kPageBytes / kBlockBytes * sizeof(ShadowCell));
    std::memset(static_cast<void*>(&shadow_.read_by_many[cell_index(page) / 64]), 0,
                kPageBytes / ShadowCell::kBytes / 8);
    shadow_.is_used[page_index(page)] = 0;
  }
  keep_shadow(shadow_);
}

void GlobalRaces::note_use(uint64_t address) {
  const std::lock_guard lock(mutex_);
  used_pages_.push_back(address / kPageBytes * kPageBytes);
}

bool GlobalRaces::is_read_by_many(uint64_t begin, uint64_t end) const {
  if (has_released_.load(std::memory_order_relaxed)) return false;
  const uint64_t last = cell_index(end - 1);
  for (uint64_t i = cell_index(begin); i <= last; i = (i / 64 + 1) * 64)
    if ((~shadow_.read_by_many[i / 64].load(std::memory_order_relaxed) & bits_of(i, last)) != 0) return false;
  return true;
}

void GlobalRaces::note_reads(uint64_t begin, uint64_t end, bool by_write) {
  const auto note = [&](uint64_t first, uint64_t last, const ShadowCell& cell) {
    std::atomic<uint64_t>& word = shadow_.read_by_many[first / 64];
    const uint64_t bits = bits_of(first, last), set = word.load(std::memory_order_relaxed) & bits;
    const bool becomes = !by_write && is_read_by_four(cell);
    if (set != 0 && !becomes) word.fetch_and(~bits, std::memory_order_relaxed);
    if (set != bits && becomes) word.fetch_or(bits, std::memory_order_relaxed);
  };
  const uint64_t last = cell_index(end - 1);
  for (uint64_t i = cell_index(begin); i <= last;) {
    const uint64_t of_block = std::min(last, i / kCellsInBlock * kCellsInBlock + kCellsInBlock - 1);
    const ShadowCell& block = shadow_.blocks[i / kCellsInBlock];
    if (!is_split(block)) {
      note(i, of_block, block);
      i = of_block + 1;
    } else {
      for (; i <= of_block; ++i) note(i, i, shadow_.cells[i]);
    }
  }
}

void GlobalRaces::PageLock::lock(GlobalRaces& races, uint64_t address) {
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
  there.told = at->second.told;
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

void GlobalRaces::tell_at(uint64_t address, uint32_t cluster, VectorClock before,
                          const std::shared_ptr<const Heard>& heard) {
  has_released_.store(true, std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  const auto number = static_cast<uint32_t>(before_flags_.size());
  before_flags_.push_back(std::move(before));
  first_flag_of_.try_emplace(cluster, number);
  objects_[address].told = join(heard, std::make_shared<const Heard>(Heard{0, {{cluster, number}}}));
}

bool GlobalRaces::is_told(const Heard& heard, uint32_t cluster, AgentId agent, Clock clock, int lane) {
  const std::lock_guard lock(mutex_);
  if (cluster < heard.all_below) {
    const auto first = first_flag_of_.find(cluster);
    return first != first_flag_of_.end() && before_flags_[first->second].covers(agent, clock, lane);
  }
  return std::ranges::any_of(heard.others, [&](const auto& flag) {
    return flag.first == cluster && before_flags_[flag.second].covers(agent, clock, lane);
  });
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
