// SPDX-License-Identifier: Apache-2.0
// Addresses of mbarriers.
#pragma once

#include "codegen/generator.h"

namespace imbrex::codegen {

/// The address of one barrier.
Operand barrier_operand(Generator& g, const BarrierView& barrier);

}  // namespace imbrex::codegen
