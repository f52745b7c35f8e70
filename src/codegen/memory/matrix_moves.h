// SPDX-License-Identifier: Apache-2.0
// ldmatrix and stmatrix: shared memory to and from the fragments of the tensor cores, four 8 x 8 matrices at
// once.
#pragma once

#include "codegen/memory/shared_memory.h"

namespace imbrex::codegen {

/// The words of a register tensor of this layout, loaded by ldmatrix; nothing where that cannot be.
std::optional<std::vector<Operand>> load_matrices(Generator& g, const ir::Op& op, const SharedView& view,
                                                  const layout::Layout& layout);
/// Stores a register tensor by stmatrix; false, and nothing is done, where that cannot be.
bool store_matrices(Generator& g, const ir::Op& op, const SharedView& view, const RegisterTensor& value);

}  // namespace imbrex::codegen
