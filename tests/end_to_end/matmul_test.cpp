// SPDX-License-Identifier: Apache-2.0
// imbrex::matmul on the virtual GPU: the kernels it chooses for small products, odd sizes, both types; the
// choices for shapes that have been measured; what it refuses.
#include "imbrex/kernels/matmul.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <array>
#include <cmath>
#include <random>

#include "../param_name.h"
#include "activations.h"
#include "imbrex/runtime/compare.h"
#include "imbrex/runtime/registry.h"
#include "kit.h"
#include "matmul/matmul_choice.h"
#include "matmul/matmul_time.h"

namespace imbrex::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Product {
  int64_t m, n, k;
  const char* kernel;
  int multiprocessors = 0;  // 0: the real chip's

  friend std::ostream& operator<<(std::ostream& out, const Product& p) {
    return out << p.m << "x" << p.n << "x" << p.k << " " << p.kernel;
  }
};

class Matmul : public ::testing::TestWithParam<Product> {};

TEST_P(Matmul, AgreesWithTheReference) {
  const auto [m, n, k, kernel, multiprocessors] = GetParam();
  for (DataType dtype : {float16, bfloat16}) {
    const Device device = Device::virtual_gpu(
        {.target = "sm_90a", .num_sms = multiprocessors, .seed = 3, .checks = vgpu::CheckSet::all()});
    EXPECT_THAT(matmul_choice(m, n, k, device.multiprocessors()), StartsWith(kernel));
    const DeviceTensor a = DeviceTensor::random(device, dtype, {m, k}, 1),
                       b = DeviceTensor::random(device, dtype, {n, k}, 2);
    DeviceTensor c = DeviceTensor::empty(device, dtype, {m, n});
    c.poison();
    const LaunchReport report = matmul(a, b, c);
    EXPECT_TRUE(report.clean()) << report.virtual_report.format();
    const std::vector<double> x = a.to_host().to_doubles(), y = b.to_host().to_doubles();
    std::vector<double> expected(static_cast<size_t>(m * n));
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j)
        for (int64_t l = 0; l < k; ++l) expected[i * n + j] += x[i * k + l] * y[j * k + l];
    const Comparison comparison = compare(c.to_host(), expected, default_tolerance(dtype));
    EXPECT_TRUE(comparison.passed) << comparison.format();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Sizes, Matmul,
    ::testing::Values(
        Product{1, 72, 64, "hopper_matmul_"}, Product{5, 200, 72, "hopper_matmul_"},
        Product{30, 200, 1000, "hopper_matmul_h8 "}, Product{17, 65, 328, "hopper_matmul_"},
        Product{128, 64, 8, "hopper_matmul_"}, Product{300, 33, 72, "hopper_matmul_h8 "},
        Product{129, 72, 136, "hopper_matmul_h8 "}, Product{257, 1001, 40, "hopper_matmul_h8 "},
        Product{140, 73, 1104, "hopper_matmul_"}, Product{30, 500, 2000, "hopper_matmul_", 8},
        Product{140, 73, 2104, "hopper_matmul_", 16}, Product{60, 130, 3000, "hopper_matmul_parts ", 64},
        Product{500, 384, 776, "hopper_matmul_h8 ", 4}, Product{700, 400, 200, "hopper_matmul_h8 ", 8},
        Product{100, 72, 5000, "hopper_matmul_parts "}, Product{9, 203, 9000, "hopper_matmul_parts "}),
    ParamName());

TEST(MatmulChoice, IsTheFastestMeasured) {
  constexpr int kH200 = 132;
  EXPECT_THAT(matmul_choice(4096, 4096, 4096, kH200), HasSubstr(" block_m=128 block_n=256 "));
  EXPECT_THAT(matmul_choice(8192, 8192, 8192, kH200), HasSubstr(" block_m=128 block_n=256 "));
  EXPECT_THAT(matmul_choice(10000, 10000, 8192, kH200), Not(HasSubstr("takes_turns")));
  EXPECT_THAT(matmul_choice(2048, 11008, 4096, kH200), HasSubstr(" block_m=176 block_n=128 "));
  EXPECT_THAT(
      matmul_choice(512, 10240, 8192, kH200),
      StartsWith("hopper_matmul_h8 block_m=256 block_n=160 stages=3 consumers=2 split_k=1 cluster_m=1"));
  EXPECT_THAT(matmul_choice(486, 408, 14944, kH200), StartsWith("hopper_matmul_parts"));
  EXPECT_THAT(matmul_choice(64, 8192, 8192, kH200), StartsWith("hopper_matmul_h8 block_m=64 block_n=64"));
  EXPECT_THAT(matmul_choice(16, 28672, 8192, kH200), StartsWith("hopper_matmul_skinny block_m=16"));
}

