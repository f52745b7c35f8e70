// SPDX-License-Identifier: Apache-2.0
// How the name that the kernel's author gave to barriers travels in PTX, which has no place for it: as that of the label behind
// the instructions that initialise them.
#pragma once

#include <string>
#include <string_view>

#include "ptx/ptx.h"

namespace imbrex::ptx {

/// What to call the label (Builder::label) behind the mbarrier.init of an array of barriers: "pipe$full_barriers$ready" for
/// "pipe.full_barriers"; "barriers_end" where there is no name.
std::string ready_label(std::string_view variable);

/// "pipe.full_barriers" where the instruction at `index` is among those before such a label; else "".
std::string initialised_variable(const Function& function, uint32_t index);

}  // namespace imbrex::ptx
