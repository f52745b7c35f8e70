// SPDX-License-Identifier: Apache-2.0
// f32, f32x2 and f64: add, sub, mul, fma, mad, div, rcp, sqrt, abs, neg, min, max, copysign, and the
// approximate functions.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "vgpu/insns/floating_point.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "core/approx.h"
#include "core/scalar_float.h"
#include "vgpu/insns/lane_loops-inl.h"
#include "vgpu/insns/small_facts.h"
#include "vgpu/machine/cluster.h"
#include "vgpu/program/decode_arith.h"
#include "vgpu/program/program_builder.h"

HWY_BEFORE_NAMESPACE();
namespace imbrex::vgpu::HWY_NAMESPACE {

using arith::FloatMode;
using arith::Rounding;
using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

/// What bodies with modifiers read from Instruction::small.
inline FloatMode mode_of(const Instruction& n) {
  return {static_cast<Rounding>(n.small[FloatSmall::kRounding]), n.small[FloatSmall::kFtz] != 0,
          n.small[FloatSmall::kSat] != 0};
}
inline arith::MinMaxMode min_max_mode_of(const Instruction& n) {
  return {n.small[FloatSmall::kFtz] != 0, n.small[FloatSmall::kNan] != 0, n.small[FloatSmall::kXorsign] != 0};
}
inline bool ftz_of(const Instruction& n) { return n.small[FloatSmall::kFtz] != 0; }

/// One rounding; the hardware's instruction where the target has it.
inline float fused(float a, float b, float c) {
#if HWY_TARGET <= HWY_AVX2
  return arith::canonical(__builtin_fmaf(a, b, c));
#else
  return arith::fma(a, b, c);
#endif
}

inline double fused(double a, double b, double c) { return arith::fma(a, b, c); }

/// How the instruction rounds; in f64 nothing is flushed or clamped.
template <class T>
auto how(const Instruction& n) {
  if constexpr (std::is_same_v<T, double>)
    return mode_of(n).rounding;
  else
    return mode_of(n);
}

// ---- f32 and f64

/// Those who predict times see what is divided first.
Step exec_div_f32(Warp& w, const Instruction& n, Mask active) {
  w.cta().cluster().observe().divides(w, w.reg<uint32_t>(n.a), active);
  return exec_binary<float, float, float, decltype([](float a, float b) { return arith::div(a, b); })>(
      w, n, active);
}

/// Round to nearest, no modifiers: loops that vectorise.
template <class T>
ExecFunction plain(Op op) {
  switch (op) {
    case Op::add:
      return binary<T>([](T a, T b) { return arith::add(a, b); });
    case Op::sub:
      return binary<T>([](T a, T b) { return arith::sub(a, b); });
    case Op::mul:
      return binary<T>([](T a, T b) { return arith::mul(a, b); });
    case Op::fma:
    case Op::mad:
      return ternary<T>([](T a, T b, T c) { return fused(a, b, c); });
    case Op::div:
      if constexpr (std::is_same_v<T, float>) return exec_div_f32;
      return binary<T>([](T a, T b) { return arith::div(a, b); });
    case Op::rcp:
      return unary<T>([](T a) { return arith::rcp(a); });
    case Op::sqrt:
      return unary<T>([](T a) { return arith::sqrt(a); });
    case Op::abs:
      return unary<T>([](T a) { return arith::abs(a); });
    case Op::neg:
      return unary<T>([](T a) { return arith::neg(a); });
    case Op::min:
      return binary<T>([](T a, T b) { return arith::min(a, b); });
    case Op::max:
      return binary<T>([](T a, T b) { return arith::max(a, b); });
    case Op::copysign:
      return binary<T>([](T a, T b) { return arith::copysign(a, b); });
    default:
      return nullptr;
  }
}

/// What the other roundings and .ftz and .sat ask for.
template <class T>
ExecFunction rounded(Op op) {
  switch (op) {
    case Op::add:
      return binary<T>([](const Instruction& n, T a, T b) { return arith::add(a, b, how<T>(n)); });
    case Op::sub:
      return binary<T>([](const Instruction& n, T a, T b) { return arith::sub(a, b, how<T>(n)); });
    case Op::mul:
      return binary<T>([](const Instruction& n, T a, T b) { return arith::mul(a, b, how<T>(n)); });
    case Op::fma:
    case Op::mad:
      return ternary<T>([](const Instruction& n, T a, T b, T c) { return arith::fma(a, b, c, how<T>(n)); });
    case Op::div:
      return binary<T>([](const Instruction& n, T a, T b) { return arith::div(a, b, how<T>(n)); });
    case Op::rcp:
      return unary<T>([](const Instruction& n, T a) { return arith::rcp(a, how<T>(n)); });
    case Op::sqrt:
      return unary<T>([](const Instruction& n, T a) { return arith::sqrt(a, how<T>(n)); });
    default:
      return nullptr;
  }
}

/// a * b + c with either sign of each, rounded once; the operands are those of the product, then the other of the sum.
template <class T, bool kNegatesProduct, bool kNegatesAddend>
ExecFunction contracted(bool is_plain) {
  if (is_plain)
    return ternary<T>(
        [](T a, T b, T c) { return fused(kNegatesProduct ? -a : a, b, kNegatesAddend ? -c : c); });
  return ternary<T>([](const Instruction& n, T a, T b, T c) {
    return arith::fma(kNegatesProduct ? -a : a, b, kNegatesAddend ? -c : c, how<T>(n));
  });
}
template <class T>
ExecFunction contracted(const Contraction& of, bool is_plain) {
  if (of.negates_addend)
    return of.negates_product ? contracted<T, true, true>(is_plain) : contracted<T, false, true>(is_plain);
  return of.negates_product ? contracted<T, true, false>(is_plain) : contracted<T, false, false>(is_plain);
}

ExecFunction contracted_body(const ptx::Instruction& sum, const Contraction& of) {
  if (sum.type() == ScalarType::f64) return contracted<double>(of, true);
  return contracted<float>(of, !sum.has(Mod::ftz) && !sum.has(Mod::sat));
}

// ---- f32

/// Round to nearest with .ftz, which most compilers emit under fast math.
ExecFunction flushing_f32(Op op) {
  using T = float;
  using arith::flush;
  switch (op) {
    case Op::add:
      return binary<T>([](T a, T b) { return flush(arith::add(flush(a), flush(b))); });
    case Op::sub:
      return binary<T>([](T a, T b) { return flush(arith::sub(flush(a), flush(b))); });
    case Op::mul:
      return binary<T>([](T a, T b) {
        const T x = flush(a), y = flush(b);
        return arith::flush_result(arith::mul(x, y), static_cast<double>(x) * static_cast<double>(y));
      });
    case Op::fma:
    case Op::mad:
      return ternary<T>([](T a, T b, T c) {
        const T x = flush(a), y = flush(b), z = flush(c);
        const double product = static_cast<double>(x) * static_cast<double>(y);
        return arith::flush_result(fused(x, y, z), arith::detail::sum_to_odd(product, z));
      });
    case Op::abs:
      return unary<T>([](T a) { return arith::abs(flush(a)); });
    case Op::neg:
      return unary<T>([](T a) { return arith::neg(flush(a)); });
    case Op::min:
      return binary<T>([](T a, T b) { return arith::min(flush(a), flush(b)); });
    case Op::max:
      return binary<T>([](T a, T b) { return arith::max(flush(a), flush(b)); });
    default:
      return nullptr;
  }
}

Step exec_ex2(Warp& warp, const Instruction& n, Mask active) {
  const float* const a = warp.reg<float>(n.a);
  float results[kWarpSize];
  if (count_lanes(active) > kFewLanes)
    arith::ex2_approx_lanes(a, results, kWarpSize, ftz_of(n));
  else
    for_each_lane(active, [&](int i) { results[i] = arith::ex2_approx(a[i], ftz_of(n)); });
  store_lanes<float>(warp.reg<uint32_t>(n.d), active, [&](int i) { return results[i]; });
  return Step::kNext;
}

Step exec_div_full(Warp& warp, const Instruction& n, Mask active) {
  const float *const a = warp.reg<float>(n.a), *const b = warp.reg<float>(n.b);
  float results[kWarpSize];
  if (count_lanes(active) > kFewLanes)
    arith::div_full_lanes(a, b, results, kWarpSize, ftz_of(n));
  else
    for_each_lane(active, [&](int i) { results[i] = arith::div_full(a[i], b[i], ftz_of(n)); });
  store_lanes<float>(warp.reg<uint32_t>(n.d), active, [&](int i) { return results[i]; });
  return Step::kNext;
}

ExecFunction approximate_f32(Op op, bool full) {
  using T = float;
  switch (op) {
    case Op::div:
      if (full) return exec_div_full;
      return binary<T>([](const Instruction& n, T a, T b) { return arith::div_approx(a, b, ftz_of(n)); });
    case Op::rcp:
      return unary<T>([](const Instruction& n, T a) { return arith::rcp_approx(a, ftz_of(n)); });
    case Op::sqrt:
      return unary<T>([](const Instruction& n, T a) { return arith::sqrt_approx(a, ftz_of(n)); });
    case Op::rsqrt:
      return unary<T>([](const Instruction& n, T a) { return arith::rsqrt_approx(a, ftz_of(n)); });
    case Op::lg2:
      return unary<T>([](const Instruction& n, T a) { return arith::lg2_approx(a, ftz_of(n)); });
    case Op::ex2:
      return exec_ex2;
    case Op::sin:
      return unary<T>([](T a) { return arith::sin_approx(a); });
    case Op::cos:
      return unary<T>([](T a) { return arith::cos_approx(a); });
    case Op::tanh:
      return unary<T>([](T a) { return arith::tanh_approx(a); });
    default:
      return nullptr;
  }
}

ExecFunction min_max_f32(Op op, bool three) {
  using T = float;
  using arith::MinMaxMode;
  if (three) {
    if (op == Op::min)
      return ternary<T>([](const Instruction& n, T a, T b, T c) {
        const MinMaxMode mode = min_max_mode_of(n);
        return arith::min(arith::min(a, b, mode), c, mode);
      });
    return ternary<T>([](const Instruction& n, T a, T b, T c) {
      const MinMaxMode mode = min_max_mode_of(n);
      return arith::max(arith::max(a, b, mode), c, mode);
    });
  }
  if (op == Op::min)
    return binary<T>([](const Instruction& n, T a, T b) { return arith::min(a, b, min_max_mode_of(n)); });
  return binary<T>([](const Instruction& n, T a, T b) { return arith::max(a, b, min_max_mode_of(n)); });
}

// ---- f32x2: two f32 in a 64-bit register

inline float low(uint64_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x)); }
inline float high(uint64_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x >> 32)); }
inline uint64_t pack(float l, float h) {
  return std::bit_cast<uint32_t>(l) | uint64_t{std::bit_cast<uint32_t>(h)} << 32;
}

