// SPDX-License-Identifier: Apache-2.0
// Register layouts: what instructions demand, and what plain loads and stores like best.
#pragma once

#include "layout/layout.h"

namespace imbrex::layout {

/// Fragments of one warp-wide mma.sync.
struct MmaFragments {
  Layout a;  ///< [m, k]
  Layout b;  ///< [k, n]
  Layout c;  ///< [m, n], also of D
};
/// The fragments of m x n x k with A and B elements of `input_bits` (1, 4, 8, 16, 32, 64); an error for
/// a shape that mma.sync does not have.
MmaFragments mma_fragments(int64_t m, int64_t n, int64_t k, int input_bits);

/// A product of m x n x k shared by warps_m x warps_n warps: warp i * warps_n + j computes box (i, j) of c,
/// out of m16n8k(256 / input_bits) fragments in row-major order, and holds what it needs of a and b. An error
/// where the boxes are not made of whole fragments.
MmaFragments mma_tile(int64_t m, int64_t n, int64_t k, int input_bits, int64_t warps_m, int64_t warps_n);

/// The scales of such a product with block scales: [m, blocks] and [blocks, n]. A thread's registers go through the
/// blocks of k of one fragment's row (column), then through the fragments of its warp.
struct MmaScales {
  Layout a, b;
};
MmaScales mma_scales(int64_t m, int64_t n, int64_t blocks, int64_t warps_m, int64_t warps_n);

/// The registers of ldmatrix/stmatrix .x`matrices` (1, 2, 4) of 16-bit elements: [8 * matrices, 8], matrix j
/// in rows 8j...8j+7. With `transposed` (.trans), each matrix is read transposed.
Layout ldmatrix(int matrices, bool transposed);

/// How ldmatrix and stmatrix move a register tensor whose warps hold 8 x 8 matrices of 16-bit units as they
/// do: lane l of a warp has the 32 bits at (row l / 4, bytes 4 (l % 4)) of each, or transposed.
struct MatrixMove {
  /// The same tensor as the instructions address it: thread l holds in vectors of 16 bytes, one for each
  /// instruction, the rows whose addresses lane l gives (lanes that give none repeat other lanes' rows).
  Layout rows;
  int matrices = 4;         ///< of one instruction: 1, 2 or 4
  bool transposed = false;  ///< .trans; 16-bit elements only
};
/// The ways to move a register layout of elements of 8, 16 or 32 bits so; none for most layouts. A way is
/// open where the rows' vectors are 16 aligned neighbouring bytes of memory. The 32-bit register of the
/// tensor that matrix j of instruction i fills is the one that holds rows.element(8 * j, first register of
/// i).
std::vector<MatrixMove> matrix_moves(const Layout& registers, int element_bits);

/// The operands of a product by single threads whose result lies as `c`, [m, n]: each thread holds, for the rows and
/// columns of its elements, all k. Registers of a go through k first, those of b through the columns.
struct ThreadProduct {
  Layout a;  ///< [m, k]
  Layout b;  ///< [k, n]
};
ThreadProduct thread_product(const Layout& c, int64_t k);
/// A layout of [m, n] for it: a box for each thread, as near to a square as the extents allow, whose columns are in
/// vectors of at most four.
Layout thread_product_result(int64_t m, int64_t n, int64_t threads);

/// The accumulator of wgmma m64nNk: [64, n], n a multiple of 8 up to 256, 128 threads.
Layout wgmma_accumulator(int64_t n);
/// The A operand of wgmma from registers, one k step: [64, 256 / element_bits], element_bits 1, 8, 16 or 32.
Layout wgmma_a(int element_bits);

/// Columns of the instructions that compute n columns: the widest that divide n, for int32 sums 8, 24 or a
/// multiple of 16.
int64_t wgmma_columns(int64_t n, bool is_integer);
/// The accumulator of m x n columns, `columns` an instruction, whose rows `warp_groups` warp groups share:
/// each has an equal part, blocks of 64 rows. Registers go through the columns of one instruction, then
/// through the instructions of one block, then through the blocks.
Layout wgmma_accumulator_tile(int64_t m, int64_t n, int64_t columns, int64_t warp_groups);
/// The A operand [m, k] that goes with it: registers go through one k step, then through k, then the blocks.
Layout wgmma_a_tile(int64_t m, int64_t k, int element_bits, int64_t warp_groups);

/// The shapes of tcgen05.ld and tcgen05.st.
enum class TensorMemoryShape : uint8_t { k32x32b, k16x64b, k16x128b, k16x256b, k16x32bx2 };
std::string_view tensor_memory_shape_name(TensorMemoryShape shape);
/// The registers after loading [32 * warps, n] elements of 32 lanes per warp. Registers go through the
/// 16-lane halves of a warp (for 16-lane shapes), then through the columns. `per_register` elements share one
/// 32-bit register and one (packed) or two (.pack::16b) columns.
Layout tensor_memory_registers(TensorMemoryShape shape, int64_t warps, int64_t n, int per_register = 1);
/// The same for tiles that occupy 16 of each warp's 32 lanes (an accumulator with m = 64): [16 * warps, n].
Layout tensor_memory_half_registers(TensorMemoryShape shape, int64_t warps, int64_t n, int per_register = 1);

/// A matrix of which each thread holds a row.
Layout thread_rows(int64_t threads, int64_t elements);

/// A layout for plain loads and stores of a row-major tensor by `threads` threads: vectors of at most
/// `max_vector_bytes` along the last dimension, consecutive vectors in consecutive threads, what remains in
/// registers.
///
/// Rule: vectors have v elements, the largest power of two that divides the last extent and fits. Threads are
/// distributed over the dimensions, last first: each takes gcd(its vectors, the threads left), so that
/// nothing is padded; where that leaves more vectors per thread than min(vectors, threads left) does, the
/// latter, and extents are padded. The rest of the vectors goes to registers. Threads beyond those hold
/// further whole copies as far as they go, and nothing after that.
Layout coalesced(const Shape& shape, int64_t threads, int dtype_bits, int max_vector_bytes = 16);

}  // namespace imbrex::layout
