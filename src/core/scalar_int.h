// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic of PTX. Shift amounts, bit positions and lengths follow the PTX rules (clamped, taken
// modulo 256, ...), so nothing here is undefined behaviour for any input.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace imbrex::arith {

/// The types PTX computes in: 16, 32 and 64 bits.
// clang-format off
template <typename T>
concept PtxInteger = std::integral<T> && (sizeof(T) >= 2);
// clang-format on

namespace detail {
template <PtxInteger T>
using Unsigned = std::make_unsigned_t<T>;
/// The type of twice the width; __int128 for 64 bits.
template <PtxInteger T>
struct WiderOf;
template <>
struct WiderOf<int16_t> {
  using Type = int32_t;
};
template <>
struct WiderOf<uint16_t> {
  using Type = uint32_t;
};
template <>
struct WiderOf<int32_t> {
  using Type = int64_t;
};
template <>
struct WiderOf<uint32_t> {
  using Type = uint64_t;
};
template <>
struct WiderOf<int64_t> {
  using Type = __int128;
};
template <>
struct WiderOf<uint64_t> {
  using Type = unsigned __int128;
};
}  // namespace detail

/// Twice as wide, same signedness.
template <PtxInteger T>
using Wider = typename detail::WiderOf<T>::Type;

/// add, sub: wrap around. (16-bit values promote to int, so the casts also keep them from overflowing it.)
template <PtxInteger T>
constexpr T add(T a, T b) {
  return static_cast<T>(static_cast<detail::Unsigned<T>>(a) + static_cast<detail::Unsigned<T>>(b));
}
template <PtxInteger T>
constexpr T sub(T a, T b) {
  return static_cast<T>(static_cast<detail::Unsigned<T>>(a) - static_cast<detail::Unsigned<T>>(b));
}
template <PtxInteger T>
constexpr T neg(T a) {
  return sub(T{0}, a);
}
/// abs: the most negative number stays as it is.
template <PtxInteger T>
constexpr T abs(T a) {
  return a < 0 ? neg(a) : a;
}
/// add.sat.s32, sub.sat.s32: clamp to the range.
constexpr int32_t add_sat(int32_t a, int32_t b) {
  const int64_t sum = int64_t{a} + b;
  return static_cast<int32_t>(sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum);
}
constexpr int32_t sub_sat(int32_t a, int32_t b) {
  const int64_t difference = int64_t{a} - b;
  return static_cast<int32_t>(difference > INT32_MAX   ? INT32_MAX
                              : difference < INT32_MIN ? INT32_MIN
                                                       : difference);
}

/// mul.lo, mul.hi, mul.wide.
template <PtxInteger T>
constexpr T mul_lo(T a, T b) {
  // A 16-bit product of unsigned values promoted to int would overflow: compute in at least 32 unsigned bits.
  using Wide = std::common_type_t<detail::Unsigned<T>, uint32_t>;
  return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
}
template <PtxInteger T>
constexpr Wider<T> mul_wide(T a, T b) {
  return static_cast<Wider<T>>(a) * static_cast<Wider<T>>(b);
}
template <PtxInteger T>
constexpr T mul_hi(T a, T b) {
  return static_cast<T>(mul_wide(a, b) >> (8 * sizeof(T)));
}
/// mad.lo, mad.hi, mad.wide.
template <PtxInteger T>
constexpr T mad_lo(T a, T b, T c) {
  return add(mul_lo(a, b), c);
}
template <PtxInteger T>
constexpr T mad_hi(T a, T b, T c) {
  return add(mul_hi(a, b), c);
}
template <PtxInteger T>
requires(sizeof(T) <= 4) constexpr Wider<T> mad_wide(T a, T b, Wider<T> c) { return add(mul_wide(a, b), c); }
/// mad.hi.sat.s32.
constexpr int32_t mad_hi_sat(int32_t a, int32_t b, int32_t c) { return add_sat(mul_hi(a, b), c); }

/// mul24.lo, mul24.hi: bits 31..0 and 47..16 of the product of the low 24 bits.
constexpr uint32_t mul24_lo(uint32_t a, uint32_t b) { return (a & 0xFFFFFF) * (b & 0xFFFFFF); }
constexpr uint32_t mul24_hi(uint32_t a, uint32_t b) {
  return static_cast<uint32_t>((uint64_t{a & 0xFFFFFF} * (b & 0xFFFFFF)) >> 16);
}
namespace detail {
/// The product of the low 24 bits, read as signed numbers.
constexpr int64_t signed_product24(int32_t a, int32_t b) {
  const int64_t low_a = static_cast<int32_t>(static_cast<uint32_t>(a) << 8) >> 8;
  const int64_t low_b = static_cast<int32_t>(static_cast<uint32_t>(b) << 8) >> 8;
  return low_a * low_b;
}
}  // namespace detail
constexpr int32_t mul24_lo(int32_t a, int32_t b) {
  return static_cast<int32_t>(detail::signed_product24(a, b));
}
constexpr int32_t mul24_hi(int32_t a, int32_t b) {
  return static_cast<int32_t>(detail::signed_product24(a, b) >> 16);
}

