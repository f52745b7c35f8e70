// SPDX-License-Identifier: Apache-2.0
// Evaluates what a launch needs from its arguments: grid, hidden parameters, tensor maps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "codegen/compiled_kernel.h"
#include "runtime/device/backend.h"

namespace imbrex::runtime {

/// The result of a step in 64 bits, integers sign- or zero-extended from their type; `slots` has those of the steps
/// before. Throws LaunchError, at the step's line, for a division by zero.
int64_t evaluate_step(const codegen::HostStep& step, std::span<const int64_t> arguments,
                      std::span<const int64_t> slots);

/// Runs kernel.host. `slots` has one entry per step and receives its result.
void evaluate_host(const codegen::CompiledKernel& kernel, std::span<const int64_t> arguments,
                   std::span<int64_t> slots);

/// Fills the parameter buffer (kernel.param_bytes bytes) from arguments and slots. Throws LaunchError for extents and
/// strides that no tensor map has.
void pack_params(const codegen::CompiledKernel& kernel, std::span<const int64_t> arguments,
                 std::span<const int64_t> slots, DeviceBackend& device, std::byte* out);

}  // namespace imbrex::runtime
