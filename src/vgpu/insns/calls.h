// SPDX-License-Identifier: Apache-2.0
// call: of functions of the module, by name or through a register, and of those that the driver brings along.
#pragma once

#include "vgpu/program/decode.h"

namespace imbrex::vgpu {

bool decode_call(Decoder& decoder, Instruction& out);

}  // namespace imbrex::vgpu
