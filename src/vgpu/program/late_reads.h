// SPDX-License-Identifier: Apache-2.0
// Which loads may still be on their way when the thread gives the memory back, or says that it has read; and which may be answered by
// what the SM's L1 cache holds.
#pragma once

#include "vgpu/program/program.h"

namespace imbrex::vgpu {

inline constexpr uint32_t kUsedInTime = ~0u, kBehindArrival = ~0u - 1, kNotAsked = ~0u - 2;

/// Behind what the values that this instruction loads are first used: kBehindArrival, at an mbarrier; a barrier of the CTA
/// (index in Program::code); or kUsedInTime. Nothing makes the thread wait for such a load before it arrives. In the order
/// of the text, which is that of the loops of compilers.
uint32_t used_behind(const Program& program, uint32_t load);
/// Whether all of the values are used before the next relaxed or volatile store, as a flag that says so: by the thread itself, or
/// before a barrier that the thread which stores has passed since.
bool used_before_flag(const Program& program, uint32_t load);

/// Whether a load, or a cp.async, of global memory asks the L1 cache, where nothing but an acquire of the thread's CTA makes room
/// for what other SMs have written: all that are neither of GPU scope, nor .cg or .cv, nor bulk copies.
bool asks_l1(const Program& program, uint32_t load);

}  // namespace imbrex::vgpu
