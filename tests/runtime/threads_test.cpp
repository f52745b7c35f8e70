// SPDX-License-Identifier: Apache-2.0
// One device, its kernels and its tensors used by several threads at once. What it finds beyond wrong
// results, it finds under the thread sanitizer.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>

#include "scale_kernel.h"

namespace imbrex {
namespace {

constexpr int kThreads = 4, kRounds = 6;

/// Calls body(t) on each of kThreads threads.
template <class Body>
void on_threads(Body body) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(body, t);
  for (std::thread& thread : threads) thread.join();
}

TEST(Threads, ShareADeviceAndItsKernels) {
  const Device device =
      Device::virtual_gpu({.target = "sm_90a", .host_threads = 2, .checks = vgpu::CheckSet::all()});
  Kernel<Scale> shared({}, device);
  std::vector<int> wrong(kThreads);
  on_threads([&](int t) {
    for (int round = 0; round < kRounds; ++round) {
      const int64_t n = 300 + 100 * t + round;
      DeviceTensor x = DeviceTensor::random(device, float32, {n}, static_cast<uint64_t>(10 * t + round)),
                   y = DeviceTensor::empty(device, float32, {n});
      y.poison();
      const int factor = 2 + (t + round) % 3;  // some compile what others wait for
      if (round % 2 == 0) {
        Kernel<Scale> own({.block = 256}, device);  // loaded and unloaded while others run
        own(n, factor, x, y).expect_clean();
      } else {
        shared(n, factor, x, y).expect_clean();
      }
      const HostTensor in = x.to_host(), out = y.to_host();
      for (int64_t i = 0; i < n; ++i)
        wrong[static_cast<size_t>(t)] += out.get(i) != static_cast<float>(factor * in.get(i));
    }
  });
  for (int t = 0; t < kThreads; ++t) EXPECT_EQ(wrong[static_cast<size_t>(t)], 0) << "thread " << t;
}

}  // namespace
}  // namespace imbrex
