// SPDX-License-Identifier: Apache-2.0
// TFLOPS of the Ampere ladder on the CUDA GPU, beside the peak of mma.sync measured in the same run by a
// kernel that only multiplies registers; and FLOP per clock of a multiprocessor, since the chip lowers its
// clock for the kernels that keep it busiest. Every result is compared with the first tensor-core step's, bit
// for bit (all sum in the same order), and that one with float64 at sampled elements.
//
//   bench_ampere [--tune] [--only STEP] [SIZE ...]
//
// sizes of the cubes, 4096 and 8192 unless given; --tune: all candidates of v3 and v4; --only v4: that step
// alone, besides v2, the reference
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "imbrex/kernels/ampere_matmul/matmul_v0.h"
#include "imbrex/kernels/ampere_matmul/matmul_v1.h"
#include "imbrex/kernels/ampere_matmul/matmul_v2.h"
#include "imbrex/kernels/ampere_matmul/matmul_v3.h"
#include "imbrex/kernels/ampere_matmul/matmul_v4.h"
#include "imbrex/runtime/kernel.h"
#include "runtime/measure/gpu_timer.h"

namespace imbrex {
namespace {

/// Eight warps that multiply registers, each a box of 64 x 64 x 16, again and again.
struct MmaPeak {
  static constexpr const char* target = "sm_80";
  void operator()(Int32 blocks, Int32 rounds, Ptr<float32> out_ptr) const {
    grid(blocks);
    warps(8);
    auto a = register_tensor(float16, {128, 16}, [](auto i, auto j) { return i * 3 + j; });
    auto b = register_tensor(float16, {16, 256}, [](auto i, auto j) { return i - j; });
    RegisterTensor acc = zeros(float32, {128, 256});
    for ([[maybe_unused]] Int32 i : range(0, rounds, 1, {.unroll = 4})) acc = mma(a, b, acc);
    if (auto never = when(rounds < 0)) store_global(global_view(out_ptr, {128, 256}), acc, {0, 0});
  }
};

class Bench {
 public:
  Bench(const Device& device, int64_t size, bool tune, std::string only)
      : device_(device),
        timer_(device),
        size_(size),
        tune_(tune),
        only_(std::move(only)),
        a_(DeviceTensor::random(device, float16, {size, size}, 1)),
        b_(DeviceTensor::random(device, float16, {size, size}, 2)),
        c_(DeviceTensor::empty(device, float16, {size, size})) {}

  void run() {
    step<kernels::AmpereMatmulV2>("v2", false);  // the reference of the others
    step<kernels::AmpereMatmulV4<>>("v4", tune_);
    step<kernels::AmpereMatmulV3>("v3", tune_);
    if (!tune_ || !only_.empty()) {
      step<kernels::AmpereMatmulV1>("v1", false);
      step<kernels::AmpereMatmulV0>("v0", false);
    }
    fmt::print("\n");
  }

 private:
  /// Milliseconds of a launch with a cold L2, the median, and the mean clock in MHz meanwhile.
  std::pair<double, double> measure(int count, const runtime::GpuTimer::Launch& launch) {
    timer_.measure({launch}, {.launches = 3});  // the first compiles and loads
    timer_.stamp_begin();
    const std::vector<double> us = timer_.measure({launch}, {.launches = count})[0];
    timer_.stamp_end();
    return {1e-3 * runtime::quartiles(us).median, timer_.mean_clock_mhz()};
  }
  /// FLOP per clock of a multiprocessor.
  double per_clock(double tflops, double mhz) const {
    return mhz > 0 ? 1e6 * tflops / mhz / device_.multiprocessors() : 0;
  }

  /// TFLOPS, and FLOP per clock of a multiprocessor.
  std::pair<double, double> peak() {
    static Kernel<MmaPeak> kernel({}, device_);
    DeviceTensor out = DeviceTensor::empty(device_, float32, {128, 256});
    const int64_t rounds = 8192, blocks = device_.multiprocessors();
    const auto [ms, mhz] = measure(5, [&] { kernel(blocks, rounds, out); });
    const double tflops = 2.0 * 128 * 256 * 16 * static_cast<double>(rounds * blocks) / ms * 1e-9;
    return {tflops, per_clock(tflops, mhz)};
  }

