// SPDX-License-Identifier: Apache-2.0
// atom and red, on global and shared memory: scalars, packed halves and vectors.
#include <bit>
#include <cstring>

#include "core/scalar_float.h"
#include "core/scalar_half.h"
#include "vgpu/machine/access.h"
#include "vgpu/memory/raced_bytes.h"
#include "vgpu/program/decode.h"

namespace imbrex::vgpu {

namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

/// The new value of an element, given the old one and the operands. Values are zero-extended; 128 bits by
/// halves elsewhere.
using Update = uint64_t (*)(uint64_t old, uint64_t b, uint64_t c);

template <class T>
T as(uint64_t bits) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<float>(static_cast<uint32_t>(bits));
  else if constexpr (std::is_same_v<T, double>)
    return std::bit_cast<double>(bits);
  else
    return static_cast<T>(bits);
}
template <class T>
uint64_t bits_of(T value) {
  if constexpr (std::is_same_v<T, float>)
    return std::bit_cast<uint32_t>(value);
  else if constexpr (std::is_same_v<T, double>)
    return std::bit_cast<uint64_t>(value);
  else
    return static_cast<uint64_t>(static_cast<std::make_unsigned_t<T>>(value));
}

template <class T>
Update integer_update(Mod op) {
  switch (op) {
    case Mod::add:
      return [](uint64_t o, uint64_t b, uint64_t) { return bits_of<T>(static_cast<T>(o + b)); };
    case Mod::min:
      return [](uint64_t o, uint64_t b, uint64_t) { return bits_of(std::min(as<T>(o), as<T>(b))); };
    case Mod::max:
      return [](uint64_t o, uint64_t b, uint64_t) { return bits_of(std::max(as<T>(o), as<T>(b))); };
    case Mod::and_:
      return [](uint64_t o, uint64_t b, uint64_t) { return o & bits_of(as<T>(b)); };
    case Mod::or_:
      return [](uint64_t o, uint64_t b, uint64_t) { return o | bits_of(as<T>(b)); };
    case Mod::xor_:
      return [](uint64_t o, uint64_t b, uint64_t) { return o ^ bits_of(as<T>(b)); };
    case Mod::exch:
      return [](uint64_t, uint64_t b, uint64_t) { return bits_of(as<T>(b)); };
    case Mod::cas:
      return [](uint64_t o, uint64_t b, uint64_t c) { return as<T>(o) == as<T>(b) ? bits_of(as<T>(c)) : o; };
    case Mod::inc:
      return [](uint64_t o, uint64_t b, uint64_t) { return as<T>(o) >= as<T>(b) ? 0 : o + 1; };
    case Mod::dec:
      return [](uint64_t o, uint64_t b, uint64_t) {
        return o == 0 || as<T>(o) > as<T>(b) ? bits_of(as<T>(b)) : o - 1;
      };
    default:
      return nullptr;
  }
}

/// f32 addition in global memory flushes subnormals, in shared memory it keeps them (measured on an H200).
Update f32_update(Mod op, bool flushes) {
  if (op != Mod::add) return nullptr;
  if (flushes)
    return [](uint64_t o, uint64_t b, uint64_t) {
      return bits_of(arith::flush(arith::add(arith::flush(as<float>(o)), arith::flush(as<float>(b)))));
    };
  return [](uint64_t o, uint64_t b, uint64_t) { return bits_of(arith::add(as<float>(o), as<float>(b))); };
}

template <class F>
uint64_t each_half(uint64_t o, uint64_t b, F f) {
  return f(static_cast<uint16_t>(o), static_cast<uint16_t>(b)) |
         static_cast<uint64_t>(f(static_cast<uint16_t>(o >> 16), static_cast<uint16_t>(b >> 16))) << 16;
}

Update half_update(ScalarType type, Mod op) {
  using U = uint64_t;
  const bool bf16 = type == ScalarType::bf16 || type == ScalarType::bf16x2;
  const bool pair = type == ScalarType::f16x2 || type == ScalarType::bf16x2;
  switch (op) {
    case Mod::add:
      if (pair)
        return bf16 ? [](U o, U b, U) { return each_half(o, b, arith::add_bf16); }
                    : [](U o, U b, U) { return each_half(o, b, arith::add_f16); };
      return bf16 ? [](U o, U b,
                       U) { return U{arith::add_bf16(static_cast<uint16_t>(o), static_cast<uint16_t>(b))}; }
                  : [](U o, U b, U) {
                      return U{arith::add_f16(static_cast<uint16_t>(o), static_cast<uint16_t>(b))};
                    };
    case Mod::min:
      return bf16 ? [](U o, U b, U) { return each_half(o, b, [](uint16_t x, uint16_t y) { return arith::min_bf16(x, y); }); }
                  : [](U o, U b, U) { return each_half(o, b, [](uint16_t x, uint16_t y) { return arith::min_f16(x, y); }); };
    case Mod::max:
      return bf16 ? [](U o, U b, U) { return each_half(o, b, [](uint16_t x, uint16_t y) { return arith::max_bf16(x, y); }); }
                  : [](U o, U b, U) { return each_half(o, b, [](uint16_t x, uint16_t y) { return arith::max_f16(x, y); }); };
    default:
      return nullptr;
  }
}

