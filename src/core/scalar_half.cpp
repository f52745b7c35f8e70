// SPDX-License-Identifier: Apache-2.0
#include "core/scalar_half.h"

namespace imbrex::arith {

// Widening is exact and keeps order, signs and NaN, so min and max of the wide values are the ones wanted.
uint16_t min_f16(uint16_t a, uint16_t b, MinMaxMode mode) {
  if (mode.ftz) a = flush_f16(a), b = flush_f16(b);
  return f32_to_f16(min(f16_to_f32(a), f16_to_f32(b), mode));
}
uint16_t max_f16(uint16_t a, uint16_t b, MinMaxMode mode) {
  if (mode.ftz) a = flush_f16(a), b = flush_f16(b);
  return f32_to_f16(max(f16_to_f32(a), f16_to_f32(b), mode));
}
uint16_t min_bf16(uint16_t a, uint16_t b, MinMaxMode mode) {
  return f32_to_bf16(min(bf16_to_f32(a), bf16_to_f32(b), mode));
}
uint16_t max_bf16(uint16_t a, uint16_t b, MinMaxMode mode) {
  return f32_to_bf16(max(bf16_to_f32(a), bf16_to_f32(b), mode));
}

}  // namespace imbrex::arith
