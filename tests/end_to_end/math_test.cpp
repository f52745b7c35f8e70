// SPDX-License-Identifier: Apache-2.0
// Functions, on tiles and on scalars, against the C library in double. Those by approximate instructions are
// held to the error that the instructions are documented with; the others are exact.
#include <functional>
#include <limits>
#include <numbers>

#include "../param_name.h"
#include "kit.h"

namespace imbrex::testing {
namespace {

struct Function {
  const char* name;
  std::function<RegisterValue(const TileArg&)> tile;
  std::function<Expr(const ScalarArg&)> scalar;
  double (*reference)(double);
  double low, high;     // where it is tested
  double error, floor;  // of float32: relative to the larger of the result and `floor`

  friend std::ostream& operator<<(std::ostream& out, const Function& f) { return out << f.name; }
};

double reciprocal_root(double x) { return 1 / std::sqrt(x); }
double absolute(double x) { return std::abs(x); }
double negated(double x) { return -x; }

#define BOTH(f) [](const TileArg& a) { return f(a); }, [](const ScalarArg& a) { return f(a); }
const Function kFunctions[] = {
    {"exp", BOTH(exp), std::exp, -80, 80, 1e-5, 0},  // the argument's rounding grows with it
    {"exp of small arguments", BOTH(exp), std::exp, -1, 1, 3e-7, 0},
    {"exp2", BOTH(exp2), std::exp2, -120, 120, 3e-7, 0},
    {"log", BOTH(log), std::log, 1e-30, 1e30, 1e-6, 1},
    {"log near 1", BOTH(log), std::log, 0.5, 2, 2e-7, 1},
    {"sqrt", BOTH(sqrt), std::sqrt, 0, 1e30, 0, 0},
    {"rsqrt", BOTH(rsqrt), reciprocal_root, 1e-30, 1e30, 3e-7, 0},
    {"tanh", BOTH(tanh), std::tanh, -10, 10, 6e-4, 1e-3},
    // The manual bounds the absolute error: by 2^-20.5 up to two pi, by 2^-14.7 up to a hundred.
    {"sin", BOTH(sin), std::sin, -2 * std::numbers::pi, 2 * std::numbers::pi, 0x1.6ap-21, 1},
    {"sin of large angles", BOTH(sin), std::sin, -100 * std::numbers::pi, 100 * std::numbers::pi, 0x1.3bp-15,
     1},
    {"cos", BOTH(cos), std::cos, -2 * std::numbers::pi, 2 * std::numbers::pi, 0x1.6ap-21, 1},
    {"round", BOTH(round), std::nearbyint, -1000, 1000, 0, 0},
    {"round of halves", BOTH(round), std::nearbyint, -249.75, 250, 0, 0},
    {"floor", BOTH(floor), std::floor, -1000, 1000, 0, 0},
    {"ceil", BOTH(ceil), std::ceil, -1000, 1000, 0, 0},
    {"abs", BOTH(abs), absolute, -1e10, 1e10, 0, 0},
    {"neg", [](const TileArg& a) { return -a; }, [](const ScalarArg& a) { return -a; }, negated, -1e10, 1e10,
     0, 0},
};
#undef BOTH

class Functions : public ::testing::TestWithParam<Function> {};

/// Numbers all over [low, high], more of them near the ends where the range spans magnitudes.
std::vector<double> arguments(const Function& f, int count) {
  std::vector<double> out;
  const bool wide = f.low > 0 && f.high / f.low > 1e6;
  for (int i = 0; i < count; ++i) {
    const double t = static_cast<double>(i) / (count - 1);
    out.push_back(wide ? f.low * std::pow(f.high / f.low, t) : f.low + (f.high - f.low) * t);
  }
  return out;
}

/// What the function gives of x, when x and the result are of this type.
double expected(const Function& f, DataType type, double x) {
  HostTensor one(type, {1});
  one.set(0, f.reference(x));
  return one.get(0);
}

TEST_P(Functions, OfTiles) {
  const Function& f = GetParam();
  for (DataType type : {float32, float16, bfloat16}) {
    if (type == float16 && (f.high > 60000 || f.reference(f.high) > 60000)) continue;
    for (int count : {1, 97, 1000}) {
      Machine machine;
      DeviceTensor x = machine.tensor(type, arguments(f, std::max(count, 2)));
      DeviceTensor y = machine.output(type, {count});
      machine.run(
          [type = type, f](Int32 n, Ptr<> x_ptr, Ptr<> y_ptr) {
            grid(cdiv(n, 256));
            Int32 at = 256 * block_idx.x;
            auto tile = load_global(global_view(x_ptr, type, {n}), {at}, {256}, {.other = 1});
            store_global(global_view(y_ptr, type, {n}), f.tile(tile), {at});
          },
          count, x, y);
      const std::vector<double> in = x.to_host().to_doubles();
      // The 16-bit types compute in float32 or have their own instruction; one unit in the last place either
      // way.
      const double unit = type == float16 ? 0x1p-10 : type == bfloat16 ? 0x1p-7 : 0;
      expect_elements(
          y, [&](int64_t i) { return expected(f, type, in[i]); }, f.error + (f.error > 0 ? unit : 0),
          std::max(f.floor, type == float16 ? 0x1p-14 : 0));
    }
  }
}

TEST_P(Functions, OfScalars) {
  const Function& f = GetParam();
  for (double given : arguments(f, 5)) {
    const auto x = static_cast<float>(given);
    Machine machine;
    DeviceTensor out = machine.output(float32, {2});
    machine.run(
        [f, x](Float32 at_launch, Ptr<float32> out_ptr) {
          grid(1);
          auto g_out = global_view(out_ptr, {2});
          Float32 known = x;  // the compiler folds what it can fold exactly
          store_global(g_out, full(float32, {1}, f.scalar(at_launch)), {0});
          store_global(g_out, full(float32, {1}, f.scalar(known)), {1});
        },
        x, out);
    const std::vector<float> got = values<float>(out);
    // On a GPU ptxas folds approximations of constants too, and rounds them better than the chip does.
    if (machine.device().is_virtual()) {
      EXPECT_EQ(got[0], got[1]) << f.name << " of " << x << ": folding must not change a result";
    }
    expect_elements(
        out, [&](int64_t) { return expected(f, float32, x); }, f.error, f.floor);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Functions, ::testing::ValuesIn(kFunctions), ParamName());

TEST(Functions, AtTheEdgesOfTheirDomains) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> in = {0.0, -0.0, inf, -inf, nan, 1.0, -1.0, 200.0, -200.0};
  Machine machine;
  const auto n = static_cast<int64_t>(in.size());
  DeviceTensor x = machine.tensor(float32, in), y = machine.output(float32, {8, n});
  machine.run(
      [n](Int32 ctas, Ptr<float32> x_ptr, Ptr<float32> y_ptr) {
        grid(ctas);
        auto t = load_global(global_view(x_ptr, {n}), {0}, {n});
        auto g_y = global_view(y_ptr, {8, n});
        int64_t row = 0;
        for (const RegisterValue& value :
             {exp(t), exp2(t), log(t), sqrt(t), rsqrt(t), tanh(t), abs(t), sin(t)})
          store_global(g_y, value.reshape({1, n}), {row++, 0});
      },
      1, x, y);
  const std::vector<std::vector<double>> expected = {
      {1, 1, inf, 0, nan, std::exp(1.0), std::exp(-1.0), inf, 0},
      {1, 1, inf, 0, nan, 2, 0.5, inf, 0},
      {-inf, -inf, inf, nan, nan, 0, nan, std::log(200.0), nan},
      {0, -0.0, inf, nan, nan, 1, nan, std::sqrt(200.0), nan},
      {inf, -inf, 0, nan, nan, 1, nan, 1 / std::sqrt(200.0), nan},
      {0, -0.0, 1, -1, nan, std::tanh(1.0), -std::tanh(1.0), 1, -1},
      {0, 0, inf, inf, nan, 1, 1, 200, 200},
      {0, -0.0, nan, nan, nan, std::sin(1.0), -std::sin(1.0), std::sin(200.0), -std::sin(200.0)}};
  expect_elements(
      y, [&](int64_t i, int64_t j) { return expected[i][j]; }, 6e-4);
}

TEST(Functions, MinAndMaxIgnoreNan) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<double> a = {1, 2, nan, 4, nan, -0.5, 3}, b = {2, 1, 5, nan, nan, 0.5, 3};
  for (DataType type : {float16, bfloat16, float32, float64}) {
    Machine machine;
    DeviceTensor x = machine.tensor(type, a), y = machine.tensor(type, b), low = machine.output(type, {7}),
                 high = machine.output(type, {7}), clamped = machine.output(type, {7});
    machine.run(
        [type = type](Int32 n, Ptr<> x_ptr, Ptr<> y_ptr, Ptr<> low_ptr, Ptr<> high_ptr, Ptr<> clamped_ptr) {
          grid(1);
          auto view = [&](const PtrArg& pointer) { return global_view(pointer, type, {n}); };
          auto u = load_global(view(x_ptr), {0}, {8}), v = load_global(view(y_ptr), {0}, {8});
          store_global(view(low_ptr), min(u, v), {0});
          store_global(view(high_ptr), max(u, v), {0});
          store_global(view(clamped_ptr), max(min(u, 2), 0), {0});
        },
        7, x, y, low, high, clamped);
    expect_elements(low, [&](int64_t i) { return std::fmin(a[i], b[i]); });
    expect_elements(high, [&](int64_t i) { return std::fmax(a[i], b[i]); });
    expect_elements(clamped, [&](int64_t i) { return std::fmax(std::fmin(a[i], 2), 0); });
  }
}

TEST(Functions, FusedMultiplyAddOfTiles) {
  Machine machine;
  DeviceTensor x = machine.random(float32, {300}), y = machine.random(float32, {300}),
               z = machine.random(float32, {300});
  DeviceTensor out = machine.output(float32, {300});
  machine.run(
      [](Int32 n, Ptr<float32> x_ptr, Ptr<float32> y_ptr, Ptr<float32> z_ptr, Ptr<float32> out_ptr) {
        grid(cdiv(n, 128));
        Int32 at = 128 * block_idx.x;
        auto load = [&](const Ptr<float32>& p) { return load_global(global_view(p, {n}), {at}, {128}); };
        store_global(global_view(out_ptr, {n}), fma(load(x_ptr), load(y_ptr), load(z_ptr)), {at});
      },
      300, x, y, z, out);
  const std::vector<float> a = values<float>(x), b = values<float>(y), c = values<float>(z);
  expect_elements(out, [&](int64_t i) { return std::fma(a[i], b[i], c[i]); });
}

}  // namespace
}  // namespace imbrex::testing
