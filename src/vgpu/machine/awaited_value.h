// SPDX-License-Identifier: Apache-2.0
// What a loop that looks at memory waits for, read off its code.
#pragma once

#include <string>

namespace imbrex::vgpu {

class Warp;

/// Of what the warp last looked at, the value by which its loop would end: "7", "at least 3", "other than 0"; "" where the code does
/// not tell.
std::string awaited_value(Warp& warp);

}  // namespace imbrex::vgpu
