// SPDX-License-Identifier: Apache-2.0
// Matrix descriptors of wgmma and tcgen05: a 64-bit base, made once, plus constants. The address field counts
// 16 bytes in 14 bits and all of shared memory fits, so adding to the whole word never carries out of it.
#pragma once

#include <string_view>

#include "codegen/generator.h"
#include "layout/descriptors.h"

namespace imbrex::codegen {

/// The fields that describe an operand of `op`, `operand` as [mn, k], which instructions read in blocks of
/// `rows` x `k`. A CompileError at the op when there are none, or when it starts between 16 bytes.
layout::MatrixOperand describe_operand(Generator& g, const ir::Op& op, std::string_view name,
                                       const ir::Value* value, const layout::Layout& operand, int64_t rows,
                                       int64_t k);

/// A descriptor: `constant` and the offsets of `fields`, and the operand's start less the constant part of
/// the view's offset, so that stages of one tensor share it. `block_bytes` moves the start, in bytes.
Integer descriptor_base(Generator& g, const SharedView& view, const layout::MatrixOperand& fields,
                        uint64_t constant, const Integer& block_bytes = Integers::constant(0));

}  // namespace imbrex::codegen
