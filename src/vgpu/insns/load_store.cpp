// SPDX-License-Identifier: Apache-2.0
// ld, ldu, st: every state space, scalars and vectors.
#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <optional>

#include "vgpu/insns/load_store.h"
#include "vgpu/machine/undefined.h"
#include "vgpu/program/decode.h"

namespace imbrex::vgpu {

using namespace load_store;

namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

template <class T>
void take_addresses(Warp& w, const Instruction& n, uint64_t* out) {
  const T* base = w.reg<T>(n.a);
  const uint64_t offset = static_cast<uint64_t>(n.immediate);
  for (int i = 0; i < kWarpSize; ++i) out[i] = base[i] + offset;
}

void addresses(Warp& w, const Instruction& n, uint64_t* out) {
  if ((n.small[kFlags] & kBase64) != 0)
    take_addresses<uint64_t>(w, n, out);
  else
    take_addresses<uint32_t>(w, n, out);
}

/// The step from each lane's address to the next one's, where it is the same for all 32.
bool is_regular(const uint64_t* address, uint64_t& step) {
  step = address[1] - address[0];
  uint64_t differs = 0;
  for (int i = 1; i < kWarpSize; ++i) differs |= (address[i] - address[i - 1]) ^ step;
  return differs == 0;
}

/// Host addresses of all lanes at once when all are good, which is the usual case: within the allocation that
/// the instruction touched last, or within the own shared memory, and aligned.
bool locate_all(Warp& w, const Instruction& n, Mask active, const uint64_t* address, uint32_t bytes,
                AccessKind kind, std::byte** host, Space& space) {
  if (active == 0) return false;
  const auto [begin, size, base, found_in] = good_range(w, n, address[first_lane(active)], !is_write(kind));
  space = found_in;
  if (size < bytes) return false;
  const uint64_t last = size - bytes;
  constexpr uint64_t kLargeStep = 1 << 20;  // beyond it the last lane's address might wrap around
  if (uint64_t step = 0; active == kAllLanes && is_regular(address, step) && step < kLargeStep) {
    const uint64_t first = address[0] - begin;
    if (first > last || first + step * (kWarpSize - 1) > last || ((address[0] | step) & (bytes - 1)) != 0)
      return false;
    for (int i = 0; i < kWarpSize; ++i) host[i] = base + first + step * static_cast<uint64_t>(i);
    return true;
  }
  uint64_t bad = 0;
  for (int i = 0; i < kWarpSize; ++i) {
    const uint64_t offset = address[i] - begin;
    const bool good = offset <= last && (address[i] & (bytes - 1)) == 0;
    bad |= uint64_t{!good} << i;
    // As a number: inactive lanes may lead anywhere.
    host[i] = reinterpret_cast<std::byte*>(reinterpret_cast<uintptr_t>(base) + offset);
  }
  return (bad & active) == 0;
}

void store_register(Warp& w, const Instruction& n, Slot slot, int lane, const std::byte* from,
                    uint32_t bytes) {
  uint64_t value = 0;
  read_bytes(&value, from, bytes);
  const uint8_t flags = n.small[kFlags];
  if ((flags & kSignExtend) != 0) {
    const int shift = 64 - 8 * static_cast<int>(bytes);
    value = static_cast<uint64_t>(static_cast<int64_t>(value << shift) >> shift);
  }
  if ((flags & kWideLanes) != 0)
    w.reg<uint64_t>(slot)[lane] = value;
  else
    w.reg<uint32_t>(slot)[lane] = static_cast<uint32_t>(value);
}

/// The common case without conversions: T is as wide as the register's lanes or narrower and zero-extended.
template <class T, class Lane>
void load_lanes(Lane* out, Mask active, std::byte* const* host, size_t offset) {
  if (active == kAllLanes) {
    for (int i = 0; i < kWarpSize; ++i) out[i] = static_cast<Lane>(read_word<T>(host[i] + offset));
    return;
  }
  for_each_lane(active, [&](int i) { out[i] = static_cast<Lane>(read_word<T>(host[i] + offset)); });
}

void load_element(Warp& w, const Instruction& n, Slot slot, Mask active, std::byte* const* host,
                  uint32_t element, uint32_t bytes) {
  const size_t offset = size_t{element} * bytes;
  const uint8_t flags = n.small[kFlags];
  if (bytes == 4 && (flags & kWideLanes) == 0) {
    load_lanes<uint32_t>(w.reg<uint32_t>(slot), active, host, offset);
  } else if (bytes == 8) {
    load_lanes<uint64_t>(w.reg<uint64_t>(slot), active, host, offset);
  } else if (bytes == 2 && (flags & (kWideLanes | kSignExtend)) == 0) {
    load_lanes<uint16_t>(w.reg<uint32_t>(slot), active, host, offset);
  } else if (bytes == 16) {
    for_each_lane(active, [&](int i) { read_bytes(w.reg<std::byte>(slot) + 16 * i, host[i] + offset, 16); });
  } else {
    for_each_lane(active, [&](int i) { store_register(w, n, slot, i, host[i] + offset, bytes); });
  }
}

/// Bytes of a lane in the registers that are stored.
size_t lane_stride(const Instruction& n) {
  const uint8_t flags = n.small[kFlags];
  return (flags & kQuadLanes) != 0 ? 16 : (flags & kWideLanes) != 0 ? 8 : 4;
}
const std::byte* lane_bytes(Warp& w, const Instruction& n, Slot slot, int lane) {
  return w.reg<std::byte>(slot) + lane_stride(n) * static_cast<size_t>(lane);
}

void store_element(Warp& w, const Instruction& n, Slot slot, Mask active, std::byte* const* host,
                   uint32_t element, uint32_t bytes) {
  const size_t offset = size_t{element} * bytes;
  const size_t stride = lane_stride(n);
  const std::byte* from = w.reg<std::byte>(slot);
  const auto store = [&]<class T>(T value) {
    for_each_lane(active, [&](int i) {
      std::memcpy(&value, from + stride * static_cast<size_t>(i), sizeof value);
      write_word(host[i] + offset, value);
    });
  };
  switch (bytes) {
    case 1:
      return store(uint8_t{});
    case 2:
      return store(uint16_t{});
    case 4:
      return store(uint32_t{});
    case 8:
      return store(uint64_t{});
    default:
      for_each_lane(active, [&](int i) {
        write_bytes(host[i] + offset, from + stride * static_cast<size_t>(i), bytes);
      });
  }
}

/// Does memory hold what a lane's register does?
bool is_at(const std::byte* host, const std::byte* value, uint32_t bytes) {
  std::byte there[16];
  read_bytes(there, host, bytes);
  return std::memcmp(there, value, bytes) == 0;
}

/// Parameters and constants count as no traffic.
void count_access(Cluster& cluster, const Instruction& n, Space space, const std::byte* const* host,
                  Mask lanes, uint32_t lane_bytes, bool writes) {
  const Space named = static_cast<Space>(n.small[kSpace]);
  if (named == Space::kParam || named == Space::kConst) return;
  Statistics& s = cluster.statistics();
  const int64_t bytes = int64_t{lane_bytes} * count_lanes(lanes);
  switch (space) {
    case Space::kSharedCta:
      (writes ? s.shared_bytes_written : s.shared_bytes_read) += bytes;
      break;
    case Space::kLocal:
      (writes ? s.local_bytes_written : s.local_bytes_read) += bytes;
      break;
    default:
      (writes ? s.global_bytes_written : s.global_bytes_read) += bytes;
      cluster.observe().global_accessed(n, host, lanes, lane_bytes,
                                        writes ? GlobalAccess::kStore : GlobalAccess::kLoad);
      break;
  }
}

}  // namespace

