// SPDX-License-Identifier: Apache-2.0
// Addresses: cvta, isspacep, mapa, getctarank, and the hints that need no more than a look at the address
// space (prefetch, applypriority, discard, createpolicy).
#include "vgpu/machine/cluster.h"
#include "vgpu/program/decode.h"

namespace imbrex::vgpu {

namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

uint64_t read_lane(Warp& w, Slot slot, bool wide, int lane) {
  return wide ? w.reg<uint64_t>(slot)[lane] : w.reg<uint32_t>(slot)[lane];
}
void write_lane(Warp& w, Slot slot, bool wide, int lane, uint64_t value) {
  if (wide)
    w.reg<uint64_t>(slot)[lane] = value;
  else
    w.reg<uint32_t>(slot)[lane] = static_cast<uint32_t>(value);
}

/// d = a + immediate: the window's base, added or taken away.
Step exec_cvta(Warp& w, const Instruction& n, Mask active) {
  for_each_lane(active, [&](int i) {
    w.reg<uint64_t>(n.d)[i] = w.reg<uint64_t>(n.a)[i] + static_cast<uint64_t>(n.immediate);
  });
  return Step::kNext;
}

/// Of parameters and constants, whose addresses may come 32 bits wide: what is above them is the same for all.
Step exec_cvta_to_generic(Warp& w, const Instruction& n, Mask active) {
  for_each_lane(active, [&](int i) { w.reg<uint64_t>(n.d)[i] = w.reg<uint64_t>(n.a)[i] | kGlobalBase; });
  return Step::kNext;
}

bool is_in_space(const Warp& w, Space space, uint64_t address) {
  const bool in_const = address - kGlobalBase < kConstBytes;
  const bool in_param = address - kParamBase < kParamBytes * kMaxGpus;
  switch (space) {
    case Space::kSharedCta:
      return in_window(address, kSharedWindow) &&
             static_cast<int>(shared_rank(static_cast<uint32_t>(address))) == w.cta().rank();
    case Space::kSharedCluster:
      return in_window(address, kSharedWindow) &&
             shared_rank(static_cast<uint32_t>(address)) < w.cta().cluster().ctas().size();
    case Space::kLocal:
      return in_window(address, kLocalWindow);
    case Space::kConst:
      return in_const;
    case Space::kParam:
      return in_param;
    case Space::kGlobal:
      // Whatever no window covers, allocated or not; null too (measured on H200).
      return !in_const && !in_param && !in_window(address, kSharedWindow) &&
             !in_window(address, kLocalWindow);
    case Space::kGeneric:
      break;
  }
  return false;
}

Step exec_isspacep(Warp& w, const Instruction& n, Mask active) {
  Mask& out = w.predicate(n.d);
  for_each_lane(active, [&](int i) {
    const bool inside = is_in_space(w, static_cast<Space>(n.small[0]), w.reg<uint64_t>(n.a)[i]);
    out = (out & ~lane_bit(i)) | (inside ? lane_bit(i) : 0);
  });
  return Step::kNext;
}

/// small[0]: 64-bit addresses.
Step exec_mapa(Warp& w, const Instruction& n, Mask active) {
  for_each_lane(active, [&](int i) {
    const uint64_t rank = w.reg<uint32_t>(n.b)[i] & 0xFF;
    const uint64_t address = read_lane(w, n.a, n.small[0] != 0, i);
    write_lane(w, n.d, n.small[0] != 0, i, (address & ~uint64_t{0xFF00'0000}) | rank << 24);
  });
  return Step::kNext;
}

Step exec_getctarank(Warp& w, const Instruction& n, Mask active) {
  for_each_lane(active, [&](int i) {
    w.reg<uint32_t>(n.d)[i] = shared_rank(static_cast<uint32_t>(read_lane(w, n.a, n.small[0] != 0, i)));
  });
  return Step::kNext;
}

Step exec_hint(Warp&, const Instruction&, Mask) { return Step::kNext; }

/// Cache policies mean nothing to this machine; any value will do, as long as it is one.
Step exec_createpolicy(Warp& w, const Instruction& n, Mask active) {
  for_each_lane(active, [&](int i) { w.reg<uint64_t>(n.d)[i] = 0x12F0'0000'0000'0000; });
  return Step::kNext;
}

int64_t window_base(Space space) {
  switch (space) {
    case Space::kSharedCta:
    case Space::kSharedCluster:
      return static_cast<int64_t>(kSharedWindow);
    case Space::kLocal:
      return static_cast<int64_t>(kLocalWindow);
    default:
      return 0;
  }
}

}  // namespace

bool decode_addressing(Decoder& d, Instruction& out) {
  const ScalarType type = d.type();
  switch (d.op()) {
    case Op::cvta:
      if (type != ScalarType::u64) d.refuse("32-bit generic addresses are not modelled");
      out.d = d.destination(0, type);
      out.a = d.source(1, type);
      out.immediate = d.has(Mod::to) ? -window_base(d.space()) : window_base(d.space());
      set_body(out, !d.has(Mod::to) && (d.space() == Space::kParam || d.space() == Space::kConst)
                        ? exec_cvta_to_generic
                        : exec_cvta);
      return true;
    case Op::isspacep:
      out.d = d.predicate_destination(d.operand(0));
      out.a = d.source(1, ScalarType::u64);
      out.small[0] = static_cast<uint8_t>(d.space());
      set_body(out, exec_isspacep);
      return true;
    case Op::mapa:
      out.d = d.destination(0, type);
      out.a = d.source(1, type);
      out.b = d.source(2, ScalarType::u32);
      out.small[0] = type == ScalarType::u64 ? 1 : 0;
      set_body(out, exec_mapa);
      return true;
    case Op::getctarank:
      out.d = d.destination(0, ScalarType::u32);
      out.a = d.source(1, type);
      out.small[0] = type == ScalarType::u64 ? 1 : 0;
      set_body(out, exec_getctarank);
      return true;
    case Op::createpolicy:
      out.d = d.destination(0, ScalarType::b64);
      set_body(out, exec_createpolicy);
      return true;
    case Op::prefetch:
    case Op::prefetchu:
    case Op::applypriority:
      set_body(out, exec_hint);
      return true;
    default:
      return false;
  }
}

}  // namespace imbrex::vgpu