ExecFunction packed_f32(Op op) {
  using T = uint64_t;
  switch (op) {
    case Op::add:
      return binary<T>([](const Instruction& n, T a, T b) {
        return pack(arith::add(low(a), low(b), mode_of(n)), arith::add(high(a), high(b), mode_of(n)));
      });
    case Op::sub:
      return binary<T>([](const Instruction& n, T a, T b) {
        return pack(arith::sub(low(a), low(b), mode_of(n)), arith::sub(high(a), high(b), mode_of(n)));
      });
    case Op::mul:
      return binary<T>([](const Instruction& n, T a, T b) {
        return pack(arith::mul(low(a), low(b), mode_of(n)), arith::mul(high(a), high(b), mode_of(n)));
      });
    case Op::fma:
      return ternary<T>([](const Instruction& n, T a, T b, T c) {
        return pack(arith::fma(low(a), low(b), low(c), mode_of(n)),
                    arith::fma(high(a), high(b), high(c), mode_of(n)));
      });
    default:
      return nullptr;
  }
}

// ---- choice

ExecFunction floating_point_body(const ptx::Instruction& insn, size_t operands) {
  const Op op = insn.op;
  const bool nearest = insn.one_of({Mod::rz, Mod::rm, Mod::rp}, Mod::rn) == Mod::rn;
  const bool approximate = insn.has(Mod::approx) || insn.has(Mod::full);
  const ScalarType type = insn.type();
  if (type == ScalarType::f64) {
    if (op == Op::rcp && approximate && insn.has(Mod::ftz))
      return unary<double>([](double a) { return arith::rcp_approx_ftz(a); });
    if (op == Op::rsqrt && insn.has(Mod::ftz))
      return unary<double>([](double a) { return arith::rsqrt_approx_ftz(a); });
    // Its error bound is a few ulp.
    if (op == Op::rsqrt) return unary<double>([](double a) { return arith::rcp(arith::sqrt(a)); });
    if (approximate || (op != Op::min && op != Op::max && insn.has(Mod::sat))) return nullptr;
    return nearest ? plain<double>(op) : rounded<double>(op);
  }
  if (type == ScalarType::f32x2) return packed_f32(op);
  if (type != ScalarType::f32) return nullptr;
  if (approximate) return approximate_f32(op, insn.has(Mod::full));
  if (op == Op::min || op == Op::max) {
    const bool is_plain = operands == 3 && !insn.has(Mod::NaN) && !insn.has(Mod::xorsign);
    if (!is_plain) return min_max_f32(op, operands == 4);
  } else if (!nearest || insn.has(Mod::sat)) {
    return rounded<float>(op);
  }
  if (!insn.has(Mod::ftz)) return plain<float>(op);
  const ExecFunction flushing = flushing_f32(op);
  return flushing != nullptr ? flushing : rounded<float>(op);
}

}  // namespace imbrex::vgpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace imbrex::vgpu {

