// SPDX-License-Identifier: Apache-2.0
#include "core/scalar_half.h"

namespace imbrex::arith {

// Widening is exact and keeps order, signs and NaN, so min and max of the wide values are the ones wanted.
// Only .xorsign.abs of f16 needs the patterns' own signs: widening makes a NaN positive.
namespace {
uint16_t with_signs_of(uint16_t a, uint16_t b, uint16_t result, MinMaxMode mode) {
  if (!mode.xorsign_abs || (result & 0x7FFF) > 0x7C00) return result;
  return static_cast<uint16_t>((result & 0x7FFF) | ((a ^ b) & 0x8000));
}
}  // namespace
uint16_t min_f16(uint16_t a, uint16_t b, MinMaxMode mode) {
  if (mode.ftz) a = flush_f16(a), b = flush_f16(b);
  return with_signs_of(a, b, f32_to_f16(min(f16_to_f32(a), f16_to_f32(b), mode)), mode);
}
uint16_t max_f16(uint16_t a, uint16_t b, MinMaxMode mode) {
  if (mode.ftz) a = flush_f16(a), b = flush_f16(b);
  return with_signs_of(a, b, f32_to_f16(max(f16_to_f32(a), f16_to_f32(b), mode)), mode);
}
uint16_t min_bf16(uint16_t a, uint16_t b, MinMaxMode mode) {
  return f32_to_bf16(min(bf16_to_f32(a), bf16_to_f32(b), mode));
}
uint16_t max_bf16(uint16_t a, uint16_t b, MinMaxMode mode) {
  return f32_to_bf16(max(bf16_to_f32(a), bf16_to_f32(b), mode));
}

}  // namespace imbrex::arith