bool load_store::stores_the_same(Warp& w, const Instruction& n, int lane, const std::byte* at) {
  const uint32_t bytes = n.small[kElementBytes], count = n.small[kCount];
  for (uint32_t e = 0; e < count; ++e)
    if (!is_at(at + e * bytes, lane_bytes(w, n, element_slot(n, e), lane), bytes)) return false;
  return true;
}

namespace {

/// Do some lanes of a warp?
template <class T, class Lane>
bool lanes_store_the_same(Warp& w, const Instruction& n, Mask lanes, std::byte* const* host) {
  for (uint32_t e = 0; e < n.small[kCount]; ++e) {
    const Lane* values = w.reg<Lane>(element_slot(n, e));
    T differs = 0;
    const auto compare = [&](int i) {
      differs = static_cast<T>(differs | (read_word<T>(host[i] + e * sizeof(T)) ^ static_cast<T>(values[i])));
    };
    if (lanes == kAllLanes)
      for (int i = 0; i < kWarpSize; ++i) compare(i);
    else
      for_each_lane(lanes, compare);
    if (differs != 0) return false;
  }
  return true;
}
bool all_store_the_same(Warp& w, const Instruction& n, Mask lanes, std::byte* const* host) {
  const size_t bytes = n.small[kElementBytes], stride = lane_stride(n);
  if (bytes == 4 && stride == 4) return lanes_store_the_same<uint32_t, uint32_t>(w, n, lanes, host);
  if (bytes == 2 && stride == 4) return lanes_store_the_same<uint16_t, uint32_t>(w, n, lanes, host);
  if (bytes == 8 && stride == 8) return lanes_store_the_same<uint64_t, uint64_t>(w, n, lanes, host);
  bool all = true;
  for_each_lane(lanes, [&](int i) { all = all && stores_the_same(w, n, i, host[i]); });
  return all;
}

/// The order bits of a strong access.
uint8_t order_of(const Instruction& n) {
  const uint8_t flags = n.small[kFlags];
  return static_cast<uint8_t>(((flags & kSynchronises) != 0 ? kAcquires | kReleases : kRelaxed) |
                              ((flags & kOrdered) != 0 ? kGpuScope : 0) |
                              ((flags & (kOrdered | kSystem)) == (kOrdered | kSystem) ? kSystemScope : 0) |
                              ((flags & (kOrdered | kOfCta)) == kOfCta ? kCtaScope : 0));
}

/// What all 32 lanes touch in steps of 2 to 16 bytes of global memory, of which they leave some out.
bool touch_apart(Warp& w, const Instruction& n, Space space, const uint64_t* address, uint64_t step,
                 uint32_t bytes, AccessKind kind) {
  Cluster& cluster = w.cta().cluster();
  const uint64_t in_step = address[0] % step;
  if (space != Space::kGlobal || !is_power_of_two(step) || step > 16 || in_step + bytes > step ||
      (address[0] - in_step) % 16 != 0 || cluster.observe().has_footprint())
    return false;
  uint32_t pattern = 0;
  for (uint64_t at = in_step; at < 16; at += step) pattern |= ((1u << bytes) - 1) << at;
  const auto span = static_cast<uint32_t>(step * kWarpSize);
  GlobalMemory& memory = cluster.launch().memory;
  if (is_write(kind))
    memory.mark_written(address[0] - in_step, span, static_cast<uint16_t>(pattern));
  else if (cluster.checks().uninitialized_global &&
           !memory.is_written(address[0] - in_step, span, static_cast<uint16_t>(pattern)))
    return false;
  Who who = w.thread(n, 0);
  who.order = order_of(n);
  who.lanes = kAllLanes;
  cluster.observe().touched_apart(who, address[0] - in_step, span,
                                  kind == AccessKind::kLoad ? AccessKind::kRead : kind,
                                  std::countr_zero(step), static_cast<uint16_t>(pattern));
  return true;
}

/// Tells the checkers what the lanes touch, neighbouring lanes with neighbouring bytes at once.
void touch_lanes(Warp& w, const Instruction& n, Mask active, Space space, const uint64_t* address,
                 uint32_t bytes, AccessKind kind, std::byte* const* host) {
  Cluster& cluster = w.cta().cluster();
  Place place;
  place.space = space;
  place.cta = &w.cta();
  const int shift = std::countr_zero(bytes);
  if (uint64_t step = 0; active == kAllLanes && !is_strong(kind) && is_regular(address, step)) {
    const AccessKind now =
        kind == AccessKind::kWrite && step != 0 && all_store_the_same(w, n, kAllLanes, host)
            ? AccessKind::kSameWrite
            : kind;
    if (step == bytes) {
      Who who = w.thread(n, 0);
      who.order = order_of(n);
      who.lanes = kAllLanes;
      place.host = host[0];
      place.address =
          space == Space::kSharedCta ? shared_offset(static_cast<uint32_t>(address[0])) : address[0];
      return Checked::touched(cluster, who, place, bytes * kWarpSize, now, shift);
    }
    if (step != 0 && touch_apart(w, n, space, address, step, bytes, now)) return;
  }
  Who who = w.thread(n, first_lane(active));
  who.order = order_of(n);
  const auto at = [&](int i) -> uint64_t {
    return space == Space::kSharedCta ? shared_offset(static_cast<uint32_t>(address[i])) : address[i];
  };
  if (is_strong(kind) || space == Space::kLocal)
    return for_each_lane(active, [&](int i) {
      who.lane = i;
      place.host = host[i];
      place.address = at(i);
      Checked::touched(cluster, who, place, bytes, kind);
    });
  LaneTouches touches(bytes);
  for (int i = 0; i < kWarpSize; ++i) {
    if ((active & lane_bit(i)) == 0) continue;
    touches.add(i, at(i), bytes);
    if (is_write(kind)) continue;
    // All reading the same: the first and the last speak for them.
    while (i + 2 < kWarpSize && (active >> (i + 1) & 3) == 3 && address[i + 1] == address[i] &&
           address[i + 2] == address[i])
      ++i;
  }
  who.lanes = active;
  const struct {
    Warp& w;
    const Instruction& n;
    std::byte* const* host;
  } stored{w, n, host};
  WritesTheSame same;
  if (kind == AccessKind::kWrite)
    same = [&stored](const LaneTouch& touch) {
      bool is_same = true;
      for_each_lane(touch.lanes, [&](int lane) {
        is_same = is_same && stores_the_same(stored.w, stored.n, lane, stored.host[lane]);
      });
      return is_same;
    };
  Checked::lanes_touched(w.cta(), who, space, touches, kind, same);
}

/// Finds the bytes of every active lane; lanes that may not touch theirs are taken out of `active`.
template <class Checks>
Space find_lanes(Warp& w, const Instruction& n, Mask& active, uint32_t bytes, AccessKind kind,
                 std::byte** host) {
  uint64_t address[kWarpSize];
  addresses(w, n, address);
  Cluster& cluster = w.cta().cluster();
  Space space = Space::kGlobal;
  if (locate_all(w, n, active, address, bytes, kind, host, space)) {
    if constexpr (Checks::kIndex != 0) touch_lanes(w, n, active, space, address, bytes, kind, host);
    return space;
  }
  for_each_lane(active, [&](int i) {
    Place place;
    Who who = w.thread(n, i);
    who.order = order_of(n);
    if (!locate(cluster, who, static_cast<Space>(n.small[kSpace]), address[i], bytes, bytes, kind, place)) {
      active &= ~lane_bit(i);
      return;
    }
    host[i] = place.host;
    space = place.space;
    if constexpr (Checks::kIndex != 0) {
      AccessKind now = kind;
      if (kind == AccessKind::kWrite && stores_the_same(w, n, i, place.host)) now = AccessKind::kSameWrite;
      // Of another CTA's memory the value is not followed.
      if (kind == AccessKind::kLoad && place.cta != nullptr && place.cta != &w.cta()) now = AccessKind::kRead;
      Checks::touched(cluster, who, place, bytes, now);
    }
  });
  return space;
}

bool is_strong_access(const Instruction& n) { return (n.small[kFlags] & kStrong) != 0; }
bool visible_to_others(const Instruction& n) { return (n.small[kFlags] & kOrdered) != 0; }

/// Lanes that write different values to the same place: which of them stays is not specified.
void check_lanes_agree(Warp& w, const Instruction& n, Mask active, Space space, std::byte* const* host) {
  const uint32_t bytes = n.small[kElementBytes], count = n.small[kCount];
  bool apart = true;
  const std::byte* last = nullptr;
  for_each_lane(active, [&](int i) {
    apart = apart && (last == nullptr || host[i] >= last + bytes * count);
    last = host[i];
  });
  if (apart || !w.cta().cluster().observe().check_races()) return;
  const uint8_t flags = n.small[kFlags];
  const size_t stride = (flags & kQuadLanes) != 0 ? 16 : (flags & kWideLanes) != 0 ? 8 : 4;
  if (all_store_the_same(w, n, active, host)) return;
  for (uint32_t e = 0; e < count; ++e) {
    const std::byte* values = w.reg<std::byte>(element_slot(n, e));
    for_each_lane(active, [&](int i) {
      if (is_at(host[i] + e * bytes, values + stride * static_cast<size_t>(i), bytes)) return;
      Who winner = w.thread(n, i);
      for_each_lane(active, [&](int other) {
        if (other != i && host[other] < host[i] + bytes * count && host[i] < host[other] + bytes * count)
          winner.lane = other;
      });
      const Who loser = w.thread(n, i);
      Finding* finding = w.cta().cluster().log().open(FindingKind::kRace, loser, 0, &winner);
      if (finding == nullptr) return;
      finding->message =
          fmt::format("lanes {} and {} of warp {} write different values to the same {} memory", i,
                      winner.lane, w.index(), space == Space::kGlobal ? "global" : "shared");
      finding->hint = "which value stays is not specified: let one lane write, or use an atomic";
    });
  }
}

/// Where a lane's bytes are, and which of them were never written.
struct OwnBytes {
  const char* memory = "";
  uint64_t address = 0;
  uint64_t unwritten = 0;  // as bits
  UndefinedStore how;      // of the first of those
};
OwnBytes own_bytes(Warp& w, int lane, const std::byte* host, uint32_t count) {
  const auto distance = [&](const std::byte* base) {
    return reinterpret_cast<uintptr_t>(host) - reinterpret_cast<uintptr_t>(base);
  };
  OwnBytes own;
  const auto look = [&](const char* memory, uint64_t address, auto&& is_written) {
    own.memory = memory;
    own.address = address;
    for (uint32_t i = 0; i < count; ++i)
      if (!is_written(i)) own.unwritten |= uint64_t{1} << i;
  };
  const auto look_in = [&](const char* memory, uint64_t address, const WrittenBits& written, size_t at) {
    look(memory, address, [&](uint32_t i) { return written.all(at + i, 1); });
    if (own.unwritten != 0)
      own.how = written.undefined_store(at + static_cast<size_t>(std::countr_zero(own.unwritten)));
  };
  SharedMemory& shared = w.cta().shared();
  GlobalMemory& global = w.cta().cluster().launch().memory;
  if (const uint64_t at = distance(shared.at(0)); at < shared.end())
    look_in("shared", at, shared.written(), at);
  else if (const uint64_t mine = distance(w.local(lane)); mine < w.local_bytes())
    look_in("local", mine, w.local_written(), static_cast<size_t>(lane) * w.local_bytes() + mine);
  else if (const uint64_t in_global = distance(global.host(kGlobalBase)); in_global < global.size())
    look("global", kGlobalBase + in_global,
         [&](uint32_t i) { return global.is_written(kGlobalBase + in_global + i, 1); });
  return own;
}

/// Bytes of registers that come from memory which nobody has written count as never written.
void note_unwritten(Warp& w, const Instruction& n, Mask lanes, std::byte* const* host) {
  const std::vector<uint32_t>& loaded = w.program().info[n.index].elements;
  const uint32_t bytes = n.small[kElementBytes];
  const bool extends = (n.small[kFlags] & kSignExtend) != 0 && bytes < 4;
  Warp::UnwrittenLoad& found = w.unwritten_loads()[n.index];
  found.bytes = bytes * n.small[kCount];
  std::optional<bool> is_padding;  // all of an instruction are taken as the first
  for_each_lane(lanes, [&](int lane) {
    for (uint32_t e = 0; e < loaded.size(); ++e) {
      const OwnBytes own = own_bytes(w, lane, host[lane] + size_t{e} * bytes, bytes);
      if (own.unwritten == 0) continue;
      found.memory = own.memory;
      found.addresses[static_cast<size_t>(lane)] = own.address - size_t{e} * bytes;
      if (found.coming.empty() && std::string_view(own.memory) == "shared") {
        ComingCopy copy = coming_copy(w.cta(), static_cast<uint32_t>(own.address) +
                                                   static_cast<uint32_t>(std::countr_zero(own.unwritten)));
        found.coming = std::move(copy.fact), found.help = std::move(copy.hint);
      }
      if (!is_padding) {
        is_padding = own.address >= kGlobalBase && w.cta().cluster().launch().memory.is_padding(own.address);
        found.is_padding = *is_padding;
      }
      if (loaded[e] == 0) continue;
      const auto low = static_cast<uint8_t>(extends ? 0xF : own.unwritten & 0xF);
      note_loaded_unwritten(w, n, lane_bit(lane), loaded[e], low, own.how);
      if (bytes == 8)
        note_loaded_unwritten(w, n, lane_bit(lane), loaded[e] + 1, static_cast<uint8_t>(own.unwritten >> 4),
                              own.how);
    }
  });
}

template <class Checks>
Step exec_ld(Warp& w, const Instruction& n, Mask active) {
  Cluster& cluster = w.cta().cluster();
  if (visible_to_others(n)) {
    if (!cluster.has_turn()) return Step::kTurn;
    cluster.note_poll();
  }
  const uint32_t bytes = n.small[kElementBytes], count = n.small[kCount];
  std::byte* host[kWarpSize];
  Mask good = active;
  const bool follows = Checks::kIndex != 0 && w.program().uses[n.index].is_loaded;
  const AccessKind kind = is_strong_access(n) ? AccessKind::kStrongRead
                          : follows           ? AccessKind::kLoad
                                              : AccessKind::kRead;
  const Space space = find_lanes<Checks>(w, n, good, bytes * count, kind, host);
  if (kind == AccessKind::kStrongRead && space != Space::kLocal && good != 0)
    w.last_look = {host[first_lane(good)], bytes, n.index, first_lane(good)};
  count_access(cluster, n, space, host, good, bytes * count, false);
  cluster.observe().accessed(w, n, space, host, good, bytes * count, BankAccess::kLoad, false);
  alignas(16) static constexpr std::byte kZeros[32] = {};
  if (good != active)  // what may not be read reads as zero
    for_each_lane(active & ~good, [&](int i) { host[i] = const_cast<std::byte*>(kZeros); });
  for (uint32_t e = 0; e < count; ++e) load_element(w, n, element_slot(n, e), active, host, e, bytes);
  if (follows && !w.defined().empty()) {
    define_loaded(w, n, active);
    if (cluster.take_unwritten_load()) note_unwritten(w, n, good, host);
  }
  return Step::kNext;
}

/// What was loaded from tensor memory is put where a tensor store may take it from.
void note_staged(Warp& w, const Instruction& n, Mask active, std::byte* const* host) {
  SharedMemory& shared = w.cta().shared();
  for_each_lane(active, [&](int i) {
    const auto offset = static_cast<uint64_t>(host[i] - shared.at(shared.user_base())) + shared.user_base();
    if (offset >= shared.user_base() && offset < shared.end())
      w.cta().units().chunk_origins.note_staged(static_cast<uint32_t>(offset), n.index,
                                                static_cast<uint32_t>(w.index() * kWarpSize + i));
  });
}

template <class Checks>
Step exec_st(Warp& w, const Instruction& n, Mask active) {
  Cluster& cluster = w.cta().cluster();
  if (visible_to_others(n) && !cluster.has_turn()) return Step::kTurn;
  const uint32_t bytes = n.small[kElementBytes], count = n.small[kCount];
  std::byte* host[kWarpSize];
  const AccessKind kind = is_strong_access(n) ? AccessKind::kStrongWrite : AccessKind::kWrite;
  const Space space = find_lanes<Checks>(w, n, active, bytes * count, kind, host);
  count_access(cluster, n, space, host, active, bytes * count, true);
  cluster.observe().accessed(w, n, space, host, active, bytes * count, BankAccess::kStore, true);
  for (uint32_t e = 0; e < count; ++e) store_element(w, n, element_slot(n, e), active, host, e, bytes);
  if constexpr (Checks::kIndex != 0)
    if (kind == AccessKind::kWrite && space != Space::kLocal) check_lanes_agree(w, n, active, space, host);
  if constexpr (Checks::kIndex != 0)
    if (space == Space::kSharedCta && w.program().uses[n.index].stages) note_staged(w, n, active, host);
  if constexpr (Checks::kIndex != 0)
    if (w.stores_undefined) note_undefined_stored(w, n, active, space, host);
  cluster.note_progress();
  return Step::kNext;
}

template <class Checks>
Step exec_plain_ld(Warp& w, const Instruction& n, Mask active) {
  return active == kAllLanes && load_whole_warp<Checks>(w, n) ? Step::kNext : exec_ld<Checks>(w, n, active);
}
template <class Checks>
Step exec_plain_st(Warp& w, const Instruction& n, Mask active) {
  return active == kAllLanes && store_whole_warp<Checks>(w, n) ? Step::kNext : exec_st<Checks>(w, n, active);
}

/// Is it an access that a whole warp may do at once: weak, of elements that fill their registers or are extended by
/// zeros?
bool is_plain(const Instruction& n) {
  const uint8_t flags = n.small[kFlags], bytes = n.small[kElementBytes], count = n.small[kCount];
  const auto space = static_cast<Space>(n.small[kSpace]);
  if (space == Space::kLocal || space == Space::kParam || space == Space::kConst) return false;
  if ((flags & (kStrong | kQuadLanes)) != 0 || bytes > 8 || bytes * count > 16 || !is_power_of_two(count))
    return false;
  const int lane_bytes = (flags & kWideLanes) != 0 ? 8 : 4;
  return bytes == lane_bytes || (lane_bytes == 4 && bytes < 4 && (flags & kSignExtend) == 0);
}

}  // namespace

