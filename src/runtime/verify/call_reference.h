// SPDX-License-Identifier: Apache-2.0
// The reference of a registered kernel for a call of it.
#pragma once

#include "runtime/launch/first_call_tuning.h"

namespace imbrex::runtime {

/// What FindCallReference asks for. The problem has the sizes of the call where its reference is made within `seconds`,
/// by what the default sizes take, and its tensors (`bytes`) fit once more; else the default sizes. Empty for a kernel
/// that is not registered, and for calls that its case does not make, as with other element types.
CallReference find_call_reference(const KernelEntry& entry, const Device& device,
                                  const std::vector<int64_t>& shape, int64_t bytes, double seconds);

}  // namespace imbrex::runtime
