// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ir/ir.h"

namespace imbrex::passes {

/// Gives TMA copies a tensor map, made on the host, in place of the global tensor: one for each tensor, box
/// and swizzle. Offsets of views are added to those of the copy, which become coordinates in the order of the
/// map, innermost first; `dims` then numbers the map's dimensions. Shared tensors must have their layouts.
/// Throws CompileError for tensors that a map cannot describe, or whose extents or strides are not known at
/// launch.
void make_tensor_maps(ir::Function& function);

}  // namespace imbrex::passes
