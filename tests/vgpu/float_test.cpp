// SPDX-License-Identifier: Apache-2.0
// Floating-point instructions: f32 against arithmetic in double, f64 against the host's, edge values by hand.
#include <bit>
#include <cmath>
#include <limits>

#include "core/scalar_arith.h"
#include "snippet.h"

namespace imbrex::vgpu {
namespace {

float f(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
double d(uint64_t bits) { return std::bit_cast<double>(bits); }
uint64_t bits(float x) { return x != x ? 0x7FFFFFFF : std::bit_cast<uint32_t>(x); }
/// Every f32 result of one operation on f32 is its double result rounded once, for +, -, *, / and sqrt.
uint64_t once(double x) { return bits(static_cast<float>(x)); }
float flushed(float x) { return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x; }

TEST(Float32, BasicArithmetic) {
  const auto rows = combinations(edge_floats(), 2);
  const auto two = [&](const std::string& op, double (*g)(double, double)) {
    expect_snippet(op + " %d, %a, %b;", "%d", rows, [&](uint64_t a, uint64_t b, uint64_t) {
      return once(g(static_cast<double>(f(a)), static_cast<double>(f(b))));
    });
  };
  two("add.f32", [](double a, double b) { return a + b; });
  two("add.rn.f32", [](double a, double b) { return a + b; });
  two("sub.f32", [](double a, double b) { return a - b; });
  two("mul.f32", [](double a, double b) { return a * b; });
  two("div.rn.f32", [](double a, double b) { return a / b; });
  expect_snippet("sqrt.rn.f32 %d, %a;", "%d", combinations(edge_floats(), 1),
                 [](uint64_t a, uint64_t, uint64_t) { return once(std::sqrt(static_cast<double>(f(a)))); });
  expect_snippet("rcp.rn.f32 %d, %a;", "%d", combinations(edge_floats(), 1),
                 [](uint64_t a, uint64_t, uint64_t) { return once(1.0 / static_cast<double>(f(a))); });
}

TEST(Comparison, FlushedSubnormalsAreZeros) {
  const auto f16_zero = [](uint64_t x) { return (x & 0x7C00) == 0; };
  const std::vector<Row> halves = combinations({0, 0x8000, 1, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x8400}, 2);
  for (const char* code : {"setp.eq.ftz.f16 %p, %ha, %hb;", "setp.eq.ftz.f16x2 %p, %a, %b;"})
    expect_snippet(code, "%p", halves, [&](uint64_t a, uint64_t b, uint64_t) {
      return uint64_t{a == b || (f16_zero(a) && f16_zero(b))};
    });
  expect_snippet("setp.eq.f16 %p, %ha, %hb;", "%p", halves, [](uint64_t a, uint64_t b, uint64_t) {
    return uint64_t{a == b || ((a | b) & 0x7FFF) == 0};
  });
  const std::vector<Row> choices{
      {1, 2, 0x80000001}, {1, 2, 0x80800000}, {1, 2, 0x80000000}, {1, 2, 0x7FC00000}};
  expect_snippet("slct.ftz.u32.f32 %d, %a, %b, %c;", "%d", choices, [](uint64_t, uint64_t, uint64_t c) {
    return uint64_t{c == 0x80000001 || c == 0x80000000 ? 1u : 2u};
  });
  expect_snippet("slct.u32.f32 %d, %a, %b, %c;", "%d", choices,
                 [](uint64_t, uint64_t, uint64_t c) { return uint64_t{c == 0x80000000 ? 1u : 2u}; });
}

TEST(Float32, FusedMultiplyAdd) {
  const auto rows = combinations(edge_floats(), 3);
  expect_snippet("fma.rn.f32 %d, %a, %b, %c;", "%d", rows,
                 [](uint64_t a, uint64_t b, uint64_t c) { return bits(std::fma(f(a), f(b), f(c))); });
  expect_snippet("fma.rn.ftz.f32 %d, %a, %b, %c;", "%d", rows, [](uint64_t a, uint64_t b, uint64_t c) {
    return bits(flushed(std::fma(flushed(f(a)), flushed(f(b)), flushed(f(c)))));
  });
  // One unit between rounding once and twice: (1 + 2^-12)^2 - 1.
  expect_snippet("fma.rn.f32 %d, %a, %a, %b;", "%d", {{0x3F800800, 0xBF800000, 0}},
                 [](uint64_t, uint64_t, uint64_t) { return uint64_t{0x3A000400}; });
}

TEST(Float32, FlushAndSaturate) {
  const auto rows = combinations(edge_floats(), 2);
  expect_snippet("add.ftz.f32 %d, %a, %b;", "%d", rows, [](uint64_t a, uint64_t b, uint64_t) {
    return bits(flushed(flushed(f(a)) + flushed(f(b))));
  });
  expect_snippet("mul.ftz.f32 %d, %a, %b;", "%d", rows, [](uint64_t a, uint64_t b, uint64_t) {
    return bits(flushed(flushed(f(a)) * flushed(f(b))));
  });
  const auto saturated = [](float x) { return x > 0.0f ? (x < 1.0f ? bits(x) : bits(1.0f)) : uint64_t{0}; };
  expect_snippet("add.sat.f32 %d, %a, %b;", "%d", rows,
                 [&](uint64_t a, uint64_t b, uint64_t) { return saturated(f(a) + f(b)); });
}

TEST(Float32, DirectedRounding) {
  // 1 + 2^-25 lies between 1 and its upper neighbour.
  const std::vector<Row> rows{{0x3F800000, 0x33000000, 0}, {0xBF800000, 0xB3000000, 0}};
  const auto check = [&](const char* op, uint64_t positive, uint64_t negative) {
    expect_snippet(std::string(op) + " %d, %a, %b;", "%d", rows,
                   [&](uint64_t a, uint64_t, uint64_t) { return a == 0x3F800000 ? positive : negative; });
  };
  check("add.rn.f32", 0x3F800000, 0xBF800000);
  check("add.rz.f32", 0x3F800000, 0xBF800000);
  check("add.rp.f32", 0x3F800001, 0xBF800000);
  check("add.rm.f32", 0x3F800000, 0xBF800001);
}

TEST(Float32, MinMaxIgnoreNanUnlessAsked) {
  const auto rows = combinations(edge_floats(), 2);
  const auto minimum = [](float a, float b) {
    if (a != a || b != b) return a != a ? b : a;
    if (a == b) return std::signbit(a) ? a : b;  // -0 is less than +0
    return a < b ? a : b;
  };
  expect_snippet("min.f32 %d, %a, %b;", "%d", rows,
                 [&](uint64_t a, uint64_t b, uint64_t) { return bits(minimum(f(a), f(b))); });
  expect_snippet("max.f32 %d, %a, %b;", "%d", rows,
                 [&](uint64_t a, uint64_t b, uint64_t) { return bits(-minimum(-f(a), -f(b))); });
  expect_snippet("min.NaN.f32 %d, %a, %b;", "%d", rows, [&](uint64_t a, uint64_t b, uint64_t) {
    return f(a) != f(a) || f(b) != f(b) ? uint64_t{0x7FFFFFFF} : bits(minimum(f(a), f(b)));
  });
}

TEST(Float32, SignAndClass) {
  const auto rows = combinations(edge_floats(), 2);
  expect_snippet("neg.f32 %d, %a;", "%d", rows, [](uint64_t a, uint64_t, uint64_t) { return bits(-f(a)); });
  expect_snippet("abs.f32 %d, %a;", "%d", rows,
                 [](uint64_t a, uint64_t, uint64_t) { return bits(std::fabs(f(a))); });
  expect_snippet("copysign.f32 %d, %a, %b;", "%d", rows,
                 [](uint64_t a, uint64_t b, uint64_t) { return (a & 0x80000000) | (b & 0x7FFFFFFF); });
  expect_snippet("testp.subnormal.f32 %p, %a;", "%p", rows, [](uint64_t a, uint64_t, uint64_t) {
    return uint64_t{std::fpclassify(f(a)) == FP_SUBNORMAL};
  });
  expect_snippet("testp.infinite.f32 %p, %a;", "%p", rows,
                 [](uint64_t a, uint64_t, uint64_t) { return uint64_t{std::isinf(f(a))}; });
  expect_snippet("testp.notanumber.f32 %p, %a;", "%p", rows,
                 [](uint64_t a, uint64_t, uint64_t) { return uint64_t{std::isnan(f(a))}; });
}

TEST(Float32, ApproximationsAreCloseAndKnowTheirLimits) {
  // Bit for bit they are tested in core; here that every instruction is wired to its function.
  const std::vector<Row> rows{{std::bit_cast<uint32_t>(0.7f), 0, 0}, {std::bit_cast<uint32_t>(1.9f), 0, 0}};
  const auto close = [&](const std::string& op, float (*g)(float)) {
    const std::vector<uint64_t> got = run_snippet(op + " %d, %a;", "%d", rows);
    for (size_t i = 0; i < rows.size(); ++i) EXPECT_NEAR(f(got[i]), g(f(rows[i].a)), 2e-6f) << op;
  };
  close("rcp.approx.f32", [](float x) { return 1 / x; });
  close("sqrt.approx.f32", [](float x) { return std::sqrt(x); });
  close("rsqrt.approx.f32", [](float x) { return 1 / std::sqrt(x); });
  close("ex2.approx.f32", [](float x) { return std::exp2(x); });
  close("lg2.approx.f32", [](float x) { return std::log2(x); });
  close("sin.approx.f32", [](float x) { return std::sin(x); });
  close("cos.approx.f32", [](float x) { return std::cos(x); });
  const std::vector<uint64_t> tanh = run_snippet("tanh.approx.f32 %d, %a;", "%d", rows);
  EXPECT_NEAR(f(tanh[0]), std::tanh(0.7f), 1e-3f);
  const std::vector<Row> pair{{std::bit_cast<uint32_t>(10.0f), std::bit_cast<uint32_t>(4.0f), 0}};
  EXPECT_EQ(f(run_snippet("div.approx.f32 %d, %a, %b;", "%d", pair)[0]), 2.5f);
  EXPECT_EQ(f(run_snippet("div.full.f32 %d, %a, %b;", "%d", pair)[0]), 2.5f);
}

TEST(Float32, PackedPairsInOneRegister) {
  const auto rows =
      combinations({0x3F80000040490FDB, 0x7F8000003F000000, 0x00000001BF800000, 0xC2F6E9793EAAAAAB}, 3);
  const auto each = [](uint64_t a, uint64_t b, uint64_t c, float (*g)(float, float, float)) {
    return bits(g(f(a), f(b), f(c))) | bits(g(f(a >> 32), f(b >> 32), f(c >> 32))) << 32;
  };
  expect_snippet("fma.rn.f32x2 %D, %A, %B, %C;", "%D", rows, [&](uint64_t a, uint64_t b, uint64_t c) {
    return each(a, b, c, [](float x, float y, float z) { return std::fma(x, y, z); });
  });
  expect_snippet("add.rn.f32x2 %D, %A, %B;", "%D", rows, [&](uint64_t a, uint64_t b, uint64_t c) {
    return each(a, b, c, [](float x, float y, float) { return x + y; });
  });
}

TEST(Float64, ApproximateReciprocalHasTwentyBits) {
  const double infinity = std::numeric_limits<double>::infinity();
  const double subnormal = std::numeric_limits<double>::denorm_min();
  // As PTX tabulates: operand, result.
  const std::pair<double, double> limits[] = {
      {infinity, 0.0},         {-infinity, -0.0}, {0.0, infinity}, {-0.0, -infinity}, {subnormal, infinity},
      {-subnormal, -infinity}, {0x1p1023, 0.0},   {-1.0, -1.0},    {4.0, 0.25}};
  std::vector<Row> rows;
  for (const auto& [operand, result] : limits) rows.push_back({std::bit_cast<uint64_t>(operand), 0, 0});
  rows.push_back({std::bit_cast<uint64_t>(std::numeric_limits<double>::quiet_NaN()), 0, 0});
  rows.push_back(
      {0x7FF0000000000001, 0, 0});  // a NaN by its lower half alone, which an H200 takes for an infinity
  const size_t first_close = rows.size();
  for (double x = 1e-300; x < 1e300; x *= -1.618033e7) {
    rows.push_back({std::bit_cast<uint64_t>(x), 0, 0});
    if (rows.size() > first_close + 80) break;
  }
  const std::vector<uint64_t> got = run_snippet("rcp.approx.ftz.f64 %D, %A;", "%D", rows);
  for (size_t i = 0; i < std::size(limits); ++i)
    EXPECT_EQ(got[i], std::bit_cast<uint64_t>(limits[i].second)) << limits[i].first;
  EXPECT_TRUE(std::isnan(d(got[std::size(limits)])));
  EXPECT_EQ(got[std::size(limits) + 1], 0u);
  for (size_t i = first_close; i < rows.size(); ++i) {
    const double x = d(rows[i].a);
    EXPECT_LE(std::fabs(d(got[i]) * x - 1), 0x1p-19) << x;
    EXPECT_EQ(got[i] & 0xFFFFFFFF, 0u) << x;
  }
}

TEST(Float64, ReciprocalRootOfTheUpperHalf) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  constexpr double subnormal = std::numeric_limits<double>::denorm_min();
  // As PTX tabulates: operand, result; and powers of four.
  const std::pair<double, double> limits[] = {
      {infinity, 0.0},         {0.0, infinity}, {-0.0, -infinity}, {subnormal, infinity},
      {-subnormal, -infinity}, {4.0, 0.5},      {1.0, 1.0},        {0x1p-1022, 0x1p511}};
  std::vector<Row> rows;
  for (const auto& [operand, result] : limits) rows.push_back({std::bit_cast<uint64_t>(operand), 0, 0});
  for (const double nan : {-1.0, -infinity, std::numeric_limits<double>::quiet_NaN()})
    rows.push_back({std::bit_cast<uint64_t>(nan), 0, 0});
  const size_t first_close = rows.size();
  for (double x = 1e-300; x < 1e300; x *= 1.618033e7) rows.push_back({std::bit_cast<uint64_t>(x), 0, 0});
  const std::vector<uint64_t> got = run_snippet("rsqrt.approx.ftz.f64 %D, %A;", "%D", rows);
  for (size_t i = 0; i < std::size(limits); ++i)
    EXPECT_EQ(got[i], std::bit_cast<uint64_t>(limits[i].second)) << limits[i].first;
  for (size_t i = std::size(limits); i < first_close; ++i) EXPECT_TRUE(std::isnan(d(got[i])));
  for (size_t i = first_close; i < rows.size(); ++i) {
    EXPECT_LE(std::fabs(d(got[i]) * std::sqrt(d(rows[i].a)) - 1), 0x1p-19) << d(rows[i].a);
    EXPECT_EQ(got[i] & 0xFFFFFFFF, 0u) << d(rows[i].a);
  }
}

TEST(Float64, Arithmetic) {
  const auto rows = combinations(edge_doubles(), 3);
  // NaN operands: the last one listed, quieted; an invalid operation: the negative default NaN.
  const auto result = [](double x, std::initializer_list<uint64_t> operands) {
    uint64_t nan = 0;
    for (uint64_t o : operands)
      if (d(o) != d(o)) nan = o | 0x0008000000000000;
    if (nan != 0) return nan;
    return x != x ? uint64_t{0xFFF8000000000000} : std::bit_cast<uint64_t>(x);
  };
  expect_snippet("add.f64 %D, %A, %B;", "%D", rows, [&](uint64_t a, uint64_t b, uint64_t) {
    return result(d(a) + d(b), {a, b});
  });
  expect_snippet("mul.f64 %D, %A, %B;", "%D", rows, [&](uint64_t a, uint64_t b, uint64_t) {
    return result(d(a) * d(b), {a, b});
  });
  expect_snippet("div.rn.f64 %D, %A, %B;", "%D", rows, [&](uint64_t a, uint64_t b, uint64_t) {
    return result(d(a) / d(b), {b, a});
  });
  expect_snippet("fma.rn.f64 %D, %A, %B, %C;", "%D", rows, [&](uint64_t a, uint64_t b, uint64_t c) {
    return result(std::fma(d(a), d(b), d(c)), {a, c, b});
  });
}

TEST(Compare, FloatsOrderedAndUnordered) {
  const auto rows = combinations(edge_floats(), 2);
  const std::pair<const char*, bool (*)(float, float)> kOperators[] = {
      {"eq", [](float a, float b) { return a == b; }},
      {"ne", [](float a, float b) { return a < b || a > b; }},
      {"lt", [](float a, float b) { return a < b; }},
      {"ge", [](float a, float b) { return a >= b; }},
      {"equ", [](float a, float b) { return !(a < b || a > b); }},
      {"neu", [](float a, float b) { return a != b; }},
      {"gtu", [](float a, float b) { return !(a <= b); }},
      {"num", [](float a, float b) { return a == a && b == b; }},
      {"nan", [](float a, float b) { return a != a || b != b; }}};
  for (const auto& [name, holds] : kOperators)
    expect_snippet(std::string("setp.") + name + ".f32 %p, %a, %b;", "%p", rows,
                   [&](uint64_t a, uint64_t b, uint64_t) { return uint64_t{holds(f(a), f(b))}; });
  expect_snippet("setp.eq.ftz.f32 %p, %a, %b;", "%p", rows,
                 [](uint64_t a, uint64_t b, uint64_t) { return uint64_t{flushed(f(a)) == flushed(f(b))}; });
}

// ---- halves: every result is the exact one rounded, which double holds
// ------------------------------------------

double half(uint64_t h) { return arith::decode(arith::kF16, h); }
double bhalf(uint64_t h) { return arith::decode(arith::kBF16, h); }
uint64_t to_half(double x) { return arith::encode(arith::kF16, x); }
uint64_t to_bhalf(double x) { return arith::encode(arith::kBF16, x); }

TEST(Half, Arithmetic) {
  const auto rows = combinations(edge_halves(), 2);
  expect_snippet("add.f16 %hd, %ha, %hb;", "%hd", rows,
                 [](uint64_t a, uint64_t b, uint64_t) { return to_half(half(a) + half(b)); });
  expect_snippet("mul.f16 %hd, %ha, %hb;", "%hd", rows,
                 [](uint64_t a, uint64_t b, uint64_t) { return to_half(half(a) * half(b)); });
  expect_snippet("sub.bf16 %hd, %ha, %hb;", "%hd", rows,
                 [](uint64_t a, uint64_t b, uint64_t) { return to_bhalf(bhalf(a) - bhalf(b)); });
  expect_snippet("mul.bf16 %hd, %ha, %hb;", "%hd", rows,
                 [](uint64_t a, uint64_t b, uint64_t) { return to_bhalf(bhalf(a) * bhalf(b)); });
  expect_snippet("fma.rn.relu.f16 %hd, %ha, %hb, %hb;", "%hd", rows, [](uint64_t a, uint64_t b, uint64_t) {
    const uint64_t r = to_half(half(a) * half(b) + half(b));
    return (r & 0x8000) != 0 && (r & 0x7FFF) <= 0x7C00 ? 0 : r;
  });
}

TEST(Half, PackedPairsActOnEachHalf) {
  const std::vector<Row> rows{{0x3C004200, 0x40007BFF, 0x0001C000}, {0xFC007E00, 0x3C003C00, 0x80000000}};
  expect_snippet("add.f16x2 %d, %a, %b;", "%d", rows, [](uint64_t a, uint64_t b, uint64_t) {
    return to_half(half(a) + half(b)) | to_half(half(a >> 16) + half(b >> 16)) << 16;
  });
  expect_snippet("fma.rn.bf16x2 %d, %a, %b, %c;", "%d", rows, [](uint64_t a, uint64_t b, uint64_t c) {
    return to_bhalf(bhalf(a) * bhalf(b) + bhalf(c)) |
           to_bhalf(bhalf(a >> 16) * bhalf(b >> 16) + bhalf(c >> 16)) << 16;
  });
  expect_snippet("neg.f16x2 %d, %a;", "%d", {{0x3C004200, 0, 0}},
                 [](uint64_t, uint64_t, uint64_t) { return uint64_t{0xBC00C200}; });
}

TEST(Half, Compare) {
  expect_snippet("setp.lt.f16 %p, %ha, %hb;", "%p", combinations(edge_halves(), 2),
                 [](uint64_t a, uint64_t b, uint64_t) { return uint64_t{half(a) < half(b)}; });
  expect_snippet("setp.geu.bf16 %p, %ha, %hb;", "%p", combinations(edge_halves(), 2),
                 [](uint64_t a, uint64_t b, uint64_t) { return uint64_t{!(bhalf(a) < bhalf(b))}; });
}

// ---- conversions
// ---------------------------------------------------------------------------------------------

TEST(Convert, BetweenIntegers) {
  const auto rows = combinations(edge_integers(64), 1);
  expect_snippet("cvt.s32.s8 %d, %a;", "%d", rows, [](uint64_t a, uint64_t, uint64_t) {
    return static_cast<uint64_t>(static_cast<uint32_t>(static_cast<int8_t>(a)));
  });
  expect_snippet("cvt.u32.u8 %d, %a;", "%d", rows, [](uint64_t a, uint64_t, uint64_t) { return a & 0xFF; });
  expect_snippet("cvt.s64.s32 %D, %a;", "%D", rows, [](uint64_t a, uint64_t, uint64_t) {
    return static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(a)));
  });
  expect_snippet("cvt.u64.u32 %D, %a;", "%D", rows,
                 [](uint64_t a, uint64_t, uint64_t) { return a & 0xFFFFFFFF; });
  expect_snippet("cvt.u16.u64 %hd, %A;", "%hd", rows,
                 [](uint64_t a, uint64_t, uint64_t) { return a & 0xFFFF; });
  expect_snippet("cvt.s8.s32 %d, %a;", "%d", rows, [](uint64_t a, uint64_t, uint64_t) {
    return static_cast<uint64_t>(static_cast<uint32_t>(static_cast<int8_t>(a)));
  });
  expect_snippet("cvt.sat.u8.s32 %d, %a;", "%d", rows, [](uint64_t a, uint64_t, uint64_t) {
    return static_cast<uint64_t>(std::clamp(static_cast<int32_t>(a), 0, 255));
  });
  expect_snippet("cvt.sat.s16.s64 %hd, %A;", "%hd", rows, [](uint64_t a, uint64_t, uint64_t) {
    return static_cast<uint64_t>(std::clamp<int64_t>(static_cast<int64_t>(a), -32768, 32767)) & 0xFFFF;
  });
}

