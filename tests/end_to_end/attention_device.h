// SPDX-License-Identifier: Apache-2.0
// The device of attention's tests.
#pragma once

#include <cstdint>
#include <string>

#include "imbrex/runtime/device.h"

namespace imbrex::testing {

/// A virtual GPU with every checker on.
inline Device virtual_gpu(uint64_t seed = 2, const std::string& target = "sm_90a") {
  return Device::virtual_gpu({.target = target, .seed = seed, .checks = vgpu::CheckSet::all()});
}

}  // namespace imbrex::testing
