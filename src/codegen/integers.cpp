// SPDX-License-Identifier: Apache-2.0
#include "codegen/integers.h"

#include <algorithm>
#include <bit>

namespace imbrex::codegen {

namespace {

// Constants are numbered by themselves, apart from the expressions, which count up from 0.
int64_t constant_id(int64_t value) { return value - (int64_t{1} << 62); }

}  // namespace

Integer Integers::constant(int64_t value) {
  return {Operand(value), false, Range::constant(value), 0, constant_id(value)};
}

int64_t Integers::number(Kind kind, int64_t a, int64_t b, int64_t c) {
  return numbers_.try_emplace({kind, a, b, c}, static_cast<int64_t>(numbers_.size())).first->second;
}

Integer Integers::leaf(int64_t kind, int64_t source, Operand value, bool is_wide, Range known, size_t depth) {
  if (value.is_immediate()) return constant(value.value);
  return {value, is_wide, known, depth, number(kLeaf, kind, source)};
}

template <class Make>
Integer Integers::expression(Kind kind, const Integer& a, const Integer& b, bool is_wide, Range known,
                             Make&& make) {
  Integer result;
  result.is_wide = is_wide;
  result.known = known;
  result.depth = std::max(a.depth, b.depth);
  result.id = number(kind, a.id, b.id);
  const ScalarType type = is_wide ? ScalarType::b64 : ScalarType::b32;
  result.value = e_.hoisted(result.id, result.depth, [&] {
    const Reg r = e_.reg(type);
    make(r);
    return Operand(r);
  });
  return result;
}

Integer Integers::widen(const Integer& a) {
  if (a.is_constant() || a.is_wide) return a;
  return expression(kWiden, a, constant(0), true, a.known, [&](Reg r) {
    e_.emit(Op::cvt, {ScalarType::s64, ScalarType::s32}, {r, a.value});
  });
}

Integer Integers::narrow(const Integer& a) {
  if (a.is_constant() || !a.is_wide) return a;
  const Range limits = Range::of_type(int32);
  const Range known{std::max(a.known.lo, limits.lo), std::min(a.known.hi, limits.hi), a.known.multiple};
  return expression(kNarrow, a, constant(0), false, known, [&](Reg r) {
    e_.emit(Op::cvt, {ScalarType::u32, ScalarType::u64}, {r, a.value});
  });
}

Integer Integers::add(const Integer& a, const Integer& b) {
  if (a.is_constant() && b.is_constant()) return constant(a.constant() + b.constant());
  if (a.is_constant()) return add(b, a);
  if (b.is_constant() && b.constant() == 0) return a;
  if (a.is_wide != b.is_wide && !b.is_constant()) return add(widen(a), widen(b));
  return expression(kAdd, a, b, a.is_wide, a.known + b.known, [&](Reg r) {
    e_.emit(Op::add, {a.is_wide ? ScalarType::s64 : ScalarType::s32}, {r, a.value, b.value});
  });
}

Integer Integers::sub(const Integer& a, const Integer& b) {
  if (a.is_constant() && b.is_constant()) return constant(a.constant() - b.constant());
  if (b.is_constant()) return add(a, constant(-b.constant()));
  if (!a.is_constant() && a.is_wide != b.is_wide) return sub(widen(a), widen(b));
  return expression(kSub, a, b, b.is_wide, a.known - b.known, [&](Reg r) {
    e_.emit(Op::sub, {b.is_wide ? ScalarType::s64 : ScalarType::s32}, {r, a.value, b.value});
  });
}

Integer Integers::mul(const Integer& a, const Integer& b) {
  if (a.is_constant() && b.is_constant()) return constant(a.constant() * b.constant());
  if (a.is_constant()) return mul(b, a);
  if (b.is_constant() && b.constant() == 0) return constant(0);
  if (b.is_constant() && b.constant() == 1) return a;
  if (a.is_wide != b.is_wide && !b.is_constant()) return mul(widen(a), widen(b));
  const ScalarType type = a.is_wide ? ScalarType::s64 : ScalarType::s32;
  return expression(kMul, a, b, a.is_wide, a.known * b.known, [&](Reg r) {
    if (b.is_constant() && b.constant() > 0 && std::has_single_bit(static_cast<uint64_t>(b.constant())))
      e_.emit(Op::shl, {a.is_wide ? ScalarType::b64 : ScalarType::b32},
              {r, a.value, std::countr_zero(static_cast<uint64_t>(b.constant()))});
    else
      e_.emit(Op::mul, {Mod::lo, type}, {r, a.value, b.value});
  });
}

Integer Integers::wide_mul(const Integer& a, const Integer& b) {
  if (a.is_constant() && b.is_constant()) return constant(a.constant() * b.constant());
  if (a.is_constant()) return wide_mul(b, a);
  if (a.is_wide || b.is_wide) return mul(a, b);
  if (b.is_constant() && (b.constant() == 0 || b.constant() == 1)) return b.constant() ? widen(a) : b;
  if (b.is_constant() && b.constant() != static_cast<int32_t>(b.constant())) return mul(widen(a), b);
  return expression(kWideMul, a, b, true, a.known * b.known, [&](Reg r) {
    e_.emit(Op::mul, {Mod::wide, ScalarType::s32}, {r, a.value, b.value});
  });
}

Integer Integers::div(const Integer& a, int64_t divisor) {
  if (divisor == 1) return a;
  if (std::has_single_bit(static_cast<uint64_t>(divisor)))
    return shift_right(a, std::countr_zero(static_cast<uint64_t>(divisor)));
  if (a.is_constant()) return constant(a.constant() / divisor);
  return expression(kDiv, a, constant(divisor), false, Range::between(0, a.known.hi / divisor), [&](Reg r) {
    e_.emit(Op::div, {ScalarType::u32}, {r, a.value, divisor});
  });
}

Integer Integers::rem(const Integer& a, int64_t divisor) {
  if (a.known.lo >= 0 && a.known.hi < divisor) return a;
  if (std::has_single_bit(static_cast<uint64_t>(divisor))) return and_mask(a, divisor - 1);
  if (a.is_constant()) return constant(a.constant() % divisor);
  return expression(kRem, a, constant(divisor), false, Range::between(0, divisor - 1), [&](Reg r) {
    e_.emit(Op::rem, {ScalarType::u32}, {r, a.value, divisor});
  });
}

Integer Integers::and_mask(const Integer& a, int64_t mask) {
  if (a.is_constant()) return constant(a.constant() & mask);
  if (mask == 0) return constant(0);
  const uint64_t bound = std::bit_ceil(static_cast<uint64_t>(a.known.hi) + 1) - 1;  // bits that may be set
  if (a.known.lo >= 0 && (bound & ~static_cast<uint64_t>(mask)) == 0) return a;
  const Range known{0, mask, mask & -mask};
  return expression(kAnd, a, constant(mask), false, known, [&](Reg r) {
    e_.emit(Op::and_, {ScalarType::b32}, {r, a.value, mask});
  });
}

Integer Integers::shift_left(const Integer& a, int amount) {
  if (amount == 0) return a;
  return mul(a, constant(int64_t{1} << amount));
}

Integer Integers::shift_right(const Integer& a, int amount) {
  if (amount == 0) return a;
  if (a.is_constant()) return constant(a.constant() >> amount);
  const int64_t power = int64_t{1} << amount;
  if (a.known.lo >= 0 && a.known.hi < power) return constant(0);
  const Range known{0, a.known.hi >> amount,
                    a.known.multiple % power == 0 ? std::max<int64_t>(a.known.multiple / power, 1) : 1};
  return expression(kShr, a, constant(amount), false, known, [&](Reg r) {
    e_.emit(Op::shr, {ScalarType::u32}, {r, a.value, amount});
  });
}

Integer Integers::xor_with(const Integer& a, const Integer& b) {
  if (a.is_constant() && b.is_constant()) return constant(a.constant() ^ b.constant());
  if (a.is_constant()) return xor_with(b, a);
  if (b.is_constant() && b.constant() == 0) return a;
  return expression(kXor, a, b, false, Range::between(0, Range::of_type(int32).hi), [&](Reg r) {
    e_.emit(Op::xor_, {ScalarType::b32}, {r, a.value, b.value});
  });
}

Operand Integers::less(const Integer& value, const Integer& limit) {
  if (value.known.hi < limit.known.lo) return 1;
  if (value.known.lo >= limit.known.hi) return 0;
  const bool wide = value.is_wide || limit.is_wide;
  const Integer a = wide ? widen(value) : value, b = wide ? widen(limit) : limit;
  return e_.hoisted(number(kLess, a.id, b.id), std::max(a.depth, b.depth), [&] {
    const ScalarType type = wide ? ScalarType::s64 : ScalarType::s32;
    const Reg p = e_.reg(ScalarType::pred);
    // Immediates stand last.
    if (a.is_constant())
      e_.emit(Op::setp, {Mod::gt, type}, {p, b.value, a.value});
    else
      e_.emit(Op::setp, {Mod::lt, type}, {p, a.value, b.value});
    return Operand(p);
  });
}

Operand Integers::both(const Operand& a, const Operand& b, size_t depth) {
  if (a.is_immediate()) return a.value ? b : a;
  if (b.is_immediate()) return b.value ? a : b;
  if (a.reg() == b.reg()) return a;
  return e_.hoisted(number(kBoth, a.id, b.id), depth, [&] {
    return Operand(e_.make(ScalarType::pred, Op::and_, {ScalarType::pred}, {a, b}));
  });
}

}  // namespace imbrex::codegen
