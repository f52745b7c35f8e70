// SPDX-License-Identifier: Apache-2.0
// What a device allows a kernel: for code that chooses tiles by what fits.
#pragma once

#include <cstdint>

#include "imbrex/runtime/device.h"

namespace imbrex {

/// The most shared memory, in bytes, that a CTA of a kernel compiled for the device may have: 99 KiB on consumers' GPUs, 163 or
/// 227 KiB on others (docs/targets.md).
int64_t shared_bytes_per_cta(const Device& device);

}  // namespace imbrex
