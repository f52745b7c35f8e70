// SPDX-License-Identifier: Apache-2.0
// What a launch would take in power on the chip, and what clock that leaves, from its predicted timeline (docs/timeline.md, Power).
#pragma once

#include "imbrex/vgpu/timeline.h"

namespace imbrex::vgpu {

/// The tensor-core instructions of a launch, which differ in energy.
enum class Products : uint8_t {
  kWarpgroup,  // wgmma
  kWarp,       // mma.sync
};

struct TimelinePower {
  double watts = 0;          // while the launch runs, at the clock it was predicted at
  double cool_ghz = 0;       // the clock of a launch after a pause
  double sustained_ghz = 0;  // of the same launch again and again
};

/// Of a timeline, whose operands are taken to be normally distributed 16-bit floats. All zeros where the chip's energy was not
/// measured: it was on an H200, which stands for Hopper's chips (targets sm_90 and sm_90a).
TimelinePower predicted_power(const Timeline& timeline, Products products);

}  // namespace imbrex::vgpu
