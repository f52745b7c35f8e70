// SPDX-License-Identifier: Apache-2.0
// mov: registers, special registers and symbols; packing and unpacking of vectors; running counters.
#include <algorithm>
#include <cstring>

#include "vgpu/machine/cluster.h"
#include "vgpu/program/decode.h"

namespace imbrex::vgpu {

namespace {

using ptx::Op;
using ptx::OperandKind;
using ptx::ScalarType;
using ptx::SpecialReg;

template <int lane_bytes>
Step exec_mov(Warp& w, const Instruction& n, Mask active) {
  const std::byte* from = w.reg<std::byte>(n.a);
  std::byte* to = w.reg<std::byte>(n.d);
  if (active == kAllLanes)
    std::memmove(to, from, static_cast<size_t>(kWarpSize) * lane_bytes);
  else
    for_each_lane(active,
                  [&](int i) { std::memmove(to + i * lane_bytes, from + i * lane_bytes, lane_bytes); });
  return Step::kNext;
}

/// The address of a variable in the frame of a function that may call itself; `Word` as wide as the destination.
template <class Word>
Step exec_mov_frame(Warp& w, const Instruction& n, Mask active) {
  const uint64_t* pointers = w.reg<uint64_t>(n.a);
  Word* out = w.reg<Word>(n.d);
  for_each_lane(active,
                [&](int i) { out[i] = static_cast<Word>(pointers[i] + static_cast<uint64_t>(n.immediate)); });
  return Step::kNext;
}

/// small[0]: invert the source.
Step exec_mov_predicate(Warp& w, const Instruction& n, Mask active) {
  const Mask value = w.predicate(n.a) ^ (n.small[0] != 0 ? kAllLanes : 0);
  Mask& out = w.predicate(n.d);
  out = (out & ~active) | (value & active);
  return Step::kNext;
}

/// Parts in list, small[0] of them, of small[1] bits; the whole has lanes of small[2] bytes.
Step exec_pack(Warp& w, const Instruction& n, Mask active) {
  const size_t part_bytes = n.small[1] / 8u, whole = n.small[2];
  for_each_lane(active, [&](int i) {
    std::byte value[16] = {};
    const size_t lane = static_cast<size_t>(i);
    for (size_t p = 0; p < n.small[0]; ++p) {
      const size_t stride = std::max<size_t>(part_bytes, 4);
      std::memcpy(value + p * part_bytes, w.reg<std::byte>(n.list[p]) + lane * stride, part_bytes);
    }
    std::memcpy(w.reg<std::byte>(n.d) + lane * whole, value, whole);
  });
  return Step::kNext;
}

Step exec_unpack(Warp& w, const Instruction& n, Mask active) {
  const size_t part_bytes = n.small[1] / 8u, whole = n.small[2];
  for_each_lane(active, [&](int i) {
    std::byte value[16] = {};
    const size_t lane = static_cast<size_t>(i);
    std::memcpy(value, w.reg<std::byte>(n.a) + lane * whole, whole);
    for (size_t p = 0; p < n.small[0]; ++p) {
      const size_t stride = std::max<size_t>(part_bytes, 4);
      std::byte* to = w.reg<std::byte>(n.list[p]) + lane * stride;
      std::memset(to, 0, stride);
      std::memcpy(to, value + p * part_bytes, part_bytes);
    }
  });
  return Step::kNext;
}

/// The same two for a whole of two parts, as most are.
template <class Part, class Whole>
Step exec_pack_pair(Warp& w, const Instruction& n, Mask active) {
  const uint32_t *low = w.reg<uint32_t>(n.list[0]), *high = w.reg<uint32_t>(n.list[1]);
  Whole* const out = w.reg<Whole>(n.d);
  for (int i = 0; i < kWarpSize; ++i) {
    const auto value =
        static_cast<Whole>(static_cast<Part>(low[i]) | Whole{static_cast<Part>(high[i])} << 8 * sizeof(Part));
    out[i] = (active >> i & 1) != 0 ? value : out[i];
  }
  return Step::kNext;
}
template <class Part, class Whole>
Step exec_unpack_pair(Warp& w, const Instruction& n, Mask active) {
  const Whole* const from = w.reg<Whole>(n.a);
  uint32_t *const low = w.reg<uint32_t>(n.list[0]), *const high = w.reg<uint32_t>(n.list[1]);
  for (int i = 0; i < kWarpSize; ++i) {
    const Whole value = from[i];
    if ((active >> i & 1) == 0) continue;
    low[i] = static_cast<Part>(value);
    high[i] = static_cast<Part>(value >> 8 * sizeof(Part));
  }
  return Step::kNext;
}

/// The body for two parts, or null.
ExecFunction pair_body(const Instruction& n, bool packs) {
  if (n.small[0] != 2) return nullptr;
  if (n.small[1] == 16 && n.small[2] == 4)
    return packs ? exec_pack_pair<uint16_t, uint32_t> : exec_unpack_pair<uint16_t, uint32_t>;
  if (n.small[1] == 32 && n.small[2] == 8)
    return packs ? exec_pack_pair<uint32_t, uint64_t> : exec_unpack_pair<uint32_t, uint64_t>;
  return nullptr;
}

/// The cluster's logical clock stands for cycles, and at one per nanosecond for time.
Step exec_mov_counter(Warp& w, const Instruction& n, Mask active) {
  const uint64_t now = w.cta().cluster().clock();
  const auto special = static_cast<SpecialReg>(n.small[0]);
  const bool wide = special == SpecialReg::clock64 || special == SpecialReg::globaltimer;
  const bool high = special == SpecialReg::clock_hi || special == SpecialReg::globaltimer_hi;
  for_each_lane(active, [&](int i) {
    if (wide)
      w.reg<uint64_t>(n.d)[i] = now;
    else
      w.reg<uint32_t>(n.d)[i] = static_cast<uint32_t>(high ? now >> 32 : now);
  });
  return Step::kNext;
}

bool decode_vector(Decoder& d, Instruction& out, const ptx::Operand& parts, const ptx::Operand& whole,
                   bool packs) {
  const ScalarType type = d.type();
  const std::span<const ptx::Operand> elements = d.elements(parts);
  const int part_bits = ptx::bits(type) / static_cast<int>(elements.size());
  if (part_bits < 8) d.refuse("parts of fewer than 8 bits are not modelled");
  const ScalarType part_type = part_bits == 64   ? ScalarType::b64
                               : part_bits == 32 ? ScalarType::b32
                               : part_bits == 16 ? ScalarType::b16
                                                 : ScalarType::b8;
  std::vector<Slot> slots;
  for (const ptx::Operand& o : elements)
    slots.push_back(packs ? d.source(o, part_type) : d.destination(o, part_type));
  out.small[0] = static_cast<uint8_t>(slots.size());
  out.small[1] = static_cast<uint8_t>(part_bits);
  out.small[2] = static_cast<uint8_t>(d.lane_bytes(whole, type));
  out.list = d.keep_list(std::move(slots));
  if (packs)
    out.d = d.destination(whole, type);
  else
    out.a = d.source(whole, type);
  const ExecFunction of_two = pair_body(out, packs);
  set_body(out, of_two != nullptr ? of_two : packs ? exec_pack : exec_unpack);
  return true;
}

}  // namespace

bool decode_move(Decoder& d, Instruction& out) {
  const ScalarType type = d.type();
  const ptx::Operand& to = d.operand(0);
  const ptx::Operand& from = d.operand(1);
  if (type == ScalarType::pred) {
    const PredicateSource source = d.predicate(from);
    out.a = source.slot;
    out.small[0] = source.flip != 0 ? 1 : 0;
    out.d = d.predicate_destination(to);
    set_body(out, exec_mov_predicate);
    return true;
  }
  if (from.kind == OperandKind::vector) return decode_vector(d, out, from, to, true);
  if (to.kind == OperandKind::vector) return decode_vector(d, out, to, from, false);
  out.d = d.destination(to, type);
  if (from.kind == OperandKind::special && is_running_counter(static_cast<SpecialReg>(from.id))) {
    out.small[0] = static_cast<uint8_t>(from.id);
    set_body(out, exec_mov_counter);
    return true;
  }
  if (const std::optional<int64_t> distance = d.distance_in_frame(from)) {
    out.a = d.stack_pointer();
    out.immediate = *distance;
    set_body(out, d.lane_bytes(to, type) == 8 ? exec_mov_frame<uint64_t> : exec_mov_frame<uint32_t>);
    return true;
  }
  out.a = d.source(from, type);
  switch (d.lane_bytes(to, type)) {
    case 4:
      set_body(out, exec_mov<4>);
      break;
    case 8:
      set_body(out, exec_mov<8>);
      break;
    default:
      set_body(out, exec_mov<16>);
      break;
  }
  if (d.lane_bytes(from, type) != d.lane_bytes(to, type)) d.refuse("source and destination differ in size");
  return true;
}

}  // namespace imbrex::vgpu
