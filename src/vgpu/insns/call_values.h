// SPDX-License-Identifier: Apache-2.0
// The arguments and results of a call, and how they get from the one side to the other.
#pragma once

#include <cstddef>
#include <vector>

#include "vgpu/machine/warp.h"

namespace imbrex::vgpu {

/// Where one value is, on one side of a call: in a register, or in local memory at a distance from its start or, `in_frame`,
/// from the stack pointer.
struct ValuePlace {
  bool in_register = false, in_frame = false;
  int64_t at = 0;  // slot, or offset
};
struct PassedValue {
  ValuePlace from, to;
  uint32_t bytes = 0;
};

/// Of functions without frames.
void pass(Warp& warp, Mask active, const std::vector<PassedValue>& values);

/// With frames, lane by lane: the two sides have stack pointers of their own, and may have the same registers, so that all
/// values are read before one is written.
void read_values(Warp& warp, int lane, const std::vector<PassedValue>& values, std::vector<std::byte>& read);
void write_values(Warp& warp, int lane, const std::vector<PassedValue>& values,
                  const std::vector<std::byte>& read);

}  // namespace imbrex::vgpu
