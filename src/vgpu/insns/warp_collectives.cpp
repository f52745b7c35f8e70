// SPDX-License-Identifier: Apache-2.0
// What the lanes of a warp do together: shfl.sync, vote.sync, match.sync, redux.sync, elect.sync, activemask,
// bar.warp.sync.
#include <bit>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "core/scalar_float.h"
#include "vgpu/machine/cluster.h"
#include "vgpu/machine/random.h"
#include "vgpu/machine/undefined.h"
#include "vgpu/program/decode.h"

namespace imbrex::vgpu {

namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

void write_predicate(Warp& w, Slot d, Mask active, Mask value) {
  Mask& out = w.predicate(d);
  out = (out & ~active) | (value & active);
}

/// Do all lanes hold the same?
bool is_uniform(const uint32_t* lanes) {
  return std::memcmp(lanes, lanes + 1, (kWarpSize - 1) * sizeof *lanes) == 0;
}

/// Lanes bring their own member mask; those that bring the same one act together. Calls group(members) for
/// each, `members` being the lanes that take part. Waits first until all that are named have come.
template <class Group>
Step for_each_group(Warp& w, const Instruction& n, Slot member_mask, Mask active, Group&& group) {
  const uint32_t* masks = w.reg<uint32_t>(member_mask);
  if (active == kAllLanes && masks[0] == kAllLanes && is_uniform(masks)) {
    group(kAllLanes);
    return Step::kNext;
  }
  Mask needed = 0, outside = 0;
  for_each_lane(active, [&](int lane) {
    needed |= masks[lane];
    if ((masks[lane] & lane_bit(lane)) == 0) outside |= lane_bit(lane);
  });
  if (outside != 0) {
    Cluster& cluster = w.cta().cluster();
    const int lane = first_lane(outside);
    if (cluster.launch().options.checks.collectives)
      if (Finding* f =
              cluster.log().open(FindingKind::kDivergentCollective, {&w.cta(), w.index(), lane, &n, ""}))
        f->message =
            fmt::format("lane {} executes it but is not in its member mask 0x{:08x}", lane, masks[lane]);
  }
  const Step step = w.gather(active, needed);
  if (step != Step::kNext) return step;
  Mask left = active;
  while (left != 0) {
    const uint32_t mask = masks[first_lane(left)];
    Mask members = 0;
    for_each_lane(left, [&](int lane) { members |= masks[lane] == mask ? lane_bit(lane) : 0; });
    left &= ~members;
    group(members);
  }
  return Step::kNext;
}

/// The same where values are exchanged.
template <class Group>
Step exchange_in_groups(Warp& w, const Instruction& n, Slot member_mask, Mask active, Group&& group) {
  return for_each_group(w, n, member_mask, active, [&](Mask members) {
    group(members);
    Cluster& cluster = w.cta().cluster();
    if (cluster.checks().races) cluster.observe().warp_met(w.threads(n, members));
  });
}

/// Indices of Instruction::small: what the instruction does; whether its predicate is inverted.
enum Small : int { kMode, kInvert };

// ---- shfl

enum ShuffleMode : uint8_t { kUp, kDown, kButterfly, kIndex };

struct ShuffleSource {
  int from;
  bool is_inside;
};
ShuffleSource shuffle_source(uint8_t mode, int lane, uint32_t amount, uint32_t control) {
  const int b = static_cast<int>(amount & 31);
  const int clamp = static_cast<int>(control & 31), segment = static_cast<int>(control >> 8 & 31);
  const int highest = (lane & segment) | (clamp & ~segment), lowest = lane & segment;
  int from = lane;
  bool is_inside = false;
  switch (mode) {
    case kUp:
      from = lane - b;
      is_inside = from >= highest;  // for .up the clamp is the lower bound
      break;
    case kDown:
      from = lane + b;
      is_inside = from <= highest;
      break;
    case kButterfly:
      from = lane ^ b;
      is_inside = from <= highest;
      break;
    default:
      from = lowest | (b & ~segment);
      is_inside = from <= highest;
      break;
  }
  return {is_inside ? from : lane, is_inside};
}

/// Of a whole warp whose lanes agree on how far and in which segments.
struct ShufflePattern {
  int from[kWarpSize];
  Mask in_range = 0;
};
ShufflePattern shuffle_pattern(uint8_t mode, uint32_t amount, uint32_t control) {
  ShufflePattern pattern;
  for (int lane = 0; lane < kWarpSize; ++lane) {
    const auto [from, is_inside] = shuffle_source(mode, lane, amount, control);
    pattern.from[lane] = from;
    pattern.in_range |= is_inside ? lane_bit(lane) : 0;
  }
  return pattern;
}
/// The pattern that the host thread used last for such an amount: a reduction goes through five of them again and again.
const ShufflePattern& known_pattern(uint8_t mode, uint32_t amount, uint32_t control) {
  struct Known {
    uint64_t key = ~uint64_t{0};
    ShufflePattern pattern;
  };
  thread_local Known known[kWarpSize];
  Known& one = known[amount % kWarpSize];
  const uint64_t key = uint64_t{mode} << 56 | uint64_t{amount % kWarpSize} << 32 | (control & 0x1F1F);
  if (one.key != key) one = {key, shuffle_pattern(mode, amount, control)};
  return one.pattern;
}

void shuffle_whole_warp(Warp& w, const Instruction& n, const ShufflePattern& pattern) {
  const uint32_t* value = w.reg<uint32_t>(n.a);
  uint32_t result[kWarpSize];
  for (int lane = 0; lane < kWarpSize; ++lane) result[lane] = value[pattern.from[lane]];
  std::memcpy(w.reg<uint32_t>(n.d), result, sizeof result);
  write_predicate(w, n.list[1], kAllLanes, pattern.in_range);
  pass_shuffled(w, n, kAllLanes, pattern.from);
}

/// d, a: value; b: lane or distance; c: clamp and segment mask; list: member mask, predicate.
Step exec_shfl(Warp& w, const Instruction& n, Mask active) {
  return exchange_in_groups(w, n, n.list[0], active, [&](Mask members) {
    const uint32_t* value = w.reg<uint32_t>(n.a);
    const uint32_t *amount = w.reg<uint32_t>(n.b), *control = w.reg<uint32_t>(n.c);
    if (members == kAllLanes && is_uniform(amount) && is_uniform(control))
      return shuffle_whole_warp(w, n, known_pattern(n.small[kMode], amount[0], control[0]));
    uint32_t result[kWarpSize] = {};
    int source[kWarpSize] = {};
    Mask in_range = 0, bad = 0;
    for_each_lane(members, [&](int lane) {
      const auto [from, is_inside] = shuffle_source(n.small[kMode], lane, amount[lane], control[lane]);
      if (is_inside) in_range |= lane_bit(lane);
      if ((members & lane_bit(from)) == 0) bad |= lane_bit(lane);
      source[lane] = from;
      result[lane] = value[from];
    });
    if (bad != 0 && w.cta().cluster().launch().options.checks.collectives) {
      const int lane = first_lane(bad);
      if (Finding* f = w.cta().cluster().log().open(FindingKind::kDivergentCollective,
                                                    {&w.cta(), w.index(), lane, &n, ""}))
        f->message = fmt::format(
            "lane {} reads the value of a lane that does not take part (lanes 0x{:08x} do)", lane, members);
    }
    for_each_lane(members, [&](int lane) { w.reg<uint32_t>(n.d)[lane] = result[lane]; });
    write_predicate(w, n.list[1], members, in_range);
    pass_shuffled(w, n, members, source);
  });
}

bool decode_shfl(Decoder& d, Instruction& out) {
  const ptx::Operand& result = d.operand(0);
  Slot predicate;
  if (result.kind == ptx::OperandKind::pair) {
    out.d = d.destination(d.elements(result)[0], ScalarType::b32);
    predicate = d.predicate_destination(d.elements(result)[1]);
  } else {
    out.d = d.destination(result, ScalarType::b32);
    predicate = d.predicate_destination(ptx::sink());
  }
  out.a = d.source(1, ScalarType::b32);
  out.b = d.source(2, ScalarType::u32);
  out.c = d.source(3, ScalarType::u32);
  out.list = d.keep_list({d.source(4, ScalarType::b32), predicate});
  out.small[kMode] = d.has(Mod::up) ? kUp : d.has(Mod::down) ? kDown : d.has(Mod::bfly) ? kButterfly : kIndex;
  set_body(out, exec_shfl);
  return true;
}

// ---- vote

enum VoteMode : uint8_t { kAll, kAny, kUniform, kBallot };

/// a: predicate; b: member mask.
Step exec_vote(Warp& w, const Instruction& n, Mask active) {
  return exchange_in_groups(w, n, n.b, active, [&](Mask members) {
    const Mask p = (w.predicate(n.a) ^ (n.small[kInvert] != 0 ? kAllLanes : 0)) & members;
    switch (n.small[kMode]) {
      case kAll:
        write_predicate(w, n.d, members, p == members ? kAllLanes : 0);
        break;
      case kAny:
        write_predicate(w, n.d, members, p != 0 ? kAllLanes : 0);
        break;
      case kUniform:
        write_predicate(w, n.d, members, p == members || p == 0 ? kAllLanes : 0);
        break;
      default:
        for_each_lane(members, [&](int lane) { w.reg<uint32_t>(n.d)[lane] = p; });
        break;
    }
  });
}

bool decode_vote(Decoder& d, Instruction& out) {
  const bool ballot = d.has(Mod::ballot);
  out.d = ballot ? d.destination(0, ScalarType::b32) : d.predicate_destination(d.operand(0));
  const PredicateSource p = d.predicate(1);
  out.a = p.slot;
  out.small[kInvert] = p.flip != 0 ? 1 : 0;
  out.b = d.source(2, ScalarType::b32);
  out.small[kMode] = ballot ? kBallot : d.has(Mod::all) ? kAll : d.has(Mod::any) ? kAny : kUniform;
  set_body(out, exec_vote);
  return true;
}

// ---- match

template <class T>
Step exec_match_any(Warp& w, const Instruction& n, Mask active) {
  return exchange_in_groups(w, n, n.b, active, [&](Mask members) {
    const T* value = w.reg<T>(n.a);
    Mask result[kWarpSize];
    for (Mask left = members; left != 0;) {  // value by value
      const T of_first = value[first_lane(left)];
      Mask same = 0;
      for (int lane = 0; lane < kWarpSize; ++lane) same |= Mask{value[lane] == of_first} << lane;
      same &= left;
      for_each_lane(same, [&](int lane) { result[lane] = same; });
      left &= ~same;
    }
    for_each_lane(members, [&](int lane) { w.reg<uint32_t>(n.d)[lane] = result[lane]; });
  });
}

/// list[0]: predicate.
template <class T>
Step exec_match_all(Warp& w, const Instruction& n, Mask active) {
  return exchange_in_groups(w, n, n.b, active, [&](Mask members) {
    const T* value = w.reg<T>(n.a);
    bool same = true;
    for_each_lane(members, [&](int lane) { same &= value[lane] == value[first_lane(members)]; });
    for_each_lane(members, [&](int lane) { w.reg<uint32_t>(n.d)[lane] = same ? members : 0; });
    write_predicate(w, n.list[0], members, same ? kAllLanes : 0);
  });
}

bool decode_match(Decoder& d, Instruction& out) {
  const bool wide = ptx::bits(d.type()) == 64;
  const ptx::Operand& result = d.operand(0);
  if (d.op() == Op::match_all_sync) {
    const bool pair = result.kind == ptx::OperandKind::pair;
    out.d = d.destination(pair ? d.elements(result)[0] : result, ScalarType::b32);
    out.list = d.keep_list({d.predicate_destination(pair ? d.elements(result)[1] : ptx::sink())});
    set_body(out, wide ? exec_match_all<uint64_t> : exec_match_all<uint32_t>);
  } else {
    out.d = d.destination(result, ScalarType::b32);
    set_body(out, wide ? exec_match_any<uint64_t> : exec_match_any<uint32_t>);
  }
  out.a = d.source(1, d.type());
  out.b = d.source(2, ScalarType::b32);
  return true;
}

// ---- redux

using Combine = uint32_t (*)(uint32_t, uint32_t);
float as_float(uint32_t x) { return std::bit_cast<float>(x); }
uint32_t as_bits(float x) { return std::bit_cast<uint32_t>(x); }

struct Reduction {
  Combine combine = nullptr;
  bool magnitudes = false;  // .abs
  bool is_float = false;
};

Step exec_redux(Warp& w, const Instruction& n, Mask active) {
  const Reduction& r = *static_cast<const Reduction*>(n.extra);
  return exchange_in_groups(w, n, n.b, active, [&](Mask members) {
    const uint32_t* value = w.reg<uint32_t>(n.a);
    const auto read = [&](int lane) { return r.magnitudes ? value[lane] & 0x7FFF'FFFFu : value[lane]; };
    uint32_t result = read(first_lane(members));
    // Even a NaN that is alone becomes the canonical one.
    if (r.is_float) result = r.combine(result, result);
    for_each_lane(members & (members - 1), [&](int lane) { result = r.combine(result, read(lane)); });
    for_each_lane(members, [&](int lane) { w.reg<uint32_t>(n.d)[lane] = result; });
  });
}

Combine combine_of(const ptx::Instruction& insn) {
  using U = uint32_t;
  using S = int32_t;
  const bool is_min = insn.has(Mod::min);
  if (insn.type() == ScalarType::f32) {
    if (insn.has(Mod::NaN)) {
      return is_min ? [](U a,
                         U b) { return as_bits(arith::min(as_float(a), as_float(b), {false, true, false})); }
                    : [](U a, U b) {
                        return as_bits(arith::max(as_float(a), as_float(b), {false, true, false}));
                      };
    }
    return is_min ? [](U a, U b) { return as_bits(arith::min(as_float(a), as_float(b))); }
                  : [](U a, U b) { return as_bits(arith::max(as_float(a), as_float(b))); };
  }
  if (insn.has(Mod::add)) return [](U a, U b) { return a + b; };
  if (insn.has(Mod::and_)) return [](U a, U b) { return a & b; };
  if (insn.has(Mod::or_)) return [](U a, U b) { return a | b; };
  if (insn.has(Mod::xor_)) return [](U a, U b) { return a ^ b; };
  if (insn.type() == ScalarType::s32)
    return is_min ? [](U a, U b) { return static_cast<S>(a) < static_cast<S>(b) ? a : b; }
                  : [](U a, U b) { return static_cast<S>(a) > static_cast<S>(b) ? a : b; };
  return is_min ? [](U a, U b) { return a < b ? a : b; } : [](U a, U b) { return a > b ? a : b; };
}

bool decode_redux(Decoder& d, Instruction& out) {
  out.d = d.destination(0, d.type());
  out.a = d.source(1, d.type());
  out.b = d.source(2, ScalarType::b32);
  out.extra = d.keep(Reduction{combine_of(d.insn()), d.has(Mod::abs), d.type() == ScalarType::f32});
  set_body(out, exec_redux);
  return true;
}

// ---- elect, activemask, bar.warp.sync

/// The lowest lane of the mask, as measured on an H200; under a seed another, for PTX says only that it is
/// the same for the same mask. d: lane, b: predicate, a: member mask.
Step exec_elect(Warp& w, const Instruction& n, Mask active) {
  const uint64_t seed = w.cta().cluster().launch().options.seed;
  return for_each_group(w, n, n.a, active, [&](Mask members) {
    int chosen = first_lane(members);
    if (seed != 0) {
      Mask rest = members;
      for (uint64_t skip = Random(seed, members).below(static_cast<uint64_t>(count_lanes(members))); skip > 0;
           --skip)
        rest &= rest - 1;
      chosen = first_lane(rest);
    }
    for_each_lane(members, [&](int lane) { w.reg<uint32_t>(n.d)[lane] = static_cast<uint32_t>(chosen); });
    write_predicate(w, n.b, members, lane_bit(chosen));
  });
}

Step exec_activemask(Warp& w, const Instruction& n, Mask active) {
  for_each_lane(active, [&](int lane) { w.reg<uint32_t>(n.d)[lane] = active; });
  return Step::kNext;
}

Step exec_warp_barrier(Warp& w, const Instruction& n, Mask active) {
  return for_each_group(w, n, n.a, active,
                        [&](Mask members) { w.cta().cluster().observe().warp_sync(w.threads(n, members)); });
}

bool decode_elect(Decoder& d, Instruction& out) {
  const ptx::Operand& result = d.operand(0);
  if (result.kind == ptx::OperandKind::pair) {
    out.d = d.destination(d.elements(result)[0], ScalarType::b32);
    out.b = d.predicate_destination(d.elements(result)[1]);
  } else {
    out.d = d.scratch(4);
    out.b = d.predicate_destination(result);
  }
  out.a = d.source(1, ScalarType::b32);
  set_body(out, exec_elect);
  return true;
}

}  // namespace

bool decode_warp_collectives(Decoder& d, Instruction& out) {
  switch (d.op()) {
    case Op::shfl_sync:
      return decode_shfl(d, out);
    case Op::vote_sync:
      return decode_vote(d, out);
    case Op::match_any_sync:
    case Op::match_all_sync:
      return decode_match(d, out);
    case Op::redux_sync:
      return decode_redux(d, out);
    case Op::elect_sync:
      return decode_elect(d, out);
    case Op::activemask:
      out.d = d.destination(0, ScalarType::b32);
      set_body(out, exec_activemask);
      return true;
    case Op::bar_warp_sync:
      out.a = d.source(0, ScalarType::b32);
      set_body(out, exec_warp_barrier);
      return true;
    default:
      return false;
  }
}

}  // namespace imbrex::vgpu