TEST(MatmulChoice, IsTheNextBestWithoutThoseThatDoNotAssemble) {
  std::vector<MatmulChoice> refused;
  for (int i = 0; i < 4; ++i) {
    MatmulChoice choice = choose_matmul(4096, 4096, 4096, true, 132, 1, refused);
    choice.ctas = 0;
    choice.parts = 1;
    EXPECT_THAT(refused, Not(Contains(choice)));
    EXPECT_THAT(matmul_candidates(), Contains(choice));
    refused.push_back(choice);
  }
}

TEST(MatmulChoice, PassesOverOnlyWhatIsSlowerByTheModel) {
  std::mt19937_64 random(3);
  const auto between = [&](double low, double high) {
    const double at = static_cast<double>(random() >> 11) / static_cast<double>(uint64_t{1} << 53);
    return static_cast<int64_t>(low * std::pow(high / low, at));
  };
  double nearest = 0;
  for (int i = 0; i < 100; ++i) {
    const ProductShape shape{between(1, 16384), between(8, 16384), between(1, 16384), 1 + i % 3};
    for (MatmulChoice c : matmul_candidates())
      for (int parts : {1, 2, 7}) {
        if (parts > 1 && c.method != MatmulChoice::Method::kParts) continue;
        c.parts = parts;
        const double least = least_microseconds(c, shape, 132), time = estimated_microseconds(c, shape, 132);
        ASSERT_LE(least, time) << c.text() << shape.m << "x" << shape.n << "x" << shape.k;
        nearest = std::max(nearest, least / time);
      }
  }
  EXPECT_GT(nearest, 0.9);  // else it passes over nothing
}

TEST(MatmulChoice, HasNoClusterThatTheDeviceCannotHold) {
  for (int multiprocessors : {1, 2, 3})
    for (int64_t m : {100, 1000}) {
      const std::string choice = matmul_choice(m, 1000, 1000, multiprocessors);
      const auto number = [&](const std::string& name) {
        const size_t at = choice.find(" " + name + "=");
        return at == std::string::npos ? 1 : std::stoi(choice.substr(at + name.size() + 2));
      };
      EXPECT_LE(number("split_k") * number("cluster_m") * number("cluster_n"), multiprocessors) << choice;
    }
}

TEST(MatmulLaunches, OfOtherTensorsAndSizesDoNotUseTheLastOnes) {
  const Device device = Device::virtual_gpu({.target = "sm_90a"});
  constexpr int64_t kN = 40, kK = 72;
  std::vector<DeviceTensor> as, bs;
  for (uint64_t i = 0; i < 2; ++i) {
    as.push_back(DeviceTensor::random(device, float16, {33, kK}, 1 + i));
    bs.push_back(DeviceTensor::random(device, float16, {kN, kK}, 3 + i));
  }
  as.push_back(DeviceTensor::random(device, float16, {31, kK}, 5));
  const DeviceTensor c = DeviceTensor::empty(device, float16, {33, kN}),
                     shorter = DeviceTensor::empty(device, float16, {31, kN});
  for (size_t a : {0, 0, 1, 2, 0})
    for (size_t b : {0, 1}) {
      const DeviceTensor& out = a == 2 ? shorter : c;
      DeviceTensor(out).poison();
      matmul(as[a], bs[b], out);
      const std::vector<double> x = as[a].to_host().to_doubles(), y = bs[b].to_host().to_doubles();
      std::vector<double> expected(static_cast<size_t>(out.shape()[0] * kN));
      for (size_t i = 0; i < expected.size(); ++i)
        for (size_t l = 0; l < kK; ++l) expected[i] += x[i / kN * kK + l] * y[i % kN * kK + l];
      EXPECT_TRUE(compare(out.to_host(), expected, default_tolerance(float16)).passed) << a << " " << b;
    }
}

