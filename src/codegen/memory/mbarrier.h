// SPDX-License-Identifier: Apache-2.0
// Addresses of mbarriers.
#pragma once

#include "codegen/generator.h"

namespace imbrex::codegen {

/// The address of one barrier.
Operand barrier_operand(Generator& g, const BarrierView& barrier);
/// The mask of CTAs that a copy or commit reaches, as 16 bits: `mask` where it is given, else the op's attribute
/// multicast_mask; nothing where it has neither.
std::optional<Operand> multicast_mask(Generator& g, const ir::Op& op, const ir::Value* mask);

}  // namespace imbrex::codegen
