// SPDX-License-Identifier: Apache-2.0
// imbrex::grouped_matmul and the gradient of its weights, against float64: empty and ragged groups, masked ones, float8
// with each kind of scales.
#include <gmock/gmock.h>

#include <array>
#include <cmath>

#include "imbrex/core/error.h"
#include "imbrex/kernels/grouped/grouped_matmul.h"
#include "imbrex/kernels/matmul.h"
#include "imbrex/kernels/rows/quantise.h"
#include "imbrex/runtime/compare.h"

namespace imbrex::testing {
namespace {

using ::testing::HasSubstr;

Device virtual_gpu(uint64_t seed = 1) {
  return Device::virtual_gpu(
      {.target = "sm_90a", .num_sms = 6, .seed = seed, .checks = vgpu::CheckSet::all()});
}

DeviceTensor int32s(const Device& device, const std::vector<int64_t>& values) {
  HostTensor host(int32, {static_cast<int64_t>(values.size())});
  for (size_t i = 0; i < values.size(); ++i)
    host.set(static_cast<int64_t>(i), static_cast<double>(values[i]));
  return DeviceTensor::from_host(device, host);
}

void expect_clean(const LaunchReport& report) {
  EXPECT_TRUE(report.clean()) << report.virtual_report.format();
}

/// Sums over k of a[row, :] and b[group, column, :], each with a factor.
struct Reference {
  std::vector<double> a, b;
  int64_t n, k;
  std::function<double(int64_t row, int64_t i)> factor_a = [](int64_t, int64_t) { return 1.0; };
  std::function<double(int64_t group, int64_t column, int64_t i)> factor_b = [](int64_t, int64_t, int64_t) {
    return 1.0;
  };
  /// What is done to a sum.
  std::function<double(int64_t row, int64_t column, double sum)> step = [](int64_t, int64_t, double sum) {
    return sum;
  };
  double at(int64_t row, int64_t group, int64_t column) const {
    double sum = 0;
    for (int64_t i = 0; i < k; ++i)
      sum += a[row * k + i] * factor_a(row, i) * b[(group * n + column) * k + i] * factor_b(group, column, i);
    return step(row, column, sum);
  }
};

/// Every row of a group is the reference's, every other as it was.
void expect_rows(const DeviceTensor& c, const std::vector<int64_t>& group_of_row,
                 const Reference& reference) {
  const std::vector<double> got = c.to_host().to_doubles();
  std::vector<double> mine, expected;
  for (size_t row = 0; row < group_of_row.size(); ++row)
    for (int64_t j = 0; j < reference.n; ++j) {
      const double value = got[row * static_cast<size_t>(reference.n) + static_cast<size_t>(j)];
      if (group_of_row[row] < 0) {
        ASSERT_TRUE(std::isnan(value)) << "row " << row << " belongs to no group, and was written";
        continue;
      }
      mine.push_back(value);
      expected.push_back(reference.at(static_cast<int64_t>(row), group_of_row[row], j));
    }
  HostTensor host(float32, {static_cast<int64_t>(mine.size())});
  for (size_t i = 0; i < mine.size(); ++i) host.set(static_cast<int64_t>(i), mine[i]);
  const Comparison comparison = compare(host, expected, default_tolerance(c.dtype()));
  EXPECT_TRUE(comparison.passed) << comparison.format();
}

/// Groups of these numbers of rows, one after the other, and `rest` rows beyond the last.
struct Contiguous {
  std::vector<int64_t> first{0}, group_of_row;
  Contiguous(const std::vector<int64_t>& counts, int64_t rest) {
    for (size_t g = 0; g < counts.size(); ++g) {
      first.push_back(first.back() + counts[g]);
      group_of_row.insert(group_of_row.end(), static_cast<size_t>(counts[g]), static_cast<int64_t>(g));
    }
    group_of_row.insert(group_of_row.end(), static_cast<size_t>(rest), -1);
  }
  int64_t rows() const { return static_cast<int64_t>(group_of_row.size()); }
  int64_t groups() const { return static_cast<int64_t>(first.size()) - 1; }
};

const std::vector<std::vector<int64_t>> kCounts{{1}, {0, 5, 0, 130, 64, 3}, {300, 0, 129, 200}};

TEST(GroupedMatmul, Contiguous) {
  for (const std::vector<int64_t>& counts : kCounts)
    for (const DataType dtype : {bfloat16, float16}) {
      if (dtype == float16 && counts.size() != 4) continue;
      const Contiguous groups(counts, 3);
      const Device device = virtual_gpu(counts.size());
      constexpr int64_t kN = 200, kK = 104;
      const DeviceTensor a = DeviceTensor::random(device, dtype, {groups.rows(), kK}, 1),
                         b = DeviceTensor::random(device, dtype, {groups.groups(), kN, kK}, 2),
                         c = DeviceTensor::empty(device, dtype, {groups.rows(), kN});
      DeviceTensor(c).poison();
      expect_clean(grouped_matmul(a, b, c, Groups::contiguous(int32s(device, groups.first))));
      expect_rows(c, groups.group_of_row, {a.to_host().to_doubles(), b.to_host().to_doubles(), kN, kK});
    }
}

TEST(GroupedMatmul, Masked) {
  for (const int64_t room : {40, 200}) {
    const std::vector<int64_t> counts{0, room, 7, room / 2 + 1};
    std::vector<int64_t> group_of_row;
    for (size_t g = 0; g < counts.size(); ++g)
      for (int64_t i = 0; i < room; ++i) group_of_row.push_back(i < counts[g] ? static_cast<int64_t>(g) : -1);
    const Device device = virtual_gpu();
    constexpr int64_t kN = 136, kK = 72;
    const DeviceTensor a = DeviceTensor::random(device, bfloat16, {4, room, kK}, 1),
                       b = DeviceTensor::random(device, bfloat16, {4, kN, kK}, 2),
                       c = DeviceTensor::empty(device, bfloat16, {4, room, kN});
    DeviceTensor(c).poison();
    expect_clean(grouped_matmul(a, b, c, Groups::with_counts(int32s(device, counts))));
    expect_rows(c, group_of_row, {a.to_host().to_doubles(), b.to_host().to_doubles(), kN, kK});
  }
}

/// k that 16 bytes do not divide, and operands that are not dense: copied first, with zeros behind their rows.
TEST(GroupedMatmul, AnyKAndViews) {
  const Contiguous groups({5, 0, 130}, 3);
  const Device device = virtual_gpu();
  constexpr int64_t kN = 136;
  const int64_t m = groups.rows(), count = groups.groups();
  for (const DataType dtype : {DataType(bfloat16), DataType(float8_e4m3)})
    for (const int64_t k : {1, 15, 77, 197}) {
      SCOPED_TRACE(::testing::Message() << dtype.name() << ", k = " << k);
      const DeviceTensor a = DeviceTensor::random(device, dtype, {m, k}, 1),
                         b = DeviceTensor::random(device, dtype, {count, kN, k}, 2),
                         c = DeviceTensor::empty(device, bfloat16, {m, kN});
      DeviceTensor(c).poison();
      expect_clean(grouped_matmul(a, b, c, Groups::contiguous(int32s(device, groups.first))));
      expect_rows(c, groups.group_of_row, {a.to_host().to_doubles(), b.to_host().to_doubles(), kN, k});
    }
  const DeviceTensor wide = DeviceTensor::random(device, bfloat16, {m, 83}, 3),
                     a = wide.slice({0, 3}, {m, 80}),
                     b = DeviceTensor::random(device, bfloat16, {count, 80, kN}, 4).transpose(),
                     c = DeviceTensor::empty(device, bfloat16, {m, kN});
  DeviceTensor(c).poison();
  expect_clean(grouped_matmul(a, b, c, Groups::contiguous(int32s(device, groups.first))));
  expect_rows(c, groups.group_of_row, {a.to_host().to_doubles(), b.to_host().to_doubles(), kN, 80});

  const DeviceTensor masked = DeviceTensor::random(device, float8_e4m3, {2, 70, 45}, 5),
                     weights = DeviceTensor::random(device, float8_e4m3, {2, kN, 45}, 6),
                     result = DeviceTensor::empty(device, float16, {2, 70, kN});
  DeviceTensor(result).poison();
  expect_clean(grouped_matmul(masked, weights, result, Groups::with_counts(int32s(device, {70, 9}))));
  std::vector<int64_t> group_of_row(140, -1);
  for (size_t i = 0; i < 79; ++i) group_of_row[i] = i < 70 ? 0 : 1;
  expect_rows(result, group_of_row, {masked.to_host().to_doubles(), weights.to_host().to_doubles(), kN, 45});
}

TEST(GroupedMatmul, Float8) {
  for (const std::vector<int64_t>& counts : kCounts) {
    const Contiguous groups(counts, 2);
    const Device device = virtual_gpu();
    constexpr int64_t kN = 264, kK = 304;
    const int64_t m = groups.rows(), count = groups.groups();
    const DeviceTensor a = DeviceTensor::random(device, float8_e4m3, {m, kK}, 1),
                       b = DeviceTensor::random(device, float8_e4m3, {count, kN, kK}, 2),
                       c = DeviceTensor::empty(device, bfloat16, {m, kN});
    const Groups rows = Groups::contiguous(int32s(device, groups.first));
    Reference reference{a.to_host().to_doubles(), b.to_host().to_doubles(), kN, kK};
    DeviceTensor(c).poison();
    expect_clean(grouped_matmul(a, b, c, rows));
    expect_rows(c, groups.group_of_row, reference);

    const DeviceTensor per_row = DeviceTensor::random(device, float32, {m}, 3),
                       per_column = DeviceTensor::random(device, float32, {count, kN}, 4);
    const std::vector<double> row = per_row.to_host().to_doubles(),
                              column = per_column.to_host().to_doubles();
    reference.factor_a = [&](int64_t i, int64_t) { return row[i]; };
    reference.factor_b = [&](int64_t g, int64_t j, int64_t) { return column[g * kN + j]; };
    DeviceTensor(c).poison();
    expect_clean(grouped_matmul(a, b, c, rows, {.scale_a = per_row, .scale_b = per_column}));
    expect_rows(c, groups.group_of_row, reference);

    // Blocks of 128 of k, scales of a in rows that are longer than needed.
    const DeviceTensor wide = DeviceTensor::random(device, float32, {3, m + 5}, 5),
                       of_a = wide.slice({0, 0}, {3, m}),
                       of_b = DeviceTensor::random(device, float32, {count, 3, 3}, 6);
    const std::vector<double> blocks_a = of_a.to_host().to_doubles(), blocks_b = of_b.to_host().to_doubles();
    reference.factor_a = [&](int64_t i, int64_t k) { return blocks_a[k / 128 * m + i]; };
    reference.factor_b = [&](int64_t g, int64_t j, int64_t k) {
      return blocks_b[(g * 3 + j / 128) * 3 + k / 128];
    };
    DeviceTensor(c).poison();
    expect_clean(grouped_matmul(a, b, c, rows, {.scale_a = of_a, .scale_b = of_b}));
    expect_rows(c, groups.group_of_row, reference);
  }
}

TEST(GroupedMatmul, OfOneGroupIsMatmulWithScalesOfBlocks) {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{200, 264, 304},
                                {1, 8, 16},
                                {65, 128, 1024},
                                {64, 520, 128},
                                {70, 136, 197},
                                {3, 16, 1}}) {
    const Device device = virtual_gpu();
    const int64_t k_blocks = (k + 127) / 128, n_blocks = (n + 127) / 128;
    const DeviceTensor a = DeviceTensor::random(device, float8_e4m3, {m, k}, 1),
                       b = DeviceTensor::random(device, float8_e4m3, {n, k}, 2),
                       wide = DeviceTensor::random(device, float32, {k_blocks, m + 5}, 3),
                       of_a = wide.slice({0, 0}, {k_blocks, m}),
                       of_b = DeviceTensor::random(device, float32, {n_blocks, k_blocks}, 4),
                       bias = DeviceTensor::random(device, float32, {n}, 5),
                       residual = DeviceTensor::random(device, bfloat16, {m, n}, 6),
                       c = DeviceTensor::empty(device, bfloat16, {m, n});
    const std::vector<double> blocks_a = of_a.to_host().to_doubles(), blocks_b = of_b.to_host().to_doubles();
    Reference reference{a.to_host().to_doubles(), b.to_host().to_doubles(), n, k};
    reference.factor_a = [&, m = m](int64_t i, int64_t l) { return blocks_a[l / 128 * m + i]; };
    reference.factor_b = [&](int64_t, int64_t j, int64_t l) {
      return blocks_b[j / 128 * k_blocks + l / 128];
    };
    const std::vector<int64_t> all(static_cast<size_t>(m), 0);
    DeviceTensor(c).poison();
    expect_clean(matmul(a, b, c, {.scale_a = of_a, .scale_b = of_b}));
    expect_rows(c, all, reference);

    const std::vector<double> biases = bias.to_host().to_doubles(), before = residual.to_host().to_doubles();
    reference.step = [&, n = n](int64_t i, int64_t j, double sum) {
      return std::max(0.0, 0.5 * sum + biases[j] + 2 * before[i * n + j]);
    };
    DeviceTensor(c).poison();
    expect_clean(matmul(a, b, c,
                        {.alpha = 0.5f,
                         .scale_a = of_a,
                         .scale_b = of_b,
                         .bias = bias,
                         .beta = 2,
                         .residual = residual,
                         .activation = Activation::kRelu}));
    expect_rows(c, all, reference);
  }
}

