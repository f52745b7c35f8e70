// SPDX-License-Identifier: Apache-2.0
// A struct of the caller's passes several arguments of a launch by name.
#include <gtest/gtest.h>

#include <tuple>
#include <vector>

#include "imbrex/lang.h"
#include "imbrex/runtime.h"

namespace imbrex {
namespace {

struct Scaling {
  using Parameters = ParameterList<Float32, DataType, Ptr<>>;
  Float32 factor;
  DataType dtype;
  Ptr<> bias;
};

/// y = factor x + bias, and `shift` added to each.
struct Scale {
  int block = 64;
  void operator()(Int32 n, Ptr<float32> x, Scaling scaling, Ptr<float32> y, Int32 shift) const {
    grid(cdiv(n, block));
    warps(1);
    Int32 begin = block_idx.x * block;
    auto values = load_global(global_view(x, {n}), {begin}, {block});
    auto bias = load_global(global_view(scaling.bias, scaling.dtype, {n}), {begin}, {block}).to(float32);
    store_global(global_view(y, {n}), values * scaling.factor + bias + cast<float32>(shift), {begin});
  }
};

struct BiasArguments {
  DataType dtype;
  const DeviceTensor& bias;
  auto arguments() const { return std::tie(dtype, bias); }
};
struct ScalingArguments {
  float factor;
  BiasArguments bias;  // structs nest
  auto arguments() const { return std::tie(factor, bias); }
};

TEST(ArgumentStructs, StandForTheirMembers) {
  constexpr int64_t n = 100;
  const Device device = Device::open("virtual", "sm_80");
  Kernel<Scale> kernel({}, device);
  const DeviceTensor x = DeviceTensor::random(device, float32, {n}, 1),
                     bias = DeviceTensor::random(device, float16, {n}, 2);
  const auto run = [&](const auto&... arguments) {
    DeviceTensor y = DeviceTensor::empty(device, float32, {n});
    y.poison();
    kernel(n, x, arguments..., y, 3).expect_clean();
    return y.to_host().to_doubles();
  };
  const std::vector<double> named =
      run(ScalingArguments{.factor = 0.5f, .bias = {.dtype = float16, .bias = bias}});
  const std::vector<double> xs = x.to_host().to_doubles(), biases = bias.to_host().to_doubles();
  for (int64_t i = 0; i < n; ++i) EXPECT_NEAR(named[i], 0.5 * xs[i] + biases[i] + 3, 1e-5) << "element " << i;
  EXPECT_EQ(run(0.5f, float16, bias), named);
  EXPECT_EQ(run(0.5f, BiasArguments{float16, bias}), named);
}

}  // namespace
}  // namespace imbrex
