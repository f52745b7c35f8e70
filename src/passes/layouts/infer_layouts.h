// SPDX-License-Identifier: Apache-2.0
// Gives every register, shared and tensor-memory tensor its layout.
#pragma once

#include "ir/ir.h"

namespace imbrex::passes {

/// Sets `type.layout` of every register, shared and tensor-memory tensor (views and tensor variables
/// included).
///
/// Instructions state demands: an MMA operand must be readable by matrix descriptors, an accumulator lies as
/// the tensor core writes it, tcgen05_load gives one lane to a thread, an annotation wants exactly its
/// layout. Demands on a view are demands on the allocation behind it. A shared tensor gets the first layout
/// of a list of candidates that satisfies every demand, at the lowest cost in bank conflicts; registers get
/// theirs by propagation from the demands, and what nothing demands is made for coalesced, vectorised access.
///
/// Throws CompileError naming both demands and their source lines when two cannot be met together. Running it
/// again changes nothing.
void infer_layouts(ir::Function& function);

}  // namespace imbrex::passes