TEST(MatmulErrors, SayWhatIsNotMet) {
  const Device device = Device::virtual_gpu({.target = "sm_90a"});
  const auto tensor = [&](DataType type, std::vector<int64_t> shape) {
    return DeviceTensor::empty(device, type, std::move(shape));
  };
  const auto fails = [](const DeviceTensor& a, const DeviceTensor& b, const DeviceTensor& c) {
    return error_of<LaunchError>([&] { matmul(a, b, c); });
  };
  const DeviceTensor a = tensor(float16, {32, 64}), b = tensor(float16, {16, 64}),
                     c = tensor(float16, {32, 16});
  EXPECT_THAT(fails(a, b, DeviceTensor()), HasSubstr("matmul: c is null or released"));
  EXPECT_THAT(fails(a, tensor(float16, {16, 72}), c),
              HasSubstr("matmul: inner sizes differ, a has k = 64 and b has k = 72"));
  EXPECT_THAT(fails(a, b, tensor(float16, {16, 32})), HasSubstr("c is [16, 32], the product is [32, 16]"));
  EXPECT_THAT(fails(a, tensor(bfloat16, {16, 64}), c), HasSubstr("a and b are not both float16, both"));
  EXPECT_THAT(fails(a, b, tensor(float64, {32, 16})), HasSubstr("c is not float16, bfloat16 or float32"));
  EXPECT_THAT(fails(a, b, tensor(float16, {32})), HasSubstr("operands are matrices"));
  const Device other = Device::virtual_gpu({.target = "sm_100a"});
  EXPECT_THAT(
      fails(a, b, DeviceTensor::empty(other, float16, {32, 16})),
      AllOf(HasSubstr("c is on another device than a: 'virtual GPU (sm_100a)', a on 'virtual GPU (sm_90a)'"),
            HasSubstr("copy it to a's")));
  DeviceTensor freed = tensor(float16, {16, 64});
  freed.release();
  EXPECT_THAT(fails(a, freed, c), HasSubstr("b is null or released"));
  const DeviceTensor wide = tensor(float16, {32, 64});
  EXPECT_THAT(fails(a, b, DeviceTensor::view(device, wide.address(), float16, {32, 16}, {64, 2})),
              AllOf(HasSubstr("neither rows nor columns of c are neighbours"), HasSubstr("64 and 2"),
                    HasSubstr("c  float16 [32, 16] with strides [64, 2]")));
  EXPECT_THAT(fails(a, b, DeviceTensor::view(device, wide.address(), float16, {32, 16}, {0, 1})),
              HasSubstr("elements of c share memory"));
  EXPECT_THAT(fails(tensor(float16, {3, 32, 64}), b, c),
              HasSubstr("a is a batch of matrices, c is one matrix"));
  EXPECT_THAT(fails(tensor(float16, {3, 32, 64}), b, tensor(float16, {4, 32, 16})),
              HasSubstr("a has 3 matrices, c 4"));
  EXPECT_THAT(fails(tensor(float16, {0, 64}), b, tensor(float16, {0, 16})), HasSubstr("m = 0, n = 16"));
  EXPECT_THAT(
      fails(DeviceTensor::empty(other, float16, {32, 64}), DeviceTensor::empty(other, float16, {16, 64}),
            DeviceTensor::empty(other, float16, {32, 16})),
      HasSubstr("no kernel for virtual GPU (sm_100a)"));
}

TEST(MatmulErrors, OfOptions) {
  const Device device = Device::virtual_gpu({.target = "sm_90a"}),
               other = Device::virtual_gpu({.target = "sm_90a"});
  const auto tensor = [&](DataType type, std::vector<int64_t> shape) {
    return DeviceTensor::empty(device, type, std::move(shape));
  };
  const DeviceTensor a = tensor(float16, {32, 64}), b = tensor(float16, {20, 64}),
                     c = tensor(float16, {32, 20});
  const auto fails = [&](const MatmulOptions& options) {
    return error_of<LaunchError>([&] { matmul(a, b, c, options); });
  };
  EXPECT_THAT(fails({.a_is_km = true}), AllOf(HasSubstr("a has k = 32 and b has k = 64"),
                                              HasSubstr("a is [k, m], b is [n, k] (a_is_km, b_is_kn)")));
  EXPECT_THAT(
      fails({.bias = tensor(float16, {32})}),
      AllOf(HasSubstr("bias does not fit c"), HasSubstr("[20], one per column, or [32, 1], one per row")));
  EXPECT_THAT(fails({.bias = tensor(bfloat16, {20})}), HasSubstr("neither of c's type nor float32"));
  EXPECT_THAT(fails({.bias = DeviceTensor::empty(other, float16, {20})}),
              HasSubstr("bias is on another device than a"));
  EXPECT_THAT(fails({.beta = 1, .residual = tensor(float32, {32, 20})}),
              AllOf(HasSubstr("residual is not like c"), HasSubstr("residual  float32 [32, 20]")));
  EXPECT_THAT(fails({.scale_b = tensor(float32, {2})}),
              HasSubstr("scale_b is neither one float32 nor 20, one per row of B, a column of C"));
}

