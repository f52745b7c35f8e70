// SPDX-License-Identifier: Apache-2.0
#include "vgpu/machine/checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "vgpu/checks/operand_boxes.h"
#include "vgpu/machine/touch_many.h"
#include "vgpu/machine/undefined.h"

namespace imbrex::vgpu {

namespace {

void check_written(Cluster& cluster, const Who& who, const Place& place, uint32_t bytes, AccessKind kind,
                   int lane_shift) {
  const char* memory = nullptr;
  const WrittenBits* written = nullptr;
  size_t at = 0;
  switch (place.space) {
    case Space::kSharedCta:
      at = place.address;
      written = &place.cta->shared().written();
      if (!place.cta->shared().is_written(static_cast<uint32_t>(at), bytes)) memory = "shared";
      break;
    case Space::kLocal:
      at = static_cast<size_t>(who.lane) * place.warp->local_bytes() + place.address;
      written = &place.warp->local_written();
      if (!written->all(at, bytes)) memory = "local";
      break;
    default:
      if (cluster.checks().uninitialized_global && !cluster.launch().memory.is_written(place.address, bytes))
        memory = "global";
      break;
  }
  const bool is_weak_global = memory != nullptr && place.space == Space::kGlobal && !is_strong(kind);
  if (memory == nullptr) return;
  if (kind == AccessKind::kLoad) {
    cluster.note_unwritten_load();
    return;
  }
  if (lane_shift < 7) {
    // Each lane by itself, to name the one that reads too much.
    Who lane = who;
    Place part = place;
    for (uint32_t at = 0; at < bytes; at += 1u << lane_shift, ++lane.lane) {
      part.address = place.address + at;
      check_written(cluster, lane, part, 1u << lane_shift, kind, 7);
    }
    return;
  }
  const bool is_padding = is_weak_global && cluster.launch().memory.is_padding(place.address);
  // Copies take whole tiles, the padding of an allocation with them; what becomes of it is not followed.
  if (is_padding && kind == AccessKind::kRead) return;
  Finding* finding = cluster.log().open(FindingKind::kUninitializedRead, who, place.address, nullptr,
                                        is_padding ? BentRule::kUnwrittenPadding : BentRule::kNone);
  if (finding == nullptr) return;
  finding->message = fmt::format("reads {} bytes of {} memory at 0x{:x} of which not all have been written",
                                 bytes, memory, place.address);
  if (written == nullptr) return;
  while (written->all(at, 1)) ++at;
  finding->facts = undefined_store_facts(cluster.program(), written->undefined_store(at));
  if (place.space != Space::kSharedCta) return;
  const ComingCopy coming = coming_copy(*place.cta, static_cast<uint32_t>(at));
  if (!coming.fact.empty()) finding->facts.push_back(coming.fact);
  finding->hint = coming.hint;
}

void mark_written(Cluster& cluster, const Who& who, const Place& place, uint32_t bytes) {
  switch (place.space) {
    case Space::kSharedCta:
      place.cta->shared().mark_written(static_cast<uint32_t>(place.address), bytes);
      break;
    case Space::kLocal:
      place.warp->local_written().mark(
          static_cast<size_t>(who.lane) * place.warp->local_bytes() + place.address, bytes);
      break;
    default:
      cluster.launch().memory.mark_written(place.address, bytes);
      break;
  }
}

}  // namespace

void Checked::touched(Cluster& cluster, const Who& who, const Place& place, uint32_t bytes, AccessKind kind,
                      int lane_shift) {
  if (cluster.launch().options.checks.uninitialized && is_read(kind))
    check_written(cluster, who, place, bytes, kind, lane_shift);
  if (is_write(kind)) mark_written(cluster, who, place, bytes);
  if (place.space == Space::kSharedCta) {
    ChunkOrigins& origins = place.cta->units().chunk_origins;
    if (is_read(kind)) origins.note_read(static_cast<uint32_t>(place.address), bytes);
    if (is_write(kind)) origins.clear(static_cast<uint32_t>(place.address), bytes);
    if (origins.has_suspects()) report_unread_boxes(place.cta->tiles());
  }
  cluster.observe().touched(who, place, bytes, kind == AccessKind::kLoad ? AccessKind::kRead : kind,
                            lane_shift);
}

namespace {

/// True also where nobody asks.
bool are_written(Cta& cta, Space space, std::span<const LaneTouch> touches) {
  const LaunchContext& launch = cta.cluster().launch();
  if (!launch.options.checks.uninitialized) return true;
  if (space != Space::kSharedCta && !launch.options.checks.uninitialized_global) return true;
  return std::ranges::all_of(touches, [&](const LaneTouch& touch) {
    return space == Space::kSharedCta
               ? cta.shared().is_written(static_cast<uint32_t>(touch.address), touch.bytes)
               : launch.memory.is_written(touch.address, touch.bytes);
  });
}

void touch_all(Cta& cta, const Who& who, Space space, std::span<const LaneTouch> touches, AccessKind kind,
               const WritesTheSame& same) {
  if (touches.empty()) return;
  Cluster& cluster = cta.cluster();
  const bool is_shared = space == Space::kSharedCta;
  ChunkOrigins& origins = cta.units().chunk_origins;
  Place place{nullptr, space, &cta};
  if (is_read(kind) && !are_written(cta, space, touches)) {
    // One after the other, so that of each what is said comes together.
    for (const LaneTouch& touch : touches) {
      Who lane = who;
      lane.lane = touch.lane;
      lane.lanes = touch.lanes;
      place.address = touch.address;
      Checked::touched(cluster, lane, place, touch.bytes, kind, touch.lane_shift);
    }
    return;
  }
  if (is_shared && is_read(kind))
    for (const LaneTouch& touch : touches)
      origins.note_read(static_cast<uint32_t>(touch.address), touch.bytes);
  if (is_write(kind))
    for (const LaneTouch& touch : touches) {
      place.address = touch.address;
      mark_written(cluster, who, place, touch.bytes);
      if (is_shared) origins.clear(static_cast<uint32_t>(touch.address), touch.bytes);
    }
  if (is_shared && origins.has_suspects()) report_unread_boxes(cta.tiles());
  cluster.observe().lanes_touched(who, space, cta.rank(), touches,
                                  kind == AccessKind::kLoad ? AccessKind::kRead : kind, same);
}

}  // namespace

void Checked::lanes_touched(Cta& cta, Who who, Space space, const LaneTouches& touches, AccessKind kind,
                            const WritesTheSame& same) {
  touch_all(cta, who, space, touches.all(), kind, same);
}

void UnitTouches::flush() {
  if (cta_->cluster().checks().any()) touch_all(*cta_, who_, space_, touches_, kind_, {});
  touches_.clear();
}

}  // namespace imbrex::vgpu