Update update_of(ScalarType type, Mod op, bool global) {
  switch (type) {
    case ScalarType::b16:
      return integer_update<uint16_t>(op);
    case ScalarType::b32:
    case ScalarType::u32:
      return integer_update<uint32_t>(op);
    case ScalarType::b64:
    case ScalarType::u64:
      return integer_update<uint64_t>(op);
    case ScalarType::s32:
      return integer_update<int32_t>(op);
    case ScalarType::s64:
      return integer_update<int64_t>(op);
    case ScalarType::f32:
      return f32_update(op, global);
    case ScalarType::f64:
      if (op != Mod::add) return nullptr;
      if (global) return [](uint64_t o, uint64_t b, uint64_t) { return arith::add_in_global_memory(o, b); };
      return [](uint64_t o, uint64_t b, uint64_t) { return arith::add_in_shared_memory(o, b); };
    default:
      return half_update(type, op);
  }
}

/// `extra` of both instructions.
struct Atomic {
  Update shared = nullptr, global = nullptr;
  AddressSource address;
  uint32_t bytes = 4;  // of an element
  int lane_bytes = 4;
  bool compares = false;
  bool is_native = false;  // shared memory updates it without a loop
  bool takes_turn = false;
  uint8_t order = kRelaxed;
  std::vector<Slot> d, b;  // per element; d empty for red
  Slot c = 0;
};

struct Word128 {
  uint64_t low, high;
};

/// exch and cas on 16 bytes. Whether the memory has changed.
bool update_128(Warp& w, const Atomic& a, std::byte* host, int lane) {
  Word128 old, b, c{};
  read_bytes(&old, host, 16);
  std::memcpy(&b, w.reg<std::byte>(a.b[0]) + 16 * lane, 16);
  if (a.compares) std::memcpy(&c, w.reg<std::byte>(a.c) + 16 * lane, 16);
  const bool equal = old.low == b.low && old.high == b.high;
  const Word128 next = !a.compares ? b : equal ? c : old;
  write_bytes(host, &next, 16);
  if (!a.d.empty()) std::memcpy(w.reg<std::byte>(a.d[0]) + 16 * lane, &old, 16);
  return next.low != old.low || next.high != old.high;
}

uint64_t read_slot(Warp& w, Slot slot, int lane_bytes, int lane) {
  return lane_bytes == 8 ? w.reg<uint64_t>(slot)[lane] : w.reg<uint32_t>(slot)[lane];
}

/// Whether the memory has changed.
bool update_elements(Warp& w, const Atomic& a, Update update, std::byte* host, int lane) {
  bool has_changed = false;
  for (size_t e = 0; e < a.b.size(); ++e) {
    uint64_t old = 0;
    read_bytes(&old, host + e * a.bytes, a.bytes);
    const uint64_t c = a.compares ? read_slot(w, a.c, a.lane_bytes, lane) : 0;
    const uint64_t next = update(old, read_slot(w, a.b[e], a.lane_bytes, lane), c);
    write_bytes(host + e * a.bytes, &next, a.bytes);
    has_changed |= std::memcmp(&next, &old, a.bytes) != 0;
    if (a.d.empty()) continue;
    if (a.lane_bytes == 8)
      w.reg<uint64_t>(a.d[e])[lane] = old;
    else
      w.reg<uint32_t>(a.d[e])[lane] = static_cast<uint32_t>(old);
  }
  return has_changed;
}

