// SPDX-License-Identifier: Apache-2.0
// The order in which persistent CTAs take attention's tiles: each once, and about as much work for every CTA.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

#include "imbrex/kernels/attention/tile_order.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/kernel.h"

namespace imbrex::testing {
namespace {

constexpr int kCtas = 132;

/// Notes which CTA takes which tile, and how often.
struct NoteTiles {
  static constexpr const char* target = "sm_90a";
  void operator()(Int32 blocks, Int32 heads, Int32 batches, Ptr<int32> taken_ptr, Ptr<int32> by_ptr,
                  kernels::AttentionTileOrder order) const {
    grid(kCtas);
    warps(1);
    auto g_taken = global_view(taken_ptr, {batches, heads, blocks}),
         g_by = global_view(by_ptr, {batches, heads, blocks});
    order.each(blocks, heads, batches, [&](const Int32& block, const Int32& head, const Int32& batch) {
      atomic::add(g_taken[batch][head][block], 1);
      atomic::exch(g_by[batch][head][block], block_idx.x);
    });
  }
};

/// What the CTA with the most to do has, by what it would have if all had as much: the tile of block b takes b + 2, the columns that
/// its rows see and its beginning.
double imbalance(int64_t blocks, int64_t heads, int64_t batches, bool long_first, int64_t section_heads) {
  const Device device = Device::virtual_gpu({.target = "sm_90a"});
  const HostTensor zeros(int32, {batches, heads, blocks});
  const DeviceTensor taken = DeviceTensor::from_host(device, zeros),
                     by = DeviceTensor::from_host(device, zeros);
  Kernel<NoteTiles> kernel({}, device);
  kernel(blocks, heads, batches, taken, by, long_first, section_heads).expect_clean();
  const std::vector<double> times = taken.to_host().to_doubles(), ctas = by.to_host().to_doubles();
  std::array<double, kCtas> work{};
  for (size_t i = 0; i < times.size(); ++i) {
    EXPECT_EQ(times[i], 1) << "tile " << i;
    work[static_cast<size_t>(ctas[i])] += static_cast<double>(static_cast<int64_t>(i) % blocks) + 2;
  }
  return *std::max_element(work.begin(), work.end()) * kCtas / std::accumulate(work.begin(), work.end(), 0.0);
}

TEST(AttentionOrder, EveryTileOnce) {
  for (const bool long_first : {false, true})
    for (const int64_t section : {1, 3, 100}) {
      imbalance(5, 7, 3, long_first, section);
      imbalance(1, 1, 1, long_first, section);
      imbalance(133, 2, 1, long_first, section);
    }
}
/// In sections of heads that the L2 cache holds, of those that a benchmark measured to take up to 1.6 times as long as in one section.
TEST(AttentionOrder, CtasHaveAsMuchToDo) {
  EXPECT_LT(imbalance(256, 8, 1, true, 1), 1.05);
  EXPECT_LT(imbalance(128, 16, 1, true, 3), 1.05);
  EXPECT_LT(imbalance(64, 32, 1, true, 6), 1.05);
  EXPECT_LT(imbalance(32, 64, 1, true, 24), 1.05);
  EXPECT_LT(imbalance(16, 128, 1, true, 128), 1.05);
  EXPECT_LT(imbalance(4, 512, 1, true, 192), 1.06);
}

}  // namespace
}  // namespace imbrex::testing
