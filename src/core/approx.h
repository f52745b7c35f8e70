// SPDX-License-Identifier: Apache-2.0
// The approximate functions of PTX, bit for bit as an H200 computes them: a piecewise quadratic out of
// tables, and the few scaling instructions the assembler puts around it. Other architectures use the same
// model.
#pragma once

#include <cstdint>

namespace imbrex::arith {

/// The functions of the multi-function unit.
enum class Mufu : uint8_t { kRcp, kRsqrt, kSqrt, kEx2, kLg2, kSin, kCos, kTanh };

/// The unit alone, on bit patterns: subnormal operands count as zero (but for tanh), small results flush to
/// zero. sin and cos take revolutions.
uint32_t mufu(Mufu function, uint32_t x);

/// The PTX instructions. `ftz` is the modifier; sin, cos and tanh give the same with and without.
float ex2_approx(float x, bool ftz);
/// The same of `count` operands, a multiple of 16. `results` may be `x`.
void ex2_approx_lanes(const float* x, float* results, int64_t count, bool ftz);
float lg2_approx(float x, bool ftz);
float rcp_approx(float x, bool ftz);
/// rcp.approx.ftz.f64: of the operand's upper 32 bits, with the lower 32 bits of the result zero. The table is
/// that of f32.
double rcp_approx_ftz(double x);
/// rsqrt.approx.ftz.f64, in the same manner; not compared with a chip yet.
double rsqrt_approx_ftz(double x);
float rsqrt_approx(float x, bool ftz);
float sqrt_approx(float x, bool ftz);
float sin_approx(float x);
float cos_approx(float x);
float tanh_approx(float x);

/// div.approx.f32 and div.full.f32: a product with the approximate reciprocal.
float div_approx(float a, float b, bool ftz);
float div_full(float a, float b, bool ftz);
/// div_full() of `count` pairs of operands, a multiple of 16. `results` may be one of the operands.
void div_full_lanes(const float* a, const float* b, float* results, int64_t count, bool ftz);

/// The 16-bit forms: the unit on the widened operand, its result cut toward zero.
uint16_t ex2_approx_f16(uint16_t x);
uint16_t ex2_approx_ftz_bf16(uint16_t x);
uint16_t tanh_approx_f16(uint16_t x);
uint16_t tanh_approx_bf16(uint16_t x);

}  // namespace imbrex::arith
