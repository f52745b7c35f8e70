// SPDX-License-Identifier: Apache-2.0
#include "vgpu/global_races.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include "imbrex/error.h"
#include "vgpu/memory.h"

namespace imbrex::vgpu {

GlobalRaces::GlobalRaces(uint64_t bytes)
    : shadow_bytes_((bytes + ShadowCell::kBytes) / ShadowCell::kBytes * sizeof(ShadowCell)) {
  // Address space that costs nothing until it is touched; zero bytes are cells without accesses.
  void* at = mmap(nullptr, shadow_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                  -1, 0);
  if (at == MAP_FAILED)
    throw LaunchError(
        {{},
         fmt::format("virtual gpu: cannot reserve {} bytes of address space to look for races on "
                     "global memory",
                     shadow_bytes_),
         {},
         "lower Options::memory_bytes, or switch CheckSet::global_races off"});
  cells_ = static_cast<ShadowCell*>(at);
}

GlobalRaces::~GlobalRaces() { munmap(cells_, shadow_bytes_); }

ShadowCell& GlobalRaces::cell(uint64_t address) const {
  return cells_[(address - kGlobalBase) / ShadowCell::kBytes];
}

GlobalRaces::PageLock::PageLock(GlobalRaces& races, uint64_t address)
    : flag_(races.locks_[address / kPageBytes % kLocks]) {
  while (flag_.test_and_set(std::memory_order_acquire)) {
  }
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
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const Foreign>& object = objects_[address];
  object = join(object, what);
}

}  // namespace imbrex::vgpu
