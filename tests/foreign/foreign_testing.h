// SPDX-License-Identifier: Apache-2.0
// What the tests of foreign PTX share: a kernel of ptx/ on a device of its target, random inputs, poisoned
// outputs.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "core/float_formats.h"
#include "imbrex/vgpu/virtual_gpu.h"

namespace imbrex::vgpu {

/// An fp16 element.
struct Half {
  uint16_t bits = 0;
  Half() = default;
  explicit Half(double x) : bits(static_cast<uint16_t>(arith::encode(arith::kF16, x))) {}
};
inline double value(Half x) { return static_cast<double>(arith::f16_to_f32(x.bits)); }
inline double value(float x) { return static_cast<double>(x); }

inline std::string read_foreign(const std::string& name) {
  std::ifstream file(std::string(IMBREX_SOURCE_DIR) + "/tests/foreign/ptx/" + name);
  if (!file.good()) throw std::runtime_error("no tests/foreign/ptx/" + name);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// What a compiler's own launcher would know of a kernel beside its PTX, from ptx/launch.txt.
struct LaunchFacts {
  int64_t threads = 0, shared_bytes = 0;
};
inline LaunchFacts launch_facts(const std::string& kernel) {
  std::istringstream lines(read_foreign("launch.txt"));
  std::string name;
  LaunchFacts facts;
  while (lines >> name >> facts.threads >> facts.shared_bytes)
    if (name == kernel) return facts;
  return {};
}

class Foreign {
 public:
  /// The first kernel of ptx/NAME.ptx on a fresh device of the target that NAME ends with. The seed decides
  /// the schedule and the inputs.
  Foreign(const std::string& name, uint64_t seed, Options options = {})
      : name_(name), random_(static_cast<uint32_t>(seed) + 1), gpu_(with_target(options, name, seed)) {
    const Module module = gpu_.load_module(read_foreign(name + ".ptx"), name + ".ptx");
    function_ = module.function(module.function_names().at(0));
    facts_ = launch_facts(name);
    if (facts_.shared_bytes > 0) function_.set_max_dynamic_shared(facts_.shared_bytes);
  }

  VirtualGpu& gpu() { return gpu_; }
  Function& function() { return function_; }
  std::mt19937& random() { return random_; }

  /// Uniform random values.
  template <class T>
  std::vector<T> uniform(int64_t count, double low = -1, double high = 1) {
    std::uniform_real_distribution<double> values(low, high);
    std::vector<T> result;
    for (int64_t i = 0; i < count; ++i) result.push_back(T(values(random_)));
    return result;
  }
  std::vector<int> integers(int64_t count, int low, int high) {
    std::uniform_int_distribution<int> values(low, high);
    std::vector<int> result;
    for (int64_t i = 0; i < count; ++i) result.push_back(values(random_));
    return result;
  }

  template <class T>
  DeviceAddress input(const std::vector<T>& values) {
    const int64_t bytes = static_cast<int64_t>(values.size() * sizeof(T));
    const DeviceAddress address = gpu_.allocate(bytes);
    gpu_.copy_to_device(address, values.data(), bytes);
    return address;
  }
  /// Every byte 0xFF: NaN in any floating-point type, -1 in integers.
  DeviceAddress output(int64_t bytes) {
    const DeviceAddress address = gpu_.allocate(bytes);
    gpu_.fill(address, 0xFF, bytes);
    return address;
  }
  template <class T>
  std::vector<T> read(DeviceAddress address, int64_t count) {
    std::vector<T> values(static_cast<size_t>(count));
    gpu_.copy_from_device(values.data(), address, count * static_cast<int64_t>(sizeof(T)));
    return values;
  }

  /// Launches with arguments of exactly the parameters' sizes; nothing may be found.
  template <class... Arguments>
  void run(Launch launch, Arguments... arguments) {
    const std::vector<Parameter>& parameters = function_.parameters();
    const std::vector<int64_t> sizes{static_cast<int64_t>(sizeof arguments)...};
    ASSERT_EQ(parameters.size(), sizes.size()) << name_;
    for (size_t i = 0; i < sizes.size(); ++i) ASSERT_EQ(parameters[i].bytes, sizes[i]) << parameters[i].name;
    std::vector<void*> pointers{static_cast<void*>(&arguments)...};
    launch.arguments = pointers;
    if (facts_.threads != 0) launch.block = {facts_.threads};
    if (facts_.shared_bytes != 0) launch.dynamic_shared_bytes = facts_.shared_bytes;
    const std::clock_t begin = std::clock();
    const Report report = gpu_.launch(function_, launch);
    if (std::getenv("IMBREX_TIME_LAUNCHES") != nullptr)
      std::printf("launch %s %.3f ms %lld warp instructions\n", name_.c_str(),
                  1e3 * static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC,
                  static_cast<long long>(report.statistics.instructions));
    findings_ = report.findings;
    EXPECT_TRUE(report.completed) << name_ << "\n" << report.format();
    if (expected_ == FindingKind::kCount) {
      EXPECT_TRUE(findings_.empty()) << name_ << "\n" << report.format();
      return;
    }
    EXPECT_FALSE(findings_.empty()) << name_;
    for (const Finding& f : findings_) EXPECT_EQ(f.kind, expected_) << f.format();
  }

  /// run() has to find mistakes of this kind, and no others.
  void expect_only(FindingKind kind) { expected_ = kind; }
  const std::vector<Finding>& findings() const { return findings_; }

 private:
  static Options with_target(Options options, const std::string& name, uint64_t seed) {
    options.target = name.substr(name.rfind('.') + 1);
    options.max_findings = 1000;
    options.strictness = Strictness::kPractical;
    options.seed = seed;
    options.memory_bytes = int64_t{1} << 30;  // valgrind has no room for more
    return options;
  }
  std::string name_;
  std::mt19937 random_;
  VirtualGpu gpu_;
  Function function_;
  LaunchFacts facts_;
  FindingKind expected_ = FindingKind::kCount;
  std::vector<Finding> findings_;
};

/// The tensor map of a dense row-major matrix, in boxes of `box_rows` rows of 128 swizzled bytes.
template <class T>
TensorMap matrix_map(DeviceAddress address, int64_t rows, int64_t columns, uint32_t box_rows) {
  const uint64_t dims[] = {static_cast<uint64_t>(columns), static_cast<uint64_t>(rows)};
  const uint64_t strides[] = {static_cast<uint64_t>(columns) * sizeof(T)};
  const uint32_t box[] = {128 / sizeof(T), box_rows};
  return encode_tensor_map({.type = sizeof(T) == 2 ? TensorMapType::kFloat16 : TensorMapType::kUInt8,
                            .address = address,
                            .dims = dims,
                            .strides_bytes = strides,
                            .box = box,
                            .swizzle = TensorMapSwizzle::k128B});
}

/// The numbers of a device buffer beside the float64 reference: |actual - expected| <= relative |expected| +
/// absolute.
template <class T>
void expect_close(const std::vector<T>& actual, const std::vector<double>& expected, double relative,
                  double absolute) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(value(actual[i]) - expected[i]);
    ASSERT_TRUE(error <= relative * std::abs(expected[i]) + absolute)  // false for NaN
        << "element " << i << " is " << value(actual[i]) << ", expected " << expected[i];
  }
}

/// For tests that run under several schedules.
class ForeignSeeds : public testing::TestWithParam<int> {
 public:
  static uint64_t seed() { return static_cast<uint64_t>(GetParam()); }
};

}  // namespace imbrex::vgpu
