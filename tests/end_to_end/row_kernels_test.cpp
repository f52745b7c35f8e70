// SPDX-License-Identifier: Apache-2.0
// The functions of rows beside softmax and layer_norm: gradients, RMS norm, cross-entropy, gates, RoPE, transposing,
// quantising and top-k, against float64: odd sizes, all types, strides, rows longer than a tile.
#include <gmock/gmock.h>

#include <cmath>
#include <numeric>
#include <random>

#include "imbrex/core/error.h"
#include "imbrex/kernels/layer_norm.h"
#include "imbrex/kernels/rows/cross_entropy.h"
#include "imbrex/kernels/rows/gated.h"
#include "imbrex/kernels/rows/quantise.h"
#include "imbrex/kernels/rows/rms_norm.h"
#include "imbrex/kernels/rows/rope.h"
#include "imbrex/kernels/rows/top_k.h"
#include "imbrex/kernels/rows/transpose.h"
#include "imbrex/kernels/softmax.h"
#include "imbrex/runtime/compare.h"
#include "strided_memory.h"

namespace imbrex::testing {
namespace {

using ::testing::HasSubstr;

Device virtual_gpu(const std::string& target = "sm_80") {
  return Device::virtual_gpu({.target = target, .num_sms = 3, .checks = vgpu::CheckSet::all()});
}

/// The tensors of a test, and how they are compared.
struct Bench {
  Device device;
  std::vector<int64_t> shape;
  Lie lie;
  DataType dtype;
  uint64_t seed = 1;