/// div, rem: truncating. By zero: all bits one, for quotient and remainder alike (the PTX manual leaves it
/// open). The most negative number by -1 is itself, remainder 0.
template <PtxInteger T>
constexpr T div(T a, T b) {
  if (b == 0) return static_cast<T>(~detail::Unsigned<T>{0});
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return neg(a);
  return static_cast<T>(a / b);
}
template <PtxInteger T>
constexpr T rem(T a, T b) {
  if (b == 0) return static_cast<T>(~detail::Unsigned<T>{0});
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
  return static_cast<T>(a % b);
}

template <PtxInteger T>
constexpr T min(T a, T b) {
  return a < b ? a : b;
}
template <PtxInteger T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}
/// min.relu.s32, max.relu.s32: the result clamped below at 0.
constexpr int32_t min_relu(int32_t a, int32_t b) { return max(min(a, b), 0); }
constexpr int32_t max_relu(int32_t a, int32_t b) { return max(max(a, b), 0); }

/// The two 16-bit halves of a register, and one function on both: .u16x2, .s16x2 add, min, max.
template <typename Half, typename Function>
constexpr uint32_t each_half(uint32_t a, uint32_t b, Function function) {
  const auto low = function(static_cast<Half>(a), static_cast<Half>(b));
  const auto high = function(static_cast<Half>(a >> 16), static_cast<Half>(b >> 16));
  return static_cast<uint16_t>(low) | static_cast<uint32_t>(static_cast<uint16_t>(high)) << 16;
}

/// shl, shr: amounts beyond the width give 0, or copies of the sign for a signed shr.
template <PtxInteger T>
constexpr T shl(T a, uint32_t amount) {
  if (amount >= 8 * sizeof(T)) return 0;
  return static_cast<T>(static_cast<detail::Unsigned<T>>(a) << amount);
}
template <PtxInteger T>
constexpr T shr(T a, uint32_t amount) {
  constexpr uint32_t kWidth = 8 * sizeof(T);
  if (amount >= kWidth) return std::is_signed_v<T> ? static_cast<T>(a >> (kWidth - 1)) : T{0};
  return static_cast<T>(a >> amount);
}

/// shf.l, shf.r: 32 bits out of {high, low} shifted. .clamp limits the amount to 32, .wrap takes it mod 32.
constexpr uint32_t shf_l_wrap(uint32_t low, uint32_t high, uint32_t amount) {
  return static_cast<uint32_t>(((uint64_t{high} << 32 | low) << (amount & 31)) >> 32);
}
constexpr uint32_t shf_r_wrap(uint32_t low, uint32_t high, uint32_t amount) {
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> (amount & 31));
}
constexpr uint32_t shf_l_clamp(uint32_t low, uint32_t high, uint32_t amount) {
  return amount >= 32 ? low : shf_l_wrap(low, high, amount);
}
constexpr uint32_t shf_r_clamp(uint32_t low, uint32_t high, uint32_t amount) {
  return amount >= 32 ? high : shf_r_wrap(low, high, amount);
}

/// popc, clz, brev.
template <PtxInteger T>
constexpr uint32_t popc(T a) {
  return static_cast<uint32_t>(std::popcount(static_cast<detail::Unsigned<T>>(a)));
}
template <PtxInteger T>
constexpr uint32_t clz(T a) {
  return static_cast<uint32_t>(std::countl_zero(static_cast<detail::Unsigned<T>>(a)));
}
template <PtxInteger T>
constexpr T brev(T a) {
  auto bits = static_cast<uint64_t>(static_cast<detail::Unsigned<T>>(a));
  bits = (bits & 0x5555555555555555) << 1 | ((bits >> 1) & 0x5555555555555555);
  bits = (bits & 0x3333333333333333) << 2 | ((bits >> 2) & 0x3333333333333333);
  bits = (bits & 0x0F0F0F0F0F0F0F0F) << 4 | ((bits >> 4) & 0x0F0F0F0F0F0F0F0F);
  return static_cast<T>(__builtin_bswap64(bits) >> (64 - 8 * sizeof(T)));
}
/// bfind: position of the most significant bit that is not the sign's, ~0 if there is none; with .shiftamt
/// the shift that brings it to the top.
template <PtxInteger T>
constexpr uint32_t bfind(T a, bool shift_amount = false) {
  constexpr uint32_t kTop = 8 * sizeof(T) - 1;
  auto bits = static_cast<detail::Unsigned<T>>(a);
  if (std::is_signed_v<T> && a < 0) bits = static_cast<detail::Unsigned<T>>(~bits);
  if (bits == 0) return ~0u;
  const uint32_t position = kTop - static_cast<uint32_t>(std::countl_zero(bits));
  return shift_amount ? kTop - position : position;
}
/// fns.b32: position of the |offset|-th set bit of mask counted from `base` (base itself counts) upwards, or
/// downwards when offset is negative; offset 0: base if that bit is set. ~0 when there is none.
constexpr uint32_t fns(uint32_t mask, uint32_t base, int32_t offset) {
  if (offset == 0) return base < 32 && (mask >> base & 1) ? base : ~0u;
  const int step = offset > 0 ? 1 : -1;
  int64_t left = offset > 0 ? int64_t{offset} : -int64_t{offset};
  for (int64_t position = base; position >= 0 && position < 32; position += step)
    if ((mask >> position & 1) && --left == 0) return static_cast<uint32_t>(position);
  return ~0u;
}

