// SPDX-License-Identifier: Apache-2.0
// Scalars mean what they mean in C++: each function below is a template that is run on traced scalars, whose
// results the kernel stores, and on C++ numbers. The compiler may know the operands, only the launch may know
// them, or only the running CTA: folding, the host and the machine must all agree with C++.
#include <climits>
#include <random>
#include <tuple>

#include "kit.h"

#pragma GCC diagnostic ignored "-Wsign-compare"  // mixed signs are what is tested
#pragma GCC diagnostic ignored "-Wbool-operation"

namespace imbrex::testing {
namespace {

enum class Known { kByCompiler, kAtLaunch, kByCta };
constexpr Known kAllKnown[] = {Known::kByCompiler, Known::kAtLaunch, Known::kByCta};

// C++'s side of the language's functions.
template <class A, class B>
requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B>
auto select(bool condition, A a, B b) { return condition ? a : b; }
template <class T>
requires std::is_arithmetic_v<T>
auto abs(T a) {
  if constexpr (std::is_floating_point_v<T>)
    return std::abs(a);
  else
    return a < 0 ? -a : a;
}

template <class T>
struct TypeOf;
template <>
struct TypeOf<bool> {
  static constexpr DataType kType = boolean;
};
template <>
struct TypeOf<int8_t> {
  static constexpr DataType kType = int8;
};
template <>
struct TypeOf<int16_t> {
  static constexpr DataType kType = int16;
};
template <>
struct TypeOf<int32_t> {
  static constexpr DataType kType = int32;
};
template <>
struct TypeOf<int64_t> {
  static constexpr DataType kType = int64;
};
template <>
struct TypeOf<uint8_t> {
  static constexpr DataType kType = uint8;
};
template <>
struct TypeOf<uint16_t> {
  static constexpr DataType kType = uint16;
};
template <>
struct TypeOf<uint32_t> {
  static constexpr DataType kType = uint32;
};
template <>
struct TypeOf<uint64_t> {
  static constexpr DataType kType = uint64;
};
template <>
struct TypeOf<float> {
  static constexpr DataType kType = float32;
};
template <>
struct TypeOf<double> {
  static constexpr DataType kType = float64;
};
template <class T>
using VarOf = Var<TypeOf<T>::kType>;

/// Runs `body(a, b, put)` on C++ numbers.
template <class Result, class A, class B, class Body>
std::vector<Result> in_cpp(A a, B b, const Body& body) {
  std::vector<Result> results;
  body(a, b, [&](auto value) { results.push_back(static_cast<Result>(value)); });
  return results;
}

/// Runs `body(a, b, put)` in a kernel of one CTA.
template <class Result, class A, class B, class Body>
std::vector<Result> in_kernel(Known known, A a, B b, size_t results, const Body& body) {
  Machine machine;
  DeviceTensor out = machine.output(TypeOf<Result>::kType, {static_cast<int64_t>(results)});
  machine.run(
      [=](VarOf<A> a_given, VarOf<B> b_given, Int32 ctas, Ptr<TypeOf<Result>::kType> out_ptr) {
        grid(ctas);
        auto g_out = global_view(out_ptr, {static_cast<int64_t>(results)});
        const ScalarArg cta = block_idx.x;  // 0, which only the CTA knows
        VarOf<A> x = known == Known::kByCompiler ? VarOf<A>(a)
                     : known == Known::kAtLaunch ? VarOf<A>(a_given)
                                                 : VarOf<A>(select(cta == 0, a_given, A(1)));
        VarOf<B> y = known == Known::kByCompiler ? VarOf<B>(b)
                     : known == Known::kAtLaunch ? VarOf<B>(b_given)
                                                 : VarOf<B>(select(cta == 0, b_given, B(1)));
        int64_t next = 0;
        body(x, y, [&](const ScalarArg& value) {
          store_global(g_out, full(TypeOf<Result>::kType, {1}, value), {next++});
        });
      },
      a, b, 1, out);
  return values<Result>(out);
}

template <class Result, class A, class B, class Body>
void expect_as_in_cpp(const std::vector<std::pair<A, B>>& operands, const Body& body) {
  for (const auto& [a, b] : operands) {
    const std::vector<Result> expected = in_cpp<Result>(a, b, body);
    for (Known known : kAllKnown) {
      const std::vector<Result> got = in_kernel<Result>(known, a, b, expected.size(), body);
      for (size_t i = 0; i < expected.size(); ++i) {
        const bool both_nan = got[i] != got[i] && expected[i] != expected[i];
        EXPECT_TRUE(both_nan || std::memcmp(&got[i], &expected[i], sizeof(Result)) == 0)
            << "result " << i << " of " << +a << ", " << +b << " is " << got[i] << ", in C++ " << expected[i]
            << ", known " << static_cast<int>(known);
      }
    }
  }
}

// ---- integers

const auto kIntegerOperators = [](const auto& a, const auto& b, const auto& put) {
  put(a + b);  // 0
  put(a - b);
  put(a * b);
  put(a / b);
  put(a % b);
  put(a & b);  // 5
  put(a | b);
  put(a ^ b);
  put(a << (b & 7));
  put(a >> (b & 7));
  put(a == b);  // 10
  put(a != b);
  put(a < b);
  put(a <= b);
  put(a > b);
  put(a >= b);  // 15
  put(-a);
  put(~a);
  put(!(a < b));
  put(a < b && b < 100);
  put(a < b || a == 7);  // 20
  put(select(a < b, a, b));
  put(abs(a));
  put(a + 1);
  put(3 - a);
  put(a * 5);  // 25
  put(a / 4);
  put(a % 8);
  put(a / 7);
  put(a % 7);
  put(a * 3u);  // 30
  put((a + b) * (a - b) + (a ^ b) / 3);
};

const auto kAssignments = [](const auto& a, const auto& b, const auto& put) {
  auto fresh = [&] { return std::remove_cvref_t<decltype(a)>(a); };
  auto x = fresh();
  put(x += b);
  put(x -= 3);
  put(x *= b);
  put(x /= b);
  put(x ^= 5);
  put(x |= 16);
  put(x &= b);
  put(x <<= 3);
  put(x >>= 1);
  put(++x);
  put(x++);
  put(x--);
  put(--x);
  x = b;
  put(x);
  auto y = x;
  y += 1;
  put(x);
  put(y);
};

template <class A, class B>
std::vector<std::pair<A, B>> integer_pairs() {
  std::vector<std::pair<A, B>> pairs = {
      {A(7), B(3)}, {A(0), B(5)}, {A(100), B(100)}, {A(-1), B(1)}, {A(-100), B(7)}};
  if (std::is_signed_v<B>) pairs.insert(pairs.end(), {{A(77), B(-5)}, {A(-77), B(-5)}});
  pairs.push_back({std::numeric_limits<A>::max(), B(2)});
  pairs.push_back({std::numeric_limits<A>::min(), std::numeric_limits<B>::max()});
  return pairs;
}

template <class A, class B = A>
void expect_integers_as_in_cpp() {
  expect_as_in_cpp<int64_t>(integer_pairs<A, B>(), kIntegerOperators);
  expect_as_in_cpp<int64_t>(integer_pairs<A, B>(), kAssignments);
}

TEST(Integers, Int32) { expect_integers_as_in_cpp<int32_t>(); }
TEST(Integers, UInt32) { expect_integers_as_in_cpp<uint32_t>(); }
TEST(Integers, Int64) { expect_integers_as_in_cpp<int64_t>(); }
TEST(Integers, UInt64) { expect_integers_as_in_cpp<uint64_t>(); }
TEST(Integers, Int8) { expect_integers_as_in_cpp<int8_t>(); }
TEST(Integers, UInt8) { expect_integers_as_in_cpp<uint8_t>(); }
TEST(Integers, Int16) { expect_integers_as_in_cpp<int16_t>(); }
TEST(Integers, UInt16) { expect_integers_as_in_cpp<uint16_t>(); }
TEST(Integers, Int32AndUInt32) { expect_integers_as_in_cpp<int32_t, uint32_t>(); }
TEST(Integers, Int64AndInt32) { expect_integers_as_in_cpp<int64_t, int32_t>(); }
TEST(Integers, UInt32AndInt64) { expect_integers_as_in_cpp<uint32_t, int64_t>(); }
TEST(Integers, Int8AndUInt16) { expect_integers_as_in_cpp<int8_t, uint16_t>(); }
TEST(Integers, UInt64AndInt8) { expect_integers_as_in_cpp<uint64_t, int8_t>(); }

TEST(Integers, Bool) {
  const std::vector<std::pair<bool, bool>> pairs = {
      {false, false}, {false, true}, {true, false}, {true, true}};
  expect_as_in_cpp<int64_t>(pairs, [](const auto& a, const auto& b, const auto& put) {
    put(a && b);
    put(a || b);
    put(!a);
    put(a == b);
    put(a != b);
    put(a + b);
    put(a & b);
    put(a | b);
    put(a ^ b);
    put(select(a, 5, 9));
    put(select(a, b, !b));
    auto x = std::remove_cvref_t<decltype(a)>(a);
    x = x != b;
    put(x);
    x |= b;
    put(x);
  });
}

TEST(Integers, ConversionsBetweenAllWidths) {
  const std::vector<std::pair<int64_t, int32_t>> numbers = {{0, 0},
                                                            {1, -1},
                                                            {-1, 127},
                                                            {-128, 128},
                                                            {0x123456789abcdef, 0x7fff8000},
                                                            {INT64_MIN, INT32_MIN},
                                                            {INT64_MAX, INT32_MAX}};
  expect_as_in_cpp<int64_t>(numbers, [](const auto& a, const auto& b, const auto& put) {
    using A = std::remove_cvref_t<decltype(a)>;
    auto convert = [](const auto& value, auto to) {
      if constexpr (std::is_same_v<A, int64_t>)
        return static_cast<decltype(to)>(value);
      else
        return cast(value, TypeOf<decltype(to)>::kType);
    };
    auto all = [&](const auto& value) {
      put(convert(value, int8_t()));
      put(convert(value, uint8_t()));
      put(convert(value, int16_t()));
      put(convert(value, uint16_t()));
      put(convert(value, int32_t()));
      put(convert(value, uint32_t()));
      put(convert(value, int64_t()));
      put(convert(value, uint64_t()));
      put(convert(value, bool()));
      put(convert(convert(value, int8_t()), uint32_t()));
      put(convert(convert(value, uint16_t()), int64_t()));
      put(convert(convert(value, int16_t()), uint64_t()));
      put(convert(convert(value, bool()), int32_t()) + 1);
    };
    all(a);
    all(b);
  });
}

TEST(Integers, CeilingDivisionAndExtremes) {
  const std::vector<std::pair<int32_t, int32_t>> pairs = {{0, 1}, {1, 1},         {7, 8},    {8, 8},
                                                          {9, 8}, {1000000, 128}, {12345, 1}};
  expect_as_in_cpp<int64_t>(pairs, [](const auto& a, const auto& b, const auto& put) {
    put(cdiv(a, b));
    put(cdiv(a, 16));
    put(cdiv(1000, b));
    put(min(a, b));
    put(max(a, b));
    put(min(a, 8));
    put(max(5, b));
    put(max(min(a, 100), 3));
  });
}

TEST(Integers, RandomOperands) {
  std::mt19937_64 random(7);
  std::vector<std::pair<int32_t, uint32_t>> narrow;
  std::vector<std::pair<int64_t, uint64_t>> wide;
  for (int i = 0; i < 12; ++i) {
    narrow.push_back({static_cast<int32_t>(random() >> (random() % 32)),
                      static_cast<uint32_t>(random() >> (random() % 32)) | 1});
    wide.push_back({static_cast<int64_t>(random() >> (random() % 64)), (random() >> (random() % 64)) | 1});
  }
  expect_as_in_cpp<int64_t>(narrow, kIntegerOperators);
  expect_as_in_cpp<int64_t>(wide, kIntegerOperators);
}

// ---- fast_divmod

TEST(FastDivmod, IsDivisionAndRemainder) {
  const std::vector<int32_t> dividends = {0, 1, 2, 6, 7, 8, 99, 1000, 65535, 65536, 0x7ffffffe, 0x7fffffff};
  const std::vector<int32_t> divisors = {1,     2,     3,     7,          10,         641,
                                         65535, 65536, 65537, 0x40000000, 0x7ffffffe, 0x7fffffff};
  Machine machine;
  const auto count = static_cast<int64_t>(dividends.size());
  for (int32_t divisor : divisors) {
    DeviceTensor out = machine.output(int32, {count, 4});
    machine.run(
        [=](Int32 d, Int32 ctas, Ptr<int32> out_ptr) {
          grid(ctas);
          auto g_out = global_view(out_ptr, {count, 4});
          for (int64_t i = 0; i < count; ++i) {
            Int32 a = block_idx.x + dividends[i];
            auto [q, r] = fast_divmod(a, d);
            auto [cq, cr] = fast_divmod(a, divisor);  // a divisor the compiler knows
            auto put = [&](const ScalarArg& value, int64_t at) {
              store_global(g_out, full(int32, {1, 1}, value), {i, at});
            };
            put(q, 0), put(r, 1), put(cq, 2), put(cr, 3);
          }
        },
        divisor, 1, out);
    expect_elements(out, [&](int64_t i, int64_t j) {
      return j % 2 == 0 ? dividends[i] / divisor : dividends[i] % divisor;
    });
  }
}

TEST(FastDivmod, OfEveryCta) {
  Machine machine;
  const int64_t ctas = 1000;
  DeviceTensor out = machine.output(int32, {ctas, 2});
  machine.run(
      [](Int32 count, Int32 width, Ptr<int32> out_ptr) {
        grid(count);
        auto g_out = global_view(out_ptr, {count, 2});
        auto [row, column] = fast_divmod(block_idx.x, width * 3);
        store_global(g_out, full(int32, {1, 1}, row), {block_idx.x, 0});
        store_global(g_out, full(int32, {1, 1}, column), {block_idx.x, 1});
      },
      ctas, 7, out);
  expect_elements(out, [](int64_t i, int64_t j) { return j == 0 ? i / 21 : i % 21; });
}

// ---- floating point

const auto kFloatOperators = [](const auto& a, const auto& b, const auto& put) {
  put(a + b);  // 0
  put(a - b);
  put(a * b);
  put(a / b);
  put(-a);
  put(abs(a));  // 5
  put(a * 2 + 1);
  put(0.1 * a);
  put(a - 1.5f);
  put(min(a, b));
  put(max(a, b));  // 10
  put(select(a < b, a, b));
  put(a == b);
  put(a != b);
  put(a < b);
  put(a <= b);  // 15
  put(a > b);
  put(a >= b);
  put(a + 3);
  put(1 / b);
  auto x = std::remove_cvref_t<decltype(a)>(a);
  put(x += b);  // 20
  put(x -= 2);
  put(x *= b);
  put(x /= b);
};

template <class T>
std::vector<std::pair<T, T>> float_pairs() {
  const T tiny = std::numeric_limits<T>::denorm_min(), huge = std::numeric_limits<T>::max(),
          infinity = std::numeric_limits<T>::infinity();
  return {{T(1.5), T(-2.25)}, {T(0.1), T(3)},      {T(-7), T(1e-3)},     {huge, huge},
          {tiny, T(0.5)},     {infinity, T(-1)},   {T(1), T(1)},         {T(16777217), T(3.3)},
          {T(-0.0), T(2)},    {huge, T(1) / huge}, {tiny, tiny * T(100)}};
}

TEST(Floats, Float64) { expect_as_in_cpp<double>(float_pairs<double>(), kFloatOperators); }

TEST(Floats, Float32) {
  // As kFloatOperators, without the one line in which C++ would compute in double.
  expect_as_in_cpp<double>(float_pairs<float>(), [](const auto& a, const auto& b, const auto& put) {
    int line = 0;
    kFloatOperators(a, b, [&](const auto& value) {
      if (line++ != 7) put(value);
    });
    put(a * a - b * b);  // two roundings: no contraction
  });
}

TEST(Floats, NumbersTakeTheTypeTheyMeet) {
  Machine machine;
  DeviceTensor out = machine.output(float64, {3});
  machine.run(
      [](Float32 a, Ptr<float64> out_ptr) {
        grid(1);
        auto g_out = global_view(out_ptr, {3});
        store_global(g_out, full(float64, {1}, 0.1 * a), {0});
        store_global(g_out, full(float64, {1}, a + 1e-9), {1});
        store_global(g_out, full(float64, {1}, 1 / a), {2});
      },
      3.0f, out);
  const std::vector<double> expected = {0.1f * 3.0f, 3.0f + 1e-9f, 1.0f / 3.0f};
  expect_elements(out, [&](int64_t i) { return expected[i]; });
}

TEST(Floats, ToIntegersTowardZeroAndBack) {
  const std::vector<std::pair<float, double>> numbers = {{0.0f, 0.0},          {1.99f, -1.99},
                                                         {-1.5f, 1e6 + 0.75},  {100.7f, -100.7},
                                                         {2147483520.0f, 4e9}, {16777216.0f, 0.1}};
  expect_as_in_cpp<double>(numbers, [](const auto& a, const auto& b, const auto& put) {
    using A = std::remove_cvref_t<decltype(a)>;
    auto convert = [](const auto& value, auto to) {
      if constexpr (std::is_same_v<A, float>)
        return static_cast<decltype(to)>(value);
      else
        return cast(value, TypeOf<decltype(to)>::kType);
    };
    put(convert(a, int32_t()));
    put(convert(a, int64_t()));
    put(convert(b, int64_t()));
    put(convert(a, bool()));
    put(convert(b, bool()));
    put(convert(b, float()));
    put(convert(a, double()));
    put(convert(convert(a, int32_t()), float()));
    put(convert(convert(a, int64_t()), float()));
    put(convert(convert(b, int64_t()) * 1000003 + 12345, float()));
    put(convert(convert(b, int64_t()) * 1000003 + 12345, double()));
    put(convert(convert(a, int32_t()) * 3 + 7, double()));
  });
}

TEST(Floats, FusedMultiplyAddRoundsOnce) {
  Machine machine;
  const float a = 1.0f + 0x1p-12f, b = 1.0f + 0x1p-12f, c = -1.0f;
  DeviceTensor out = machine.output(float32, {2});
  machine.run(
      [](Float32 x, Float32 y, Float32 z, Ptr<float32> out_ptr) {
        grid(1);
        auto g_out = global_view(out_ptr, {2});
        store_global(g_out, full(float32, {1}, fma(x, y, z)), {0});
        store_global(g_out, full(float32, {1}, x * y + z), {1});
      },
      a, b, c, out);
  const std::vector<float> got = values<float>(out);
  EXPECT_EQ(got[0], std::fma(a, b, c));
  const float product = a * b;
  EXPECT_EQ(got[1], product + c);
  EXPECT_NE(got[0], got[1]);
}

}  // namespace
}  // namespace imbrex::testing
