// SPDX-License-Identifier: Apache-2.0
// imbrex::matmul on the virtual GPU: every kernel it chooses among, odd sizes, both types; the choices for
// shapes that have been measured; what it refuses.
#include "imbrex/matmul.h"

#include <gmock/gmock.h>

#include "kit.h"

namespace imbrex::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Product {
  int64_t m, n, k;
  const char* kernel;
};

class Matmul : public ::testing::TestWithParam<Product> {};

TEST_P(Matmul, AgreesWithTheReference) {
  const auto [m, n, k, kernel] = GetParam();
  for (DataType dtype : {float16, bfloat16}) {
    const Device device =
        Device::virtual_gpu({.target = "sm_90a", .seed = 3, .checks = vgpu::CheckSet::all()});
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

INSTANTIATE_TEST_SUITE_P(Sizes, Matmul,
                         ::testing::Values(Product{1, 72, 64, "hopper_matmul_skinny block_m=8 "},
                                           Product{5, 200, 72, "hopper_matmul_skinny block_m=8 "},
                                           Product{17, 65, 328, "hopper_matmul_skinny block_m=32 "},
                                           Product{128, 64, 8, "hopper_matmul_skinny block_m=128 "},
                                           Product{129, 72, 136, "hopper_matmul_h7 block_m=128 block_n=64 "},
                                           Product{300, 33, 72, "hopper_matmul_h5 block_m=128 block_n=64 "},
                                           Product{257, 1001, 40, "hopper_matmul_h5 "},
                                           Product{520, 264, 200, "hopper_matmul_h7 "}));

TEST(MatmulChoice, IsTheFastestMeasured) {
  constexpr int kH200 = 132;
  EXPECT_EQ(matmul_choice(8192, 8192, 8192, kH200),
            "hopper_matmul_h7 block_m=128 block_n=256 stages=4 store_stages=2 ctas=128");
  EXPECT_THAT(matmul_choice(4096, 4096, 14336, kH200), HasSubstr("block_n=256"));
  EXPECT_THAT(matmul_choice(2048, 2048, 2048, kH200), HasSubstr("block_n=256"));
  EXPECT_THAT(matmul_choice(1024, 1024, 1024, kH200), HasSubstr("block_n=64"));
  EXPECT_THAT(matmul_choice(512, 512, 512, kH200), HasSubstr("block_n=64"));
  EXPECT_THAT(matmul_choice(256, 8192, 8192, kH200), HasSubstr("block_n=128"));
  EXPECT_THAT(matmul_choice(64, 8192, 8192, kH200), StartsWith("hopper_matmul_skinny block_m=64"));
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
  EXPECT_THAT(fails(a, b, DeviceTensor()), HasSubstr("matmul: a tensor is null or released"));
  EXPECT_THAT(fails(a, tensor(float16, {16, 72}), c),
              HasSubstr("matmul: inner sizes differ, a has k = 64 and b has k = 72"));
  EXPECT_THAT(fails(a, b, tensor(float16, {16, 32})), HasSubstr("c is [16, 32], the product is [32, 16]"));
  EXPECT_THAT(fails(a, b, tensor(float32, {32, 16})), HasSubstr("not all float16 or all bfloat16"));
  EXPECT_THAT(fails(tensor(float16, {32, 60}), tensor(float16, {16, 60}), c),
              AllOf(HasSubstr("k is 60, rows of it do not begin at multiples of 16 bytes"),
                    HasSubstr("a  float16 [32, 60]"), HasSubstr("pad k to 64 with zeros")));
  EXPECT_THAT(fails(a, b, tensor(float16, {32})), HasSubstr("operands are matrices"));
  const Device other = Device::virtual_gpu({.target = "sm_100a"});
  EXPECT_THAT(fails(a, b, DeviceTensor::empty(other, float16, {32, 16})), HasSubstr("different devices"));
  EXPECT_THAT(
      fails(DeviceTensor::empty(other, float16, {32, 64}), DeviceTensor::empty(other, float16, {16, 64}),
            DeviceTensor::empty(other, float16, {32, 16})),
      HasSubstr("no kernel for virtual GPU (sm_100a)"));
}

}  // namespace
}  // namespace imbrex::testing
