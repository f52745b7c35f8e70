// SPDX-License-Identifier: Apache-2.0
#include "core/scalar_int.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace imbrex::arith {
namespace {

constexpr int32_t kMin32 = INT32_MIN, kMax32 = INT32_MAX;
constexpr int64_t kMin64 = INT64_MIN;

/// Values where things go wrong, and some random ones.
template <typename T>
std::vector<T> samples() {
  std::vector<T> values;
  for (int64_t small = -3; small <= 3; ++small) values.push_back(static_cast<T>(small));
  for (T edge : {std::numeric_limits<T>::min(), std::numeric_limits<T>::max()})
    for (int64_t d = -2; d <= 2; ++d) values.push_back(add(edge, static_cast<T>(d)));
  std::mt19937_64 random(3);
  for (int i = 0; i < 40; ++i) values.push_back(static_cast<T>(random() >> (random() % 64)));
  return values;
}

template <typename T>
class ScalarInt : public testing::Test {};
using Types = testing::Types<int16_t, uint16_t, int32_t, uint32_t, int64_t, uint64_t>;
TYPED_TEST_SUITE(ScalarInt, Types);

TYPED_TEST(ScalarInt, MatchesExactArithmeticReducedToTheWidth) {
  using T = TypeParam;
  for (T a : samples<T>())
    for (T b : samples<T>()) {
      // 128 bits hold every sum, difference and signed product; unsigned 64-bit products need the upper half
      // apart.
      const auto x = static_cast<__int128>(a), y = static_cast<__int128>(b);
      ASSERT_EQ(add(a, b), static_cast<T>(x + y));
      ASSERT_EQ(sub(a, b), static_cast<T>(x - y));
      const auto product = static_cast<unsigned __int128>(x) * static_cast<unsigned __int128>(y);
      ASSERT_EQ(mul_lo(a, b), static_cast<T>(product));
      ASSERT_EQ(mul_hi(a, b), static_cast<T>(product >> (8 * sizeof(T))));
      ASSERT_EQ(mad_lo(a, b, a), static_cast<T>(product + static_cast<unsigned __int128>(x)));
      ASSERT_EQ(sad(a, b, T{5}), static_cast<T>((x > y ? x - y : y - x) + 5));
      ASSERT_EQ(min(a, b), std::min(a, b));
      ASSERT_EQ(max(a, b), std::max(a, b));
      if (b != 0) {
        ASSERT_EQ(div(a, b), static_cast<T>(x / y));
        ASSERT_EQ(rem(a, b), static_cast<T>(x % y));
      }
      const auto sum = add_carry(a, b, true);
      const auto width_mask =
          static_cast<unsigned __int128>(std::numeric_limits<std::make_unsigned_t<T>>::max());
      const auto ua = static_cast<unsigned __int128>(x) & width_mask,
                 ub = static_cast<unsigned __int128>(y) & width_mask;
      ASSERT_EQ(sum.value, static_cast<T>(x + y + 1));
      ASSERT_EQ(sum.carry, ua + ub + 1 > width_mask);
      const auto difference = sub_borrow(a, b, true);
      ASSERT_EQ(difference.value, static_cast<T>(x - y - 1));
      ASSERT_EQ(difference.carry, ua < ub + 1);
    }
}

TYPED_TEST(ScalarInt, ShiftsBitFieldsAndCountsMatchBitByBitDefinitions) {
  using T = TypeParam;
  constexpr int kWidth = 8 * sizeof(T);
  auto bit = [](T x, int i) { return static_cast<uint64_t>(x) >> i & 1; };
  for (T a : samples<T>()) {
    for (uint32_t amount : {0u, 1u, 7u, 15u, 16u, 31u, 32u, 33u, 63u, 64u, 65u, 255u, 256u, 0x80000000u}) {
      for (int i = 0; i < kWidth; ++i) {
        const int64_t from_left = int64_t{i} - amount, from_right = int64_t{i} + amount;
        ASSERT_EQ(bit(shl(a, amount), i), from_left < 0 ? 0 : bit(a, static_cast<int>(from_left)));
        const uint64_t fill = std::is_signed_v<T> ? bit(a, kWidth - 1) : 0;
        ASSERT_EQ(bit(shr(a, amount), i), from_right >= kWidth ? fill : bit(a, static_cast<int>(from_right)));
      }
    }
    uint32_t ones = 0;
    for (int i = 0; i < kWidth; ++i) ones += static_cast<uint32_t>(bit(a, i));
    ASSERT_EQ(popc(a), ones);
    uint32_t zeros = 0;
    while (zeros < kWidth && !bit(a, kWidth - 1 - static_cast<int>(zeros))) ++zeros;
    ASSERT_EQ(clz(a), zeros);
    for (int i = 0; i < kWidth; ++i) ASSERT_EQ(bit(brev(a), i), bit(a, kWidth - 1 - i));
    // bfind: the highest bit unlike the sign.
    const uint64_t sign = std::is_signed_v<T> ? bit(a, kWidth - 1) : 0;
    int highest = kWidth - 1;
    while (highest >= 0 && bit(a, highest) == sign) --highest;
    ASSERT_EQ(bfind(a), static_cast<uint32_t>(highest));
    ASSERT_EQ(bfind(a, true), highest < 0 ? ~0u : static_cast<uint32_t>(kWidth - 1 - highest));
    for (uint32_t position : {0u, 1u, 5u, 15u, 31u, 32u, 60u, 64u, 255u})
      for (uint32_t length : {0u, 1u, 3u, 16u, 31u, 32u, 64u, 255u}) {
        const int top = std::min(static_cast<int>(position + length) - 1, kWidth - 1);
        const uint64_t extension = std::is_signed_v<T> && length != 0 ? bit(a, top) : 0;
        const T field = bfe(a, position, length);
        const T inserted = bfi(a, static_cast<T>(0x5A5A5A5A5A5A5A5A), position, length);
        for (int i = 0; i < kWidth; ++i) {
          const bool inside = i < static_cast<int>(length) && static_cast<int>(position) + i < kWidth;
          ASSERT_EQ(bit(field, i), inside ? bit(a, static_cast<int>(position) + i) : extension)
              << position << "+" << length;
          const int source = i - static_cast<int>(position);
          const bool replaced = source >= 0 && source < static_cast<int>(length);
          ASSERT_EQ(bit(inserted, i), replaced ? bit(a, source) : bit(static_cast<T>(0x5A5A5A5A5A5A5A5A), i));
        }
      }
  }
}

TYPED_TEST(ScalarInt, Lop3ReadsItsTable) {
  using T = TypeParam;
  const std::vector<T> values = samples<T>();
  for (uint32_t table = 0; table < 256; ++table)
    for (size_t i = 0; i + 2 < values.size(); i += 7) {
      const T a = values[i], b = values[i + 1], c = values[i + 2], result = lop3(a, b, c, table);
      for (size_t bit = 0; bit < 8 * sizeof(T); ++bit) {
        const uint64_t index = (static_cast<uint64_t>(a) >> bit & 1) << 2 |
                               (static_cast<uint64_t>(b) >> bit & 1) << 1 |
                               (static_cast<uint64_t>(c) >> bit & 1);
        ASSERT_EQ(static_cast<uint64_t>(result) >> bit & 1, table >> index & 1);
      }
    }
}

TEST(ScalarIntFacts, DivisionByZeroGivesAllOnesAndTheOverflowingQuotientWraps) {
  EXPECT_EQ(div(7u, 0u), ~0u);
  EXPECT_EQ(rem(7u, 0u), ~0u);
  EXPECT_EQ(div(7, 0), -1);
  EXPECT_EQ(rem(int64_t{7}, int64_t{0}), -1);
  EXPECT_EQ(div(kMin32, -1), kMin32);
  EXPECT_EQ(rem(kMin32, -1), 0);
  EXPECT_EQ(div(kMin64, int64_t{-1}), kMin64);
  EXPECT_EQ(abs(kMin32), kMin32);
}

TEST(ScalarIntFacts, SaturatingForms) {
  EXPECT_EQ(add_sat(kMax32, 1), kMax32);
  EXPECT_EQ(add_sat(kMin32, -1), kMin32);
  EXPECT_EQ(sub_sat(kMin32, 1), kMin32);
  EXPECT_EQ(sub_sat(0, kMin32), kMax32);
  EXPECT_EQ(mad_hi_sat(kMax32, kMax32, kMax32), kMax32);
  EXPECT_EQ(min_relu(-5, 3), 0);
  EXPECT_EQ(max_relu(-5, -3), 0);
  EXPECT_EQ(max_relu(-5, 3), 3);
}

TEST(ScalarIntFacts, TwentyFourBitProducts) {
  EXPECT_EQ(mul24_lo(0xFF000003u, 0xFF000005u), 15u);
  EXPECT_EQ(mul24_hi(0x00FFFFFFu, 0x00FFFFFFu), static_cast<uint32_t>(0xFFFFFE000001u >> 16));
  EXPECT_EQ(mul24_lo(-1, 5), -5);
  EXPECT_EQ(mul24_hi(-1, 5), -1);
}

TEST(ScalarIntFacts, FunnelShifts) {
  const uint32_t low = 0x89ABCDEF, high = 0x01234567;
  EXPECT_EQ(shf_l_wrap(low, high, 8), 0x23456789u);
  EXPECT_EQ(shf_l_wrap(low, high, 32), high);
  EXPECT_EQ(shf_l_clamp(low, high, 32), low);
  EXPECT_EQ(shf_l_clamp(low, high, 99), low);
  EXPECT_EQ(shf_r_wrap(low, high, 8), 0x6789ABCDu);
  EXPECT_EQ(shf_r_wrap(low, high, 40), 0x6789ABCDu);
  EXPECT_EQ(shf_r_clamp(low, high, 40), high);
}

TEST(ScalarIntFacts, PermuteModes) {
  const uint32_t a = 0x83828180, b = 0x07060504;
  EXPECT_EQ(prmt(a, b, 0x7531), 0x07058381u);
  EXPECT_EQ(prmt(a, b, 0x0008), 0x808080FFu) << "bit 3 spreads the sign";
  EXPECT_EQ(prmt(a, b, 0x000C), 0x80808000u);
  // Expected bytes, most significant first, for selectors 0 to 3.
  struct {
    PermuteMode mode;
    uint32_t selectors[4];
  } rows[] = {{PermuteMode::kF4e, {0x3210, 0x4321, 0x5432, 0x6543}},
              {PermuteMode::kB4e, {0x5670, 0x6701, 0x7012, 0x0123}},
              {PermuteMode::kRc8, {0x0000, 0x1111, 0x2222, 0x3333}},
              {PermuteMode::kEcl, {0x3210, 0x3211, 0x3222, 0x3333}},
              {PermuteMode::kEcr, {0x0000, 0x1110, 0x2210, 0x3210}},
              {PermuteMode::kRc16, {0x1010, 0x3232, 0x1010, 0x3232}}};
  for (const auto& row : rows)
    for (uint32_t s = 0; s < 4; ++s)
      EXPECT_EQ(prmt(a, b, s + 0xFFFC, row.mode), prmt(a, b, row.selectors[s]))
          << static_cast<int>(row.mode) << " " << s;
}

TEST(ScalarIntFacts, PackedProducts) {
  EXPECT_EQ(dp4a(0xFF010203, true, 0x02FF0304, true, 10), static_cast<uint32_t>(10 - 2 - 1 + 6 + 12));
  EXPECT_EQ(dp4a(0xFF000000, false, 0xFF000000, false, 1), 65026u);
  EXPECT_EQ(dp4a(0xFF000000, false, 0xFF000000, true, 0), static_cast<uint32_t>(-255));
  EXPECT_EQ(dp2a(0xFFFF0002, true, 0x00000304, false, 0, false), static_cast<uint32_t>(8 - 3));
  EXPECT_EQ(dp2a(0xFFFF0002, false, 0x03040000, false, 0, true), 8u + 3 * 65535);
}

TEST(ScalarIntFacts, NthSetBit) {
  EXPECT_EQ(fns(0b101100, 0, 1), 2u);
  EXPECT_EQ(fns(0b101100, 0, 3), 5u);
  EXPECT_EQ(fns(0b101100, 0, 4), ~0u);
  EXPECT_EQ(fns(0b101100, 5, -2), 3u);
  EXPECT_EQ(fns(0b101100, 3, 0), 3u);
  EXPECT_EQ(fns(0b101100, 4, 0), ~0u);
}

TEST(ScalarIntFacts, MasksAndExtensions) {
  EXPECT_EQ(bmsk(4, 8, false), 0xFF0u);
  EXPECT_EQ(bmsk(0, 32, false), ~0u);
  EXPECT_EQ(bmsk(32, 5, false), 0u);
  EXPECT_EQ(bmsk(36, 33, true), 0x10u);
  EXPECT_EQ(szext(0x1FFu, 8, false), 0xFFu);
  EXPECT_EQ(szext(int32_t{0x180}, 8, false), -128);
  EXPECT_EQ(szext(int32_t{0x180}, 40, false), 0x180);
  EXPECT_EQ(szext(int32_t{0x180}, 40, true), -128);
  EXPECT_EQ(each_half<int16_t>(0x7FFF8000, 0x00018000, [](int16_t a, int16_t b) { return add(a, b); }),
            0x80000000u);
}

}  // namespace
}  // namespace imbrex::arith