TEST(GroupedMatmul, ScalesOfBlocksThatDoNotFitAMatmulAreRefused) {
  const Device device = virtual_gpu();
  const auto tensor = [&](DataType dtype, std::vector<int64_t> shape) {
    return DeviceTensor::empty(device, dtype, std::move(shape));
  };
  const DeviceTensor a = tensor(float8_e4m3, {64, 256}), b = tensor(float8_e4m3, {128, 256}),
                     c = tensor(bfloat16, {64, 128}), of_a = tensor(float32, {2, 64}),
                     of_b = tensor(float32, {1, 2});
  const auto refusal = [&](const DeviceTensor& from, const DeviceTensor& to, const DeviceTensor& sa,
                           const DeviceTensor& sb) -> std::string {
    try {
      matmul(from, b, to, {.scale_a = sa, .scale_b = sb});
    } catch (const LaunchError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(a, c, of_a, of_b), "");
  EXPECT_THAT(refusal(a, c, of_a, {}), HasSubstr("one operand has scales of blocks"));
  EXPECT_THAT(refusal(a, c, tensor(float32, {3, 64}), of_b), HasSubstr("scale_a is not float32 [2, 64]"));
  EXPECT_THAT(refusal(a, c, of_a, tensor(float32, {2, 2})), HasSubstr("scale_b is not float32 [1, 2]"));
  EXPECT_THAT(refusal(a, tensor(float32, {64, 128}), of_a, of_b), HasSubstr("c is of 16 bits"));
}

TEST(GroupedMatmul, WeightGradient) {
  for (const std::vector<int64_t>& counts : kCounts) {
    const Contiguous groups(counts, 2);
    const Device device = virtual_gpu();
    constexpr int64_t kP = 200, kQ = 264;
    const int64_t m = groups.rows(), count = groups.groups();
    const DeviceTensor a = DeviceTensor::random(device, bfloat16, {m, kP}, 1),
                       b = DeviceTensor::random(device, bfloat16, {m, kQ}, 2),
                       c = DeviceTensor::empty(device, bfloat16, {count, kP, kQ});
    // Rows of no group, which the tiles of the last one reach into, must not count.
    DeviceTensor(a).slice({m - 2, 0}, {2, kP}).poison();
    DeviceTensor(c).poison();
    expect_clean(grouped_matmul_weight_gradient(a, b, c, Groups::contiguous(int32s(device, groups.first))));
    const std::vector<double> from_a = a.to_host().to_doubles(), from_b = b.to_host().to_doubles();
    std::vector<double> expected(static_cast<size_t>(count * kP * kQ));
    for (int64_t row = 0; row < m - 2; ++row)
      for (int64_t p = 0; p < kP; ++p)
        for (int64_t q = 0; q < kQ; ++q)
          expected[(groups.group_of_row[row] * kP + p) * kQ + q] +=
              from_a[row * kP + p] * from_b[row * kQ + q];
    const Comparison comparison = compare(c.to_host(), expected, default_tolerance(bfloat16));
    EXPECT_TRUE(comparison.passed) << comparison.format();
  }
}

/// Only the device knows the rows of groups: what cannot be is found when it runs.
TEST(GroupedMatmul, RowsThatDecreaseAreFound) {
  const Device device = virtual_gpu();
  const auto random = [&](std::vector<int64_t> shape) {
    return DeviceTensor::random(device, bfloat16, shape, 1);
  };
  const DeviceTensor a = random({30, 64}), b = random({3, 40, 64});
  const auto said_of = [&](const DeviceTensor& a, std::vector<int64_t> shape_of_c, const Groups& groups) {
    const LaunchReport report =
        grouped_matmul(a, b, DeviceTensor::empty(device, bfloat16, shape_of_c), groups);
    return report.virtual_report.format();
  };
  const auto decreases = HasSubstr("the numbers in `rows` do not decrease");
  EXPECT_THAT(said_of(a, {30, 40}, Groups::contiguous(int32s(device, {0, 20, 10, 30}))), decreases);
  EXPECT_THAT(said_of(a, {30, 40}, Groups::contiguous(int32s(device, {-1, 10, 20, 30}))), decreases);
  EXPECT_THAT(said_of(random({3, 10, 64}), {3, 10, 40}, Groups::with_counts(int32s(device, {10, -1, 5}))),
              decreases);
  const LaunchReport gradient =
      grouped_matmul_weight_gradient(a, random({30, 40}), DeviceTensor::empty(device, bfloat16, {3, 64, 40}),
                                     Groups::contiguous(int32s(device, {0, 20, 10, 30})));
  EXPECT_THAT(gradient.virtual_report.format(), decreases);
}

TEST(GroupedMatmul, RefusesByName) {
  const Device device = virtual_gpu();
  const auto tensor = [&](DataType dtype, std::vector<int64_t> shape) {
    return DeviceTensor::empty(device, dtype, shape);
  };
  const DeviceTensor a = tensor(bfloat16, {10, 64}), b = tensor(bfloat16, {3, 40, 64}),
                     c = tensor(bfloat16, {10, 40}), rows = tensor(int32, {4});
  const auto refused = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const LaunchError& error) {
      return error.what();
    }
    return "not refused";
  };
  EXPECT_THAT(refused([&] { grouped_matmul(a, b, c, Groups::contiguous(tensor(int32, {3}))); }),
              HasSubstr("grouped_matmul: b has 3 groups, and rows 3 numbers"));
  const DeviceTensor square = tensor(float16, {10, 40});
  EXPECT_THAT(refused([&] {
                grouped_matmul(square, tensor(float16, {3, 40, 40}), square, Groups::contiguous(rows));
              }),
              HasSubstr("c and a share memory"));
  EXPECT_THAT(refused([&] { grouped_matmul(a, b, c, Groups::contiguous(tensor(float32, {4}))); }),
              HasSubstr("rows are not a vector of int32"));
  EXPECT_THAT(refused([&] { grouped_matmul(a, b, c, Groups::with_counts(rows)); }),
              HasSubstr("a has 2 dimensions, not 3"));
  EXPECT_THAT(refused([&] {
                grouped_matmul(a, b, tensor(float32, {10, 40}), Groups::contiguous(rows));
              }),
              HasSubstr("c is of float32"));
  EXPECT_THAT(refused([&] {
                grouped_matmul(a, tensor(bfloat16, {3, 36, 64}), tensor(bfloat16, {10, 36}),
                               Groups::contiguous(rows));
              }),
              HasSubstr("n is 36, not a multiple of 8"));
  EXPECT_THAT(
      refused([&] { grouped_matmul(a, b, c, Groups::contiguous(rows), {.scale_a = tensor(float32, {10})}); }),
      HasSubstr("one operand has scales, the other none"));
  EXPECT_THAT(refused([&] { grouped_matmul(a, b, DeviceTensor(), Groups::contiguous(rows)); }),
              HasSubstr("c is null or released"));
  EXPECT_THAT(refused([&] { grouped_matmul_weight_gradient(a, c, b, Groups::contiguous(rows)); }),
              HasSubstr("c is [3, 40, 64], not [3, 64, 40]"));
  const Device ampere = Device::virtual_gpu({.target = "sm_80"});
  const DeviceTensor x = DeviceTensor::empty(ampere, bfloat16, {1, 8, 8}),
                     r = DeviceTensor::empty(ampere, int32, {1});
  EXPECT_THAT(refused([&] { grouped_matmul(x, x, x, Groups::with_counts(r)); }), HasSubstr("no kernel for"));
}

}  // namespace
}  // namespace imbrex::testing
