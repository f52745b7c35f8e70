// SPDX-License-Identifier: Apache-2.0
// How many registers a kernel needs, from the PTX alone: the most 32-bit registers that are live at once.
#pragma once

#include <cstdint>
#include <string_view>

#include "ptx/ptx.h"

namespace imbrex::analysis {

struct RegisterPressure {
  int64_t live = 0;   ///< 32-bit registers live at the worst instruction; predicates are not among them
  uint32_t line = 0;  ///< the kernel's source line there, 0 when unknown
};
RegisterPressure register_pressure(const ptx::Function& function);
/// Of a kernel in PTX text.
RegisterPressure register_pressure(std::string_view ptx, std::string_view kernel);

}  // namespace imbrex::analysis
