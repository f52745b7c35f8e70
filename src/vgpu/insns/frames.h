// SPDX-License-Identifier: Apache-2.0
// What calls and returns of functions that may call themselves do to registers and stack pointers.
#pragma once

#include "vgpu/machine/call_stack.h"
#include "vgpu/machine/warp.h"

namespace imbrex::vgpu {

/// Puts the caller's registers aside, makes those of the callee undefined and moves the lane's stack pointer.
void push_call(Warp& warp, int lane, const CallStack::Call& call);
/// The reverse, when the latest call of the lane has returned.
void pop_call(Warp& warp, int lane);

}  // namespace imbrex::vgpu