/// Operands in every order, all options, all types of results.
TEST(MatmulOptions, AgreeWithTheReference) {
  struct Setting {
    int64_t m, n, k;
    DataType operands, result, bias;
    bool a_is_km, b_is_kn, is_row_bias, own_residual;
    Activation activation;
    bool scales_rows = false;  // a factor for each row of A, and of B
  };
  const DataType e4m3 = float8_e4m3;
  const Setting settings[] = {
      {24, 72, 72, float16, float16, float16, true, true, false, false, Activation::kGelu},
      {200, 136, 40, bfloat16, bfloat16, float32, true, false, false, true, Activation::kSilu},
      {264, 328, 136, float16, float32, float32, true, true, true, false, Activation::kRelu},
      {131, 264, 72, bfloat16, float16, float16, false, true, true, false, Activation::kGeluErf},
      {131, 33, 72, bfloat16, bfloat16, bfloat16, false, false, false, true, Activation::kNone},
      {5, 33, 144, e4m3, bfloat16, float32, false, false, false, true, Activation::kNone},
      {100, 136, 144, e4m3, float16, float16, false, false, true, false, Activation::kRelu},
      {131, 200, 272, e4m3, bfloat16, bfloat16, false, false, false, false, Activation::kGelu},
      {131, 65, 48, e4m3, float16, float16, false, false, false, true, Activation::kSilu},
      {131, 200, 272, e4m3, bfloat16, bfloat16, false, false, false, false, Activation::kGelu, true},
      {5, 33, 144, int8, bfloat16, float32, false, false, false, true, Activation::kNone, true},
      {131, 200, 272, int8, float16, float16, false, false, true, false, Activation::kRelu, true},
      {100, 136, 1040, int8, float32, float32, false, false, false, false, Activation::kNone},
      {264, 328, 136, float16, bfloat16, float32, true, true, true, false, Activation::kNone, true},
  };
  for (const Setting& s : settings) {
    SCOPED_TRACE(std::to_string(s.m) + "x" + std::to_string(s.n) + "x" + std::to_string(s.k));
    const Device device =
        Device::virtual_gpu({.target = "sm_90a", .seed = 4, .checks = vgpu::CheckSet::all()});
    auto random = [&, seed = uint64_t{0}](DataType type, std::vector<int64_t> shape) mutable {
      return DeviceTensor::random(device, type, std::move(shape), ++seed);
    };
    const bool a_km = s.a_is_km, b_kn = s.b_is_kn;
    const DeviceTensor a = random(s.operands, a_km ? std::vector{s.k, s.m} : std::vector{s.m, s.k}),
                       b = random(s.operands, b_kn ? std::vector{s.k, s.n} : std::vector{s.n, s.k}),
                       before = random(s.result, {s.m, s.n});
    MatmulOptions options{
        .a_is_km = a_km,
        .b_is_kn = b_kn,
        .alpha = 0.375f,
        .scale_a = random(float32, {s.scales_rows ? s.m : 1}),
        .scale_b = random(float32, {s.scales_rows ? s.n : 1}),
        .bias = random(s.bias, s.is_row_bias ? std::vector{s.m, int64_t{1}} : std::vector{s.n}),
        .beta = -2,
        .activation = s.activation};
    DeviceTensor c = DeviceTensor::empty(device, s.result, {s.m, s.n});
    c.poison();
    if (s.own_residual)
      c.copy_from(before.to_host());
    else
      options.residual = before;
    const LaunchReport report = matmul(a, b, c, options);
    EXPECT_TRUE(report.clean()) << report.virtual_report.format();
    const std::vector<double> x = a.to_host().to_doubles(), y = b.to_host().to_doubles(),
                              old = before.to_host().to_doubles(), bias = options.bias.to_host().to_doubles();
    const std::vector<double> of_rows = options.scale_a.to_host().to_doubles(),
                              of_columns = options.scale_b.to_host().to_doubles();
    std::vector<double> expected(static_cast<size_t>(s.m * s.n));
    for (int64_t i = 0; i < s.m; ++i)
      for (int64_t j = 0; j < s.n; ++j) {
        double sum = 0;
        for (int64_t l = 0; l < s.k; ++l)
          sum += x[a_km ? l * s.m + i : i * s.k + l] * y[b_kn ? l * s.n + j : j * s.k + l];
        const int64_t at = i * s.n + j;
        const double scale = 0.375 * of_rows[s.scales_rows ? i : 0] * of_columns[s.scales_rows ? j : 0];
        expected[at] = activation(s.activation, scale * sum + bias[s.is_row_bias ? i : j] - 2 * old[at]);
      }
    const Comparison comparison = compare(c.to_host(), expected, default_tolerance(s.result));
    EXPECT_TRUE(comparison.passed) << comparison.format();
  }
}

