// SPDX-License-Identifier: Apache-2.0
// Comparison and selection: setp, set, selp, slct, testp.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "vgpu/insns/compare_select.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "core/float_formats.h"
#include "core/scalar_float.h"
#include "core/scalar_half.h"
#include "vgpu/insns/lane_loops-inl.h"
#include "vgpu/insns/small_facts.h"
#include "vgpu/program/decode_arith.h"

HWY_BEFORE_NAMESPACE();
namespace imbrex::vgpu::HWY_NAMESPACE {

using arith::Compare;
using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

/// How a comparison reads a 16-bit float.
enum class HalfFormat { kF16, kBF16 };

/// A comparison's operand type: T in the register, compared as what read() gives.
template <class T>
struct Plain {
  using Register = T;
  static T read(T x) { return x; }
};
struct Flushed {
  using Register = float;
  static float read(float x) { return arith::flush(x); }
};
template <HalfFormat format>
struct Half {
  using Register = uint16_t;
  static float read(uint16_t x) {
    return format == HalfFormat::kF16 ? arith::f16_to_f32(x) : arith::bf16_to_f32(x);
  }
};
struct FlushedF16 {
  using Register = uint16_t;
  static float read(uint16_t x) { return arith::f16_to_f32(arith::flush_f16(x)); }
};

/// Lanes in which the comparison holds.
template <Compare op, class As>
[[gnu::flatten]] Mask compare_lanes(Warp& w, const Instruction& n, Mask active) {
  using T = typename As::Register;
  const Stored<T>* a = w.reg<Stored<T>>(n.a);
  const Stored<T>* b = w.reg<Stored<T>>(n.b);
  return lanes_where(active, [&](int i) {
    return arith::compare(op, As::read(from_lane<T>(a[i])), As::read(from_lane<T>(b[i])));
  });
}

using CompareFunction = Mask (*)(Warp&, const Instruction&, Mask);

template <class As>
CompareFunction compare_as(Compare op) {
  switch (op) {
    case Compare::kEq:
      return compare_lanes<Compare::kEq, As>;
    case Compare::kNe:
      return compare_lanes<Compare::kNe, As>;
    case Compare::kLt:
      return compare_lanes<Compare::kLt, As>;
    case Compare::kLe:
      return compare_lanes<Compare::kLe, As>;
    case Compare::kGt:
      return compare_lanes<Compare::kGt, As>;
    case Compare::kGe:
      return compare_lanes<Compare::kGe, As>;
    default:
      break;
  }
  using Value = decltype(As::read(typename As::Register{}));
  if constexpr (std::is_floating_point_v<Value>) {
    switch (op) {
      case Compare::kEqu:
        return compare_lanes<Compare::kEqu, As>;
      case Compare::kNeu:
        return compare_lanes<Compare::kNeu, As>;
      case Compare::kLtu:
        return compare_lanes<Compare::kLtu, As>;
      case Compare::kLeu:
        return compare_lanes<Compare::kLeu, As>;
      case Compare::kGtu:
        return compare_lanes<Compare::kGtu, As>;
      case Compare::kGeu:
        return compare_lanes<Compare::kGeu, As>;
      case Compare::kNum:
        return compare_lanes<Compare::kNum, As>;
      case Compare::kNan:
        return compare_lanes<Compare::kNan, As>;
      default:
        break;
    }
  }
  return nullptr;
}

CompareFunction compare_function(ScalarType type, Compare op, bool ftz) {
  switch (type) {
    case ScalarType::b16:
    case ScalarType::u16:
      return compare_as<Plain<uint16_t>>(op);
    case ScalarType::b32:
    case ScalarType::u32:
      return compare_as<Plain<uint32_t>>(op);
    case ScalarType::b64:
    case ScalarType::u64:
      return compare_as<Plain<uint64_t>>(op);
    case ScalarType::s16:
      return compare_as<Plain<int16_t>>(op);
    case ScalarType::s32:
      return compare_as<Plain<int32_t>>(op);
    case ScalarType::s64:
      return compare_as<Plain<int64_t>>(op);
    case ScalarType::f32:
      return ftz ? compare_as<Flushed>(op) : compare_as<Plain<float>>(op);
    case ScalarType::f64:
      return compare_as<Plain<double>>(op);
    case ScalarType::f16:
      return ftz ? compare_as<FlushedF16>(op) : compare_as<Half<HalfFormat::kF16>>(op);
    case ScalarType::bf16:
      return compare_as<Half<HalfFormat::kBF16>>(op);
    default:
      return nullptr;
  }
}

/// selp: d = p ? a : b; p is c.
template <class T>
[[gnu::flatten]] Step exec_selp(Warp& w, const Instruction& n, Mask active) {
  const T* a = w.reg<T>(n.a);
  const T* b = w.reg<T>(n.b);
  const Mask p = w.predicate(n.c) ^ (n.small[PredicateSmall::kInvertSelector] != 0 ? kAllLanes : 0);
  store_lanes<T>(w.reg<T>(n.d), active, [&](int i) { return (p >> i & 1) != 0 ? a[i] : b[i]; });
  return Step::kNext;
}
ExecFunction selp_body(bool wide) { return wide ? exec_selp<uint64_t> : exec_selp<uint32_t>; }

ExecFunction slct_body(bool wide, bool by_float, bool ftz) {
  // A NaN chooses b; -0, which .ftz makes of a negative subnormal, a.
  if (by_float && ftz)
    return wide ? ternary<uint64_t, uint64_t, uint64_t, float>(
                      [](uint64_t a, uint64_t b, float c) { return arith::flush(c) >= 0.0f ? a : b; })
                : ternary<uint32_t, uint32_t, uint32_t, float>(
                      [](uint32_t a, uint32_t b, float c) { return arith::flush(c) >= 0.0f ? a : b; });
  if (by_float)
    return wide ? ternary<uint64_t, uint64_t, uint64_t, float>(
                      [](uint64_t a, uint64_t b, float c) { return c >= 0.0f ? a : b; })
                : ternary<uint32_t, uint32_t, uint32_t, float>(
                      [](uint32_t a, uint32_t b, float c) { return c >= 0.0f ? a : b; });
  return wide ? ternary<uint64_t, uint64_t, uint64_t, int32_t>(
                    [](uint64_t a, uint64_t b, int32_t c) { return c >= 0 ? a : b; })
              : ternary<uint32_t, uint32_t, uint32_t, int32_t>(
                    [](uint32_t a, uint32_t b, int32_t c) { return c >= 0 ? a : b; });
}

}  // namespace imbrex::vgpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace imbrex::vgpu {