TEST(Convert, FloatToInteger) {
  const auto rows = combinations(edge_floats(), 1);
  expect_snippet("cvt.rzi.s32.f32 %d, %a;", "%d", rows, [](uint64_t a, uint64_t, uint64_t) -> uint64_t {
    const double x = static_cast<double>(f(a));
    if (x != x) return 0;
    return static_cast<uint32_t>(
        static_cast<int32_t>(std::trunc(std::clamp(x, -2147483648.0, 2147483647.0))));
  });
  expect_snippet("cvt.rni.u32.f32 %d, %a;", "%d", rows, [](uint64_t a, uint64_t, uint64_t) -> uint64_t {
    const double x = static_cast<double>(f(a));
    if (x != x) return 0;
    return static_cast<uint32_t>(std::nearbyint(std::clamp(x, 0.0, 4294967295.0)));
  });
  expect_snippet("cvt.rmi.s64.f64 %D, %A;", "%D", combinations(edge_doubles(), 1),
                 [](uint64_t a, uint64_t, uint64_t) -> uint64_t {
                   const double x = std::floor(d(a));
                   if (x != x) return 0x8000000000000000;
                   if (x >= 0x1p63) return 0x7FFFFFFFFFFFFFFF;
                   if (x < -0x1p63) return 0x8000000000000000;
                   return static_cast<uint64_t>(static_cast<int64_t>(x));
                 });
  expect_snippet("cvt.rpi.f32.f32 %d, %a;", "%d", rows,
                 [](uint64_t a, uint64_t, uint64_t) { return bits(std::ceil(f(a))); });
}

