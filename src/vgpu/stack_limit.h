// SPDX-License-Identifier: Apache-2.0
// The stack of functions that may call themselves.
#pragma once

#include <cstdint>

namespace imbrex::vgpu {

/// Bytes that a thread of the launches to come has, of whichever virtual GPU of the process; what is running keeps what it has.
/// CUDA's default, 1024, unless set.
void set_stack_bytes(int64_t bytes);
int64_t stack_bytes();

}  // namespace imbrex::vgpu