HWY_EXPORT(compare_function);
HWY_EXPORT(selp_body);
HWY_EXPORT(slct_body);

namespace {

using arith::Compare;
using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

/// `extra` of setp and set.
struct Comparison {
  Mask (*lanes)(Warp&, const Instruction&, Mask) = nullptr;
  Mask (*high_lanes)(Warp&, const Instruction&, Mask) = nullptr;  // of packed halves
  enum Combine : uint8_t { kNone, kAnd, kOr, kXor } combine = kNone;
  PredicateSource with;  // the predicate to combine with
  Slot p = 0, q = 0;     // setp's results: comparison, and its negation
  uint64_t truth = 0;    // what set writes for true
};

Mask combined(Warp& w, const Comparison& c, Mask value) {
  const Mask with = w.predicate(c.with.slot) ^ c.with.flip;
  switch (c.combine) {
    case Comparison::kNone:
      return value;
    case Comparison::kAnd:
      return value & with;
    case Comparison::kOr:
      return value | with;
    case Comparison::kXor:
      return value ^ with;
  }
  return value;
}

void write_predicate(Warp& w, Slot d, Mask active, Mask value) {
  Mask& out = w.predicate(d);
  out = (out & ~active) | (value & active);
}

/// Without a predicate to combine with and without a second result.
Step exec_setp(Warp& w, const Instruction& n, Mask active) {
  const Comparison& c = *static_cast<const Comparison*>(n.extra);
  write_predicate(w, n.d, active, c.lanes(w, n, active));
  return Step::kNext;
}

Step exec_setp_combined(Warp& w, const Instruction& n, Mask active) {
  const Comparison& c = *static_cast<const Comparison*>(n.extra);
  const Mask value = c.lanes(w, n, active);
  const Mask first = combined(w, c, value), second = combined(w, c, ~value);
  write_predicate(w, c.p, active, first);
  write_predicate(w, c.q, active, second);
  return Step::kNext;
}

/// Packed halves: p is the low half's comparison, q the high half's.
template <bool bf16>
Mask compare_half(Warp& w, const Instruction& n, Mask active, int shift) {
  Mask out = 0;
  for_each_lane(active, [&](int i) {
    const auto read = [&](Slot s) {
      const uint16_t bits = static_cast<uint16_t>(w.reg<uint32_t>(s)[i] >> shift);
      if (bf16) return arith::bf16_to_f32(bits);
      return arith::f16_to_f32(n.small[CompareSmall::kFtz] != 0 ? arith::flush_f16(bits) : bits);
    };
    if (arith::compare(static_cast<Compare>(n.small[CompareSmall::kComparison]), read(n.a), read(n.b)))
      out |= lane_bit(i);
  });
  return out;
}
template <bool bf16, int shift>
Mask compare_half_at(Warp& w, const Instruction& n, Mask active) {
  return compare_half<bf16>(w, n, active, shift);
}

Step exec_setp_halves(Warp& w, const Instruction& n, Mask active) {
  const Comparison& c = *static_cast<const Comparison*>(n.extra);
  const Mask low = combined(w, c, c.lanes(w, n, active)), high = combined(w, c, c.high_lanes(w, n, active));
  write_predicate(w, c.p, active, low);
  write_predicate(w, c.q, active, high);
  return Step::kNext;
}

Step exec_set(Warp& w, const Instruction& n, Mask active) {
  const Comparison& c = *static_cast<const Comparison*>(n.extra);
  const Mask low = combined(w, c, c.lanes(w, n, active));
  const Mask high = c.high_lanes != nullptr ? combined(w, c, c.high_lanes(w, n, active)) : 0;
  for_each_lane(active, [&](int i) {
    const uint32_t truth = static_cast<uint32_t>(c.truth);
    w.reg<uint32_t>(n.d)[i] =
        ((low >> i & 1) != 0 ? truth & 0xFFFF'FFFFu : 0) | ((high >> i & 1) != 0 ? truth << 16 : 0);
  });
  return Step::kNext;
}

Compare comparison_of(const ptx::Instruction& insn) {
  static constexpr std::pair<Mod, Compare> kNames[] = {
      {Mod::eq, Compare::kEq},   {Mod::ne, Compare::kNe},   {Mod::lt, Compare::kLt},
      {Mod::le, Compare::kLe},   {Mod::gt, Compare::kGt},   {Mod::ge, Compare::kGe},
      {Mod::lo, Compare::kLt},   {Mod::ls, Compare::kLe},   {Mod::hi, Compare::kGt},
      {Mod::hs, Compare::kGe},   {Mod::equ, Compare::kEqu}, {Mod::neu, Compare::kNeu},
      {Mod::ltu, Compare::kLtu}, {Mod::leu, Compare::kLeu}, {Mod::gtu, Compare::kGtu},
      {Mod::geu, Compare::kGeu}, {Mod::num, Compare::kNum}, {Mod::nan, Compare::kNan}};
  for (const auto& [mod, compare] : kNames)
    if (insn.has(mod)) return compare;
  return Compare::kEq;
}

/// The operands' type is the last one written; the comparison is of it.
bool make_comparison(Decoder& d, Instruction& out, ScalarType type, Comparison& c) {
  const ptx::Instruction& insn = d.insn();
  const Compare op = comparison_of(insn);
  out.small[CompareSmall::kComparison] = static_cast<uint8_t>(op);
  out.small[CompareSmall::kFtz] = insn.has(Mod::ftz) ? 1 : 0;
  if (type == ScalarType::f16x2 || type == ScalarType::bf16x2) {
    const bool bf16 = type == ScalarType::bf16x2;
    c.lanes = bf16 ? compare_half_at<true, 0> : compare_half_at<false, 0>;
    c.high_lanes = bf16 ? compare_half_at<true, 16> : compare_half_at<false, 16>;
  } else {
    c.lanes = HWY_DYNAMIC_DISPATCH(compare_function)(type, op, insn.has(Mod::ftz));
  }
  if (c.lanes == nullptr) return false;
  out.a = d.source(1, type);
  out.b = d.source(2, type);
  const Mod combine = insn.one_of({Mod::and_, Mod::or_, Mod::xor_}, Mod::rn);
  if (combine != Mod::rn) {
    c.combine = combine == Mod::and_  ? Comparison::kAnd
                : combine == Mod::or_ ? Comparison::kOr
                                      : Comparison::kXor;
    c.with = d.predicate(3);
  }
  return true;
}

bool decode_setp(Decoder& d, Instruction& out) {
  Comparison c;
  if (!make_comparison(d, out, d.type(), c)) return false;
  const ptx::Operand& result = d.operand(0);
  const bool pair = result.kind == ptx::OperandKind::pair;
  if (pair) {
    c.p = d.predicate_destination(d.elements(result)[0]);
    c.q = d.predicate_destination(d.elements(result)[1]);
  } else {
    c.p = d.predicate_destination(result);
    c.q = d.predicate_destination(ptx::sink());
  }
  out.d = c.p;
  const bool simple = !pair && c.combine == Comparison::kNone;
  set_body(out, c.high_lanes != nullptr ? exec_setp_halves : simple ? exec_setp : exec_setp_combined);
  out.extra = d.keep(c);
  return true;
}

bool decode_set(Decoder& d, Instruction& out) {
  Comparison c;
  if (!make_comparison(d, out, d.type(1), c)) return false;
  switch (d.type(0)) {
    case ScalarType::f32:
      c.truth = 0x3F800000;
      break;
    case ScalarType::f16:
    case ScalarType::f16x2:
      c.truth = 0x3C00;
      break;
    case ScalarType::bf16:
    case ScalarType::bf16x2:
      c.truth = 0x3F80;
      break;
    case ScalarType::u16:
      c.truth = 0xFFFF;
      break;
    default:
      c.truth = 0xFFFFFFFF;
      break;
  }
  if (c.high_lanes != nullptr && ptx::bits(d.type(0)) == 32 && c.truth == 0xFFFFFFFF) c.truth = 0xFFFF;
  out.d = d.destination(0, d.type(0));
  set_body(out, exec_set);
  out.extra = d.keep(c);
  return true;
}

template <class T>
Step exec_testp(Warp& w, const Instruction& n, Mask active) {
  Mask out = 0;
  const T* a = w.reg<T>(n.a);
  for_each_lane(active, [&](int i) {
    if (arith::testp(static_cast<arith::FloatTest>(n.small[CompareSmall::kTest]), a[i])) out |= lane_bit(i);
  });
  write_predicate(w, n.d, active, out);
  return Step::kNext;
}

bool decode_testp(Decoder& d, Instruction& out) {
  using arith::FloatTest;
  static constexpr std::pair<Mod, FloatTest> kTests[] = {
      {Mod::finite, FloatTest::kFinite}, {Mod::infinite, FloatTest::kInfinite},
      {Mod::number, FloatTest::kNumber}, {Mod::notanumber, FloatTest::kNotANumber},
      {Mod::normal, FloatTest::kNormal}, {Mod::subnormal, FloatTest::kSubnormal}};
  for (const auto& [mod, test] : kTests)
    if (d.has(mod)) out.small[CompareSmall::kTest] = static_cast<uint8_t>(test);
  out.d = d.predicate_destination(d.operand(0));
  out.a = d.source(1, d.type());
  set_body(out, d.type() == ScalarType::f64 ? exec_testp<double> : exec_testp<float>);
  return true;
}

}  // namespace

bool decode_compare_select(Decoder& d, Instruction& out) {
  const ScalarType type = d.type();
  switch (d.op()) {
    case Op::setp:
      return decode_setp(d, out);
    case Op::set:
      return decode_set(d, out);
    case Op::testp:
      return decode_testp(d, out);
    case Op::selp: {
      take_operands(d, out, type, {type, type});
      const PredicateSource p = d.predicate(3);
      out.c = p.slot;
      out.small[PredicateSmall::kInvertSelector] = p.flip != 0 ? 1 : 0;
      set_body(out, HWY_DYNAMIC_DISPATCH(selp_body)(ptx::bits(type) == 64));
      return true;
    }
    case Op::slct:
      take_operands(d, out, type, {type, type, d.type(1)});
      set_body(out, HWY_DYNAMIC_DISPATCH(slct_body)(ptx::bits(type) == 64, d.type(1) == ScalarType::f32,
                                                    d.insn().has(Mod::ftz)));
      return true;
    default:
      return false;
  }
}

}  // namespace imbrex::vgpu
#endif  // HWY_ONCE