TEST(Convert, IntegerToFloat) {
  const auto rows = combinations(edge_integers(64), 1);
  expect_snippet("cvt.rn.f32.s32 %d, %a;", "%d", rows, [](uint64_t a, uint64_t, uint64_t) {
    return bits(static_cast<float>(static_cast<int32_t>(a)));
  });
  expect_snippet("cvt.rn.f32.u64 %d, %A;", "%d", rows,
                 [](uint64_t a, uint64_t, uint64_t) { return bits(static_cast<float>(a)); });
  expect_snippet("cvt.rn.f64.s64 %D, %A;", "%D", rows, [](uint64_t a, uint64_t, uint64_t) {
    return std::bit_cast<uint64_t>(static_cast<double>(static_cast<int64_t>(a)));
  });
  expect_snippet(
      "cvt.rz.f32.u32 %d, %a;", "%d", {{0xFFFFFFFF, 0, 0}, {0x1000001, 0, 0}},
      [](uint64_t a, uint64_t, uint64_t) { return a == 0xFFFFFFFF ? uint64_t{0x4F7FFFFF} : 0x4B800000; });
}

TEST(Convert, BetweenFloats) {
  const auto floats = combinations(edge_floats(), 2);
  expect_snippet("cvt.rn.f16.f32 %hd, %a;", "%hd", floats,
                 [](uint64_t a, uint64_t, uint64_t) { return to_half(static_cast<double>(f(a))); });
  expect_snippet("cvt.rn.bf16.f32 %hd, %a;", "%hd", floats,
                 [](uint64_t a, uint64_t, uint64_t) { return to_bhalf(static_cast<double>(f(a))); });
  expect_snippet("cvt.f32.f16 %d, %ha;", "%d", combinations(edge_halves(), 1),
                 [](uint64_t a, uint64_t, uint64_t) { return once(half(a)); });
  expect_snippet("cvt.rn.f32.f64 %d, %A;", "%d", {{std::bit_cast<uint64_t>(1.0 / 3), 0, 0}},
                 [](uint64_t, uint64_t, uint64_t) { return bits(1.0f / 3); });
  expect_snippet("cvt.sat.f32.f32 %d, %a;", "%d", floats, [](uint64_t a, uint64_t, uint64_t) {
    return f(a) > 0 ? bits(std::min(f(a), 1.0f)) : uint64_t{0};
  });
  // The first operand goes to the upper half.
  expect_snippet("cvt.rn.f16x2.f32 %d, %a, %b;", "%d", floats, [](uint64_t a, uint64_t b, uint64_t) {
    return to_half(static_cast<double>(f(a))) << 16 | to_half(static_cast<double>(f(b)));
  });
  expect_snippet("cvt.rz.bf16x2.f32 %d, %a, %b;", "%d", floats, [](uint64_t a, uint64_t b, uint64_t) {
    const auto cut = [](uint64_t x) { return f(x) != f(x) ? uint64_t{0x7FFF} : x >> 16; };
    return cut(a) << 16 | cut(b);
  });
}

