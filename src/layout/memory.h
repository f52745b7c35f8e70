// SPDX-License-Identifier: Apache-2.0
// Layouts of shared and tensor memory.
#pragma once

#include "layout/layout.h"

namespace imbrex::layout {

/// A tile as TMA boxes write it and wgmma/tcgen05 descriptors read it: the last two dimensions are a matrix,
/// those before are stages. `contiguous_dim` (-1 the last, -2 the one before) is cut into boxes of
/// swizzle.span_bytes(); a box holds all rows of the other dimension, box after box, stage after stage.
/// Without a swizzle the boxes are 16 bytes wide (core matrices). K-major operands [mn, k] have
/// contiguous_dim -1, MN-major ones -2.
Layout operand_tile(const Shape& shape, int element_bits, Swizzle swizzle, int contiguous_dim = -1);

/// Accumulators of tcgen05.mma in tensor memory, by the letters of the PTX manual.
enum class AccumulatorLayout : uint8_t {
  kD,  ///< m = 128, one CTA
  kF,  ///< m = 64, one CTA
  kA,  ///< m = 256, a pair
  kB,  ///< m = 128, a pair, dense
  kE,  ///< m = 64, .ws
  kG,  ///< m = 32, .ws
};
/// The accumulator [m, n]; elements of 32 bits, or 16 bits with one in every column (not packed).
Layout accumulator(AccumulatorLayout kind, int64_t n, int element_bits = 32);
/// A tcgen05 operand A [m, k] in tensor memory, packed into 32-bit columns; m = 64 or 128 (m = 128 of a pair,
/// whose 64 rows per CTA are present twice, is [128, k] with `pair`), or 256 of a pair.
Layout tensor_memory_a(int64_t m, int64_t k, int element_bits, bool pair = false);
/// What one CTA holds of an accumulator: `rows` is m, or m / 2 of a pair. Rows beyond 128 lie in further
/// columns, blocks of 128 side by side.
Layout accumulator_of_cta(int64_t rows, int64_t n, int element_bits, int64_t cta_group);
/// The same of operand A.
Layout operand_a_of_cta(int64_t rows, int64_t k, int element_bits, int64_t cta_group);
/// Scale factors of block scaling [rows, factors]: bytes in tensor memory, four copies over the lanes. Four
/// factors of a row share a column; further ones are in the next rows / 32 columns. `pair_halves`: the B
/// factors of m = 128 by a pair, whose halves of the rows are in two halves of the lanes (two copies).
Layout scale_factors(int64_t rows, int64_t factors, bool pair_halves = false);

}  // namespace imbrex::layout
