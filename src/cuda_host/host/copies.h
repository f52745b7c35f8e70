// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cuda_host/host/work.h"

namespace imbrex::cuda {

/// What the driver's structures ask for. CUDA_ERROR_NOT_SUPPORTED for arrays, CUDA_ERROR_INVALID_VALUE for pitches that
/// are too small.
CopyWork copy_work(const CUDA_MEMCPY2D& copy);
CopyWork copy_work(const CUDA_MEMCPY3D& copy);

}  // namespace imbrex::cuda