TEST(Convert, NarrowFloats) {
  const std::vector<Row> rows{
      {bits(1.5f), bits(-0.75f), 0}, {bits(1000.0f), bits(0.1f), 0}, {0x7FC00000, 0, 0}};
  const auto narrow = [](const arith::FloatFormat& format, uint64_t x) {
    return arith::encode(format, static_cast<double>(f(x)), {.satfinite = true});
  };
  expect_snippet("cvt.rn.satfinite.e4m3x2.f32 %hd, %a, %b;", "%hd", rows,
                 [&](uint64_t a, uint64_t b, uint64_t) {
                   return narrow(arith::kE4M3, a) << 8 | narrow(arith::kE4M3, b);
                 });
  expect_snippet("cvt.rn.satfinite.e5m2x2.f32 %hd, %a, %b;", "%hd", rows,
                 [&](uint64_t a, uint64_t b, uint64_t) {
                   return narrow(arith::kE5M2, a) << 8 | narrow(arith::kE5M2, b);
                 });
  expect_snippet("cvt.rn.f16x2.e4m3x2 %d, %ha;", "%d", {{0x38C7, 0, 0}, {0x7E01, 0, 0}},
                 [](uint64_t a, uint64_t, uint64_t) {
                   return to_half(arith::decode(arith::kE4M3, a & 0xFF)) |
                          to_half(arith::decode(arith::kE4M3, a >> 8)) << 16;
                 });
  expect_snippet(
      "cvt.rna.tf32.f32 %d, %a;", "%d", {{0x3F801000, 0, 0}, {0x3F800FFF, 0, 0}},
      [](uint64_t a, uint64_t, uint64_t) { return a == 0x3F801000 ? uint64_t{0x3F802000} : 0x3F800000; });
}

}  // namespace
}  // namespace imbrex::vgpu