namespace detail {
/// A position or length of bfe and bfi: 32-bit forms look at 8 bits of it, 64-bit forms at all (measured on
/// H200), and anything beyond the width means the width.
template <typename T>
constexpr uint32_t field_count(uint32_t count) {
  constexpr uint32_t kWidth = 8 * sizeof(T);
  return min(kWidth == 32 ? count & 0xFF : count, kWidth);
}
}  // namespace detail

/// bfe: `length` bits from `position`, zero- or sign-extended; bits beyond the top read as the sign for
/// signed types, else 0.
template <PtxInteger T>
constexpr T bfe(T a, uint32_t position, uint32_t length) {
  constexpr uint32_t kWidth = 8 * sizeof(T);
  position = detail::field_count<T>(position);
  length = detail::field_count<T>(length);
  if (length == 0) return 0;
  const uint32_t top = min(position + length - 1, kWidth - 1);
  const bool sign = std::is_signed_v<T> && (static_cast<detail::Unsigned<T>>(a) >> top & 1);
  auto field = position >= kWidth ? detail::Unsigned<T>{0} : static_cast<detail::Unsigned<T>>(a) >> position;
  const uint32_t kept = position >= kWidth ? 0 : min(length, kWidth - position);
  if (kept >= kWidth) return static_cast<T>(field);
  const auto mask = static_cast<detail::Unsigned<T>>((detail::Unsigned<T>{1} << kept) - 1);
  return static_cast<T>(sign ? field | static_cast<detail::Unsigned<T>>(~mask) : field & mask);
}
/// bfi: the low `length` bits of a put into b at `position`.
template <PtxInteger T>
constexpr T bfi(T a, T b, uint32_t position, uint32_t length) {
  constexpr uint32_t kWidth = 8 * sizeof(T);
  using U = detail::Unsigned<T>;
  position = detail::field_count<T>(position);
  length = detail::field_count<T>(length);
  if (length == 0 || position >= kWidth) return b;
  const U field = length >= kWidth ? static_cast<U>(~U{0}) : static_cast<U>((U{1} << length) - 1);
  const U mask = static_cast<U>(field << position);
  return static_cast<T>((static_cast<U>(b) & static_cast<U>(~mask)) |
                        (static_cast<U>(static_cast<U>(a) << position) & mask));
}
/// szext: sign- or zero-extends the low `bits` bits; .clamp limits the count to 32, .wrap takes it mod 32.
template <typename T>
requires(std::same_as<T, int32_t> || std::same_as<T, uint32_t>) constexpr T
    szext(T a, uint32_t bits, bool wrap) {
  bits = wrap ? bits & 31 : min(bits, 32u);
  if (bits == 0) return 0;
  return static_cast<T>(static_cast<T>(static_cast<uint32_t>(a) << (32 - bits)) >> (32 - bits));
}
/// bmsk: `length` ones from `position`; .clamp limits both to 32, .wrap takes them mod 32.
constexpr uint32_t bmsk(uint32_t position, uint32_t length, bool wrap) {
  position = wrap ? position & 31 : min(position, 32u);
  length = wrap ? length & 31 : min(length, 32u);
  return shl(shl(1u, length) - 1, position);
}

