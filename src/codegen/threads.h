// SPDX-License-Identifier: Apache-2.0
// Register layouts as the threads of a group see them.
#pragma once

#include "codegen/generator.h"

namespace imbrex::codegen {

/// The sum of `digit * stride` over thread digits, hoisted: `strides[i]` belongs to `digits[i]`.
Integer thread_sum(Generator& g, const Group& group, std::span<const Digit> digits,
                   std::span<const int64_t> strides);
/// True in threads that hold something of the tensor; with `first_copy`, only in those of its first copy.
/// An immediate when it is so in all.
Operand holds_elements(Generator& g, const Group& group, const IndexDigits& digits, bool first_copy);
/// The digits of a register layout, or a CompileError at the op.
IndexDigits digits_or_fail(Generator& g, const ir::Op& op, const layout::Layout& layout);

}  // namespace imbrex::codegen
