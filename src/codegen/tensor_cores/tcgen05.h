// SPDX-License-Identifier: Apache-2.0
// What the files about tcgen05 share.
#pragma once

#include "codegen/generator.h"
#include "layout/swizzle.h"

namespace imbrex::codegen {

inline Mod cta_group_word(const ir::Op& op) {
  return op.int_attr("cta_group", 1) == 2 ? Mod::cta_group_2 : Mod::cta_group_1;
}

/// What every matrix descriptor of this generation holds, and the swizzle.
uint64_t tcgen05_descriptor_bits(layout::Swizzle swizzle);

/// A descriptor's operand, `bytes` from its base.
inline Operand descriptor_at(Generator& g, const Integer& base, int64_t bytes) {
  return g.ints().add(base, Integers::constant(bytes >> 4)).value;
}

/// The address `columns` 32-bit columns behind the start of a tensor.
inline Operand tensor_memory_address(const TensorMemoryView& view, int64_t columns) {
  return ptx::address(view.base.value.reg(), view.lane << 16 | (view.column + columns));
}

}  // namespace imbrex::codegen