/// Quantised operands of odd sizes, with a factor for each token and for each channel.
TEST(MatmulQuantised, OddSizesAndViews) {
  const Device device = Device::virtual_gpu({.target = "sm_90a", .seed = 5, .checks = vgpu::CheckSet::all()});
  for (const DataType type : {DataType(int8), DataType(float8_e4m3)})
    for (const auto [m, n, k] : {std::array<int64_t, 3>{1, 1, 1}, {3, 65, 197}, {70, 33, 48}}) {
      SCOPED_TRACE(fmt::format("{} {}x{}x{}", type.name(), m, n, k));
      const DeviceTensor x = DeviceTensor::random(device, type, {m, k}, 1),
                         w = DeviceTensor::random(device, type, {n, k}, 2),
                         of_tokens = DeviceTensor::random(device, float32, {m, 1}, 3),
                         of_channels = DeviceTensor::random(device, float32, {n}, 4);
      // The second time rows and columns of the result change places.
      for (const bool is_transposed : {false, true}) {
        DeviceTensor memory =
            DeviceTensor::empty(device, bfloat16, is_transposed ? std::vector{n, m} : std::vector{m, n});
        memory.poison();
        const DeviceTensor y = is_transposed ? memory.transpose() : memory;
        const LaunchReport report = matmul(x, w, y, {.scale_a = of_tokens, .scale_b = of_channels});
        EXPECT_TRUE(report.clean()) << report.virtual_report.format();
        const std::vector<double> a = x.to_host().to_doubles(), b = w.to_host().to_doubles(),
                                  rows = of_tokens.to_host().to_doubles(),
                                  columns = of_channels.to_host().to_doubles();
        std::vector<double> expected(static_cast<size_t>(m * n));
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (int64_t l = 0; l < k; ++l) sum += a[i * k + l] * b[j * k + l];
            expected[is_transposed ? j * m + i : i * n + j] = rows[i] * columns[j] * sum;
          }
        const Comparison comparison = compare(memory.to_host(), expected, default_tolerance(bfloat16));
        EXPECT_TRUE(comparison.passed) << comparison.format();
      }
    }
}

// `imbrex tune` compares kernels as imbrex::matmul launches them: a grid of clusters that is not on the chip at once takes two turns.
TEST(RegisteredMatmul, LaunchesNoMoreClustersThanRunAtOnce) {
  const Device device = Device::virtual_gpu(
      {.target = "sm_90a", .checks = vgpu::CheckSet::none(), .tensor_math = vgpu::TensorMath::kNone});
  const auto ctas = [&](const char* name, const char* cluster) {
    const RegisteredKernel& kernel = registered_kernel(name);
    Configuration configuration = kernel.space.configuration(0);
    for (const Setting& given : kernel.space.parse(std::string("block_m=64 block_n=64 ") + cluster))
      for (Setting& setting : configuration)
        if (setting.name == given.name) setting.bits = given.bits;
    std::map<std::string, int64_t> sizes;
    for (const SizeOption& size : kernel.description.sizes) sizes[size.name] = size.otherwise;
    sizes["m"] = sizes["n"] = 2048;  // 1024 tiles
    sizes["k"] = 256;
    Case c(Case::Mode::kMeasure, device, sizes, 0);
    int64_t count = 0;
    c.measure = [&](const Case::Launcher& launch) { count = launch(true).virtual_report.statistics.ctas; };
    kernel.run(c, device, configuration);
    return count;
  };
  for (const char* name : {"hopper_matmul_h8", "hopper_matmul_parts"}) {
    EXPECT_EQ(ctas(name, "cluster_m=1"), 128) << name << ": eight tiles each";
    EXPECT_LE(ctas(name, "cluster_m=4"), 120) << name;
    EXPECT_EQ(ctas(name, "cluster_m=8"), 120) << name;
  }
}

}  // namespace
}  // namespace imbrex::testing
