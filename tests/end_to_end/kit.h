// SPDX-License-Identifier: Apache-2.0
// Kernels as lambdas, run on the virtual GPU with every checker on and compared element by element.
//
//   Machine machine;
//   DeviceTensor x = machine.random(float32, {n}), y = machine.output(float32, {n});
//   machine.run([=](Int32 n, Ptr<float32> x, Ptr<float32> y) { grid(cdiv(n, 128)); ... }, n, x, y);
//   expect_elements(y, [&, in = values<float>(x)](int64_t i) { return 2 * in[i]; });
//
// What a lambda captures is compile-time to the kernel; its parameters are the kernel's.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "imbrex/core/error.h"
#include "imbrex/lang.h"
#include "imbrex/runtime/kernel.h"

namespace imbrex::testing {

/// The targets that tests run on where the target matters.
enum class Arch { kSm80, kSm90a, kSm100a, kSm89, kSm120a };
constexpr const char* target_name(Arch arch) {
  constexpr const char* kNames[] = {"sm_80", "sm_90a", "sm_100a", "sm_89", "sm_120a"};
  return kNames[static_cast<int>(arch)];
}
inline void PrintTo(Arch arch, std::ostream* out) { *out << target_name(arch); }
inline constexpr Arch kAllArchs[] = {Arch::kSm80, Arch::kSm90a, Arch::kSm100a};

/// A lambda as a kernel for one target.
template <class F, Arch kArch>
struct LambdaKernel : F {
  static constexpr const char* target = target_name(kArch);
  explicit LambdaKernel(F f) : F(std::move(f)) {}
};
/// A lambda as a kernel for the target set last: compiling each for every target takes three times as long.
template <class F>
struct RetargetedLambda : F {
  static inline const char* target = "";
  explicit RetargetedLambda(F f) : F(std::move(f)) {}
};

/// A virtual GPU with every checker on; with IMBREX_TEST_DEVICE=cuda the machine's GPU, which finds nothing: tests that
/// expect findings fail there.
class Machine {
 public:
  explicit Machine(Arch arch = Arch::kSm80, uint64_t seed = 0) : arch_(arch), device_(open(arch, seed)) {}

  const Device& device() const { return device_; }

  DeviceTensor random(DataType dtype, std::vector<int64_t> shape) {
    return DeviceTensor::random(device_, dtype, std::move(shape), ++streams_);
  }
  DeviceTensor iota(DataType dtype, std::vector<int64_t> shape) {
    return DeviceTensor::from_host(device_, HostTensor::iota(dtype, std::move(shape)));
  }
  /// Poisoned, so that elements never written are noticed.
  DeviceTensor output(DataType dtype, std::vector<int64_t> shape) {
    DeviceTensor tensor = DeviceTensor::empty(device_, dtype, std::move(shape));
    tensor.poison();
    return tensor;
  }
  /// A tensor of these numbers.
  template <class T>
  DeviceTensor tensor(DataType dtype, const std::vector<T>& numbers) {
    HostTensor host(dtype, {static_cast<int64_t>(numbers.size())});
    for (size_t i = 0; i < numbers.size(); ++i)
      host.set(static_cast<int64_t>(i), static_cast<double>(numbers[i]));
    return DeviceTensor::from_host(device_, host);
  }

  /// Launches, whatever comes of it.
  template <class F, class... Args>
  LaunchReport launch(const F& kernel, const Args&... arguments) {
    using K = RetargetedLambda<F>;
    K::target = target_name(arch_);
    Kernel<K> ready(K(kernel), device_);
    return ready(arguments...);
  }
  /// Launches and expects that nothing is found.
  template <class F, class... Args>
  LaunchReport run(const F& kernel, const Args&... arguments) {
    LaunchReport report = launch(kernel, arguments...);
    EXPECT_TRUE(report.clean()) << report.virtual_report.format();
    return report;
  }

 private:
  static Device open(Arch arch, uint64_t seed) {
    if (const char* kind = std::getenv("IMBREX_TEST_DEVICE"); kind && std::string_view(kind) == "cuda")
      return Device::cuda();
    return Device::virtual_gpu(
        {.target = target_name(arch), .host_threads = 1, .seed = seed, .checks = vgpu::CheckSet::all()});
  }

  Arch arch_;
  Device device_;
  uint64_t streams_ = 0;
};

/// The elements of a device tensor as T, bit for bit.
template <class T>
std::vector<T> values(const DeviceTensor& tensor) {
  const HostTensor host = tensor.to_host();
  std::vector<T> out(static_cast<size_t>(host.elements()));
  EXPECT_EQ(out.size() * sizeof(T), host.bytes().size());
  std::memcpy(out.data(), host.bytes().data(), std::min(out.size() * sizeof(T), host.bytes().size()));
  return out;
}

/// What error E says of `action`; "" when it does not throw.
template <class E, class F>
std::string error_of(const F& action) {
  try {
    action();
  } catch (const E& error) {
    return error.what();
  }
  return "";
}

namespace detail {

template <class F>
double at_index(const F& expected, const std::vector<int64_t>& i) {
  if constexpr (std::is_invocable_v<F, int64_t>)
    return static_cast<double>(expected(i[0]));
  else if constexpr (std::is_invocable_v<F, int64_t, int64_t>)
    return static_cast<double>(expected(i[0], i[1]));
  else if constexpr (std::is_invocable_v<F, int64_t, int64_t, int64_t>)
    return static_cast<double>(expected(i[0], i[1], i[2]));
  else
    return static_cast<double>(expected(i[0], i[1], i[2], i[3]));
}

}  // namespace detail

/// Compares every element with expected(i, j, ...): exactly, or within `tolerance` relative to the larger of
/// the expected value and `floor`.
template <class F>
void expect_elements(const DeviceTensor& tensor, const F& expected, double tolerance = 0, double floor = 0) {
  const std::vector<double> got = tensor.to_host().to_doubles();
  int failures = 0;
  std::vector<int64_t> index(tensor.shape().size());
  for (size_t flat = 0; flat < got.size(); ++flat) {
    const double want = detail::at_index(expected, index);
    const double allowed = tolerance * std::max(std::abs(want), floor);
    const bool same = got[flat] == want || (std::isnan(got[flat]) && std::isnan(want)) ||
                      std::abs(got[flat] - want) <= allowed;
    if (!same && ++failures <= 4) {
      std::string where;
      for (int64_t i : index) where += (where.empty() ? "" : ", ") + std::to_string(i);
      ADD_FAILURE() << "element [" << where << "] is " << got[flat] << ", expected " << want;
    }
    for (size_t d = index.size(); d-- > 0;) {
      if (++index[d] < tensor.shape()[d]) break;
      index[d] = 0;
    }
  }
  EXPECT_EQ(failures, 0) << "of " << got.size() << " elements";
}

}  // namespace imbrex::testing
