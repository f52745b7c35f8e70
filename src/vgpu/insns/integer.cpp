// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic: add, sub, mul, mad, mul24, mad24, sad, div, rem, abs, neg, min, max, dp4a, dp2a, and
// the forms with carry.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "vgpu/insns/integer.cpp"
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>

#include "core/scalar_int.h"
#include "vgpu/insns/lane_loops-inl.h"
#include "vgpu/insns/small_facts.h"
#include "vgpu/program/decode_arith.h"

HWY_BEFORE_NAMESPACE();
namespace imbrex::vgpu::HWY_NAMESPACE {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

// ---- carries: the flag is one predicate of the thread, kept in slot list[0]

template <class T, class F>
[[gnu::flatten]] Step exec_with_carry(Warp& w, const Instruction& n, Mask active) {
  const Stored<T>* a = w.reg<Stored<T>>(n.a);
  const Stored<T>* b = w.reg<Stored<T>>(n.b);
  const Stored<T>* c = w.reg<Stored<T>>(n.c);
  Stored<T>* out = w.reg<Stored<T>>(n.d);
  Mask& carry = w.predicate(n.list[0]);
  for_each_lane(active, [&](int i) {
    const auto result =
        F{}(n, from_lane<T>(a[i]), from_lane<T>(b[i]), from_lane<T>(c[i]), (carry >> i & 1) != 0);
    out[i] = to_lane<T>(result.value);
    if (n.small[IntegerSmall::kSetsCarry] != 0)
      carry = (carry & ~lane_bit(i)) | (result.carry ? lane_bit(i) : 0);
  });
  return Step::kNext;
}
template <class T, class F>
ExecFunction with_carry(F) {
  return &exec_with_carry<T, F>;
}

template <class T>
ExecFunction carry_body(Op op) {
  switch (op) {
    case Op::add:
      return with_carry<T>(
          [](const Instruction&, T a, T b, T, bool) { return arith::add_carry(a, b, false); });
    case Op::addc:
      return with_carry<T>(
          [](const Instruction&, T a, T b, T, bool in) { return arith::add_carry(a, b, in); });
    case Op::sub:
      return with_carry<T>(
          [](const Instruction&, T a, T b, T, bool) { return arith::sub_borrow(a, b, false); });
    case Op::subc:
      return with_carry<T>(
          [](const Instruction&, T a, T b, T, bool in) { return arith::sub_borrow(a, b, in); });
    case Op::mad:
      return with_carry<T>([](const Instruction& n, T a, T b, T c, bool) {
        return arith::add_carry(n.small[IntegerSmall::kHigh] != 0 ? arith::mul_hi(a, b) : arith::mul_lo(a, b),
                                c, false);
      });
    case Op::madc:
      return with_carry<T>([](const Instruction& n, T a, T b, T c, bool in) {
        return arith::add_carry(n.small[IntegerSmall::kHigh] != 0 ? arith::mul_hi(a, b) : arith::mul_lo(a, b),
                                c, in);
      });
    default:
      return nullptr;
  }
}

// ---- bodies by type

template <class T>
ExecFunction two_operand_body(Op op) {
  switch (op) {
    case Op::add:
      return binary<T>([](T a, T b) { return arith::add(a, b); });
    case Op::sub:
      return binary<T>([](T a, T b) { return arith::sub(a, b); });
    case Op::div:
      return binary<T>([](T a, T b) { return arith::div(a, b); });
    case Op::rem:
      return binary<T>([](T a, T b) { return arith::rem(a, b); });
    case Op::min:
      return binary<T>([](T a, T b) { return arith::min(a, b); });
    case Op::max:
      return binary<T>([](T a, T b) { return arith::max(a, b); });
    case Op::abs:
      return unary<T>([](T a) { return arith::abs(a); });
    case Op::neg:
      return unary<T>([](T a) { return arith::neg(a); });
    case Op::sad:
      return ternary<T>([](T a, T b, T c) { return arith::sad(a, b, c); });
    default:
      return nullptr;
  }
}

template <class T>
ExecFunction multiply_body(Op op, Mod part) {
  const bool add = op == Op::mad;
  if (part == Mod::lo) {
    return add ? ternary<T>([](T a, T b, T c) { return arith::mad_lo(a, b, c); })
               : binary<T>([](T a, T b) { return arith::mul_lo(a, b); });
  }
  if (part == Mod::hi) {
    return add ? ternary<T>([](T a, T b, T c) { return arith::mad_hi(a, b, c); })
               : binary<T>([](T a, T b) { return arith::mul_hi(a, b); });
  }
  if constexpr (sizeof(T) < 8) {
    using W = arith::Wider<T>;
    return add ? ternary<W, T, T, W>([](T a, T b, W c) { return arith::mad_wide(a, b, c); })
               : binary<W, T, T>([](T a, T b) { return arith::mul_wide(a, b); });
  }
  return nullptr;
}

template <class T>
ExecFunction mul24_body(Op op, bool high) {
  if (op == Op::mul24)
    return high ? binary<T>([](T a, T b) { return arith::mul24_hi(a, b); })
                : binary<T>([](T a, T b) { return arith::mul24_lo(a, b); });
  return high ? ternary<T>([](T a, T b, T c) { return arith::add(arith::mul24_hi(a, b), c); })
              : ternary<T>([](T a, T b, T c) { return arith::add(arith::mul24_lo(a, b), c); });
}

ExecFunction saturating_body(Op op) {
  using T = int32_t;
  switch (op) {
    case Op::add:
      return binary<T>([](T a, T b) { return arith::add_sat(a, b); });
    case Op::sub:
      return binary<T>([](T a, T b) { return arith::sub_sat(a, b); });
    case Op::mad:
      return ternary<T>([](T a, T b, T c) { return arith::mad_hi_sat(a, b, c); });
    case Op::mad24:
      return ternary<T>([](T a, T b, T c) { return arith::add_sat(arith::mul24_hi(a, b), c); });
    default:
      return nullptr;
  }
}

template <class H>
ExecFunction halves_body(Op op) {
  using T = uint32_t;
  switch (op) {
    case Op::add:
      return binary<T>(
          [](T a, T b) { return arith::each_half<H>(a, b, [](H x, H y) { return arith::add(x, y); }); });
    case Op::min:
      return binary<T>(
          [](T a, T b) { return arith::each_half<H>(a, b, [](H x, H y) { return arith::min(x, y); }); });
    case Op::max:
      return binary<T>(
          [](T a, T b) { return arith::each_half<H>(a, b, [](H x, H y) { return arith::max(x, y); }); });
    default:
      return nullptr;
  }
}

ExecFunction relu_body(Op op, ScalarType type) {
  if (type == ScalarType::s32) {
    using T = int32_t;
    return op == Op::min ? binary<T>([](T a, T b) { return arith::min_relu(a, b); })
                         : binary<T>([](T a, T b) { return arith::max_relu(a, b); });
  }
  if (type != ScalarType::s16x2) return nullptr;
  using T = uint32_t;
  using H = int16_t;
  if (op == Op::min)
    return binary<T>([](T a, T b) {
      return arith::each_half<H>(a, b, [](H x, H y) { return arith::max(arith::min(x, y), H{0}); });
    });
  return binary<T>([](T a, T b) {
    return arith::each_half<H>(a, b, [](H x, H y) { return arith::max(arith::max(x, y), H{0}); });
  });
}

ExecFunction dot_body(Op op) {
  using T = uint32_t;
  if (op == Op::dp4a)
    return ternary<T>([](const Instruction& n, T a, T b, T c) {
      return arith::dp4a(a, n.small[IntegerSmall::kSignedA] != 0, b, n.small[IntegerSmall::kSignedB] != 0, c);
    });
  return ternary<T>([](const Instruction& n, T a, T b, T c) {
    return arith::dp2a(a, n.small[IntegerSmall::kSignedA] != 0, b, n.small[IntegerSmall::kSignedB] != 0, c,
                       n.small[IntegerSmall::kHigh] != 0);
  });
}

/// Calls make.operator()<T>() with the C++ type of a PTX integer type.
template <class Make>
ExecFunction by_type(ScalarType type, Make make) {
  switch (type) {
    case ScalarType::u16:
      return make.template operator()<uint16_t>();
    case ScalarType::s16:
      return make.template operator()<int16_t>();
    case ScalarType::u32:
      return make.template operator()<uint32_t>();
    case ScalarType::s32:
      return make.template operator()<int32_t>();
    case ScalarType::u64:
      return make.template operator()<uint64_t>();
    case ScalarType::s64:
      return make.template operator()<int64_t>();
    default:
      return nullptr;
  }
}

ExecFunction integer_body(const ptx::Instruction& insn) {
  const ScalarType type = insn.type();
  const Mod part = insn.one_of({Mod::lo, Mod::hi, Mod::wide}, Mod::rn);
  switch (insn.op) {
    case Op::dp4a:
    case Op::dp2a:
      return dot_body(insn.op);
    case Op::mul:
    case Op::mad:
      if (insn.has(Mod::sat))
        return type == ScalarType::s32 && part == Mod::hi ? saturating_body(insn.op) : nullptr;
      return by_type(type, [&]<class T>() { return multiply_body<T>(insn.op, part); });
    case Op::mul24:
    case Op::mad24:
      if (insn.has(Mod::sat)) return saturating_body(insn.op);
      return type == ScalarType::s32 ? mul24_body<int32_t>(insn.op, part == Mod::hi)
                                     : mul24_body<uint32_t>(insn.op, part == Mod::hi);
    default:
      break;
  }
  if (insn.has(Mod::sat)) return type == ScalarType::s32 ? saturating_body(insn.op) : nullptr;
  if (insn.has(Mod::relu)) return relu_body(insn.op, type);
  if (type == ScalarType::u16x2) return halves_body<uint16_t>(insn.op);
  if (type == ScalarType::s16x2) return halves_body<int16_t>(insn.op);
  return by_type(type, [&]<class T>() { return two_operand_body<T>(insn.op); });
}

ExecFunction integer_carry_body(const ptx::Instruction& insn) {
  return by_type(insn.type(), [&]<class T>() -> ExecFunction {
    if constexpr (sizeof(T) >= 4) return carry_body<T>(insn.op);
    return nullptr;
  });
}

}  // namespace imbrex::vgpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace imbrex::vgpu {

