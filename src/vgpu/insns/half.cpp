// SPDX-License-Identifier: Apache-2.0
// f16, bf16 and their packed pairs: add, sub, mul, fma, abs, neg, min, max, ex2, tanh; and the forms of add,
// sub and fma that mix 16-bit operands with an f32 result.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "vgpu/insns/half.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "core/approx.h"
#include "core/scalar_half.h"
#include "core/scalar_int.h"
#include "vgpu/insns/lane_loops-inl.h"
#include "vgpu/insns/small_facts.h"
#include "vgpu/program/decode_arith.h"
#include "vgpu/program/program_builder.h"

HWY_BEFORE_NAMESPACE();
namespace imbrex::vgpu::HWY_NAMESPACE {

using arith::MinMaxMode;
using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

using H = uint16_t;

inline MinMaxMode min_max_mode(uint8_t m) {
  return {(m & kHalfFtz) != 0, (m & kHalfNan) != 0, (m & kHalfXorsign) != 0};
}

/// What f16 and bf16 differ in. Every function takes the modifiers as a bit set.
struct F16 {
  static float widen(H x) { return arith::f16_to_f32(x); }
  static H in(H x, uint8_t m) { return (m & kHalfFtz) != 0 ? arith::flush_f16(x) : x; }
  static H out(H x, uint8_t m) {
    if ((m & kHalfFtz) != 0) x = arith::flush_f16(x);
    if ((m & kHalfSat) != 0) x = arith::saturate_f16(x);
    if ((m & kHalfRelu) != 0) x = arith::relu_f16(x);
    return x;
  }
  static H add(H a, H b) { return arith::add_f16(a, b); }
  static H sub(H a, H b) { return arith::sub_f16(a, b); }
  static H mul(H a, H b, uint8_t m = 0) {
    return (m & kHalfFtz) != 0 ? arith::mul_ftz_f16(a, b) : arith::mul_f16(a, b);
  }
  static H fma(H a, H b, H c, uint8_t m = 0) {
    return (m & kHalfFtz) != 0 ? arith::fma_ftz_f16(a, b, c) : arith::fma_f16(a, b, c);
  }
  static H fma_oob(H a, H b, H c) { return arith::fma_oob_f16(a, b, c); }
  static H neg(H a) { return arith::neg_f16(a); }
  static H abs(H a) { return arith::abs_f16(a); }
  static H min(H a, H b, MinMaxMode m) { return arith::min_f16(a, b, m); }
  static H max(H a, H b, MinMaxMode m) { return arith::max_f16(a, b, m); }
  static H ex2(H a) { return arith::ex2_approx_f16(a); }
  static H tanh(H a) { return arith::tanh_approx_f16(a); }
};
struct BF16 {
  static float widen(H x) { return arith::bf16_to_f32(x); }
  static H in(H x, uint8_t) { return x; }
  static H out(H x, uint8_t m) { return (m & kHalfRelu) != 0 ? arith::relu_bf16(x) : x; }
  static H add(H a, H b) { return arith::add_bf16(a, b); }
  static H sub(H a, H b) { return arith::sub_bf16(a, b); }
  static H mul(H a, H b, uint8_t = 0) { return arith::mul_bf16(a, b); }
  static H fma(H a, H b, H c, uint8_t = 0) { return arith::fma_bf16(a, b, c); }
  static H fma_oob(H a, H b, H c) { return arith::fma_oob_bf16(a, b, c); }
  static H neg(H a) { return arith::neg_bf16(a); }
  static H abs(H a) { return arith::abs_bf16(a); }
  static H min(H a, H b, MinMaxMode m) { return arith::min_bf16(a, b, m); }
  static H max(H a, H b, MinMaxMode m) { return arith::max_bf16(a, b, m); }
  static H ex2(H a) { return arith::ex2_approx_ftz_bf16(a); }
  static H tanh(H a) { return arith::tanh_approx_bf16(a); }
};

/// A function of halves on a register: one value, or the two of a packed pair.
struct Single {
  using T = uint16_t;
  template <class G>
  static T map(G g, T a) {
    return g(a);
  }
  template <class G>
  static T map(G g, T a, T b) {
    return g(a, b);
  }
  template <class G>
  static T map(G g, T a, T b, T c) {
    return g(a, b, c);
  }
};
struct Pair {
  using T = uint32_t;
  static H low(T x) { return static_cast<H>(x); }
  static H high(T x) { return static_cast<H>(x >> 16); }
  static T join(H l, H h) { return l | T{h} << 16; }
  template <class G>
  static T map(G g, T a) {
    return join(g(low(a)), g(high(a)));
  }
  template <class G>
  static T map(G g, T a, T b) {
    return join(g(low(a), low(b)), g(high(a), high(b)));
  }
  template <class G>
  static T map(G g, T a, T b, T c) {
    return join(g(low(a), low(b), low(c)), g(high(a), high(b), high(c)));
  }
};

/// No modifiers: loops that vectorise.
template <class F, class P>
ExecFunction plain_half(Op op) {
  using T = typename P::T;
  switch (op) {
    case Op::add:
      return binary<T>([](T a, T b) { return P::map([](H x, H y) { return F::add(x, y); }, a, b); });
    case Op::sub:
      return binary<T>([](T a, T b) { return P::map([](H x, H y) { return F::sub(x, y); }, a, b); });
    case Op::mul:
      return binary<T>([](T a, T b) { return P::map([](H x, H y) { return F::mul(x, y); }, a, b); });
    case Op::fma:
      return ternary<T>(
          [](T a, T b, T c) { return P::map([](H x, H y, H z) { return F::fma(x, y, z); }, a, b, c); });
    case Op::neg:
      return unary<T>([](T a) { return P::map([](H x) { return F::neg(x); }, a); });
    case Op::abs:
      return unary<T>([](T a) { return P::map([](H x) { return F::abs(x); }, a); });
    case Op::ex2:
      return unary<T>([](T a) { return P::map([](H x) { return F::ex2(x); }, a); });
    case Op::tanh:
      return unary<T>([](T a) { return P::map([](H x) { return F::tanh(x); }, a); });
    default:
      return nullptr;
  }
}

template <class F, class P>
ExecFunction general_half(Op op, bool three) {
  using T = typename P::T;
  using N = const Instruction&;
  switch (op) {
    case Op::add:
      return binary<T>([](N n, T a, T b) {
        const uint8_t m = n.small[HalfSmall::kModifiers];
        return P::map([m](H x, H y) { return F::out(F::add(F::in(x, m), F::in(y, m)), m); }, a, b);
      });
    case Op::sub:
      return binary<T>([](N n, T a, T b) {
        const uint8_t m = n.small[HalfSmall::kModifiers];
        return P::map([m](H x, H y) { return F::out(F::sub(F::in(x, m), F::in(y, m)), m); }, a, b);
      });
    case Op::mul:
      return binary<T>([](N n, T a, T b) {
        const uint8_t m = n.small[HalfSmall::kModifiers];
        return P::map([m](H x, H y) { return F::out(F::mul(x, y, m), m); }, a, b);
      });
    case Op::fma:
      return ternary<T>([](N n, T a, T b, T c) {
        const uint8_t m = n.small[HalfSmall::kModifiers];
        return P::map(
            [m](H x, H y, H z) {
              const H p = F::in(x, m), q = F::in(y, m), r = F::in(z, m);
              return F::out((m & kHalfOob) != 0 ? F::fma_oob(p, q, r) : F::fma(p, q, r, m), m);
            },
            a, b, c);
      });
    case Op::neg:
      return unary<T>([](N n, T a) {
        const uint8_t m = n.small[HalfSmall::kModifiers];
        return P::map([m](H x) { return F::neg(F::in(x, m)); }, a);
      });
    case Op::abs:
      return unary<T>([](N n, T a) {
        const uint8_t m = n.small[HalfSmall::kModifiers];
        return P::map([m](H x) { return F::abs(F::in(x, m)); }, a);
      });
    case Op::min:
    case Op::max:
      break;
    default:
      return nullptr;
  }
  if (three) {
    if (op == Op::min)
      return ternary<T>([](N n, T a, T b, T c) {
        const MinMaxMode m = min_max_mode(n.small[HalfSmall::kModifiers]);
        return P::map([m](H x, H y, H z) { return F::min(F::min(x, y, m), z, m); }, a, b, c);
      });
    return ternary<T>([](N n, T a, T b, T c) {
      const MinMaxMode m = min_max_mode(n.small[HalfSmall::kModifiers]);
      return P::map([m](H x, H y, H z) { return F::max(F::max(x, y, m), z, m); }, a, b, c);
    });
  }
  if (op == Op::min)
    return binary<T>([](N n, T a, T b) {
      const MinMaxMode m = min_max_mode(n.small[HalfSmall::kModifiers]);
      return P::map([m](H x, H y) { return F::min(x, y, m); }, a, b);
    });
  return binary<T>([](N n, T a, T b) {
    const MinMaxMode m = min_max_mode(n.small[HalfSmall::kModifiers]);
    return P::map([m](H x, H y) { return F::max(x, y, m); }, a, b);
  });
}

/// A product and a sum in one: fma with the sum's modifiers and either sign of product and addend.
template <class F, class P, bool kNegatesProduct, bool kNegatesAddend>
ExecFunction contracted_half() {
  using T = typename P::T;
  return ternary<T>([](const Instruction& n, T a, T b, T c) {
    const uint8_t m = n.small[HalfSmall::kModifiers];
    return P::map(
        [m](H x, H y, H z) {
          const H p = F::in(kNegatesProduct ? F::neg(x) : x, m), q = F::in(y, m);
          return F::out(F::fma(p, q, F::in(kNegatesAddend ? F::neg(z) : z, m), m), m);
        },
        a, b, c);
  });
}
template <class F, class P>
ExecFunction contracted_half(const Contraction& of) {
  if (of.negates_addend)
    return of.negates_product ? contracted_half<F, P, true, true>() : contracted_half<F, P, false, true>();
  return of.negates_product ? contracted_half<F, P, true, false>() : contracted_half<F, P, false, false>();
}
ExecFunction contracted_half_body(ScalarType type, const Contraction& of) {
  switch (type) {
    case ScalarType::f16:
      return contracted_half<F16, Single>(of);
    case ScalarType::f16x2:
      return contracted_half<F16, Pair>(of);
    case ScalarType::bf16:
      return contracted_half<BF16, Single>(of);
    case ScalarType::bf16x2:
      return contracted_half<BF16, Pair>(of);
    default:
      return nullptr;
  }
}

/// add, sub, fma with an f32 result: {a, b} are 16 bits, the addend is f32.
template <class F>
ExecFunction mixed_half(Op op) {
  using N = const Instruction&;
  switch (op) {
    case Op::add:
      return binary<float, H, float>([](N n, H a, float b) {
        return arith::add(F::widen(a), b,
                          {static_cast<arith::Rounding>(n.small[HalfSmall::kRounding]), false,
                           n.small[HalfSmall::kSat] != 0});
      });
    case Op::sub:
      return binary<float, H, float>([](N n, H a, float b) {
        return arith::sub(F::widen(a), b,
                          {static_cast<arith::Rounding>(n.small[HalfSmall::kRounding]), false,
                           n.small[HalfSmall::kSat] != 0});
      });
    case Op::fma:
      return ternary<float, H, H, float>([](N n, H a, H b, float c) {
        return arith::fma(F::widen(a), F::widen(b), c,
                          {static_cast<arith::Rounding>(n.small[HalfSmall::kRounding]), false,
                           n.small[HalfSmall::kSat] != 0});
      });
    default:
      return nullptr;
  }
}

ExecFunction half_body(Op op, ScalarType type, bool plain, bool three) {
  switch (type) {
    case ScalarType::f16:
      return plain ? plain_half<F16, Single>(op) : general_half<F16, Single>(op, three);
    case ScalarType::f16x2:
      return plain ? plain_half<F16, Pair>(op) : general_half<F16, Pair>(op, three);
    case ScalarType::bf16:
      return plain ? plain_half<BF16, Single>(op) : general_half<BF16, Single>(op, three);
    case ScalarType::bf16x2:
      return plain ? plain_half<BF16, Pair>(op) : general_half<BF16, Pair>(op, three);
    default:
      return nullptr;
  }
}
ExecFunction mixed_half_body(Op op, ScalarType type) {
  return type == ScalarType::f16    ? mixed_half<F16>(op)
         : type == ScalarType::bf16 ? mixed_half<BF16>(op)
                                    : nullptr;
}

}  // namespace imbrex::vgpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace imbrex::vgpu {

