// SPDX-License-Identifier: Apache-2.0
// The approximate functions of approx.h that kernels call most, for many operands at once.
#pragma once

#include <cstdint>

namespace imbrex::arith {

/// ex2_approx() of `count` operands, a multiple of 16. `results` may be `x`.
void ex2_approx_lanes(const float* x, float* results, int64_t count, bool ftz);

}  // namespace imbrex::arith
