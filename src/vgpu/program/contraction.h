// SPDX-License-Identifier: Apache-2.0
// A product and a sum become one fused operation. PTX leaves it open where neither says how it rounds; NVIDIA's assembler does it
// unless told not to (`ptxas -fmad=false`), so that a chip rounds once, and here it is done where ptxas 13.0 was seen to do it: in one
// basic block, where all that becomes of the product are such sums; of two products the left one.
#pragma once

#include <cstdint>
#include <map>

#include "ptx/ptx.h"

namespace imbrex::vgpu {

/// Of a sum or a difference: the instruction that makes the product, and whether that is the left operand.
struct Contraction {
  uint32_t product = 0;
  bool is_left = true;
};

/// By the sum's index in the body.
std::map<uint32_t, Contraction> contractions(const ptx::Function& function);

}  // namespace imbrex::vgpu