  template <class K>
  void step(const char* name, bool all) {
    if (!only_.empty() && only_ != name && std::string_view("v2") != name) return;
    const TuningSpace space = tuning_space<K>();
    const size_t count = all ? space.size() : 1;
    for (size_t i = 0; i < count; ++i) {
      K instance{};
      space.apply(&instance, space.configuration(i));
      try {
        Kernel<K> kernel(instance, device_);
        c_.poison();
        const auto launch = [&] { kernel(size_, size_, size_, float16, a_, b_, c_); };
        const auto [ms, mhz] = measure(size_ > 4096 ? 7 : 15, launch);
        const double tflops =
            2.0 * static_cast<double>(size_ * size_) * static_cast<double>(size_) / ms * 1e-9;
        const auto [of, clocked_of] = peak();
        const double clocked = per_clock(tflops, mhz);
        fmt::print(
            "{:>6}^3 {} {:<80} {:8.3f} ms {:7.1f} TFLOPS {:5.1f} % of {:.0f}, at {:.0f} MHz {:.0f} FLOP per "
            "clock, "
            "{:.1f} % of {:.0f}  {}\n",
            size_, name, space.to_string(space.configuration(i)), ms, tflops, 100 * tflops / of, of, mhz,
            clocked, 100 * clocked / clocked_of, clocked_of, verdict(name));
      } catch (const std::exception& error) {
        fmt::print("{} {}: {}\n", name, space.to_string(space.configuration(i)), error.what());
      }
      std::fflush(stdout);
    }
  }

  std::string verdict(std::string_view name) {
    const HostTensor c = c_.to_host();
    if (name == "v0" || name == "v1" || reference_.bytes().empty()) {
      if (!is_near(c)) return "WRONG";
      if (name == "v2") reference_ = c;
      return "right at samples";
    }
    return std::ranges::equal(c.bytes(), reference_.bytes()) ? "equal" : "WRONG";
  }

  bool is_near(const HostTensor& c) const {
    const HostTensor a = a_.to_host(), b = b_.to_host();
    std::mt19937_64 random(3);
    for (int s = 0; s < 200; ++s) {
      const auto i = static_cast<int64_t>(random() % static_cast<uint64_t>(size_)),
                 j = static_cast<int64_t>(random() % static_cast<uint64_t>(size_));
      double sum = 0;
      for (int64_t k = 0; k < size_; ++k) sum += a.get(i * size_ + k) * b.get(j * size_ + k);
      // Sums of `size` products of normal numbers are about sqrt(size).
      if (!(std::abs(c.get(i * size_ + j) - sum) < 2e-3 * std::sqrt(static_cast<double>(size_))))
        return false;
    }
    return true;
  }

  Device device_;
  runtime::GpuTimer timer_;
  int64_t size_;
  bool tune_;
  std::string only_;
  DeviceTensor a_, b_, c_;
  HostTensor reference_;
};

}  // namespace
}  // namespace imbrex

int main(int argc, char** argv) {
  using namespace imbrex;
  std::string why_not;
  if (!Device::has_cuda(&why_not)) {
    fmt::print("no CUDA GPU: {}\n", why_not);
    return 0;
  }
  const Device device = Device::cuda();
  bool tune = false;
  std::string only;
  std::vector<int64_t> sizes;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--tune") == 0)
      tune = true;
    else if (std::strcmp(argv[i], "--only") == 0 && i + 1 < argc)
      only = argv[++i];
    else
      sizes.push_back(std::atoll(argv[i]));
  }
  if (sizes.empty()) sizes = {4096, 8192};
  for (int64_t size : sizes) Bench(device, size, tune, only).run();
}
