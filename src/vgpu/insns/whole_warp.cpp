// SPDX-License-Identifier: Apache-2.0
// Loads and stores whose lanes, all 32 of them, touch neighbouring bytes or bytes in steps of up to 16: most accesses
// of most kernels. Located, checked, recorded and moved as one; tests/vgpu/whole_warp_test.cpp holds this to what
// load_store.cpp does lane by lane.
#include <bit>
#include <cstring>

#include "vgpu/checks/operand_boxes.h"
#include "vgpu/insns/lane_moves.h"
#include "vgpu/insns/load_store.h"
#include "vgpu/machine/undefined.h"

namespace imbrex::vgpu {

using namespace load_store;

namespace {

/// Every lane touches `bytes`, `step` further than the one before.
struct LanePattern {
  uint64_t first = 0, step = 0;
  uint32_t bytes = 0;
  bool is_dense() const { return step == bytes; }
  uint64_t span() const { return step * (kWarpSize - 1) + bytes; }
};

constexpr uint64_t kLargestStep = 16;

/// False where the lanes are not in order, overlap or leave out too much.
bool find_pattern(Warp& w, const Instruction& n, LanePattern& out) {
  const uint64_t offset = static_cast<uint64_t>(n.immediate);
  out.bytes = uint32_t{n.small[kElementBytes]} * n.small[kCount];
  const auto fits = [&](uint64_t step) {
    out.step = step;
    return step == out.bytes || (step <= kLargestStep && step > out.bytes && is_power_of_two(step));
  };
  if ((n.small[kFlags] & kBase64) != 0) {
    const uint64_t* lanes = w.reg<uint64_t>(n.a);
    out.first = lanes[0] + offset;
    return fits(lanes[1] - lanes[0]) && lane_moves.are_apart64(lanes, out.step);
  }
  const uint32_t* lanes = w.reg<uint32_t>(n.a);
  out.first = lanes[0] + offset;
  return fits(uint64_t{lanes[1]} - lanes[0]) && lanes[kWarpSize - 1] > lanes[0] &&
         lane_moves.are_apart32(lanes, static_cast<uint32_t>(out.step));
}

/// False where a checker has to look at single lanes; else all checkers have been told.
template <bool kLoads>
bool tell_checkers(Warp& w, const Instruction& n, const LanePattern& lanes, Space space,
                   const std::byte* at) {
  Cluster& cluster = w.cta().cluster();
  Who who = w.thread(n, 0);
  who.order = kRelaxed;
  who.lanes = kAllLanes;
  Place place;
  place.space = space;
  place.cta = &w.cta();
  place.address = lanes.first;
  uint32_t bytes = static_cast<uint32_t>(lanes.step * kWarpSize);
  uint16_t pattern = 0xFFFF;
  if (space == Space::kSharedCta) {
    const uint32_t offset = shared_offset(static_cast<uint32_t>(lanes.first));
    place.address = offset;
    SharedMemory& shared = w.cta().shared();
    ChunkOrigins& origins = w.cta().units().chunk_origins;
    if (kLoads) {
      if (cluster.checks().uninitialized && !shared.is_written(offset, bytes)) return false;
      origins.note_read(offset, bytes);
    } else {
      shared.mark_written(offset, bytes);
      origins.clear(offset, bytes);
    }
    if (origins.has_suspects()) report_unread_boxes(w.cta().tiles());
  } else {
    if (!lanes.is_dense()) {
      const uint64_t in_step = lanes.first & (lanes.step - 1);
      place.address = lanes.first - in_step;
      if (place.address % kLargestStep != 0 || cluster.observe().has_footprint()) return false;
      pattern = 0;
      for (uint64_t byte = in_step; byte < kLargestStep; byte += lanes.step)
        pattern = static_cast<uint16_t>(pattern | ((1u << lanes.bytes) - 1) << byte);
    }
    GlobalMemory& memory = cluster.launch().memory;
    if (!kLoads)
      memory.mark_written(place.address, bytes, pattern);
    else if (cluster.checks().uninitialized_global && !memory.is_written(place.address, bytes, pattern))
      return false;
  }
  const auto is_same = [&] {
    for (int i = 0; i < kWarpSize; ++i)
      if (!stores_the_same(w, n, i, at + lanes.step * static_cast<uint64_t>(i))) return false;
    return true;
  };
  cluster.observe().warp_touched(who, place, bytes, kLoads ? AccessKind::kRead : AccessKind::kWrite,
                                 std::countr_zero(lanes.step), pattern, is_same);
  return true;
}

/// Finds, checks and counts the bytes; null where that is not for here.
template <class Checks, bool kLoads>
std::byte* touch_whole_warp(Warp& w, const Instruction& n, LanePattern& lanes, Space& space) {
  Cluster& cluster = w.cta().cluster();
  if (!cluster.observe().is_quiet() || !find_pattern(w, n, lanes)) return nullptr;
  const GoodRange range = good_range(w, n, lanes.first, kLoads);
  const uint64_t in_range = lanes.first - range.begin, span = lanes.span();
  if (range.bytes < span || in_range > range.bytes - span || (lanes.first & (lanes.bytes - 1)) != 0 ||
      (!lanes.is_dense() && range.space != Space::kGlobal))
    return nullptr;
  space = range.space;
  std::byte* const at = range.host + in_range;
  if constexpr (Checks::kIndex != 0)
    if (!tell_checkers<kLoads>(w, n, lanes, space, at)) return nullptr;
  Statistics& s = cluster.statistics();
  const int64_t bytes = int64_t{lanes.bytes} * kWarpSize;
  if (space == Space::kSharedCta)
    (kLoads ? s.shared_bytes_read : s.shared_bytes_written) += bytes;
  else
    (kLoads ? s.global_bytes_read : s.global_bytes_written) += bytes;
  return at;
}

/// Shared memory is touched by no other host thread; global memory may be, see raced_bytes.h.
void read_run(void* to, const std::byte* at, Space space, size_t bytes) {
  if (space == Space::kSharedCta)
    std::memcpy(to, at, bytes);
  else
    read_bytes(to, at, bytes);
}
void write_run(std::byte* at, const void* from, Space space, size_t bytes) {
  if (space == Space::kSharedCta)
    std::memcpy(at, from, bytes);
  else
    write_bytes(at, from, bytes);
}

/// Of lanes that are so many bytes apart. The step is a constant, and nothing is reached through a reference: a store to memory
/// might change what it leads to, for all that the compiler knows.
template <class T, size_t kStep, class Lane>
void load_apart(Lane* out, const std::byte* at) {
  for (size_t i = 0; i < kWarpSize; ++i) out[i] = read_word<T>(at + kStep * i);
}
template <class T, size_t kStep, class Lane>
void store_apart(std::byte* at, const Lane* in) {
  for (size_t i = 0; i < kWarpSize; ++i) write_word(at + kStep * i, static_cast<T>(in[i]));
}

template <class T, class Lane>
void load_element(Warp& w, Slot slot, const std::byte* at, const LanePattern& lanes, Space space) {
  Lane* const out = w.reg<Lane>(slot);
  if (lanes.step != sizeof(T)) {
    switch (lanes.step) {
      case 2:
        return load_apart<T, 2>(out, at);
      case 4:
        return load_apart<T, 4>(out, at);
      case 8:
        return load_apart<T, 8>(out, at);
      default:
        return load_apart<T, 16>(out, at);
    }
  }
  if constexpr (sizeof(T) == sizeof(Lane)) return read_run(out, at, space, sizeof(T) * kWarpSize);
  T run[kWarpSize];
  read_run(run, at, space, sizeof run);
  for (int i = 0; i < kWarpSize; ++i) out[i] = run[i];
}
template <class T, class Lane>
void store_element(Warp& w, Slot slot, std::byte* at, const LanePattern& lanes, Space space) {
  const Lane* const in = w.reg<Lane>(slot);
  if (lanes.step != sizeof(T)) {
    switch (lanes.step) {
      case 2:
        return store_apart<T, 2>(at, in);
      case 4:
        return store_apart<T, 4>(at, in);
      case 8:
        return store_apart<T, 8>(at, in);
      default:
        return store_apart<T, 16>(at, in);
    }
  }
  if constexpr (sizeof(T) == sizeof(Lane)) return write_run(at, in, space, sizeof(T) * kWarpSize);
  T run[kWarpSize];
  for (int i = 0; i < kWarpSize; ++i) run[i] = static_cast<T>(in[i]);
  write_run(at, run, space, sizeof run);
}

/// Calls move(T{}, Lane{}, e, offset) for every element, or words(count) where all elements can move at once.
template <class Move, class Words>
void each_element(const Instruction& n, const LanePattern& lanes, Move&& move, Words&& words) {
  const uint32_t count = n.small[kCount];
  if (n.small[kElementBytes] == 4 && count > 1 && lanes.is_dense()) return words(count);
  for (uint32_t e = 0; e < count; ++e) {
    switch (n.small[kElementBytes]) {
      case 1:
        move(uint8_t{}, uint32_t{}, e);
        break;
      case 2:
        move(uint16_t{}, uint32_t{}, e);
        break;
      case 4:
        move(uint32_t{}, uint32_t{}, e);
        break;
      default:
        move(uint64_t{}, uint64_t{}, e);
        break;
    }
  }
}

}  // namespace

template <class Checks>
bool load_whole_warp(Warp& w, const Instruction& n) {
  LanePattern lanes;
  Space space = Space::kGlobal;
  const std::byte* const at = touch_whole_warp<Checks, true>(w, n, lanes, space);
  if (at == nullptr) return false;
  each_element(
      n, lanes,
      [&]<class T, class Lane>(T, Lane, uint32_t e) {
        load_element<T, Lane>(w, element_slot(n, e), at + e * sizeof(T), lanes, space);
      },
      [&](uint32_t count) {
        uint32_t* registers[4] = {};
        for (uint32_t e = 0; e < count; ++e) registers[e] = w.reg<uint32_t>(n.list[e]);
        if (space == Space::kSharedCta)
          return lane_moves.to_lanes(count, reinterpret_cast<const uint32_t*>(at), registers);
        alignas(64) uint32_t run[4 * kWarpSize];
        read_bytes(run, at, count * sizeof(uint32_t) * kWarpSize);
        lane_moves.to_lanes(count, run, registers);
      });
  if (Checks::kIndex != 0 && !w.defined().empty() && w.program().uses[n.index].is_loaded)
    define_loaded(w, n, kAllLanes);
  return true;
}

template <class Checks>
bool store_whole_warp(Warp& w, const Instruction& n) {
  if (Checks::kIndex != 0 && (w.program().uses[n.index].stages || w.stores_undefined)) return false;
  LanePattern lanes;
  Space space = Space::kGlobal;
  std::byte* const at = touch_whole_warp<Checks, false>(w, n, lanes, space);
  if (at == nullptr) return false;
  each_element(
      n, lanes,
      [&]<class T, class Lane>(T, Lane, uint32_t e) {
        store_element<T, Lane>(w, element_slot(n, e), at + e * sizeof(T), lanes, space);
      },
      [&](uint32_t count) {
        const uint32_t* registers[4] = {};
        for (uint32_t e = 0; e < count; ++e) registers[e] = w.reg<uint32_t>(n.list[e]);
        if (space == Space::kSharedCta)
          return lane_moves.from_lanes(count, reinterpret_cast<uint32_t*>(at), registers);
        alignas(64) uint32_t run[4 * kWarpSize];
        lane_moves.from_lanes(count, run, registers);
        write_bytes(at, run, count * sizeof(uint32_t) * kWarpSize);
      });
  w.cta().cluster().note_progress();
  return true;
}

template bool load_whole_warp<Unchecked>(Warp&, const Instruction&);
template bool load_whole_warp<Checked>(Warp&, const Instruction&);
template bool store_whole_warp<Unchecked>(Warp&, const Instruction&);
template bool store_whole_warp<Checked>(Warp&, const Instruction&);

}  // namespace imbrex::vgpu
