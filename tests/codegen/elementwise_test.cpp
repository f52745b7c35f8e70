// SPDX-License-Identifier: Apache-2.0
// Arithmetic on tiles against plain loops, for every type, with ragged edges and broadcasting.
#include <cmath>

#include "kit.h"

namespace imbrex::codegen::testing {
namespace {

constexpr int kRows = 16, kColumns = 64;  // of a tile

const std::vector<DataType> kIntegers = {int8, uint8, int16, uint16, int32, uint32, int64, uint64};
const std::vector<DataType> kFloats = {float16, bfloat16, float32, float64};

/// c = op(a, b) on [m, n] matrices, b a matrix, a row [1, n], a column [m, 1] or a scalar.
std::string binary_kernel(const std::string& op, DataType in, DataType out, const std::string& target) {
  return fill(
      R"(kernel binary(%m: int32, %n: int32, %a: ptr<{in}>, %b: ptr<{in}>, %c: ptr<{out}>) target {target} warps 4 from "binary.cpp":1 {
  %one: int32 = const {int = 1}
  %rows: int32 = const {int = 16}
  %columns: int32 = const {int = 64}
  %g0: int32 = ceil_div %m, %rows
  %g1: int32 = ceil_div %n, %columns
  launch_grid %g0, %g1
  %x: int32 = block_idx {axis = 0}
  %y: int32 = block_idx {axis = 1}
  %i: int32 = mul %x, %rows
  %j: int32 = mul %y, %columns
  %ga: global<{in}, [?, ?]> = global_view %a, %m, %n, %n, %one {rank = 2}
  %gb: global<{in}, [?, ?]> = global_view %b, %m, %n, %n, %one {rank = 2}
  %gc: global<{out}, [?, ?]> = global_view %c, %m, %n, %n, %one {rank = 2}
  %ra: register<{in}, [16, 64]> = load_global %ga, %i, %j {shape = [16, 64], dims = [0, 1], other = 1.0}
  %rb: register<{in}, [16, 64]> = load_global %gb, %i, %j {shape = [16, 64], dims = [0, 1], other = 1.0}
  %rc: register<{out}, [16, 64]> = {op}
  store_global %gc, %rc, %i, %j {dims = [0, 1]}
})",
      {{"in", std::string(in.name())}, {"out", std::string(out.name())}, {"op", op}, {"target", target}});
}

using Reference = double (*)(double, double);

void check_binary(const std::string& op, DataType in, DataType out, Reference reference, double tolerance,
                  const std::string& target, int m, int n) {
  SCOPED_TRACE(op + " " + std::string(in.name()) + " " + target);
  std::mt19937 random(17);
  Buffer a(in, m * n), b(in, m * n), c(out, m * n);
  fill_random(a, random);
  fill_random(b, random);
  for (int64_t i = 0; i < b.size(); ++i)
    if (b.get(i) == 0) b.set(i, 3);  // nothing divides by zero
  c.fill(77);
  run(compile(binary_kernel(op, in, out, target)), {m, n, &a, &b, &c});
  for (int64_t i = 0; i < c.size(); ++i) {
    const double expected = rounded(out, reference(a.get(i), b.get(i)));
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(c.get(i))) << "element " << i;
      continue;
    }
    ASSERT_NEAR(c.get(i), expected, tolerance * std::max(1.0, std::abs(expected)))
        << "element " << i << ": " << a.get(i) << ", " << b.get(i);
  }
}

double truncated(double x) { return std::trunc(x); }