HWY_EXPORT(integer_body);
HWY_EXPORT(integer_carry_body);

namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

bool is_integer(ScalarType type) {
  return (ptx::is_signed(type) && !ptx::is_float(type)) || ptx::is_unsigned(type);
}
bool uses_carry(const ptx::Instruction& insn) {
  return insn.has(Mod::cc) || insn.op == Op::addc || insn.op == Op::subc || insn.op == Op::madc;
}
ScalarType widened(ScalarType type) {
  switch (type) {
    case ScalarType::u16:
      return ScalarType::u32;
    case ScalarType::s16:
      return ScalarType::s32;
    case ScalarType::u32:
      return ScalarType::u64;
    default:
      return ScalarType::s64;
  }
}

}  // namespace

bool decode_integer(Decoder& d, Instruction& out) {
  const ptx::Instruction& insn = d.insn();
  const ScalarType type = insn.type();
  if (!is_integer(type)) return false;
  const ExecFunction body = uses_carry(insn) ? HWY_DYNAMIC_DISPATCH(integer_carry_body)(insn)
                                             : HWY_DYNAMIC_DISPATCH(integer_body)(insn);
  if (body == nullptr) return false;
  set_body(out, body);
  const ScalarType wide = insn.has(Mod::wide) ? widened(type) : type;
  out.small[IntegerSmall::kHigh] = insn.has(Mod::hi) ? 1 : 0;
  if (insn.op == Op::dp4a || insn.op == Op::dp2a) {
    out.small[IntegerSmall::kSignedA] = ptx::is_signed(insn.type(0)) ? 1 : 0;
    out.small[IntegerSmall::kSignedB] = ptx::is_signed(insn.type(1)) ? 1 : 0;
    take_operands(d, out, ScalarType::b32, {ScalarType::b32, ScalarType::b32, ScalarType::b32});
    return true;
  }
  switch (d.operand_count()) {
    case 2:
      take_operands(d, out, type, {type});
      break;
    case 3:
      take_operands(d, out, wide, {type, type});
      break;
    default:
      take_operands(d, out, wide, {type, type, wide});
      break;
  }
  if (uses_carry(insn)) {
    out.small[IntegerSmall::kSetsCarry] = insn.has(Mod::cc) ? 1 : 0;
    out.list = d.keep_list({d.carry()});
    if (d.operand_count() == 3) out.c = out.a;  // read, not used
  }
  return true;
}

}  // namespace imbrex::vgpu
#endif  // HWY_ONCE
