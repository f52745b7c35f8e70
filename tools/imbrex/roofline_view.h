// SPDX-License-Identifier: Apache-2.0
// A roofline as text, picture and JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "imbrex/inspect/tiling.h"

namespace imbrex::command {

std::string roofline_svg(const GpuModel& gpu, const Roofline& roofline, const std::string& title);
std::string roofline_text(const GpuModel& gpu, const Roofline& roofline, const std::string& title);
nlohmann::ordered_json roofline_json(const Roofline& roofline);

}  // namespace imbrex::command
