// SPDX-License-Identifier: Apache-2.0
// What libcudadevrt.a has for kernels, as PTX: of cooperative groups and of memory. Launches from kernels are not there.
#pragma once

#include <string>
#include <string_view>

#include "ptx/ptx.h"

namespace imbrex::vgpu {

/// The built-in function that reports a grid's synchronisation in a launch that is not cooperative.
inline constexpr std::string_view kNotCooperative = "__imbrex_not_cooperative";

/// Definitions of what the module declares and leaves to the device runtime, to be put behind its text; "" where that
/// is nothing.
std::string device_runtime_for(const ptx::Module& module);

/// True for what starts a kernel, or prepares it, from a kernel.
bool launches_kernels(std::string_view function);

}  // namespace imbrex::vgpu
