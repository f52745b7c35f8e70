// SPDX-License-Identifier: Apache-2.0
// The algebra of fold: one scalar op at a time.
#pragma once

#include "ir/ir.h"
#include "ir/ranges.h"

namespace imbrex::passes {

/// A value equal to the op's only result that is simpler to compute, or null. New ops are made at `builder`;
/// `ranges` knows bounds and divisors of the operands.
/// Every rewrite holds with wrapping integers; in floating point nothing but the bits of a NaN may differ.
ir::Value* simplify(const ir::Op& op, ir::Builder& builder, ir::Ranges& ranges);

}  // namespace imbrex::passes
