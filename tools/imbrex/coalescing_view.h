// SPDX-License-Identifier: Apache-2.0
// What a launch's accesses took of global memory, as a table by source line and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "imbrex/vgpu/virtual_gpu.h"

namespace imbrex::command {

/// By source line, or by line of the PTX where that names no source; `with_instructions`: and every instruction.
std::string coalescing_text(const std::vector<vgpu::SectorUse>& uses, bool with_instructions);
/// {"lines": [...], "instructions": [...]}.
nlohmann::ordered_json coalescing_json(const std::vector<vgpu::SectorUse>& uses);

}  // namespace imbrex::command
