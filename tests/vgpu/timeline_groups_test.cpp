// SPDX-License-Identifier: Apache-2.0
// Predicted times of clusters: how many run at once, by the groups of SMs that hold them.
#include <numeric>

#include "timeline_kit.h"
#include "vgpu/timeline/sm_groups.h"

namespace imbrex::vgpu {
namespace {

TEST(SmGroups, LetAsManyClustersRunAsAnH100sDriverSays) {
  // cudaOccupancyMaxActiveClusters of a kernel of which 1, 2, ... CTAs fit on an SM.
  const int64_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16};
  const std::vector<std::pair<int64_t, std::vector<int64_t>>> answers{
      {1, {132, 66, 39, 30, 22, 17, 15, 15, 9, 7, 7, 7, 7}},
      {2, {264, 132, 79, 62, 47, 39, 32, 30, 23, 21, 16, 14, 14}},
      {3, {396, 198, 124, 92, 69, 62, 47, 45, 37, 30, 28, 21, 21}},
      {4, {528, 264, 163, 124, 94, 79, 69, 62, 51, 44, 37, 30, 28}},
      {5, {660, 330, 203, 154, 124, 101, 84, 77, 60, 58, 44, 37, 35}},
      {32, {1056, 528, 327, 248, 193, 163, 139, 124, 102, 88, 74, 65, 58}}};  // 32: no more than of 8
  for (const auto& [per_sm, clusters] : answers)
    for (size_t i = 0; i < std::size(sizes); ++i)
      EXPECT_EQ(active_clusters(90, 132, sizes[i], per_sm), clusters[i])
          << "clusters of " << sizes[i] << ", " << per_sm << " CTAs an SM";
  for (size_t i = 0; i < std::size(sizes);
       ++i)  // an H200's driver says the same of clusters of 2, 4, 8 and 16
    EXPECT_EQ(std::ssize(cluster_places(sm_groups(90, 132, 132), sizes[i])), answers[0].second[i])
        << "places of clusters of " << sizes[i] << " where times are predicted";
  EXPECT_EQ(active_clusters(100, 148, 2, 1), 74);
  EXPECT_EQ(active_clusters(90, 132, 16, 0), 0);
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
