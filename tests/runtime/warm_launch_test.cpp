// SPDX-License-Identifier: Apache-2.0
// Launches of one compiled kernel with several sizes in turn: what is kept of the launches before must be that of the very
// numbers, and of this launch's addresses.
#include <gtest/gtest.h>

#include "imbrex/core/error.h"
#include "imbrex/imbrex.h"

namespace imbrex {
namespace {

struct Numbered {
  void operator()(Int32 n, Int32 first, Ptr<int32> out_ptr) const {
    grid(cdiv(n, 128));
    warps(4);
    Int32 offset = block_idx.x * 128;
    store_global(global_view(out_ptr, {n}),
                 register_tensor(int32, {128}, [&](auto i) { return offset + i + first; }), {offset});
  }
};

void expect_numbers(Kernel<Numbered>& kernel, const Device& device, int64_t n, int64_t first) {
  DeviceTensor out = DeviceTensor::empty(device, int32, {n});
  out.poison();
  kernel(n, first, out).expect_clean();
  const HostTensor got = out.to_host();
  for (int64_t i = 0; i < n; ++i) ASSERT_EQ(got.get(i), static_cast<double>(first + i)) << n << " " << i;
}

TEST(WarmLaunch, TakesSizesInTurn) {
  const Device device = Device::virtual_gpu();
  Kernel<Numbered> kernel({}, device);
  // More sizes than are kept, each of them again and again among others.
  for (int round = 0; round < 3; ++round)
    for (int64_t size = 1; size <= 100; ++size) {
      expect_numbers(kernel, device, size * 7, round % 2);
      expect_numbers(kernel, device, 300, 5);
    }
}

TEST(WarmLaunch, ForgetsWhatFailed) {
  const Device device = Device::virtual_gpu();
  Kernel<Numbered> kernel({}, device);
  expect_numbers(kernel, device, 200, 0);
  const DeviceTensor small = DeviceTensor::empty(device, int32, {10});
  EXPECT_THROW(kernel(0, 0, small), LaunchError);
  EXPECT_THROW(kernel(200, 0, small), LaunchError);  // warm, but for a tensor that is too small
  EXPECT_THROW(kernel(300, 0, small), LaunchError);
  expect_numbers(kernel, device, 300, 0);
  expect_numbers(kernel, device, 200, 0);
}

}  // namespace
}  // namespace imbrex
