// SPDX-License-Identifier: Apache-2.0
// Predicted times of clusters: how many run at once, by the groups of SMs that hold them.
#include <numeric>

#include "timeline_kit.h"
#include "vgpu/timeline/sm_groups.h"

namespace imbrex::vgpu {
namespace {

int64_t at_once(int64_t ctas) { return std::ssize(cluster_places(sm_groups(90, 132, 132), ctas)); }

TEST(SmGroups, HoldAsManyClustersAsAnH200sDriverSays) {
  // cudaOccupancyMaxActiveClusters of a kernel whose CTAs need an SM each.
  EXPECT_EQ(at_once(1), 132);
  EXPECT_EQ(at_once(2), 66);
  EXPECT_EQ(at_once(4), 30);
  EXPECT_EQ(at_once(8), 15);
  EXPECT_EQ(at_once(16), 7);
}

TEST(SmGroups, HaveAllSmsThatAreModelled) {
  for (const int sm : {80, 90, 100, 120})
    for (const int of_chip : {108, 132, 148, 1, 7})
      for (const int sms : {1, 5, 37, 132, 148, 200}) {
        const std::vector<int> groups = sm_groups(sm, sms, of_chip);
        EXPECT_EQ(std::accumulate(groups.begin(), groups.end(), 0), sms)
            << "sm_" << sm << ", " << sms << " of " << of_chip;
        EXPECT_EQ(std::ssize(cluster_places(groups, 1)), sms);
      }
  EXPECT_EQ(cluster_places({4, 6}, 4), (std::vector<int>{0, 4})) << "not over a group's end";
  EXPECT_EQ(cluster_places({2, 2}, 4), std::vector<int>{0}) << "somewhere it must run";
}

/// Clocks of so many clusters, whose CTAs need an SM each and work for a while.
double clocks(int64_t clusters, int64_t ctas) {
  Options options{.target = "sm_90a", .host_threads = 1};
  options.timeline.record = true;
  options.checks = CheckSet::none();
  VirtualGpu gpu(options);
  std::string work;
  for (int i = 0; i < 2000; ++i) work += "  add.f32 %f0, %f0, %f0;\n";
  Function function = gpu.load_module(module_of(work), "timeline.ptx").function("k");
  constexpr int64_t kShared = 150'000;
  function.set_max_dynamic_shared(kShared);
  DeviceAddress memory = to_device(gpu, std::vector<uint32_t>(16, 1u));
  void* arguments[] = {&memory};
  const Report report = gpu.launch(function, {.grid = {clusters * ctas},
                                              .cluster = {ctas},
                                              .block = {32},
                                              .dynamic_shared_bytes = kShared,
                                              .arguments = arguments});
  EXPECT_TRUE(report.completed);
  return static_cast<double>(report.timeline->cycles);
}

TEST(SmGroups, AClusterThatFindsNoPlaceWaitsForOne) {
  const double work = 2000 * 4;
  EXPECT_NEAR(clocks(16, 8) - clocks(15, 8), work, 0.1 * work) << "though twelve SMs are free";
  EXPECT_NEAR(clocks(31, 4) - clocks(30, 4), work, 0.1 * work);
  EXPECT_NEAR(clocks(66, 2) - clocks(65, 2), 0, 0.1 * work);
}

}  // namespace
}  // namespace imbrex::vgpu