HWY_EXPORT(half_body);
HWY_EXPORT(mixed_half_body);
HWY_EXPORT(contracted_half_body);

bool decode_half(Decoder& d, Instruction& out) {
  using ptx::Mod;
  using ptx::Op;
  using ptx::ScalarType;
  const ptx::Instruction& insn = d.insn();
  const ScalarType type = insn.type();
  if (insn.type_count() == 2) {
    const ScalarType narrow = insn.type(1);
    const ExecFunction body = HWY_DYNAMIC_DISPATCH(mixed_half_body)(insn.op, narrow);
    if (body == nullptr || type != ScalarType::f32) return false;
    set_body(out, body);
    const Mod rounding = insn.one_of({Mod::rz, Mod::rm, Mod::rp}, Mod::rn);
    out.small[HalfSmall::kRounding] =
        static_cast<uint8_t>(rounding == Mod::rz   ? arith::Rounding::kTowardZero
                             : rounding == Mod::rm ? arith::Rounding::kDown
                             : rounding == Mod::rp ? arith::Rounding::kUp
                                                   : arith::Rounding::kNearestEven);
    out.small[HalfSmall::kSat] = insn.has(Mod::sat) ? 1 : 0;
    if (insn.op == Op::fma)
      take_operands(d, out, type, {narrow, narrow, type});
    else
      take_operands(d, out, type, {narrow, type});
    return true;
  }
  uint8_t modifiers = 0;
  modifiers |= insn.has(Mod::ftz) && insn.op != Op::ex2 ? kHalfFtz : 0;
  modifiers |= insn.has(Mod::sat) ? kHalfSat : 0;
  modifiers |= insn.has(Mod::relu) ? kHalfRelu : 0;
  modifiers |= insn.has(Mod::NaN) ? kHalfNan : 0;
  modifiers |= insn.has(Mod::xorsign) ? kHalfXorsign : 0;
  modifiers |= insn.has(Mod::oob) ? kHalfOob : 0;
  const bool plain = modifiers == 0 && insn.op != Op::min && insn.op != Op::max;
  const size_t sources = d.operand_count() - 1;
  const Contraction* const contraction = d.layout().contraction_of(insn);
  const ExecFunction body = contraction != nullptr
                                ? HWY_DYNAMIC_DISPATCH(contracted_half_body)(type, *contraction)
                                : HWY_DYNAMIC_DISPATCH(half_body)(insn.op, type, plain, sources == 3);
  if (body == nullptr) return false;
  set_body(out, body);
  out.small[HalfSmall::kModifiers] = modifiers;
  if (contraction != nullptr) {
    take_contracted(d, out, *contraction, type);
    return true;
  }
  switch (sources) {
    case 1:
      take_operands(d, out, type, {type});
      break;
    case 2:
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
