// SPDX-License-Identifier: Apache-2.0
#include "vgpu/insns/heap_functions.h"

#include <fmt/format.h>

#include <algorithm>

#include "vgpu/checks/happens_before.h"
#include "vgpu/machine/access.h"
#include "vgpu/memory/device_heap.h"

namespace imbrex::vgpu {

namespace {

/// Of a larger block the race checker is told of the first bytes only.
constexpr uint64_t kMostTold = 64 << 10;

void tell(Cluster& cluster, const Who& who, uint64_t address, uint64_t bytes, AccessKind kind) {
  if (cluster.checks().any() && bytes > 0)
    cluster.observe().touched(who, global_place(cluster, address),
                              static_cast<uint32_t>(std::min(bytes, kMostTold)), kind, 7);
}
/// Who frees a block has done so before whoever gets the place next: an atomic of the grid's scope at its token.
void meet(Cluster& cluster, Who who, uint64_t token) {
  who.order = kAcquires | kReleases | kGpuScope;
  tell(cluster, who, token, 4, AccessKind::kAtomic);
}

void report_bad_free(Cluster& cluster, const Who& who, uint64_t address,
                     const std::optional<DeviceHeap::Block>& block) {
  const bool is_start = block.has_value() && block->address == address;
  Finding* finding = cluster.log().open(
      is_start ? FindingKind::kUseAfterFree : FindingKind::kIllegalInstruction, who, address);
  if (cluster.log().full()) cluster.stop();
  if (finding == nullptr) return;
  finding->message = is_start ? fmt::format("frees the {} bytes at {:#x}, which have been freed already",
                                            block->bytes, address)
                              : fmt::format("frees {:#x}, which malloc did not return", address);
  if (is_start) {
    finding->facts.push_back(
        fmt::format("allocated at {}, freed at {}", block->allocated_at, block->freed_at));
    return;
  }
  if (block.has_value() && block->contains(address, 1))
    finding->facts.push_back(fmt::format("it is byte {} of {} bytes allocated at {}",
                                         address - block->address, block->bytes, block->allocated_at));
  finding->hint =
      "free takes what malloc returned in a kernel, unchanged; the host frees what cudaMalloc gave it";
}

}  // namespace

Step malloc_builtin(Warp& w, const Instruction& n, Mask active, const std::vector<int64_t>& arguments,
                    const std::vector<int64_t>& results) {
  Cluster& cluster = w.cta().cluster();
  if (!cluster.has_turn()) return Step::kTurn;
  const std::string where = cluster.program().place_text(n.index);
  for_each_lane(active, [&](int lane) {
    std::vector<uint64_t> reused;
    const uint64_t address =
        cluster.launch().heap->allocate(argument<uint64_t>(w, lane, arguments[0]), where, reused);
    for (const uint64_t token : reused) meet(cluster, w.thread(n, lane), token);
    if (!results.empty()) set_result(w, lane, results[0], address);
  });
  cluster.note_progress();
  return Step::kNext;
}

Step free_builtin(Warp& w, const Instruction& n, Mask active, const std::vector<int64_t>& arguments,
                  const std::vector<int64_t>&) {
  Cluster& cluster = w.cta().cluster();
  if (!cluster.has_turn()) return Step::kTurn;
  DeviceHeap& heap = *cluster.launch().heap;
  const std::string where = cluster.program().place_text(n.index);
  for_each_lane(active, [&](int lane) {
    const auto address = argument<uint64_t>(w, lane, arguments[0]);
    if (address == 0) return;
    const std::optional<DeviceHeap::Block> block = heap.free(address, where);
    const Who who = w.thread(n, lane);
    if (!block.has_value() || block->freed)
      return report_bad_free(cluster, who, address, block.has_value() ? block : heap.find(address));
    // To free it is to write it: all who use it must have done so.
    tell(cluster, who, address, block->bytes, AccessKind::kWrite);
    meet(cluster, who, block->token());
  });
  cluster.note_progress();
  return Step::kNext;
}

}  // namespace imbrex::vgpu