TEST(Elementwise, IntegerArithmeticOfEveryType) {
  for (DataType t : kIntegers) {
    check_binary(
        "add %ra, %rb", t, t, [](double a, double b) { return a + b; }, 0, "sm_80", 19, 70);
    check_binary(
        "mul %ra, %rb", t, t, [](double a, double b) { return a * b; }, 0, "sm_80", 16, 64);
    check_binary(
        "div %ra, %rb", t, t, [](double a, double b) { return truncated(a / b); }, 0, "sm_80", 7, 65);
    check_binary(
        "rem %ra, %rb", t, t, [](double a, double b) { return std::fmod(a, b); }, 0, "sm_80", 7, 65);
    check_binary(
        "min %ra, %rb", t, t, [](double a, double b) { return std::min(a, b); }, 0, "sm_80", 7, 65);
    check_binary(
        "lt %ra, %rb", t, boolean, [](double a, double b) { return double(a < b); }, 0, "sm_80", 33, 65);
  }
  for (DataType t : {int8, int32, int64})
    check_binary(
        "sub %ra, %rb", t, t, [](double a, double b) { return a - b; }, 0, "sm_90a", 19, 70);
}

TEST(Elementwise, FloatArithmeticOfEveryType) {
  for (const char* target : {"sm_80", "sm_90a", "sm_100a"})
    for (DataType t : kFloats) {
      check_binary(
          "add %ra, %rb", t, t, [](double a, double b) { return a + b; }, 0, target, 19, 70);
      check_binary(
          "sub %ra, %rb", t, t, [](double a, double b) { return a - b; }, 0, target, 16, 64);
      check_binary(
          "mul %ra, %rb", t, t, [](double a, double b) { return a * b; }, 0, target, 16, 72);
      check_binary(
          "div %ra, %rb", t, t, [](double a, double b) { return a / b; }, 0, target, 16, 64);
      check_binary(
          "max %ra, %rb", t, t, [](double a, double b) { return std::max(a, b); }, 0, target, 16, 64);
      check_binary(
          "ge %ra, %rb", t, boolean, [](double a, double b) { return double(a >= b); }, 0, target, 5, 64);
    }
}

TEST(Elementwise, ApproximateFunctions) {
  for (DataType t : {float16, bfloat16, float32}) {
    const double tolerance = t == float32 ? 1e-5 : t == float16 ? 2e-3 : 2e-2;
    check_binary(
        "exp %ra", t, t, [](double a, double) { return std::exp(a); }, tolerance, "sm_80", 16, 64);
    check_binary(
        "exp2 %ra", t, t, [](double a, double) { return std::exp2(a); }, tolerance, "sm_80", 16, 64);
    check_binary(
        "tanh %ra", t, t, [](double a, double) { return std::tanh(a); }, tolerance * 10, "sm_80", 16, 64);
    check_binary(
        "sin %ra", t, t, [](double a, double) { return std::sin(a); }, tolerance, "sm_80", 16, 64);
    check_binary(
        "neg %ra", t, t, [](double a, double) { return -a; }, 0, "sm_80", 16, 64);
    check_binary(
        "abs %ra", t, t, [](double a, double) { return std::abs(a); }, 0, "sm_80", 16, 64);
    check_binary(
        "sqrt %ra", t, t, [](double a, double) { return std::sqrt(a); }, 0, "sm_80", 16, 64);
  }
}

TEST(Elementwise, EveryPairOfTypesConverts) {
  std::vector<DataType> all = kIntegers;
  all.insert(all.end(), kFloats.begin(), kFloats.end());
  all.push_back(boolean);
  for (DataType from : all)
    for (DataType to : all) {
      if (from == to) continue;
      // Values are small: what does not fit an unsigned type is taken as positive.
      const std::string op = "cast %ra {dtype = " + std::string(to.name()) + "}";
      const bool signs = (from.is_signed() && !to.is_signed());
      if (signs) continue;
      check_binary(
          op, from, to, [](double a, double) { return a; }, 0, "sm_80", 17, 66);
    }
}

TEST(Elementwise, EightBitFloats) {
  for (DataType t : {float8_e4m3, float8_e5m2})
    for (DataType wide : {float32, float16, bfloat16}) {
      check_binary(
          "cast %ra {dtype = " + std::string(t.name()) + "}", wide, t, [](double a, double) { return a; }, 0,
          "sm_90a", 16, 64);
      check_binary(
          "cast %ra {dtype = " + std::string(wide.name()) + "}", t, wide, [](double a, double) { return a; },
          0, "sm_90a", 16, 64);
    }
}

}  // namespace
}  // namespace imbrex::codegen::testing
