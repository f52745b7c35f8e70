// SPDX-License-Identifier: Apache-2.0
// Functions that are computed by several instructions, on scalars and element by element on register tensors. They work
// on float32; float16 and bfloat16 are converted to it and back; erf and fmod compute float64 as such. Beside these,
// scalar.h and tensor.h have abs, exp, exp2, log, sqrt, rsqrt, tanh, sin, cos, round, floor and ceil.
#pragma once

#include "imbrex/lang/tensor.h"

namespace imbrex {

/// The error function, within 3e-7; of float64 within 3e-15.
RegisterValue erf(const TileArg& a);
Expr erf(const ScalarOperand& a);

/// a^b for a >= 0, as 2^(b log2 a): its relative error is about 2e-7 times the larger of 1 and |b log2 a|. Of float64 it is
/// below 1e-15, and a NaN operand or a < 0 gives NaN unless b is 0; that takes some 300 instructions.
RegisterValue pow(const TileArg& a, const NumArg& b);
RegisterValue pow(const ScalarOperand& a, const TileArg& b);
Expr pow(const ScalarOperand& a, const ScalarOperand& b);

/// The remainder of a / b with the sign of a, exact for |a / b| < 2^24; of float64 for |a / b| < 2^53.
RegisterValue fmod(const TileArg& a, const NumArg& b);
RegisterValue fmod(const ScalarOperand& a, const TileArg& b);
Expr fmod(const ScalarOperand& a, const ScalarOperand& b);

}  // namespace imbrex
