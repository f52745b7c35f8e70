// SPDX-License-Identifier: Apache-2.0
// Scalars in memory, and scalars that one thread has and the others of its group want.
#pragma once

#include "codegen/generator.h"

namespace imbrex::codegen {

/// Address of the element of a view in global or shared memory (operand 0) at an index, one number per dimension.
struct ElementAddress {
  Mod space;
  Operand address;
};
ElementAddress element_address(Generator& g, const ir::Op& op, std::span<const Integer> index);
/// The element of a view that has only one.
ElementAddress only_element(Generator& g, const ir::Op& op);

/// Loads a scalar by `ld` with these words before the space, such as acquire and gpu.
Operand load_scalar(Generator& g, DataType dtype, const ElementAddress& at,
                    std::span<const Suffix> words = {});
/// Stores one. bool is stored as a byte.
void store_scalar(Generator& g, DataType dtype, const ElementAddress& at, const Operand& value,
                  std::span<const Suffix> words = {});

/// True in the group's first thread; an immediate when it is the only one.
Operand is_first_thread(Generator& g);
/// What the group's first thread has in `value`, in all of its threads, which all come here. Synchronises them where
/// they are of several warps.
Operand from_first_thread(Generator& g, const ir::Op& op, DataType dtype, const Operand& value);

}  // namespace imbrex::codegen
