// SPDX-License-Identifier: Apache-2.0
#include "imbrex/inspect/occupancy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "imbrex/core/error.h"

namespace imbrex {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Occupancy, ThreadsBoundASmallKernel) {
  const Occupancy o = occupancy("sm_80", {.threads = 256, .registers_per_thread = 32});
  EXPECT_EQ(o.ctas_per_sm, 8);
  EXPECT_EQ(o.warps_per_sm, 64);
  EXPECT_DOUBLE_EQ(o.fraction, 1.0);
  EXPECT_THAT(o.bound,
              ElementsAre("threads", "registers"));  // 32 registers x 2048 threads fill the file as well
}

TEST(Occupancy, RegistersComeInUnitsOf256PerWarpAndPerSubPartition) {
  // 33 registers: 1056 per warp, rounded to 1280; 16384 / 1280 = 12 warps in each of 4 sub-partitions.
  EXPECT_EQ(occupancy("sm_90a", {.threads = 32, .registers_per_thread = 33}).ctas_per_sm, 32);  // CTA slots
  EXPECT_EQ(occupancy("sm_90a", {.threads = 128, .registers_per_thread = 33}).ctas_per_sm, 12);
  EXPECT_EQ(occupancy("sm_90a", {.threads = 384, .registers_per_thread = 168}).ctas_per_sm, 1);
}

TEST(Occupancy, TheHardwareChecksRegistersAsIfWarpsWereSpreadEvenly) {
  // 5 warps of 255 registers take 5 * 8192 of 65536, but count as 8 warps, which still fit; 9 count as 12.
  EXPECT_EQ(occupancy("sm_80", {.threads = 160, .registers_per_thread = 255}).ctas_per_sm, 1);
  const Occupancy o = occupancy("sm_80", {.threads = 288, .registers_per_thread = 255});
  EXPECT_FALSE(o.is_feasible());
  EXPECT_THAT(o.complaints(), HasSubstr("a CTA takes 98304 registers, at most 65536"));
}

TEST(Occupancy, SharedMemoryIncludesTheSystemsKilobyte) {
  // 48 KiB and 1 KiB: four of them in 228 KiB, not 228 / 48 = 4.75.
  EXPECT_EQ(occupancy("sm_90a", {.threads = 128, .shared_bytes = 48 * 1024}).ctas_per_sm, 4);
  EXPECT_EQ(occupancy("sm_90a", {.threads = 128, .shared_bytes = 227 * 1024}).ctas_per_sm, 1);
  EXPECT_EQ(occupancy("sm_80", {.threads = 128, .shared_bytes = 81 * 1024 + 1}).ctas_per_sm, 1);
  EXPECT_EQ(occupancy("sm_80", {.threads = 128, .shared_bytes = 81 * 1024}).ctas_per_sm, 2);
}

TEST(Occupancy, TensorMemoryIsTakenInPowersOfTwo) {
  EXPECT_EQ(occupancy("sm_100a", {.threads = 128, .tensor_memory_columns = 96}).ctas_per_sm, 4);
  EXPECT_EQ(occupancy("sm_100a", {.threads = 128, .tensor_memory_columns = 512}).ctas_per_sm, 1);
  const Occupancy hopper = occupancy("sm_90a", {.threads = 128, .tensor_memory_columns = 32});
  EXPECT_THAT(hopper.complaints(), HasSubstr("sm_90a has none"));
}

TEST(Occupancy, SaysEverythingThatDoesNotFit) {
  const Occupancy o = occupancy(
      "sm_80", {.threads = 2048, .registers_per_thread = 300, .shared_bytes = 200000, .cluster_ctas = 2});
  EXPECT_FALSE(o.is_feasible());
  for (const char* part : {"2048 threads, at most 1024", "300 per thread, at most 255",
                           "200000 bytes, at most 166912", "cluster"})
    EXPECT_THAT(o.complaints(), HasSubstr(part));
}

TEST(Occupancy, UnknownRegistersBoundNothing) {
  const Occupancy o = occupancy("sm_90a", {.threads = 64, .registers_per_thread = 0});
  EXPECT_EQ(o.ctas_per_sm, 32);
  EXPECT_THAT(o.bound, ElementsAre("threads", "CTA slots"));
}

TEST(Occupancy, RefusesNonsense) {
  EXPECT_THROW(occupancy("sm_81", {}), LaunchError);
  EXPECT_THROW(occupancy("sm_80", {.threads = 0}), LaunchError);
  EXPECT_THROW(occupancy("sm_80", {.shared_bytes = -1}), LaunchError);
}

}  // namespace
}  // namespace imbrex