/// The modes of prmt; kIndex is the one without a suffix.
enum class PermuteMode : uint8_t { kIndex, kF4e, kB4e, kRc8, kEcl, kEcr, kRc16 };
/// prmt.b32: four bytes picked out of {b, a} by nibbles of `selector` (bit 3 of a nibble copies the byte's
/// sign); the other modes take the low two bits of the selector.
constexpr uint32_t prmt(uint32_t a, uint32_t b, uint32_t selector, PermuteMode mode = PermuteMode::kIndex) {
  const uint32_t s = selector & 3;
  if (mode == PermuteMode::kF4e) selector = 0x3210 + 0x1111 * s;
  if (mode == PermuteMode::kB4e)
    selector = (s | ((s - 1) & 7) << 4 | ((s - 2) & 7) << 8 | ((s - 3) & 7) << 12);
  if (mode == PermuteMode::kRc8) selector = 0x1111 * s;
  if (mode == PermuteMode::kEcl) selector = s | max(s, 1u) << 4 | max(s, 2u) << 8 | 3 << 12;
  if (mode == PermuteMode::kEcr) selector = min(s, 1u) << 4 | min(s, 2u) << 8 | s << 12;
  if (mode == PermuteMode::kRc16) selector = (s & 1) ? 0x3232 : 0x1010;
  const uint64_t bytes = uint64_t{b} << 32 | a;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t nibble = selector >> (4 * i) & 0xF;
    uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (nibble & 7))) & 0xFF;
    if (mode == PermuteMode::kIndex && (nibble & 8)) byte = byte & 0x80 ? 0xFF : 0;
    result |= byte << (8 * i);
  }
  return result;
}

/// lop3.b32: bit i of the result is bit (a_i b_i c_i) of `table`.
template <PtxInteger T>
constexpr T lop3(T a, T b, T c, uint32_t table) {
  T result = 0;
  if (table & 0x01) result |= static_cast<T>(~a & ~b & ~c);
  if (table & 0x02) result |= static_cast<T>(~a & ~b & c);
  if (table & 0x04) result |= static_cast<T>(~a & b & ~c);
  if (table & 0x08) result |= static_cast<T>(~a & b & c);
  if (table & 0x10) result |= static_cast<T>(a & ~b & ~c);
  if (table & 0x20) result |= static_cast<T>(a & ~b & c);
  if (table & 0x40) result |= static_cast<T>(a & b & ~c);
  if (table & 0x80) result |= static_cast<T>(a & b & c);
  return result;
}

/// sad: c + |a - b|.
template <PtxInteger T>
constexpr T sad(T a, T b, T c) {
  return add(c, a < b ? sub(b, a) : sub(a, b));
}

namespace detail {
constexpr int32_t part(uint32_t word, int index, int bits, bool is_signed) {
  const uint32_t raw = word >> (index * bits) & ((1u << bits) - 1);
  if (!is_signed || !(raw >> (bits - 1))) return static_cast<int32_t>(raw);
  return static_cast<int32_t>(raw) - (1 << bits);
}
}  // namespace detail

/// dp4a: c + the sum of four byte products; the bytes of a and b are signed or not on their own.
constexpr uint32_t dp4a(uint32_t a, bool a_signed, uint32_t b, bool b_signed, uint32_t c) {
  for (int i = 0; i < 4; ++i)
    c += static_cast<uint32_t>(detail::part(a, i, 8, a_signed) * detail::part(b, i, 8, b_signed));
  return c;
}
/// dp2a.lo, dp2a.hi: c + two products of a's 16-bit halves with the low or high two bytes of b.
constexpr uint32_t dp2a(uint32_t a, bool a_signed, uint32_t b, bool b_signed, uint32_t c, bool high) {
  for (int i = 0; i < 2; ++i)
    c += static_cast<uint32_t>(detail::part(a, i, 16, a_signed) *
                               detail::part(b, i + (high ? 2 : 0), 8, b_signed));
  return c;
}

/// A result and the carry or borrow that add.cc, addc, sub.cc, subc leave behind.
template <typename T>
struct WithCarry {
  T value;
  bool carry;
};
/// a + b + carry_in, with the carry out (add.cc: carry_in false).
template <PtxInteger T>
constexpr WithCarry<T> add_carry(T a, T b, bool carry_in) {
  using U = detail::Unsigned<T>;
  const U partial = static_cast<U>(static_cast<U>(a) + static_cast<U>(b));
  const U sum = static_cast<U>(partial + carry_in);
  return {static_cast<T>(sum), partial < static_cast<U>(a) || sum < partial};
}
/// a - b - borrow_in, with the borrow out (sub.cc: borrow_in false).
template <PtxInteger T>
constexpr WithCarry<T> sub_borrow(T a, T b, bool borrow_in) {
  using U = detail::Unsigned<T>;
  const U partial = static_cast<U>(static_cast<U>(a) - static_cast<U>(b));
  return {static_cast<T>(static_cast<U>(partial - borrow_in)),
          static_cast<U>(a) < static_cast<U>(b) || (borrow_in && partial == 0)};
}

}  // namespace imbrex::arith
