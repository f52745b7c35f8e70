// SPDX-License-Identifier: Apache-2.0
// Machine code for predicted times: by ptxas, a process of its own.
#pragma once

#include <string>

namespace imbrex::cuda {

/// From PTX to a cubin with tables of lines, by this program; "" where it refuses the PTX.
std::string assemble(const std::string& ptxas, const std::string& ptx, const std::string& target);

}  // namespace imbrex::cuda
