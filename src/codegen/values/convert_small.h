// SPDX-License-Identifier: Apache-2.0
// Conversions of types of at most 8 bits by arithmetic: whole words at a time, and where no instruction converts them.
#pragma once

#include "codegen/generator.h"

namespace imbrex::codegen {

/// Elements converted two or four at a time, element i of the result from element map[i] of the words (-1: from none);
/// nothing where no sequence is faster than element by element. Integers to float16 and bfloat16, small floats to them
/// where the target has no instruction, 4-bit integers to bytes.
std::optional<std::vector<Operand>> convert_packed(Generator& g, std::span<const Operand> words,
                                                   std::span<const int64_t> map, DataType from, DataType to);

/// The value of a float of at most 8 bits, as the low bits of a word of which the others are 0. Exact; a NaN is
/// 0x7FFFFFFF.
Operand small_float_to_float32(Generator& g, const Operand& bits, DataType from);
/// The f32 rounded to nearest even, out of range to the largest finite number (float8_e8m0: cut), as `cvt` would.
Operand small_float_from_float32(Generator& g, const Operand& value, DataType to);

}  // namespace imbrex::codegen