bool decode_load_store(Decoder& d, Instruction& out) {
  const ptx::Instruction& insn = d.insn();
  const bool is_load = insn.op != Op::st;
  const ScalarType type = insn.type();
  const size_t address_at = is_load ? 1 : 0, value_at = is_load ? 0 : 1;
  const AddressSource address = d.address(address_at);
  out.a = address.base;
  out.immediate = address.offset;
  out.small[kSpace] = static_cast<uint8_t>(address.space);
  out.small[kElementBytes] = static_cast<uint8_t>(ptx::bytes(type));
  uint8_t flags = address.base_is_64 ? kBase64 : 0;
  if (is_load && ptx::is_signed(type) && !ptx::is_float(type)) flags |= kSignExtend;
  // Accesses to global memory that other clusters may be watching take their turn.
  const Mod order =
      insn.one_of({Mod::volatile_, Mod::relaxed, Mod::acquire, Mod::release, Mod::mmio}, Mod::weak);
  const Mod scope = insn.one_of({Mod::cta, Mod::cluster, Mod::gpu, Mod::sys}, Mod::sys);
  const bool global = address.space == Space::kGlobal || address.space == Space::kGeneric;
  if (order != Mod::weak && global && scope != Mod::cta && scope != Mod::cluster) flags |= kOrdered;
  if ((flags & kOrdered) != 0 && scope == Mod::sys) flags |= kSystem;
  if (order != Mod::weak) flags |= kStrong | (scope == Mod::cta ? kOfCta : 0);
  if (order == Mod::acquire || order == Mod::release) flags |= kSynchronises;
  const ptx::Operand& value = d.operand(value_at);
  const auto take = [&](const ptx::Operand& o) {
    const int lane_bytes = d.lane_bytes(o, type);
    if (lane_bytes == 8) flags |= kWideLanes;
    if (lane_bytes == 16) flags |= kQuadLanes;
    return is_load ? d.destination(o, type) : d.source(o, type);
  };
  if (value.kind == ptx::OperandKind::vector) {
    std::vector<Slot> slots;
    for (const ptx::Operand& o : d.elements(value)) slots.push_back(take(o));
    out.small[kCount] = static_cast<uint8_t>(slots.size());
    out.list = d.keep_list(std::move(slots));
    if (out.small[kCount] == 1) out.d = out.list[0];
  } else {
    out.small[kCount] = 1;
    out.d = take(value);
  }
  out.small[kFlags] = flags;
  if (is_load && is_plain(out))
    set_bodies(out, exec_plain_ld<Unchecked>, exec_plain_ld<Checked>);
  else if (is_load)
    set_bodies(out, exec_ld<Unchecked>, exec_ld<Checked>);
  else if (is_plain(out))
    set_bodies(out, exec_plain_st<Unchecked>, exec_plain_st<Checked>);
  else
    set_bodies(out, exec_st<Unchecked>, exec_st<Checked>);
  return true;
}

}  // namespace imbrex::vgpu