template <class Checks>
Step exec_atomic(Warp& w, const Instruction& n, Mask active) {
  const Atomic& a = n.form<Atomic>();
  Cluster& cluster = w.cta().cluster();
  if (a.takes_turn && !cluster.has_turn()) return Step::kTurn;
  const uint32_t bytes = a.bytes * static_cast<uint32_t>(a.b.size());
  const std::byte* at[kWarpSize];
  Mask global_lanes = 0, shared_lanes = 0;
  bool has_changed = false;
  for_each_lane(active, [&](int lane) {
    const uint64_t base =
        a.address.base_is_64 ? w.reg<uint64_t>(a.address.base)[lane] : w.reg<uint32_t>(a.address.base)[lane];
    Place place;
    Who who = w.thread(n, lane);
    who.order = a.order;
    if (!access<Checks>(cluster, who, a.address.space, base + static_cast<uint64_t>(a.address.offset), bytes,
                        bytes, AccessKind::kAtomic, place))
      return;
    Statistics& s = cluster.statistics();
    (place.space == Space::kGlobal ? s.global_bytes_written : s.shared_bytes_written) += bytes;
    has_changed |= a.bytes == 16 ? update_128(w, a, place.host, lane)
                                 : update_elements(w, a, place.space == Space::kGlobal ? a.global : a.shared,
                                                   place.host, lane);
    at[lane] = place.host;
    (place.space == Space::kGlobal ? global_lanes : shared_lanes) |= lane_bit(lane);
  });
  cluster.observe().global_accessed(n, at, global_lanes, bytes,
                                    a.d.empty() ? GlobalAccess::kReduction : GlobalAccess::kAtomic);
  cluster.observe().updated(w, n, Space::kSharedCta, at, shared_lanes, bytes, !a.d.empty(), a.is_native);
  cluster.observe().updated(w, n, Space::kGlobal, at, global_lanes, bytes, !a.d.empty(), a.is_native);
  if (has_changed) {
    cluster.note_progress();
  } else if (const Mask looked = global_lanes | shared_lanes; looked != 0) {
    // A lock that is taken, a compare-and-swap that fails, an addition of zero: no more than a look.
    cluster.note_poll();
    w.last_look = {at[first_lane(looked)], bytes, n.index, first_lane(looked)};
  }
  return Step::kNext;
}

}  // namespace

bool decode_atomics(Decoder& d, Instruction& out) {
  const ptx::Instruction& insn = d.insn();
  const bool returns = insn.op == Op::atom;
  const ScalarType type = insn.type();
  Atomic a;
  const Mod op = insn.one_of(
      {Mod::and_, Mod::or_, Mod::xor_, Mod::exch, Mod::cas, Mod::add, Mod::inc, Mod::dec, Mod::min, Mod::max},
      Mod::rn);
  a.shared = update_of(type, op, false);
  a.global = update_of(type, op, true);
  a.bytes = static_cast<uint32_t>(ptx::bytes(type));
  if (type == ScalarType::b128 ? op != Mod::exch && op != Mod::cas : a.shared == nullptr) return false;
  a.compares = op == Mod::cas;
  a.is_native = !ptx::is_float(type) || op == Mod::exch || a.compares;
  const size_t first = returns ? 1 : 0;
  a.address = d.address(first);
  const Mod scope = insn.one_of({Mod::cta, Mod::cluster, Mod::gpu, Mod::sys}, Mod::gpu);
  const bool global = a.address.space == Space::kGlobal || a.address.space == Space::kGeneric;
  a.takes_turn = global && scope != Mod::cta && scope != Mod::cluster;
  if (d.has(Mod::acquire) || d.has(Mod::acq_rel)) a.order |= kAcquires;
  if (d.has(Mod::release) || d.has(Mod::acq_rel)) a.order |= kReleases;
  if (scope != Mod::cta && scope != Mod::cluster) a.order |= kGpuScope;
  if (scope == Mod::sys) a.order |= kSystemScope;
  if (scope == Mod::cta) a.order |= kCtaScope;
  a.lane_bytes = d.lane_bytes(d.operand(first + 1), type);
  const auto take = [&](const ptx::Operand& o, std::vector<Slot>& slots, bool is_source) {
    const auto one = [&](const ptx::Operand& e) {
      slots.push_back(is_source ? d.source(e, type) : d.destination(e, type));
      a.lane_bytes = d.lane_bytes(e, type);
    };
    if (o.kind == ptx::OperandKind::vector)
      for (const ptx::Operand& e : d.elements(o)) one(e);
    else
      one(o);
  };
  if (returns) take(d.operand(0), a.d, false);
  take(d.operand(first + 1), a.b, true);
  if (a.compares) a.c = d.source(first + 2, type);
  out.extra = d.keep(std::move(a));
  set_bodies(out, exec_atomic<Unchecked>, exec_atomic<Checked>);
  return true;
}

}  // namespace imbrex::vgpu
