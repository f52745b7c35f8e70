// SPDX-License-Identifier: Apache-2.0
// The inner loops of the tensor cores: operands decoded to 32-bit numbers and multiplied with the widest SIMD
// the host has. What the numbers mean (which bits, which rounding) is decided in tensor_core.h.
#pragma once

#include <cstdint>

#include "imbrex/core/dtype.h"

namespace imbrex::vgpu {

/// `count` elements of a floating-point type to f32, exactly. Elements lie as in an operand: 16 and 32 bits
/// wide packed, all narrower ones in a byte each. tf32 drops its low 13 bits.
void decode_operand(DataType type, const void* from, float* to, int64_t count);

/// to[c][r] = from[r][c] for 32-bit elements; pitches in elements.
void transpose_32(const void* from, int64_t from_pitch, void* to, int64_t to_pitch, int64_t rows,
                  int64_t columns);

/// d[m][n] = (accumulate ? d[m][n] : 0) + sum over k of a[m][k] * b[k][n], fused multiply-adds in ascending
/// k. Pitches are in elements; n is a multiple of 8.
void multiply_add_f32(const float* a, int64_t a_pitch, const float* b, int64_t b_pitch, float* d,
                      int64_t d_pitch, int64_t m, int64_t n, int64_t k, bool accumulate);

/// The same for integers, modulo 2^32.
void multiply_add_i32(const int32_t* a, int64_t a_pitch, const int32_t* b, int64_t b_pitch, int32_t* d,
                      int64_t d_pitch, int64_t m, int64_t n, int64_t k, bool accumulate);

}  // namespace imbrex::vgpu
