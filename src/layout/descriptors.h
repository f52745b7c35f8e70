// SPDX-License-Identifier: Apache-2.0
// From a shared layout to the words of the hardware: matrix descriptors of wgmma/tcgen05, TMA boxes.
#pragma once

#include <string>

#include "layout/layout.h"

namespace imbrex::layout {

/// Which dimension of an operand is contiguous in shared memory: k, or the other one (m of A, n of B).
enum class Major : uint8_t { kK, kMN };

/// How one operand is read by matrix descriptors. All byte offsets are linear (before swizzling) and relative
/// to the tensor's start, which must be aligned to the swizzle period.
struct MatrixOperand {
  Major major = Major::kK;
  Swizzle swizzle;
  int64_t leading_bytes = 0;        ///< LBO; 16 where the hardware ignores it
  int64_t stride_bytes = 0;         ///< SBO
  std::vector<int64_t> mn_offsets;  ///< start of each block of instruction rows
  std::vector<int64_t> k_offsets;   ///< start of each k step, added to the above
};
/// The result of a question that may be answered no: `error` says why, naming the first element that
/// disagrees.
template <typename T>
struct Described {
  std::optional<T> value;
  std::string error;
  explicit operator bool() const { return value.has_value(); }
  const T& operator*() const { return *value; }
  const T* operator->() const { return &*value; }
};

/// Descriptor fields for the operand [mn, k] (any view of a shared tensor) when instructions read `mn_step` x
/// `k_step` elements. Proven: the descriptor's address formula is compared with the layout over the whole
/// operand.
Described<MatrixOperand> describe_matrix_operand(const Layout& operand, Major major, int64_t mn_step,
                                                 int64_t k_step);
/// The same, whichever major fits (K first).
Described<MatrixOperand> describe_matrix_operand(const Layout& operand, int64_t mn_step, int64_t k_step);

/// The address that a matrix descriptor gives element (mn, k) of an operand, before swizzling and relative to
/// the descriptor's start. Everything counts bits, so that 4-bit elements need no special case.
struct DescriptorFormula {
  Major major;
  Swizzle swizzle;
  int64_t bits;         ///< of an element
  int64_t leading = 0;  ///< LBO
  int64_t stride = 0;   ///< SBO

  int64_t row() const { return swizzle.span_bytes() * 8; }  ///< of a swizzle row, or of a core matrix row
  /// Rows that share the swizzle pattern.
  int64_t group() const { return swizzle.mode == Swizzle::k128BAtom32B ? 4 : 8; }
  int64_t mn_offset(int64_t mn) const;
  int64_t k_offset(int64_t k) const;
};

/// The same for a K-major matrix read whole, whose element (i, j) lies at bit rows[i] + columns[j].
Described<MatrixOperand> describe_matrix_rows(std::span<const int64_t> rows, std::span<const int64_t> columns,
                                              int element_bits, Swizzle swizzle);

/// The shapes of tcgen05.cp, as lanes written (and read columns): all 128 once, 64 twice, 32 four times, or
/// the last of every 32.
enum class TensorCopyShape : uint8_t {
  k128x256b,
  k128x128b,
  k64x128b02_13,
  k64x128b01_23,
  k32x128b,
  k4x256b
};
/// One tcgen05.cp.
struct TensorCopyStep {
  int64_t column = 0;        ///< first 32-bit column written, from that of the destination
  int64_t offset_bytes = 0;  ///< where its source starts, linear, from the start of the source
  MatrixOperand source;
};
struct TensorCopies {
  TensorCopyShape shape;
  std::vector<TensorCopyStep> steps;
};
/// Why no shape writes a matrix of this layout, from whatever source; empty when one does.
std::string tensor_copy_refusal(const Layout& tensor_memory, int64_t first_lane = 0);
/// How a matrix in shared memory is copied to the same matrix in tensor memory, which starts at lane
/// `first_lane`. Proven as above, for every element and every copy of it.
Described<TensorCopies> describe_tensor_copies(const Layout& shared, const Layout& tensor_memory,
                                               int64_t first_lane = 0);

/// One TMA copy: where its box starts.
struct TmaBox {
  Index start;               ///< index in the shared tensor, added to the global coordinates
  int64_t offset_bytes = 0;  ///< linear offset in shared memory
};
/// How TMA copies a whole shared tensor: equal boxes of a tensor map.
struct TmaBoxes {
  std::vector<int> dims;  ///< tensor dimension of each map dimension, fastest first
  Shape box;              ///< box extents in map order
  Swizzle swizzle;
  std::vector<TmaBox> boxes;
};
/// Boxes that write (or read) `tile`, whose dimension `contiguous_dim` is the contiguous one in global memory
/// (negative counts from the end). All dimensions of the tile are map dimensions, at most 5.
Described<TmaBoxes> describe_tma_boxes(const Layout& tile, int contiguous_dim = -1);

}  // namespace imbrex::layout
