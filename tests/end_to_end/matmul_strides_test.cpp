// SPDX-License-Identifier: Apache-2.0
// imbrex::matmul of tensors with strides and of batches, against float64: leading dimensions, orders of memory, shared
// operands, rows that TMA cannot reach, results between other data.
#include <gmock/gmock.h>

#include <optional>
#include <random>

#include "activations.h"
#include "imbrex/core/error.h"
#include "imbrex/kernels/matmul.h"
#include "imbrex/runtime/compare.h"
#include "strided_memory.h"

namespace imbrex::testing {
namespace {

struct Setting {
  int64_t matrices, m, n, k;  // matrices 0: two dimensions
  Lie a = {}, b = {}, c = {};
  DataType operands = float16, result = float16;
  bool a_is_km = false, b_is_kn = false;
  bool shares_a = false, shares_b = false;  // given with two dimensions
  std::optional<Lie> residual = {};
  Activation activation = Activation::kNone;
  int multiprocessors = 0;
};

void expect_product(const Setting& s, const std::string& what) {
  SCOPED_TRACE(what);
  const Device device = Device::virtual_gpu(
      {.target = "sm_90a", .num_sms = s.multiprocessors, .seed = 5, .checks = vgpu::CheckSet::all()});
  const auto shape = [&](int64_t rows, int64_t columns, bool is_shared) {
    return s.matrices == 0 || is_shared ? std::vector{rows, columns} : std::vector{s.matrices, rows, columns};
  };
  const auto ordered = [](int64_t rows, int64_t k, bool k_first) {
    return k_first ? std::pair(k, rows) : std::pair(rows, k);
  };
  const auto [a_rows, a_columns] = ordered(s.m, s.k, s.a_is_km);
  const auto [b_rows, b_columns] = ordered(s.n, s.k, s.b_is_kn);
  const StridedMemory a(device, s.operands, shape(a_rows, a_columns, s.shares_a), 1, s.a);
  const StridedMemory b(device, s.operands, shape(b_rows, b_columns, s.shares_b), 2, s.b);
  StridedMemory c(device, s.result, shape(s.m, s.n, false), 3, s.c);
  const StridedMemory residual(device, s.result, shape(s.m, s.n, false), 4, s.residual.value_or(Lie{}));
  const StridedMemory bias(device, float32, {s.n}, 6, {.first = 1, .step = 3});
  MatmulOptions options{.a_is_km = s.a_is_km, .b_is_kn = s.b_is_kn, .activation = s.activation};
  if (s.residual) {
    options.alpha = 0.5f;
    options.beta = -2;
    options.residual = residual.tensor;
    options.bias = bias.tensor;
  }
  const std::vector<double> x = a.values(), y = b.values(), old = residual.values(), z = bias.values();
  c.tensor.poison();
  const LaunchReport report = matmul(a.tensor, b.tensor, c.tensor, options);
  EXPECT_TRUE(report.clean()) << report.virtual_report.format();

  const int64_t matrices = std::max<int64_t>(s.matrices, 1);
  std::vector<double> expected(static_cast<size_t>(matrices * s.m * s.n));
  for (int64_t i = 0; i < matrices; ++i) {
    const double* p = x.data() + (s.shares_a ? 0 : i * s.m * s.k);
    const double* q = y.data() + (s.shares_b ? 0 : i * s.n * s.k);
    for (int64_t row = 0; row < s.m; ++row)
      for (int64_t column = 0; column < s.n; ++column) {
        double sum = 0;
        for (int64_t l = 0; l < s.k; ++l)
          sum += p[s.a_is_km ? l * s.m + row : row * s.k + l] *
                 q[s.b_is_kn ? l * s.n + column : column * s.k + l];
        const int64_t at = (i * s.m + row) * s.n + column;
        if (s.residual) sum = 0.5 * sum + z[column] - 2 * old[at];
        expected[at] = activation(s.activation, sum);
      }
  }
  // The tensor cores' sums of float8 keep 14 bits, of the largest partial sum.
  const double tolerance = default_tolerance(s.result) + (s.operands == float8_e4m3 ? 2e-3 : 0);
  const Comparison comparison = compare(c.tensor.to_host(), expected, tolerance);
  EXPECT_TRUE(comparison.passed) << comparison.format();
  c.expect_surroundings_untouched();
  a.expect_surroundings_untouched();
}

TEST(MatmulStrides, LeadingDimensions) {
  expect_product({0, 5, 200, 72, {.gap = 8}, {.gap = 24}, {.gap = 16}}, "few rows");
  expect_product({0, 300, 136, 72, {.gap = 8}, {.gap = 40, .first = 16}, {.gap = 64, .first = 8}},
                 "slices of wider");
  expect_product({.matrices = 0,
                  .m = 500,
                  .n = 384,
                  .k = 776,
                  .a = {.gap = 8},
                  .b = {.gap = 8},
                  .c = {.gap = 32},
                  .multiprocessors = 4},
                 "pairs of CTAs");
  expect_product({.matrices = 0,
                  .m = 700,
                  .n = 400,
                  .k = 200,
                  .a = {.gap = 8},
                  .b = {.gap = 8},
                  .c = {.gap = 8},
                  .multiprocessors = 8},
                 "clusters");
}

TEST(MatmulStrides, ResultsThatBeginAnywhere) {
  expect_product({0, 131, 72, 72, {}, {}, {.gap = 3, .first = 5}}, "odd rows");
  expect_product({0, 9, 33, 72, {}, {}, {.gap = 1, .first = 1}, bfloat16, float32}, "few odd rows");
  expect_product({0, 140, 73, 1104, {}, {}, {.gap = 2, .first = 2}, float16, bfloat16}, "divided k");
  expect_product({0, 300, 136, 72, {}, {}, {.gap = 8, .first = 4}}, "an address that is not one of 16 bytes");
}

TEST(MatmulStrides, SizesAndAddressesThatTmaDoesNotReach) {
  for (int64_t k : {1, 3, 63, 130}) expect_product({0, 70, 65, k}, "k = " + std::to_string(k));
  expect_product({0, 1, 1, 1}, "one element");
  expect_product({0, 33, 1, 100}, "one column");
  expect_product({0, 1, 200, 75}, "one row");
  expect_product({0, 1, 200, 75, {.step = 3}, {}, {.step = 5}}, "one row of elements apart");
  expect_product({0, 33, 1, 100, {}, {.gap = 3, .step = 2}, {.gap = 6, .first = 1}},
                 "one column of elements apart");
  expect_product({0, 70, 72, 64, {.first = 3}, {.gap = 1}}, "address, stride");
  expect_product({0, 70, 72, 64, {.step = 2}, {.gap = 5, .step = 3}}, "elements apart");
  expect_product({.matrices = 0, .m = 77, .n = 45, .k = 50, .a_is_km = true, .b_is_kn = true}, "rows of k");
  expect_product({.matrices = 3, .m = 40, .n = 36, .k = 33, .a = {.gap = 1}, .shares_b = true}, "batch");
}

/// Rows whose length 16 bytes do not divide, of either operand or of both, from addresses that vectors of one to eight elements
/// may begin at: copies are made in one launch, and dense operands then are as any others.
TEST(MatmulStrides, RowsThatEndAnywhere) {
  for (int64_t k : {4, 37, 70, 132, 300}) {
    const std::string what = "k = " + std::to_string(k);
    expect_product({0, 130, 66, k}, what + ", dense");
    expect_product(
        {.matrices = 0, .m = 67, .n = 130, .k = k, .residual = Lie{}, .activation = Activation::kRelu},
        what + ", dense, added to");
    expect_product({0, 67, 130, k, {}, {}, {}, float8_e4m3, bfloat16}, what + ", float8");
    expect_product({0, 67, 130, k, {.first = 4}, {.gap = 2, .first = 2}}, what + ", from other addresses");
    expect_product({0, 67, 130, k, {}, {.gap = 8 - k % 8}}, what + ", one operand has whole rows");
    expect_product({.matrices = 3, .m = 67, .n = 34, .k = k, .shares_b = true}, what + ", a batch");
    expect_product({.matrices = 0, .m = 67, .n = 136, .k = k, .b_is_kn = true}, what + ", one has k first");
  }
  // What a copy gets besides has no part in the product.
  expect_product({0, 40, 40, 13, {.gap = 3}, {.gap = 3}}, "numbers behind each row");
}

TEST(MatmulStrides, EitherOrderOfMemory) {
  const Lie columns{.order = {1, 0}, .gap = 8};
  expect_product({0, 136, 72, 64, columns, {}, {}}, "a");
  expect_product({0, 136, 72, 64, {}, columns, {}}, "b");
  expect_product({0, 136, 72, 64, {}, {}, columns}, "c");
  expect_product({0, 136, 75, 60, {.order = {1, 0}}, columns, {.order = {1, 0}, .gap = 1}},
                 "all, not aligned");
  expect_product({.matrices = 0,
                  .m = 72,
                  .n = 136,
                  .k = 64,
                  .a = columns,
                  .b = columns,
                  .c = columns,
                  .operands = bfloat16,
                  .result = float32,
                  .a_is_km = true,
                  .b_is_kn = true,
                  .residual = Lie{.gap = 3},
                  .activation = Activation::kRelu},
                 "options");
  expect_product({.matrices = 0,
                  .m = 50,
                  .n = 72,
                  .k = 100,
                  .operands = float8_e4m3,
                  .result = bfloat16,
                  .b_is_kn = true},
                 "float8, whose k must be contiguous");
  expect_product({.matrices = 2,
                  .m = 50,
                  .n = 72,
                  .k = 96,
                  .c = {.order = {0, 2, 1}},
                  .operands = float8_e4m3,
                  .result = bfloat16,
                  .a_is_km = true,
                  .residual = Lie{.order = {2, 0, 1}}},
                 "float8 of a batch");
}

TEST(MatmulStrides, Batches) {
  expect_product({3, 70, 72, 64}, "dense");
  expect_product({.matrices = 4, .m = 5, .n = 65, .k = 72, .shares_b = true}, "few rows, one b");
  expect_product(
      {.matrices = 3, .m = 131, .n = 75, .k = 72, .residual = Lie{}, .activation = Activation::kGelu},
      "options, odd rows");
  expect_product({.matrices = 3,
                  .m = 200,
                  .n = 136,
                  .k = 136,
                  .a = {.order = {1, 0, 2}},
                  .b = {.gap = 8},
                  .c = {.order = {1, 0, 2}},
                  .shares_b = true,
                  .multiprocessors = 2},
                 "heads side by side");
  expect_product({.matrices = 2,
                  .m = 300,
                  .n = 392,
                  .k = 264,
                  .shares_a = true,
                  .residual = Lie{.order = {1, 0, 2}},
                  .multiprocessors = 4},
                 "one a, pairs of CTAs");
  expect_product({.matrices = 3, .m = 100, .n = 73, .k = 1104, .a = {.gap = 8}}, "divided k");
  expect_product({1, 70, 72, 64}, "of one");
}

TEST(MatmulStrides, OperandsRepeatedByAStrideOfZero) {
  const Device device = Device::virtual_gpu({.target = "sm_90a", .checks = vgpu::CheckSet::all()});
  const DeviceTensor a = DeviceTensor::random(device, float16, {3, 40, 64}, 1),
                     b = DeviceTensor::random(device, float16, {24, 64}, 2),
                     c = DeviceTensor::empty(device, float16, {3, 40, 24}),
                     other = DeviceTensor::empty(device, float16, {3, 40, 24});
  matmul(a, DeviceTensor::view(device, b.address(), float16, {3, 24, 64}, {0, 64, 1}), c).expect_clean();
  matmul(a, b, other).expect_clean();
  EXPECT_EQ(c.to_host().to_doubles(), other.to_host().to_doubles());
  matmul(a, DeviceTensor::view(device, b.address(), float16, {1, 24, 64}), other).expect_clean();
  EXPECT_EQ(c.to_host().to_doubles(), other.to_host().to_doubles());
  // One residual for all products, and c itself as it was.
  const DeviceTensor residual = DeviceTensor::random(device, float16, {40, 24}, 3);
  matmul(a, b, c, {.beta = 1, .residual = residual}).expect_clean();
  DeviceTensor(other).copy_from(
      DeviceTensor::view(device, residual.address(), float16, {3, 40, 24}, {0, 24, 1}));
  matmul(a, b, other, {.beta = 1}).expect_clean();
  EXPECT_EQ(c.to_host().to_doubles(), other.to_host().to_doubles());
}

/// The same kernel, whatever the strides: the bits of the dense product.
TEST(MatmulStrides, DoNotChangeTheBits) {
  const Device device = Device::virtual_gpu({.target = "sm_90a"});
  const DeviceTensor a = DeviceTensor::random(device, float16, {150, 200}, 1),
                     b = DeviceTensor::random(device, float16, {80, 200}, 2),
                     dense = DeviceTensor::empty(device, float16, {150, 80});
  matmul(a, b, dense);
  const auto expect_same = [&](const Lie& a_lie, const Lie& c_lie) {
    StridedMemory x(device, float16, {150, 200}, 3, a_lie), c(device, float16, {150, 80}, 4, c_lie);
    x.tensor.copy_from(a);
    matmul(x.tensor, b, c.tensor);
    EXPECT_EQ(c.tensor.to_host().to_doubles(), dense.to_host().to_doubles());
  };
  expect_same({.gap = 8}, {.gap = 16});
  expect_same({.gap = 3, .first = 1}, {.gap = 16});
  expect_same({.order = {1, 0}, .gap = 5}, {.gap = 8});
}

TEST(MatmulStrides, OfRandomKinds) {
  std::mt19937_64 random(std::random_device{}());
  const auto up_to = [&](uint64_t n) { return static_cast<int64_t>(random() % (n + 1)); };
  for (int round = 0; round < 10; ++round) {
    Setting s{.matrices = up_to(3), .m = 1 + up_to(90), .n = 1 + up_to(90), .k = 1 + up_to(150)};
    const auto lie = [&](bool has_batch, bool is_written) {
      Lie l{.gap = up_to(2) * up_to(9), .first = up_to(1) * up_to(9)};
      if (!is_written && up_to(4) == 0) l.step = 2;
      for (int64_t d = 0; d < (has_batch ? 3 : 2); ++d) l.order.push_back(d);
      std::ranges::shuffle(l.order, random);
      if (is_written && l.order.back() == 0 && has_batch) std::swap(l.order[2], l.order[0]);
      return l;
    };
    const bool has_batch = s.matrices > 0;
    s.shares_a = has_batch && up_to(3) == 0, s.shares_b = has_batch && up_to(3) == 0;
    s.a = lie(has_batch && !s.shares_a, false), s.b = lie(has_batch && !s.shares_b, false);
    s.c = lie(has_batch, true);
    s.a_is_km = up_to(1), s.b_is_kn = up_to(1);
    if (up_to(3) == 0) s.operands = float8_e4m3;
    if (up_to(1)) s.residual = lie(has_batch, false);
    const auto text = [](const Lie& l) {
      std::string order;
      for (int64_t d : l.order) order += std::to_string(d);
      return order + "/" + std::to_string(l.gap) + "/" + std::to_string(l.first) + "/" +
             std::to_string(l.step);
    };
    expect_product(s, std::to_string(s.matrices) + " of " + std::to_string(s.m) + "x" + std::to_string(s.n) +
                          "x" + std::to_string(s.k) + " " + std::string(s.operands.name()) + " a " +
                          text(s.a) + " b " + text(s.b) + " c " + text(s.c) + " km " +
                          std::to_string(s.a_is_km) + " kn " + std::to_string(s.b_is_kn) + " shares " +
                          std::to_string(s.shares_a) + std::to_string(s.shares_b) +
                          (s.residual ? " residual " + text(*s.residual) : ""));
  }
}

TEST(MatmulStrides, PrepareCompilesWhatTheCallLaunches) {
  const Device device = Device::virtual_gpu({.target = "sm_90a"});
  const StridedMemory a(device, float16, {2, 40, 63}, 1, {.gap = 1}), b(device, float16, {24, 63}, 2);
  const DeviceTensor c = DeviceTensor::empty(device, float16, {2, 40, 24});
  DeviceTensor(c).fill(0);
  prepare_matmul(a.tensor, b.tensor, c);
  for (double x : c.to_host().to_doubles()) ASSERT_EQ(x, 0);
}

}  // namespace
}  // namespace imbrex::testing
