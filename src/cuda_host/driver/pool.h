// SPDX-License-Identifier: Apache-2.0
// Which pool memory is taken from.
#pragma once

#include "cuda_host/host/memory.h"

namespace imbrex::cuda {

/// The pool that allocations on streams of the device are taken from.
Pool& current_pool(int device);

}  // namespace imbrex::cuda
