// SPDX-License-Identifier: Apache-2.0
// Runs micro-kernels on a device.
#pragma once

#include <vector>

#include "imbrex/runtime/device.h"
#include "kernel.h"

namespace imbrex::conformance {

/// What `kernel` writes. Throws imbrex::Error when the device refuses it, or finds something wrong with it.
std::vector<uint8_t> run(const Device& device, const MicroKernel& kernel);

}  // namespace imbrex::conformance
