// SPDX-License-Identifier: Apache-2.0
// Combining elements along an axis, as reductions and scans do.
#pragma once

#include <string>

#include "codegen/digits.h"
#include "codegen/generator.h"

namespace imbrex::codegen {

inline constexpr int64_t kScratchBytes = 8192;  ///< what one round through shared memory may take

/// The type that elements are combined in: 16-bit floats in float32, bool as words.
DataType working_type(DataType type);
/// sum, product, min, max, any, all, and, or, xor.
ir::Opcode combining_op(const std::string& kind);
/// The value that changes nothing. For min and max of floats NaN would be dropped by either operand, so the
/// infinities will do.
Operand identity(ir::Opcode code, DataType type);

/// A digit of the thread number in two: what shuffles inside a warp reach, the lower part, and the rest.
struct LaneSplit {
  std::optional<Digit> lanes, across;
};
LaneSplit split_by_lanes(Digit digit, const Group& group);

}  // namespace imbrex::codegen
