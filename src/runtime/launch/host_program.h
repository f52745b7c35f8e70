// SPDX-License-Identifier: Apache-2.0
// Evaluates what a launch needs from its arguments: grid, hidden parameters, tensor maps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codegen/compiled_kernel.h"
#include "runtime/device/backend.h"

namespace imbrex::runtime {

/// Runs kernel.host. `slots` has one entry per step and receives its result in 64 bits, integers sign- or
/// zero-extended from their type. Throws LaunchError, at the step's line, for a division by zero.
void evaluate_host(const codegen::CompiledKernel& kernel, std::span<const int64_t> arguments,
                   std::span<int64_t> slots);

/// Fills the parameter buffer (kernel.param_bytes bytes) from arguments and slots. Where the buffer was
/// filled before, from the slots `packed`, tensor maps that did not change stay as they are: encoding one
/// takes a third of a microsecond. Throws LaunchError for extents and strides that no tensor map has.
void pack_params(const codegen::CompiledKernel& kernel, std::span<const int64_t> arguments,
                 std::span<const int64_t> slots, std::span<const int64_t> packed, DeviceBackend& device,
                 std::byte* out);

}  // namespace imbrex::runtime
