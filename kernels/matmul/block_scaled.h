// SPDX-License-Identifier: Apache-2.0
// Dense products of float8 operands with a scale per 1 x 128 of A and 128 x 128 of B.
#pragma once

#include "imbrex/kernels/matmul.h"
#include "matmul/matmul_launch.h"
#include "matmul/placement.h"

namespace imbrex {

/// Whether the scales of a call are of blocks: they are matrices, and not as many as rows, or one.
bool has_block_scales(const Problem& p, const MatmulOptions& options);

/// matmul() with such scales. LaunchError names the condition that the call does not meet.
LaunchReport run_block_scaled(Until until, const Problem& p, const DeviceTensor& a, const DeviceTensor& b,
                              const DeviceTensor& c, const MatmulOptions& options);

}  // namespace imbrex
