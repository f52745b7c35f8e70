// SPDX-License-Identifier: Apache-2.0
#include "imbrex/vgpu/power.h"

#include <algorithm>
#include <cmath>

namespace imbrex::vgpu {

namespace {

/// All measured (bench/units/power.cu, docs/measurements/2026-11-23-power.md).
struct PowerModel {
  double limit_watts;  // of the board, which holds after some tens of milliseconds
  double burst_watts;  // which holds after a tenth of a millisecond
  double highest_ghz;
  double tensor_ghz;  // the highest of a launch that uses tensor cores
  double idle_watts;  // clocks running, nothing to do

  // Of the SMs, at reference_ghz; at other clocks as the clock to voltage_exponent.
  double reference_ghz;
  double voltage_exponent;
  double wgmma_nanojoules, mma_sync_nanojoules;  // a clock of an SM's tensor cores
  double issue_picojoules;                       // a warp's instruction
  // Of the rest of the chip, whatever the clock.
  double l2_picojoules;      // a byte between L2 and the SMs
  double memory_picojoules;  // a byte from or to memory

  // The clock gives way at once to what the SMs draw, and most of that back after a tenth of a millisecond.
  double droop_short, droop_long;  // GHz per kilowatt
  double short_microseconds;
};

constexpr PowerModel kHopper{.limit_watts = 700,
                             .burst_watts = 900,
                             .highest_ghz = 1.98,
                             .tensor_ghz = 1.815,
                             .idle_watts = 135,
                             .reference_ghz = 1.8,
                             .voltage_exponent = 1.65,
                             .wgmma_nanojoules = 3.84,
                             .mma_sync_nanojoules = 2.48,
                             .issue_picojoules = 240,
                             .l2_picojoules = 27,
                             .memory_picojoules = 67,
                             .droop_short = 0.19,
                             .droop_long = 0.08,
                             .short_microseconds = 100};
constexpr int kSubPartitions = 4;  // of an SM, each of which issues an instruction a clock

/// The highest clock up to `most` that is not too high.
template <class IsTooHigh>
double highest_clock(double most, IsTooHigh&& is_too_high) {
  constexpr double kLeast = 0.1;
  constexpr int kSteps = 40;
  if (!is_too_high(most)) return most;
  double low = kLeast, high = most;
  for (int i = 0; i < kSteps; ++i) {
    const double middle = (low + high) / 2;
    (is_too_high(middle) ? high : low) = middle;
  }
  return low;
}

}  // namespace

TimelinePower predicted_power(const Timeline& t, Products products) {
  if (!t.target.starts_with("sm_90") || t.cycles <= 0) return {};
  const PowerModel& model = kHopper;
  const double everywhere = static_cast<double>(t.cycles) * t.sms;
  const double product = products == Products::kWarp ? model.mma_sync_nanojoules : model.wgmma_nanojoules;
  const double of_sms = everywhere * (t.use.tensor_core * product * 1e-9 +
                                      t.use.issue * kSubPartitions * model.issue_picojoules * 1e-12);
  const double of_rest = 1e-12 * (static_cast<double>(t.l2_bytes) * model.l2_picojoules +
                                  static_cast<double>(t.hbm_bytes) * model.memory_picojoules);
  // The launch is taken to need as many clocks whatever the clock is.
  const auto seconds_at = [&](double ghz) { return static_cast<double>(t.cycles) / ghz * 1e-9; };
  const auto watts_of_sms = [&](double ghz) {
    return of_sms * std::pow(ghz / model.reference_ghz, model.voltage_exponent) / seconds_at(ghz);
  };
  const auto watts_at = [&](double ghz) {
    return model.idle_watts + watts_of_sms(ghz) + of_rest / seconds_at(ghz);
  };
  const double most = t.use.tensor_core > 0 ? model.tensor_ghz : model.highest_ghz;
  const bool is_short = 1e6 * seconds_at(most) < model.short_microseconds;
  const double droop = 1e-3 * (is_short ? model.droop_short : model.droop_long);
  const auto droops = [&](double ghz) { return ghz > most - droop * watts_of_sms(ghz); };
  return {
      .watts = watts_at(t.clock_ghz),
      .cool_ghz = highest_clock(
          most, [&](double ghz) { return droops(ghz) || (!is_short && watts_at(ghz) > model.burst_watts); }),
      .sustained_ghz =
          highest_clock(most, [&](double ghz) { return droops(ghz) || watts_at(ghz) > model.limit_watts; })};
}

}  // namespace imbrex::vgpu
