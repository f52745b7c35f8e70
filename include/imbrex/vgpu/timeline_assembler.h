// SPDX-License-Identifier: Apache-2.0
// Who assembles kernels whose time is predicted. Machine code tells what PTX does not: registers, what is issued, and how long
// instructions of a warp are apart. Without it (at first) predictions are made from PTX alone.
#pragma once

#include <functional>
#include <string>

namespace imbrex::vgpu {

/// From PTX, a kernel in it, and a target ("sm_90a") to a cubin with tables of lines (ptxas -lineinfo); "" where that is not possible.
using TimelineAssembler =
    std::function<std::string(const std::string& ptx, const std::string& kernel, const std::string& target)>;

/// Of this process, for kernels that are launched for the first time from then on. Called by one thread at a time of each GPU.
void set_timeline_assembler(TimelineAssembler assembler);

}  // namespace imbrex::vgpu
