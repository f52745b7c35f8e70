// SPDX-License-Identifier: Apache-2.0
// Functions that the driver brings along: vprintf, __assertfail, malloc and free.
#pragma once

#include <cstring>
#include <string_view>
#include <vector>

#include "vgpu/machine/warp.h"

namespace imbrex::vgpu {

/// `arguments` and `results`: offsets in local memory of each.
using Builtin = Step (*)(Warp& warp, const Instruction& insn, Mask active,
                         const std::vector<int64_t>& arguments, const std::vector<int64_t>& results);

/// An argument of a call, in a lane's local memory, and its result.
template <class T>
T argument(Warp& w, int lane, int64_t offset) {
  T value;
  std::memcpy(&value, w.local(lane) + offset, sizeof value);
  return value;
}
template <class T>
void set_result(Warp& w, int lane, int64_t offset, T value) {
  std::memcpy(w.local(lane) + offset, &value, sizeof value);
}

/// Null when there is no such function.
Builtin find_builtin(std::string_view name);

}  // namespace imbrex::vgpu
