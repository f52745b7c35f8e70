// SPDX-License-Identifier: Apache-2.0
// Shapes and operands of tensors, as the language's functions check them.
#pragma once

#include "imbrex/lang/memory.h"
#include "imbrex/lang/tensor.h"
#include "lang/arithmetic.h"

namespace imbrex::lang {

/// "[128, 64]"; "?" for an extent known only at run time.
std::string shape_text(const Shape& shape);
/// Every extent must be positive.
void check_shape(const Instruction& at, const Shape& shape);
/// Offsets or extents as index values.
std::vector<ir::Value*> index_values(const Instruction& at, const Scalars& offsets);

/// The attribute of a hint to the L2 cache, where there is one.
void add_cache_policy(std::vector<ir::Attr>& attrs, CachePolicy policy);
/// A mask of CTAs: of a C++ number the attribute, where it is not 0; of a run-time scalar its value, else null.
ir::Value* multicast_mask(const Instruction& at, const ScalarArg& mask, std::vector<ir::Attr>& attrs);
/// Which dimension of `tensor` each dimension of a tile runs along: `dims`, or where that is empty the last
/// ones.
Shape tile_dims(const ir::Value* tensor, size_t tile_rank, const Shape& dims);

ir::Type register_type(DataType dtype, Shape shape);

/// A register-tensor operand; of a variable, its present value.
ir::Value* tile(const Instruction& at, const TileArg& arg);
/// `value` repeated to the shape; an error naming both when they do not broadcast.
ir::Value* broadcast(const Instruction& at, ir::Value* value, const Shape& shape);
/// The shape two shapes broadcast to, or nothing.
std::optional<Shape> broadcast_shape(const Shape& a, const Shape& b);

inline RegisterValue result(const Instruction& at, const ir::Op* op) {
  at.name_result(op->result());
  return RegisterValue(at.handle(op->result()));
}

}  // namespace imbrex::lang
