// SPDX-License-Identifier: Apache-2.0
// The approximate functions and the conversions from f32 against what an H200 answered (golden/README.md).
#include "core/approx.h"
#include "core/approx_tables.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <sstream>
#include <string>

#include "core/float_formats.h"
#include "core/scalar_cvt.h"
#include "core/scalar_float.h"

namespace imbrex::arith {
namespace {

std::ifstream golden(const std::string& file) {
  std::ifstream in(std::string(IMBREX_SOURCE_DIR) + "/tests/core/golden/" + file);
  EXPECT_TRUE(in.good()) << file;
  return in;
}

using Function = std::function<uint32_t(uint32_t)>;

Function on_floats(float (*function)(float)) {
  return [=](uint32_t x) { return f32_bits(function(f32_from_bits(x))); };
}
Function on_floats(float (*function)(float, bool), bool ftz) {
  return [=](uint32_t x) { return f32_bits(function(f32_from_bits(x), ftz)); };
}

const std::map<std::string, Function>& functions() {
  static const std::map<std::string, Function> all = [] {
    std::map<std::string, Function> map;
    const std::pair<const char*, float (*)(float, bool)> with_ftz[] = {{"ex2", ex2_approx},
                                                                       {"lg2", lg2_approx},
                                                                       {"rcp", rcp_approx},
                                                                       {"rsqrt", rsqrt_approx},
                                                                       {"sqrt", sqrt_approx}};
    for (const auto& [name, function] : with_ftz) {
      map[std::string(name) + ".approx.f32"] = on_floats(function, false);
      map[std::string(name) + ".approx.ftz.f32"] = on_floats(function, true);
    }
    map["sin.approx.f32"] = on_floats(sin_approx);
    map["cos.approx.f32"] = on_floats(cos_approx);
    map["tanh.approx.f32"] = on_floats(tanh_approx);
    return map;
  }();
  return all;
}

/// A conversion from f32, by the name in the recording: "e4m3x2.rn.satfinite.relu". One of a pair.
Function conversion(const std::string& name) {
  std::istringstream in(name);
  std::string type, part;
  std::getline(in, type, '.');
  static const std::map<std::string, DataType> types = {
      {"e4m3x2", float8_e4m3}, {"e5m2x2", float8_e5m2}, {"tf32", tfloat32},  {"f16", float16},
      {"f16x2", float16},      {"bf16", bfloat16},      {"bf16x2", bfloat16}};
  CvtOp op{types.at(type), float32};
  while (std::getline(in, part, '.')) {
    if (part == "rz") op.rounding = Rounding::kTowardZero;
    if (part == "rna") op.rounding = Rounding::kNearestAway;
    if (part == "satfinite") op.satfinite = true;
    if (part == "relu") op.relu = true;
  }
  return [op](uint32_t x) { return static_cast<uint32_t>(cvt(op, x)); };
}

TEST(H200Golden, FunctionsAndConversionsOnCornerCases) {
  std::ifstream in = golden("functions_h200.txt");
  Function function;
  std::string name;
  int rows = 0;
  for (std::string line; std::getline(in, line);) {
    if (line[0] == '#') continue;
    std::istringstream fields(line);
    std::string first, second;
    fields >> first >> second;
    if (first == "function" || first == "cvt") {
      name = second;
      function = first == "cvt" ? conversion(second) : functions().at(second);
      continue;
    }
    const auto input = static_cast<uint32_t>(std::stoul(first, nullptr, 16));
    EXPECT_EQ(function(input), std::stoul(second, nullptr, 16)) << name << " of " << first;
    ++rows;
  }
  EXPECT_GE(rows, 600);
}

/// The digest of golden/digests_h200.txt.
class Digest {
 public:
  void add(uint32_t word) { value_ = (value_ ^ word) * 0x100000001B3; }
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0xCBF29CE484222325;
};

TEST(H200Golden, DigestsOfCompleteRecordings) {
  const std::map<std::string, Function> outputs = {
      {"dense.rcp", [](uint32_t i) { return f32_bits(rcp_approx(f32_from_bits(0x3F800000 + i), true)); }},
      {"dense.rsqrt", [](uint32_t i) { return f32_bits(rsqrt_approx(f32_from_bits(0x3F800000 + i), true)); }},
      {"dense.sqrt", [](uint32_t i) { return f32_bits(sqrt_approx(f32_from_bits(0x3F800000 + i), true)); }},
      {"dense.lg2", [](uint32_t i) { return f32_bits(lg2_approx(f32_from_bits(0x40000000 + i), true)); }},
      {"dense.ex2", [](uint32_t i) { return f32_bits(ex2_approx(static_cast<float>(i) * 0x1p-23f, true)); }},
      {"every.ex2.approx.f16",
       [](uint32_t i) -> uint32_t { return ex2_approx_f16(static_cast<uint16_t>(i)); }},
      {"every.ex2.approx.ftz.bf16",
       [](uint32_t i) -> uint32_t { return ex2_approx_ftz_bf16(static_cast<uint16_t>(i)); }},
      {"every.tanh.approx.f16",
       [](uint32_t i) -> uint32_t { return tanh_approx_f16(static_cast<uint16_t>(i)); }},
      {"every.tanh.approx.bf16",
       [](uint32_t i) -> uint32_t { return tanh_approx_bf16(static_cast<uint16_t>(i)); }},
      {"every.cvt.f16.e4m3",
       [](uint32_t i) {
         return static_cast<uint32_t>(cvt({float16, float8_e4m3}, i));
       }},
      {"every.cvt.f16.e5m2",
       [](uint32_t i) {
         return static_cast<uint32_t>(cvt({float16, float8_e5m2}, i));
       }},
      {"every.cvt.relu.f16.e4m3",
       [](uint32_t i) {
         return static_cast<uint32_t>(cvt({.to = float16, .from = float8_e4m3, .relu = true}, i));
       }},
      {"every.cvt.e4m3.f16",
       [](uint32_t i) {
         return static_cast<uint32_t>(cvt({.to = float8_e4m3, .from = float16, .satfinite = true}, i));
       }},
      {"every.cvt.e5m2.f16",
       [](uint32_t i) {
         return static_cast<uint32_t>(cvt({.to = float8_e5m2, .from = float16, .satfinite = true}, i));
       }},
      {"every.cvt.f32.f16",
       [](uint32_t i) {
         return static_cast<uint32_t>(cvt({float32, float16}, i));
       }},
      {"every.cvt.f32.bf16",
       [](uint32_t i) {
         return static_cast<uint32_t>(cvt({float32, bfloat16}, i));
       }},
  };
  std::ifstream in = golden("digests_h200.txt");
  size_t found = 0;
  for (std::string line; std::getline(in, line);) {
    if (line[0] == '#') continue;
    std::istringstream fields(line);
    std::string name, digest;
    uint32_t count = 0;
    fields >> name >> count >> digest;
    ASSERT_TRUE(outputs.count(name)) << name;
    Digest of_ours;
    const Function& output = outputs.at(name);
    for (uint32_t i = 0; i < count; ++i) of_ours.add(output(i));
    EXPECT_EQ(of_ours.value(), std::stoull(digest, nullptr, 16)) << name;
    ++found;
  }
  EXPECT_EQ(found, outputs.size());
}

TEST(Approx, StaysWithinTheErrorsMeasuredOnTheHardware) {
  double worst_ex2 = 0, worst_rcp = 0, worst_sin = 0, worst_tanh = 0;
  for (float x = -100.0f; x < 100.0f; x += 0.00317f) {
    worst_ex2 = std::max(worst_ex2, std::fabs(ex2_approx(x, false) / std::exp2(static_cast<double>(x)) - 1));
    worst_rcp = std::max(worst_rcp, std::fabs(static_cast<double>(rcp_approx(x, false)) * x - 1));
    worst_tanh = std::max(worst_tanh, std::fabs(tanh_approx(x) / std::tanh(static_cast<double>(x)) - 1));
    if (std::fabs(x) <= 3.14159f)
      worst_sin = std::max(worst_sin, std::fabs(sin_approx(x) - std::sin(static_cast<double>(x))));
  }
  EXPECT_LT(worst_ex2, std::exp2(-22.7));
  EXPECT_LT(worst_rcp, std::exp2(-23));
  EXPECT_LT(worst_tanh, std::exp2(-16.4));
  EXPECT_LT(worst_sin, std::exp2(-21.4));
}

// div.approx and div.full are what the assembler makes of them: a product with the unit's reciprocal.
/// Partial products of the bits i <= j of t, the unequal ones merged in pairs, in units of 2^-34 without those below
/// 2^-15.
TEST(Approx, SquaresLeaveOutSmallPartialProducts) {
  for (uint32_t t = 0; t < 1u << 17; t += t < 4096 ? 1 : 7) {
    uint64_t sum = 0;
    for (int i = 0; i < 17; ++i)
      for (int j = i; j < 17; ++j) {
        const int weight = i == j ? 2 * i : i + j + 1;
        if ((t >> i & 1) != 0 && (t >> j & 1) != 0 && weight >= 19) sum += uint64_t{1} << weight;
      }
    ASSERT_EQ(uint64_t{detail::truncated_square(t)} << 19, sum) << t;
  }
}

TEST(Approx, ManyPowersOfTwoAtOnceAreThoseOneByOne) {
  std::vector<float> x;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 4093)
    x.push_back(f32_from_bits(static_cast<uint32_t>(bits)));
  for (int i = -160; i < 160; ++i)
    for (const float step : {-0x1p-18f, 0.0f, 0x1p-18f, 0.5f}) x.push_back(static_cast<float>(i) + step);
  for (const uint32_t bits : {0x7F800000u, 0xFF800000u, 0x7F800001u, 0xFFC00000u, 0x80000000u, 0x80000001u})
    x.push_back(f32_from_bits(bits));
  x.resize((x.size() + 15) / 16 * 16);
  for (const bool ftz : {false, true}) {
    std::vector<float> results(x.size());
    ex2_approx_lanes(x.data(), results.data(), static_cast<int64_t>(x.size()), ftz);
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(f32_bits(results[i]), f32_bits(ex2_approx(x[i], ftz))) << x[i] << " " << ftz;
  }
}

TEST(Approx, ManyQuotientsAtOnceAreThoseOneByOne) {
  std::mt19937 random(9);
  std::vector<float> a, b;
  const auto add = [&](uint32_t x, uint32_t y) {
    a.push_back(f32_from_bits(x));
    b.push_back(f32_from_bits(y));
  };
  for (int i = 0; i < 200000; ++i) add(random(), random());
  // Vectors of ordinary numbers, and of those of which one is at the border of them.
  for (uint32_t mantissa = 0; mantissa < 1 << 23; mantissa += 61)
    add(0x40000000 | random() % (1u << 23), (random() & 0x80000000) | 0x3F000000 | mantissa);
  for (uint32_t biased = 0; biased < 256; ++biased)
    for (const uint32_t mantissa : {0u, 1u, 0x7FFFFFu}) {
      for (int i = 0; i < 15; ++i) add(0x3F800000 + random() % 1000, 0x3FC00000 + random() % 1000);
      add(biased << 23 | mantissa, (random() % 256) << 23 | random() % (1 << 23));
      for (int i = 0; i < 15; ++i) add(0x3F800000 + random() % 1000, 0xBFC00000 + random() % 1000);
      add(0x7F000000 - (random() % 254 << 23), biased << 23 | mantissa);
    }
  a.resize(a.size() / 16 * 16);
  for (const bool ftz : {false, true}) {
    std::vector<float> results(a.size());
    div_full_lanes(a.data(), b.data(), results.data(), static_cast<int64_t>(a.size()), ftz);
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_EQ(f32_bits(results[i]), f32_bits(div_full(a[i], b[i], ftz)))
          << a[i] << " / " << b[i] << " " << ftz;
  }
}

TEST(Approx, Quotients) {
  EXPECT_EQ(div_approx(6.0f, 2.0f, false), 3.0f);
  EXPECT_TRUE(is_nan(div_approx(0.0f, 0.0f, false)));
  EXPECT_EQ(div_approx(1.0f, 0x1p127f, false), 0.0f) << "the reciprocal of more than 2^126 flushes to zero";
  EXPECT_EQ(div_full(0x1p127f, 0x1p127f, false), 1.0f) << "div.full scales it";
  EXPECT_EQ(div_full(0x1p-130f, 0x1p-130f, false), 1.0f);
  EXPECT_TRUE(is_nan(div_full(0x1p-130f, 0x1p-130f, true)));
  EXPECT_NEAR(div_full(1.0f, 3.0f, true), 1.0f / 3, 0x1p-24f);
}

TEST(Approx, SubnormalOperandsOfTheFormsWithoutFtz) {
  EXPECT_EQ(sqrt_approx(0x1p-140f, false), 0x1p-70f);
  EXPECT_EQ(sqrt_approx(0x1p-140f, true), 0.0f);
  EXPECT_EQ(rsqrt_approx(0x1p-140f, false), 0x1p70f);
  EXPECT_EQ(rcp_approx(0x1p127f, false), 0x1p-127f);
  EXPECT_EQ(rcp_approx(0x1p127f, true), 0.0f);
  EXPECT_NEAR(lg2_approx(0x1p-140f, false), -140.0f, 1e-4f);
  EXPECT_EQ(ex2_approx(-130.0f, false), 0x1p-130f);
  EXPECT_EQ(ex2_approx(-130.0f, true), 0.0f);
}

}  // namespace
}  // namespace imbrex::arith
