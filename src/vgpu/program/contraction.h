// SPDX-License-Identifier: Apache-2.0
// A product and a sum become one fused operation. PTX leaves it open where neither says how it rounds; NVIDIA's assembler does it
// unless told not to (`ptxas -fmad=false`), so that a chip rounds once, and here it is done where ptxas 13.0 was seen to do it: in one
// basic block, where all that becomes of the product, moved and negated on the way or not, are such sums; of two products the left
// one. It is the same for f32, f64, f16, bf16 and the pairs of both, but that pairs of bf16 are negated by an instruction of their own.
// Not done here, though ptxas does it: where a register of a factor, or of the product, is written again before the sum.
#pragma once

#include <cstdint>
#include <map>

#include "ptx/ptx.h"

namespace imbrex::vgpu {

/// Of a sum or a difference: the instruction that makes the product, whether that is the left operand, and what becomes of the
/// signs.
struct Contraction {
  uint32_t product = 0;
  bool is_left = true;
  bool negates_product = false, negates_addend = false;
};

/// By the sum's index in the body.
std::map<uint32_t, Contraction> contractions(const ptx::Function& function);

class Decoder;
struct Instruction;
/// The operands of a sum that takes a product in: those of the product, then the other of the sum.
void take_contracted(Decoder& decoder, Instruction& out, const Contraction& contraction,
                     ptx::ScalarType type);

}  // namespace imbrex::vgpu
