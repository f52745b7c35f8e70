// SPDX-License-Identifier: Apache-2.0
// What a predicted timeline says, in words.
#pragma once

#include <string>

#include "imbrex/vgpu/timeline.h"

namespace imbrex::command {

/// Lines "  predicted ..." and "  busy ..." for people.
std::string prediction_text(const vgpu::Timeline& timeline);
/// "87 %", "3.1 %".
std::string percent(double share);
/// "12.3 µs", "1.23 ms".
std::string duration(double microseconds);

}  // namespace imbrex::command
