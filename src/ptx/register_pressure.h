// SPDX-License-Identifier: Apache-2.0
// How many registers a kernel needs, from the PTX alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "ptx/ptx.h"

namespace imbrex::ptx {

struct RegisterPressure {
  int64_t live = 0;       ///< 32-bit registers live at the worst instruction; predicates are not among them
  uint32_t line = 0;      ///< the source line there, 0 when unknown
  uint32_t file = 0;      ///< its file's number in the module
  std::string file_name;  ///< and name, of a kernel in PTX text
  /// What the assembler will give a thread, not bounded by what there is: `live` with loads of shared memory
  /// some instructions earlier, as it schedules them, and loads of tensor memory later where a thread's
  /// registers do not suffice; from sm_100 on without what a warp's own registers hold; with setmaxnreg the
  /// equal shares that a CTA of `.maxntid` threads starts with.
  int64_t estimate = 0;
  int64_t across_calls = 0;  ///< 32-bit registers live behind a call of a function, at the worst one
};
/// `target` as PTX names it: "sm_90a".
RegisterPressure register_pressure(const ptx::Function& function, std::string_view target);
/// Of a kernel in PTX text.
RegisterPressure register_pressure(std::string_view ptx, std::string_view kernel);

}  // namespace imbrex::ptx
