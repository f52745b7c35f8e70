// SPDX-License-Identifier: Apache-2.0
// The algebra of fold: one scalar op at a time.
#pragma once

#include "ir/ir.h"

namespace imbrex::passes {

/// A value equal to the op's only result that is simpler to compute, or null. New ops are made at `builder`.
/// Every rewrite holds with wrapping integers; in floating point nothing but the bits of a NaN may differ.
ir::Value* simplify(const ir::Op& op, ir::Builder& builder);

}  // namespace imbrex::passes
