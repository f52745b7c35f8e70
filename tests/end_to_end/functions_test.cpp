// SPDX-License-Identifier: Apache-2.0
// Functions made of several instructions against the C library in double, and random numbers against the generator's
// published values and the moments of their distributions.
#include <numeric>

#include "kit.h"

namespace imbrex::testing {
namespace {

using Tiles = RegisterValue (*)(const RegisterValue&, const RegisterValue&);
using Scalars2 = Expr (*)(const ScalarArg&, const ScalarArg&);

struct Function {
  const char* name;
  Tiles tiles;
  Scalars2 scalars;
  double (*reference)(double, double);
  double low, high, low2, high2;
  double tolerance, floor;
};

const Function kFunctions[] = {
    {"erf", [](const RegisterValue& a, const RegisterValue&) { return erf(a); },
     [](const ScalarArg& a, const ScalarArg&) { return erf(a); },
     [](double a, double) { return std::erf(a); }, -6, 6, 1, 1, 3e-7, 1},
    {"erf of small arguments", [](const RegisterValue& a, const RegisterValue&) { return erf(a); },
     [](const ScalarArg& a, const ScalarArg&) { return erf(a); },
     [](double a, double) { return std::erf(a); }, -1e-3, 1e-3, 1, 1, 3e-7, 0},
    {"pow", [](const RegisterValue& a, const RegisterValue& b) { return pow(a, b); },
     [](const ScalarArg& a, const ScalarArg& b) { return pow(a, b); },
     [](double a, double b) { return std::pow(a, b); }, 0.1, 20, -8, 8, 1e-5, 0},
    {"fmod", [](const RegisterValue& a, const RegisterValue& b) { return fmod(a, b); },
     [](const ScalarArg& a, const ScalarArg& b) { return fmod(a, b); },
     [](double a, double b) { return std::fmod(a, b); }, -5000, 5000, 0.3, 9, 0, 0},
    {"fmod by negative numbers", [](const RegisterValue& a, const RegisterValue& b) { return fmod(a, b); },
     [](const ScalarArg& a, const ScalarArg& b) { return fmod(a, b); },
     [](double a, double b) { return std::fmod(a, b); }, -50, 50, -9, -0.3, 0, 0},
};

std::vector<float> between(double low, double high, int count, int stride) {
  std::vector<float> out(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i)
    out[i] = static_cast<float>(low + (high - low) * static_cast<double>(i * stride % count) /
                                          std::max(1, count - 1));
  return out;
}

TEST(ComposedFunctions, OfTilesAndScalars) {
  static constexpr int kCount = 1000;
  for (const Function& f : kFunctions) {
    SCOPED_TRACE(f.name);
    Machine machine;
    const std::vector<float> a = between(f.low, f.high, kCount, 1), b = between(f.low2, f.high2, kCount, 37);
    DeviceTensor x = machine.tensor(float32, a), y = machine.tensor(float32, b),
                 z = machine.output(float32, {kCount}), one = machine.output(float32, {1});
    machine.run(
        [f](Int32 n, Ptr<float32> x_ptr, Ptr<float32> y_ptr, Ptr<float32> z_ptr, Ptr<float32> one_ptr) {
          grid(1);
          auto g_x = global_view(x_ptr, {n}), g_y = global_view(y_ptr, {n});
          auto b = load_global(g_y, {0}, {1024}, {.other = 1});
          store_global(global_view(z_ptr, {n}), f.tiles(load_global(g_x, {0}, {1024}, {.other = 1}), b), {0});
          store_global(global_view(one_ptr, {1}), full(float32, {1}, f.scalars(g_x[77], g_y[77])), {0});
        },
        kCount, x, y, z, one);
    expect_elements(
        z, [&](int64_t i) { return f.reference(a[i], b[i]); }, f.tolerance, f.floor);
    EXPECT_EQ(values<float>(one)[0], values<float>(z)[77]);
  }
}

TEST(ComposedFunctions, OfNarrowTypesAndNumbers) {
  Machine machine;
  DeviceTensor x = machine.tensor(float16, std::vector<double>{0, 0.25, 1.5, 3}),
               y = machine.output(float16, {5, 4});
  machine.run(
      [](Ptr<float16> x_ptr, Ptr<float16> y_ptr) {
        grid(1);
        auto x = load_global(global_view(x_ptr, {4}), {0}, {4});
        auto g_y = global_view(y_ptr, {5, 4});
        store_global(g_y, erf(x).reshape({1, 4}), {0, 0});
        store_global(g_y, pow(x, 2).reshape({1, 4}), {1, 0});
        store_global(g_y, pow(2, x).reshape({1, 4}), {2, 0});
        store_global(g_y, fmod(-2, x + 0.5).reshape({1, 4}), {3, 0});
        store_global(g_y, fmod(x, 0.375).reshape({1, 4}), {4, 0});
      },
      x, y);
  const std::vector<double> in = x.to_host().to_doubles();
  expect_elements(
      y,
      [&](int64_t row, int64_t i) {
        const double results[] = {std::erf(in[i]), in[i] * in[i], std::exp2(in[i]),
                                  std::fmod(-2, in[i] + 0.5), std::fmod(in[i], 0.375)};
        return results[row];
      },
      0x1p-10);
  const std::string said = error_of<CompileError>([] {
    Machine machine;
    machine.launch(
        [](Ptr<int32> p) {
          grid(1);
          store_global(global_view(p, {4}), pow(load_global(global_view(p, {4}), {0}, {4}), 2), {0});
        },
        machine.random(int32, {4}));
  });
  EXPECT_NE(said.find("functions_test.cpp"), std::string::npos) << said;
  EXPECT_NE(said.find("pow: works on float32, float16 and bfloat16, not on int32"), std::string::npos)
      << said;
}

/// Powers of all magnitudes, up to where the results are no normal numbers, and what has no finite logarithm.
TEST(ComposedFunctions, PowersOfDoubles) {
  static constexpr int kCount = 3000;
  constexpr double kInfinity = std::numeric_limits<double>::infinity(), kNan = std::nan("");
  Machine machine;
  const HostTensor random = HostTensor::random(float64, {2, kCount}, 5);
  std::vector<double> a, b;
  for (int i = 0; i < kCount; ++i) {
    const double x = random.get(i), y = random.get(kCount + i);
    const double base = i % 3 == 0   ? std::exp(700 * std::sin(x))
                        : i % 3 == 1 ? 1 + 1e-6 * x
                                     : std::abs(x) + 1e-3;
    a.push_back(base);
    b.push_back(i % 3 == 0 ? y : i % 3 == 1 ? 1e8 * y : 40 * y);
  }
  const std::vector<std::pair<double, double>> edges = {
      {0, 2},         {0, -2},          {0, 0},         {kInfinity, 0.5},    {kInfinity, -0.5},
      {kInfinity, 0}, {5e-324, 1},      {5e-324, -0.9}, {2, 1023},           {2, 1024},
      {2, -1074},     {2, -1080},       {1.5, 1e300},   {1.5, -1e300},       {1, 1e300},
      {kNan, 2},      {kNan, 0},        {2, kNan},      {1 - 0x1p-53, 1e18}, {1e308, 1},
      {3, kInfinity}, {0.5, kInfinity}, {10, -320}};
  for (size_t i = 0; i < edges.size(); ++i) std::tie(a[i], b[i]) = edges[i];
  const size_t below = edges.size();
  a[below] = -2, b[below] = 3;
  DeviceTensor x = machine.tensor(float64, a), y = machine.tensor(float64, b),
               z = machine.output(float64, {kCount}), some = machine.output(float64, {3});
  machine.run(
      [](Int32 n, Ptr<float64> x_ptr, Ptr<float64> y_ptr, Ptr<float64> z_ptr, Ptr<float64> some_ptr) {
        grid(cdiv(n, 256));
        Int32 i = 256 * block_idx.x;
        auto g_x = global_view(x_ptr, {n}), g_y = global_view(y_ptr, {n});
        auto x = load_global(g_x, {i}, {256}, {.other = 1}), y = load_global(g_y, {i}, {256}, {.other = 1});
        store_global(global_view(z_ptr, {n}), pow(x, y), {i});
        if (auto first = when(block_idx.x == 0)) {
          auto g_some = global_view(some_ptr, {3});
          store_global(g_some, full(float64, {1}, pow(g_x[101], g_y[101])), {0});
          store_global(g_some, pow(g_x[101], load_global(g_y, {101}, {1})), {1});
          store_global(g_some, pow(load_global(g_x, {101}, {1}), 2.5), {2});
        }
      },
      kCount, x, y, z, some);
  expect_elements(
      z,
      [&](int64_t i) {
        const auto at = static_cast<size_t>(i);
        if (at == below || (std::isnan(a[at]) && b[at] != 0)) return kNan;
        return static_cast<double>(
            std::pow(static_cast<long double>(a[at]), static_cast<long double>(b[at])));
      },
      1e-15, 0x1p-1022);
  EXPECT_EQ(values<double>(some)[0], values<double>(z)[101]);
  EXPECT_EQ(values<double>(some)[1], values<double>(z)[101]);
  expect_elements(
      some.slice({2}, {1}), [&](int64_t) { return std::pow(a[101], 2.5); }, 1e-15);
}

TEST(ComposedFunctions, OfDoubles) {
  static constexpr int kCount = 3000;
  Machine machine;
  std::vector<double> a, b;
  for (int i = 0; i < kCount; ++i) {
    a.push_back(i < 8 ? std::ldexp(1.0, 1 - i) : (i * 7919 % kCount - kCount / 2.0) / 200 + 1e-7 * i);
    b.push_back((i % 2 ? -1 : 1) * (0.001 + 0.37 * (i % 101)));
  }
  a[8] = 1e9, a[9] = -1e9, a[10] = 0, a[11] = 1 - 0x1p-53, a[12] = -1, a[13] = 7.5;
  DeviceTensor x = machine.tensor(float64, a), y = machine.tensor(float64, b),
               e = machine.output(float64, {kCount}), r = machine.output(float64, {kCount});
  machine.run(
      [](Int32 n, Ptr<float64> x_ptr, Ptr<float64> y_ptr, Ptr<float64> e_ptr, Ptr<float64> r_ptr) {
        grid(cdiv(n, 256));
        Int32 i = 256 * block_idx.x;
        auto x = load_global(global_view(x_ptr, {n}), {i}, {256});
        auto y = load_global(global_view(y_ptr, {n}), {i}, {256}, {.other = 1});
        store_global(global_view(e_ptr, {n}), erf(x), {i});
        store_global(global_view(r_ptr, {n}), fmod(x, y), {i});
      },
      kCount, x, y, e, r);
  expect_elements(
      e, [&](int64_t i) { return std::erf(a[i]); }, 3e-15);
  expect_elements(r, [&](int64_t i) { return std::fmod(a[i], b[i]); });
}

/// The known answers that come with the generator's description.
TEST(Random, GivesThePublishedWords) {
  struct Known {
    uint64_t seed, counter;
    uint32_t words[4];
  };
  // Their counters have 128 bits, of which the language sets 64: of the published three only this one fits.
  const Known known = {0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}};
  Machine machine;
  DeviceTensor y = machine.output(uint32, {4, 1});
  machine.run(
      [known](Int64 seed, Ptr<uint32> y_ptr) {
        grid(1);
        auto g_y = global_view(y_ptr, {4, 1});
        const RandomWords words =
            random_words(seed, full(int64, {1, 1}, static_cast<int64_t>(known.counter)));
        const RegisterValue* all[] = {&words.x, &words.y, &words.z, &words.w};
        for (int i = 0; i < 4; ++i) store_global(g_y, *all[i], {i, 0});
      },
      static_cast<int64_t>(known.seed), y);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(values<uint32_t>(y)[i], known.words[i]) << i;
}

/// The generator again, in plain C++.
uint32_t first_word(uint64_t seed, uint64_t counter) {
  uint32_t c[4] = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t p = uint64_t{0xD2511F53} * c[0], q = uint64_t{0xCD9E8D57} * c[2];
    const uint32_t next[4] = {static_cast<uint32_t>(q >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(q),
                              static_cast<uint32_t>(p >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(p)};
    std::copy(next, next + 4, c);
    key[0] += 0x9E3779B9, key[1] += 0xBB67AE85;
  }
  return c[0];
}

TEST(Random, HasTheMomentsOfItsDistributions) {
  static constexpr int kCount = 1 << 14;
  const uint64_t seed = 0x123456789abcdef0;
  Machine machine;
  DeviceTensor bits = machine.output(uint32, {kCount}), even = machine.output(float32, {kCount}),
               normal = machine.output(float32, {kCount});
  machine.run(
      [](Int64 seed, Ptr<uint32> bits_ptr, Ptr<float32> even_ptr, Ptr<float32> normal_ptr) {
        grid(kCount / 1024);
        Int64 first = 1024 * block_idx.x;
        auto i = register_tensor(int64, {1024}, [&](auto j) { return first + j + (int64_t{1} << 33); });
        store_global(global_view(bits_ptr, {kCount}), random_bits(seed, i), {first});
        store_global(global_view(even_ptr, {kCount}), random_uniform(seed, i), {first});
        store_global(global_view(normal_ptr, {kCount}), random_normal(seed, i), {first});
      },
      static_cast<int64_t>(seed), bits, even, normal);
  const std::vector<uint32_t> words = values<uint32_t>(bits);
  for (int i = 0; i < kCount; ++i) ASSERT_EQ(words[i], first_word(seed, (uint64_t{1} << 33) + i)) << i;
  const auto moment = [&](const DeviceTensor& t, int power) {
    double sum = 0;
    for (float x : values<float>(t)) sum += std::pow(x, power);
    return sum / kCount;
  };
  for (float x : values<float>(even)) ASSERT_TRUE(x >= 0 && x < 1);
  EXPECT_NEAR(moment(even, 1), 0.5, 0.01);
  EXPECT_NEAR(moment(even, 2), 1.0 / 3, 0.01);
  EXPECT_NEAR(moment(normal, 1), 0, 0.03);
  EXPECT_NEAR(moment(normal, 2), 1, 0.05);
  EXPECT_NEAR(moment(normal, 3), 0, 0.1);
  EXPECT_NEAR(moment(normal, 4), 3, 0.3);
}

}  // namespace
}  // namespace imbrex::testing