HWY_EXPORT(floating_point_body);
HWY_EXPORT(contracted_body);

bool decode_wide_floats(Decoder& d, Instruction& out) {
  using ptx::Mod;
  using ptx::ScalarType;
  const ptx::Instruction& insn = d.insn();
  const ScalarType type = insn.type();
  // add{.rnd}.f32.f16 mixes precisions: half.cpp has it.
  if (insn.type_count() != 1) return false;
  const bool is_wide = type == ScalarType::f32 || type == ScalarType::f64;
  const Contraction* const contraction = is_wide ? d.layout().contraction_of(insn) : nullptr;
  const ExecFunction body = contraction != nullptr
                                ? HWY_DYNAMIC_DISPATCH(contracted_body)(insn, *contraction)
                                : HWY_DYNAMIC_DISPATCH(floating_point_body)(insn, d.operand_count());
  if (body == nullptr) return false;
  set_body(out, body);
  switch (insn.one_of({Mod::rz, Mod::rm, Mod::rp}, Mod::rn)) {
    case Mod::rz:
      out.small[FloatSmall::kRounding] = static_cast<uint8_t>(arith::Rounding::kTowardZero);
      break;
    case Mod::rm:
      out.small[FloatSmall::kRounding] = static_cast<uint8_t>(arith::Rounding::kDown);
      break;
    case Mod::rp:
      out.small[FloatSmall::kRounding] = static_cast<uint8_t>(arith::Rounding::kUp);
      break;
    default:
      out.small[FloatSmall::kRounding] = static_cast<uint8_t>(arith::Rounding::kNearestEven);
      break;
  }
  out.small[FloatSmall::kFtz] = insn.has(Mod::ftz) ? 1 : 0;
  out.small[FloatSmall::kSat] = insn.has(Mod::sat) || insn.has(Mod::NaN) ? 1 : 0;
  out.small[FloatSmall::kXorsign] = insn.has(Mod::xorsign) ? 1 : 0;
  if (contraction != nullptr) {
    take_contracted(d, out, *contraction, type);
    return true;
  }
  switch (d.operand_count()) {
    case 2:
      take_operands(d, out, type, {type});
      break;
    case 3:
      take_operands(d, out, type, {type, type});
      break;
    default:
      take_operands(d, out, type, {type, type, type});
      break;
  }
  return true;
}

}  // namespace imbrex::vgpu
#endif  // HWY_ONCE
