// SPDX-License-Identifier: Apache-2.0
// The calls that the lanes of a warp are in, of functions that may call themselves (vgpu/program/call_frame.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "vgpu/lanes.h"
#include "vgpu/program/call_frame.h"

namespace imbrex::vgpu {

struct CallStack {
  struct Call {
    const char* function = "";          // its name, interned
    const CallFrame* callee = nullptr;  // null: one without frames, through a pointer that may mean one with
    const CallFrame* saved = nullptr;   // the caller, where its registers are put aside
    uint32_t instruction = 0;
    const void* form = nullptr;  // what the instruction knows of this callee
  };
  /// A register of a lane that is undefined, and in which bytes.
  struct Undefined {
    uint32_t number = 0;
    uint8_t bytes = 0;
  };
  struct Lane {
    int64_t bytes = 0;  // of the chip's stack
    std::vector<Call> calls;
    std::vector<std::byte> values;     // of the registers put aside, call after call
    std::vector<Undefined> undefined;  // of those, call after call
    std::vector<size_t> undefined_at;  // where those of each call begin
  };
  Lane& of(int lane) { return lanes[static_cast<size_t>(lane)]; }

  std::array<Lane, kWarpSize> lanes;
};

}  // namespace imbrex::vgpu
