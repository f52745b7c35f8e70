// SPDX-License-Identifier: Apache-2.0
// What a launch takes in power, and what clock that leaves.
#include "imbrex/vgpu/power.h"

#include <gtest/gtest.h>

namespace imbrex::vgpu {
namespace {

/// A millisecond of an H200 that does nothing, at the highest clock.
Timeline idle() {
  Timeline t;
  t.target = "sm_90a";
  t.clock_ghz = 1.98;
  t.cycles = 1'980'000;
  t.sms = t.active_sms = 132;
  return t;
}
/// The same with all tensor cores at work.
Timeline multiplying() {
  Timeline t = idle();
  t.use.tensor_core = 1;
  return t;
}

TEST(Power, NothingIsKnownOfChipsThatWereNotMeasured) {
  for (const char* target : {"sm_80", "sm_100a", "sm_120a"}) {
    Timeline t = multiplying();
    t.target = target;
    EXPECT_EQ(predicted_power(t, Products::kWarpgroup).watts, 0) << target;
    EXPECT_EQ(predicted_power(t, Products::kWarpgroup).cool_ghz, 0) << target;
  }
}

TEST(Power, AnIdleLaunchKeepsTheHighestClock) {
  const TimelinePower power = predicted_power(idle(), Products::kWarp);
  EXPECT_EQ(power.watts, 135);
  EXPECT_EQ(power.cool_ghz, 1.98);
  EXPECT_EQ(power.sustained_ghz, 1.98);
}

TEST(Power, OneProductLowersTheClockOfALaunch) {
  Timeline t = idle();
  t.use.tensor_core = 1e-5;
  EXPECT_NEAR(predicted_power(t, Products::kWarpgroup).cool_ghz, 1.815, 0.001);
}

TEST(Power, SustainedProductsRunAtTheClockThatTheLimitLeaves) {
  // As bench/units/power.cu measured float16: 1.65 GHz within milliseconds, 1.50 after half a second.
  Timeline t = multiplying();
  const TimelinePower power = predicted_power(t, Products::kWarpgroup);
  EXPECT_NEAR(power.sustained_ghz, 1.50, 0.03);
  EXPECT_NEAR(power.cool_ghz, 1.66, 0.05);
  t.clock_ghz = power.sustained_ghz;
  EXPECT_NEAR(predicted_power(t, Products::kWarpgroup).watts, 700, 1);
}

TEST(Power, ProductsOfWarpsTakeLess) {
  EXPECT_GT(predicted_power(multiplying(), Products::kWarp).sustained_ghz,
            predicted_power(multiplying(), Products::kWarpgroup).sustained_ghz + 0.1);
}

TEST(Power, AShortLaunchRunsAtTheClockOfItsFirstMicroseconds) {
  Timeline t = multiplying();
  t.cycles = 40'000;
  EXPECT_NEAR(predicted_power(t, Products::kWarpgroup).cool_ghz, 1.65, 0.04);
}

TEST(Power, LoadsFromMemoryTakePowerFromProducts) {
  Timeline t = multiplying();
  const double alone = predicted_power(t, Products::kWarpgroup).sustained_ghz;
  t.l2_bytes = t.hbm_bytes = 2'700'000'000;  // 2.7 TB/s
  EXPECT_LT(predicted_power(t, Products::kWarpgroup).sustained_ghz, alone - 0.1);
}

}  // namespace
}  // namespace imbrex::vgpu