  int64_t columns() const { return shape.back(); }
  int64_t rows() const {
    return std::accumulate(shape.begin(), shape.end() - 1, int64_t{1}, std::multiplies<>());
  }
  StridedMemory input() { return {device, dtype, shape, seed++, lie}; }
  StridedMemory output(DataType type) {
    StridedMemory y(device, type, shape, seed++, lie);
    y.tensor.poison();
    return y;
  }
  StridedMemory output() { return output(dtype); }
  DeviceTensor vector() { return DeviceTensor::random(device, dtype, {columns()}, seed++); }
};

void expect_clean(const LaunchReport& report) {
  EXPECT_TRUE(report.clean()) << report.virtual_report.format();
}
void expect_values(const DeviceTensor& y, const std::vector<double>& expected, double tolerance = -1) {
  const Comparison c =
      compare(y.to_host(), expected, tolerance < 0 ? default_tolerance(y.dtype()) : tolerance);
  EXPECT_TRUE(c.passed) << c.format();
}
void expect_values(const StridedMemory& y, const std::vector<double>& expected, double tolerance = -1) {
  expect_values(y.tensor, expected, tolerance);
  y.expect_surroundings_untouched();
}

/// Runs body(bench) for shapes, strides and types; `longest` shape too where rows may be long.
template <class Body>
void each_bench(const Body& body, bool with_long = true) {
  struct Lies {
    std::vector<int64_t> shape;
    Lie lie = {};
  };
  const std::vector<Lies> lies{{{9, 200}},
                               {{7, 77}, {.gap = 3, .first = 1}},
                               {{3, 5, 136}, {.order = {1, 0, 2}, .gap = 8}},
                               {{2, 3, 64}, {.gap = 8, .first = 8}},
                               {{1, 1}},
                               {{19, 203}},
                               {{2, 7, 1031}},
                               {{8, 203}},
                               {{2, 4100}},
                               {{2, 33001}}};
  for (size_t i = 0; i < lies.size() - (with_long ? 0 : 1); ++i)
    for (DataType dtype : {float32, bfloat16, float16}) {
      if (dtype == float16 && i != 2) continue;
      SCOPED_TRACE(::testing::Message() << "shape " << i << " " << dtype.name());
      Bench bench{virtual_gpu(), lies[i].shape, lies[i].lie, dtype};
      body(bench);
    }
}

TEST(RowKernels, RmsNorm) {
  each_bench([](Bench& b) {
    const StridedMemory x = b.input(), y = b.output();
    const DeviceTensor weight = b.vector();
    expect_clean(rms_norm(x.tensor, weight, y.tensor, 0.5f));
    std::vector<double> expected = x.values();
    const std::vector<double> w = weight.to_host().to_doubles();
    const int64_t n = b.columns();
    for (int64_t i = 0; i < b.rows(); ++i) {
      double squares = 0;
      for (int64_t j = 0; j < n; ++j)
        squares += expected[i * n + j] * expected[i * n + j] / static_cast<double>(n);
      for (int64_t j = 0; j < n; ++j) expected[i * n + j] *= w[j] / std::sqrt(squares + 0.5);
    }
    expect_values(y, expected);
  });
}

TEST(RowKernels, RmsFactors) {
  each_bench([](Bench& b) {
    if (b.shape.size() == 3) return;
    const StridedMemory x = b.input();
    const DeviceTensor factors = DeviceTensor::empty(b.device, float32, {b.rows()});
    DeviceTensor(factors).poison();
    expect_clean(rms_factors(x.tensor, factors, 0.5f));
    const std::vector<double> values = x.values();
    const int64_t n = b.columns();
    std::vector<double> expected;
    for (int64_t i = 0; i < b.rows(); ++i) {
      double squares = 0;
      for (int64_t j = 0; j < n; ++j)
        squares += values[i * n + j] * values[i * n + j] / static_cast<double>(n);
      expected.push_back(1 / std::sqrt(squares + 0.5));
    }
    expect_values(factors, expected, 1e-4);
  });
}

/// A row's normal values, and the factor, of RMS norm or layer norm.
std::pair<std::vector<double>, double> normal(const double* x, int64_t n, double epsilon, bool centred) {
  double mean = 0, variance = 0;
  for (int64_t j = 0; centred && j < n; ++j) mean += x[j] / static_cast<double>(n);
  for (int64_t j = 0; j < n; ++j) variance += (x[j] - mean) * (x[j] - mean) / static_cast<double>(n);
  const double scale = 1 / std::sqrt(variance + epsilon);
  std::vector<double> values;
  for (int64_t j = 0; j < n; ++j) values.push_back((x[j] - mean) * scale);
  return {values, scale};
}

void expect_norm_gradients(Bench& b, bool centred) {
  const int64_t n = b.columns();
  if (n > 16384) return;
  const StridedMemory dy = b.input(), x = b.input(), dx = b.output();
  const DeviceTensor weight = b.vector(), dweight = DeviceTensor::empty(b.device, float32, {n}),
                     dbias = DeviceTensor::empty(b.device, b.dtype, {n});
  DeviceTensor(dweight).poison(), DeviceTensor(dbias).poison();
  expect_clean(centred ? layer_norm_backward(dy.tensor, x.tensor, weight, dx.tensor, dweight, dbias, 0.5f)
                       : rms_norm_backward(dy.tensor, x.tensor, weight, dx.tensor, dweight, 0.5f));
  const std::vector<double> in = x.values(), gradient = dy.values(), w = weight.to_host().to_doubles();
  std::vector<double> expected(in.size()), of_weight(static_cast<size_t>(n)), of_bias(static_cast<size_t>(n));
  for (int64_t i = 0; i < b.rows(); ++i) {
    const auto [values, scale] = normal(&in[i * n], n, 0.5, centred);
    double along = 0, shift = 0;
    for (int64_t j = 0; j < n; ++j) {
      const double g = gradient[i * n + j];
      along += g * w[j] * values[j] / static_cast<double>(n);
      if (centred) shift += g * w[j] / static_cast<double>(n);
      of_weight[j] += g * values[j], of_bias[j] += g;
    }
    for (int64_t j = 0; j < n; ++j)
      expected[i * n + j] = scale * (gradient[i * n + j] * w[j] - shift - values[j] * along);
  }
  expect_values(dx, expected);
  expect_values(dweight, of_weight);
  if (centred) expect_values(dbias, of_bias);
}

TEST(RowKernels, RmsNormBackward) {
  each_bench([](Bench& b) { expect_norm_gradients(b, false); }, false);
}
TEST(RowKernels, LayerNormBackward) {
  each_bench([](Bench& b) { expect_norm_gradients(b, true); }, false);
}

/// So many rows that the last CTAs begin when others have ended: one row a CTA, several, and of a batch.
TEST(RowKernels, NormBackwardOfManyRows) {
  for (const bool centred : {false, true})
    for (const auto& [shape, dtype] : {std::pair<std::vector<int64_t>, DataType>{{61, 4096}, bfloat16},
                                       {{203, 1000}, float16},
                                       {{3, 431, 136}, float32},
                                       {{37, 8192}, bfloat16}}) {
      Bench b{virtual_gpu("sm_90a"), shape, {}, dtype};
      expect_norm_gradients(b, centred);
    }
}

TEST(RowKernels, OnlyTheGradientsThatAreAskedFor) {
  Bench b{virtual_gpu(), {5, 40}, {}, float32};
  const StridedMemory dy = b.input(), x = b.input();
  const DeviceTensor weight = b.vector(), all = DeviceTensor::empty(b.device, float32, {40}),
                     one = DeviceTensor::empty(b.device, float32, {40}),
                     dx = DeviceTensor::empty(b.device, float32, {5, 40});
  layer_norm_backward(dy.tensor, x.tensor, weight, dx, {}, all).expect_clean();
  layer_norm_backward(dy.tensor, x.tensor, weight, {}, {}, one).expect_clean();
  EXPECT_EQ(all.to_host().to_doubles(), one.to_host().to_doubles());
  rms_norm_backward(dy.tensor, x.tensor, weight, {}, all).expect_clean();
  rms_norm_backward(dy.tensor, x.tensor, weight, dy.tensor, one).expect_clean();  // dx in the place of dy
  EXPECT_EQ(all.to_host().to_doubles(), one.to_host().to_doubles());
}

TEST(RowKernels, SoftmaxAndItsGradient) {
  each_bench([](Bench& b) {
    const StridedMemory x = b.input(), dy = b.input(), y = b.output(), dx = b.output();
    expect_clean(softmax(x.tensor, y.tensor));
    std::vector<double> expected = x.values();
    const int64_t n = b.columns();
    for (int64_t i = 0; i < b.rows(); ++i) {
      double sum = 0;
      for (int64_t j = 0; j < n; ++j) sum += expected[i * n + j] = std::exp(expected[i * n + j]);
      for (int64_t j = 0; j < n; ++j) expected[i * n + j] /= sum;
    }
    expect_values(y, expected);

    const StridedMemory given = b.input();
    expect_clean(softmax_backward(dy.tensor, given.tensor, dx.tensor));
    const std::vector<double> value = given.values(), gradient = dy.values();
    for (int64_t i = 0; i < b.rows(); ++i) {
      double along = 0;
      for (int64_t j = i * n; j < i * n + n; ++j) along += value[j] * gradient[j];
      for (int64_t j = i * n; j < i * n + n; ++j) expected[j] = value[j] * (gradient[j] - along);
    }
    // At one column the two terms are equal; elsewhere errors are those of the larger.
    if (n > 1) expect_values(dx, expected, default_tolerance(b.dtype) * 4);
  });
}

void expect_cross_entropy(Bench& b) {
  if (b.shape.size() == 3) return;
  const int64_t m = b.rows(), n = b.columns();
  const StridedMemory x = b.input(), dx = b.output();
  HostTensor target(int32, {m});
  for (int64_t i = 0; i < m; ++i) target.set(i, i % 4 == 2 ? -1 : static_cast<double>((i * 7919) % n));
  const DeviceTensor loss = DeviceTensor::empty(b.device, float32, {m});
  DeviceTensor(loss).poison();
  const DeviceTensor targets = DeviceTensor::from_host(b.device, target);
  expect_clean(cross_entropy(x.tensor, targets, loss, dx.tensor, 0.5f));
  std::vector<double> expected = x.values(), losses;
  for (int64_t i = 0; i < m; ++i) {
    const auto own = static_cast<int64_t>(target.get(i));
    double sum = 0;
    for (int64_t j = 0; j < n; ++j) sum += std::exp(expected[i * n + j]);
    losses.push_back(own < 0 ? 0 : std::log(sum) - expected[i * n + own]);
    for (int64_t j = 0; j < n; ++j)
      expected[i * n + j] = own < 0 ? 0 : 0.5 * (std::exp(expected[i * n + j]) / sum - (j == own ? 1 : 0));
  }
  if (n > 1) expect_values(loss, losses, 1e-4);
  expect_values(dx, expected, n > 1 ? -1 : 1);
  // In place, without the loss.
  expect_clean(cross_entropy(x.tensor, targets, {}, x.tensor, 0.5f));
  EXPECT_EQ(x.values(), dx.values());
}

TEST(RowKernels, CrossEntropy) { each_bench(expect_cross_entropy); }

TEST(RowKernels, CrossEntropyOfLongRowsThatBeginAnywhere) {
  for (DataType dtype : {bfloat16, float32})
    for (int64_t columns : {16385, 16390, 24583}) {
      SCOPED_TRACE(::testing::Message() << columns << " " << dtype.name());
      Bench b{virtual_gpu(), {9, columns}, {}, dtype};
      expect_cross_entropy(b);
    }
}

double activation(double x, Activation function) {
  switch (function) {
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGelu:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kGeluErf:
      return x / 2 * (1 + std::erf(x / std::sqrt(2)));
    case Activation::kRelu:
      return std::max(x, 0.0);
    default:
      return x;
  }
}

TEST(RowKernels, GatesAndTheirGradients) {
  each_bench([](Bench& b) {
    for (Activation function :
         {Activation::kSilu, Activation::kGelu, Activation::kGeluErf, Activation::kRelu, Activation::kNone}) {
      if (function != Activation::kSilu && (b.dtype != float32 || b.columns() > 200)) continue;
      SCOPED_TRACE(static_cast<int>(function));
      const StridedMemory dy = b.input(), gate = b.input(), up = b.input(), y = b.output(),
                          dgate = b.output(), dup = b.output();
      expect_clean(gated(gate.tensor, up.tensor, y.tensor, function));
      expect_clean(gated_backward(dy.tensor, gate.tensor, up.tensor, dgate.tensor, dup.tensor, function));
      const std::vector<double> g = gate.values(), u = up.values(), d = dy.values();
      std::vector<double> forward, of_gate, of_up;
      for (size_t i = 0; i < g.size(); ++i) {
        constexpr double kStep = 1e-5;
        const double slope =
            (activation(g[i] + kStep, function) - activation(g[i] - kStep, function)) / (2 * kStep);
        forward.push_back(activation(g[i], function) * u[i]);
        of_gate.push_back(d[i] * u[i] * slope);
        of_up.push_back(d[i] * activation(g[i], function));
      }
      expect_values(y, forward), expect_values(dgate, of_gate), expect_values(dup, of_up);
    }
  });
}

TEST(RowKernels, GatesOfTwoHalves) {
  const Device device = virtual_gpu();
  const DeviceTensor both = DeviceTensor::random(device, bfloat16, {6, 80}, 1),
                     y = DeviceTensor::empty(device, bfloat16, {6, 40});
  gated(both.slice({0, 0}, {6, 40}), both.slice({0, 40}, {6, 40}), y).expect_clean();
  const std::vector<double> in = both.to_host().to_doubles();
  std::vector<double> expected;
  for (int64_t i = 0; i < 6; ++i)
    for (int64_t j = 0; j < 40; ++j)
      expected.push_back(activation(in[i * 80 + j], Activation::kSilu) * in[i * 80 + 40 + j]);
  expect_values(y, expected);
}

TEST(RowKernels, Rope) {
  for (const bool interleaved : {false, true})
    for (const int64_t d : {64, 6, 130})
      for (const Lie& lie :
           {Lie{}, Lie{.gap = 8, .first = 8}, Lie{.order = {1, 0, 2}, .gap = 1, .first = 3}}) {
        SCOPED_TRACE(::testing::Message() << interleaved << " " << d);
        constexpr int64_t kTokens = 5, kHeads = 3, kPositions = 9;
        Bench b{virtual_gpu(), {kTokens, kHeads, d}, lie, d == 6 ? float32 : bfloat16};
        const StridedMemory x = b.input(), y = b.output(), back = b.output();
        HostTensor c(float32, {kPositions, d / 2}), s(float32, {kPositions, d / 2}), place(int32, {kTokens});
        for (int64_t i = 0; i < c.elements(); ++i)
          c.set(i, std::cos(static_cast<double>(i))), s.set(i, std::sin(static_cast<double>(i)));
        for (int64_t t = 0; t < kTokens; ++t) place.set(t, static_cast<double>(t * 5 % kPositions));
        const DeviceTensor cos = DeviceTensor::from_host(b.device, c),
                           sin = DeviceTensor::from_host(b.device, s),
                           positions = DeviceTensor::from_host(b.device, place);
        expect_clean(
            rope(x.tensor, cos, sin, y.tensor, {.interleaved = interleaved, .positions = positions}));
        std::vector<double> expected = x.values();
        for (int64_t head = 0; head < kTokens * kHeads; ++head)
          for (int64_t i = 0; i < d / 2; ++i) {
            const auto row = static_cast<int64_t>(place.get(head / kHeads));
            double& first = expected[head * d + (interleaved ? 2 * i : i)];
            double& second = expected[head * d + (interleaved ? 2 * i + 1 : i + d / 2)];
            const double cosine = c.get(row * (d / 2) + i), sine = s.get(row * (d / 2) + i), before = first;
            first = first * cosine - second * sine;
            second = second * cosine + before * sine;
          }
        expect_values(y, expected);
        expect_clean(rope(y.tensor, cos, sin, back.tensor,
                          {.interleaved = interleaved, .inverse = true, .positions = positions}));
        expect_values(back, x.values(), 3 * default_tolerance(b.dtype));
      }
}

TEST(RowKernels, Transpose) {
  for (const DataType dtype : {bfloat16, float32, uint8, float8_e4m3, int32})
    for (const auto& [m, n] :
         std::vector<std::pair<int64_t, int64_t>>{{64, 64}, {200, 33}, {1, 70}, {130, 16}}) {
      Bench b{virtual_gpu("sm_90"), {2, m, n}, {.gap = m == 130 ? 16 : 1}, dtype};
      const StridedMemory x = b.input();
      b.shape = {2, n, m};
      const StridedMemory y = b.output();
      expect_clean(transpose(x.tensor, y.tensor));
      expect_values(y, x.tensor.transpose().to_host().to_doubles(), 0);
    }
}

TEST(RowKernels, QuantisesRowsAndBlocks) {
  for (const int64_t n : {200, 77, 1024, 33001})
    for (const int block : {0, 128})
      for (const bool has_gate : {false, true}) {
        if (has_gate && n > 1024) continue;
        SCOPED_TRACE(::testing::Message() << n << " " << block << " " << has_gate);
        Bench b{virtual_gpu("sm_90"), {5, n}, {.gap = 3}, n == 77 ? float32 : bfloat16};
        const StridedMemory x = b.input(), gate = b.input(), q = b.output(float8_e4m3);
        if (n == 200) x.tensor.slice({2, 0}, {1, n}).fill(0);  // a row of zeros
        const int64_t width = block == 0 ? n : block, blocks = (n + width - 1) / width;
        const DeviceTensor scale = DeviceTensor::empty(b.device, float32, {blocks, 5});
        DeviceTensor(scale).poison();
        expect_clean(quantise_float8(x.tensor, q.tensor, scale.transpose(),
                                     {.block = block, .gate = has_gate ? gate.tensor : DeviceTensor()}));
        const std::vector<double> in = x.values(), through = gate.values(), got = q.values(),
                                  scales = scale.to_host().to_doubles();
        for (int64_t i = 0; i < 5; ++i)
          for (int64_t k = 0; k < blocks; ++k) {
            const double by = scales[k * 5 + i];
            double largest = 0;
            for (int64_t j = k * width; j < std::min(n, (k + 1) * width); ++j) {
              const double value =
                  in[i * n + j] * (has_gate ? activation(through[i * n + j], Activation::kSilu) : 1);
              largest = std::max(largest, std::abs(value));
              // Three bits of mantissa; below 2^-6 they are steps of 2^-9.
              EXPECT_NEAR(got[i * n + j] * by, value, std::max(std::abs(value) / 15.9, by / 1023));
            }
            EXPECT_NEAR(by, largest > 0 ? largest / 448 : 1, by * 1e-5);
          }
        q.expect_surroundings_untouched();
      }
}

TEST(RowKernels, TopK) {
  for (const auto& [m, n, k] : std::vector<std::array<int64_t, 3>>{{9, 256, 8},
                                                                   {37, 60, 2},
                                                                   {5, 77, 64},
                                                                   {5, 1000, 40},
                                                                   {3, 1, 1},
                                                                   {2, 33001, 3},
                                                                   {5, 4096, 8},
                                                                   {5, 7000, 50},
                                                                   {2, 16390, 64},
                                                                   {10, 16390, 64},
                                                                   {1, 70001, 30},
                                                                   {20, 40960, 64}})
    for (const DataType dtype : {float32, bfloat16}) {
      SCOPED_TRACE(::testing::Message() << n << " " << dtype.name());
      Bench b{virtual_gpu(), {m, n}, {.gap = 1}, dtype};
      const StridedMemory x = b.input();
      if (n == 60 || n == 256 || n == 1000 || n == 7000 ||
          n == 40960) {  // nothing but minus infinity, and some NaNs
        HostTensor row(dtype, {1, n});
        for (int64_t j = 0; j < n; ++j) row.set(j, j % 3 == 1 ? std::nan("") : -INFINITY);
        x.tensor.slice({4, 0}, {1, n}).copy_from(row);
      }
      const DeviceTensor values = DeviceTensor::empty(b.device, dtype, {m, k}),
                         indices = DeviceTensor::empty(b.device, int32, {m, k});
      DeviceTensor(values).poison(), DeviceTensor(indices).poison();
      expect_clean(top_k(x.tensor, values, indices));
      std::vector<double> in = x.values(), expected, places;
      for (double& value : in)
        if (std::isnan(value)) value = -INFINITY;
      for (int64_t i = 0; i < m; ++i) {
        std::vector<int64_t> order(static_cast<size_t>(n));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(),
                         [&](int64_t p, int64_t q) { return in[i * n + p] > in[i * n + q]; });
        for (int64_t j = 0; j < k; ++j)
          expected.push_back(in[i * n + order[j]]), places.push_back(static_cast<double>(order[j]));
      }
      EXPECT_EQ(values.to_host().to_doubles(), expected);
      EXPECT_EQ(indices.to_host().to_doubles(), places);
    }
}

// Rows in which the k-th largest element has many equals, an outlier far from the rest, and rows in order.
TEST(RowKernels, TopKOfEqualElements) {
  for (const auto& [n, k] : std::vector<std::array<int64_t, 2>>{
           {130, 8}, {1000, 50}, {4096, 32}, {20000, 50}, {48, 48}, {40003, 64}}) {
    SCOPED_TRACE(n);
    const Device device = virtual_gpu(n % 2 == 0 ? "sm_80" : "sm_90");
    constexpr int64_t kRows = 9;  // enough for long rows to be taken one by a CTA
    HostTensor host(float32, {kRows, n});
    std::mt19937 random(static_cast<uint32_t>(n));
    for (int64_t j = 0; j < n; ++j) {
      host.set(j, 1);                                                               // all equal
      host.set(n + j, random() % 64 == 0 ? static_cast<double>(random() % 5) : 0);  // few positive ones
      host.set(2 * n + j, static_cast<double>(j));
      host.set(3 * n + j, static_cast<double>(-j));
      host.set(4 * n + j, j == n / 2 ? 1e30 : static_cast<double>(random() % 1000) * 1e-3);
      host.set(5 * n + j, j % 2 == 0 ? -0.0 : 0.0);
      host.set(6 * n + j, j < 2 ? INFINITY : -1e-40 * static_cast<double>(j % 3));
      host.set(7 * n + j, j % 3000 == 17 ? -1 : -INFINITY);
      host.set(8 * n + j, static_cast<double>(j / 5000 * 100 + random() % 8));  // crowded anew every 5000
    }
    const DeviceTensor x = DeviceTensor::from_host(device, host),
                       values = DeviceTensor::empty(device, float32, {kRows, k}),
                       indices = DeviceTensor::empty(device, int32, {kRows, k});
    DeviceTensor(values).poison(), DeviceTensor(indices).poison();
    expect_clean(top_k(x, values, indices));
    const std::vector<double> in = host.to_doubles(), got = values.to_host().to_doubles(),
                              places = indices.to_host().to_doubles();
    for (int64_t i = 0; i < kRows; ++i) {
      std::vector<int64_t> order(static_cast<size_t>(n));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](int64_t p, int64_t q) { return in[i * n + p] > in[i * n + q]; });
      for (int64_t j = 0; j < k; ++j) {
        EXPECT_EQ(got[i * k + j], in[i * n + order[j]]) << "row " << i << ", " << j;
        EXPECT_EQ(places[i * k + j], order[j]) << "row " << i << ", " << j;
      }
    }
  }
}

