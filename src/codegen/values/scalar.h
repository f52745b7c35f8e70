// SPDX-License-Identifier: Apache-2.0
// Scalar operations and conversions.
#pragma once

#include "codegen/generator.h"

namespace imbrex::codegen {

/// One scalar operation; `operands` are registers or immediates of `dtype` (results of comparisons are
/// predicates).
Operand scalar_operation(Generator& g, const ir::Op& op, ir::Opcode code, DataType dtype,
                         std::span<const Operand> operands);
/// f16 or bf16 arithmetic that exists as one instruction, on scalars or on packed pairs; nothing for others.
std::optional<Operand> half_arithmetic(Generator& g, ir::Opcode code, DataType dtype, bool packed,
                                       std::span<const Operand> operands);
/// A scalar converted to another type.
Operand convert(Generator& g, const ir::Op& op, Operand value, DataType from, DataType to);

}  // namespace imbrex::codegen
