// SPDX-License-Identifier: Apache-2.0
// The scalar arithmetic of PTX as pure functions: what the virtual GPU executes, one lane at a time, and what
// constant folding computes. Bits are the chip's (measured on an H200), NaN patterns included.
//
//   scalar_int.h     integer, bit and packed-byte instructions
//   scalar_float.h   f32 and f64: add, mul, fma, div, sqrt, min, max, ... in every rounding mode
//   scalar_half.h    f16 and bf16, and the two-in-a-register forms
//   scalar_cvt.h     cvt between every pair of scalar types
//   approx.h         the .approx functions (ex2, lg2, rcp, rsqrt, sqrt, sin, cos, tanh), bit for bit
//
// The default forms (round to nearest, no .ftz, no .sat) are separate branch-free inline functions, so that a
// loop over the lanes of a warp vectorises; the forms with modifiers take them as a run-time argument.
#pragma once

#include "core/approx.h"
#include "core/scalar_cvt.h"
#include "core/scalar_float.h"
#include "core/scalar_half.h"
#include "core/scalar_int.h"