TEST(RowKernels, RefuseByName) {
  const Device device = virtual_gpu();
  const DeviceTensor x = DeviceTensor::random(device, float32, {4, 30}, 1),
                     y = DeviceTensor::empty(device, float32, {4, 30}),
                     w = DeviceTensor::random(device, float32, {30}, 2),
                     i = DeviceTensor::empty(device, int32, {4, 30}),
                     three = DeviceTensor::empty(device, float32, {4, 2, 9});
  const auto refused = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const LaunchError& error) {
      return error.what();
    }
    return "not refused";
  };
  EXPECT_THAT(refused([&] { rms_norm(x, x, y); }),
              HasSubstr("rms_norm: weight is not a dense tensor of [30]"));
  EXPECT_THAT(refused([&] { rms_norm(i, w, y); }),
              HasSubstr("rms_norm: x is of int32, not float16, bfloat16 or float32"));
  EXPECT_THAT(refused([&] { rms_norm_backward(x, y, w, y.transpose(), {}); }),
              HasSubstr("rms_norm_backward: dx has another shape"));
  const DeviceTensor wide = DeviceTensor::empty(device, float32, {1, 16385});
  EXPECT_THAT(refused([&] { rms_norm_backward(wide, wide, wide[0], wide, {}); }),
              HasSubstr("dy has 16385 columns, at most 16384"));
  EXPECT_THAT(refused([&] { cross_entropy(x, w, {}); }),
              HasSubstr("cross_entropy: target is of float32, not int32"));
  EXPECT_THAT(refused([&] { gated(x, DeviceTensor(), y); }), HasSubstr("gated: up is null or released"));
  EXPECT_THAT(refused([&] { rope(three, x, x, three); }), HasSubstr("has heads of 9 elements"));
  EXPECT_THAT(refused([&] { transpose(x, y); }), HasSubstr("transpose: y is not [30, 4]"));
  EXPECT_THAT(refused([&] {
                top_k(x, y.slice({0, 0}, {4, 30}), y);
              }),
              HasSubstr("top_k: indices is of float32, not int32"));
  EXPECT_THAT(refused([&] {
                top_k(x, DeviceTensor::empty(device, float32, {4, 31}), i);
              }),
              HasSubstr("values asks for the 31 largest of 30 columns"));
  EXPECT_THAT(refused([&] {
                quantise_float8(x, DeviceTensor::empty(device, float8_e4m3, {4, 30}), w);
              }),
              HasSubstr("x is on 'virtual GPU (sm_80)', which has no float8"));
}

}  // namespace
}  // namespace imbrex::testing
