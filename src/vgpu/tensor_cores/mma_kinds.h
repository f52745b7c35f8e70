// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vgpu/program/decode.h"

namespace imbrex::vgpu {

/// mma.sync with a .kind, of sm_120: floats of 8, 6 and 4 bits, and products with block scales.
bool has_mma_kind(const Decoder& decoder);
void decode_mma_kind(Decoder& decoder, Instruction& out);

}  // namespace imbrex::vgpu
