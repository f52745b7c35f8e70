// SPDX-License-Identifier: Apache-2.0
// Where the elements of a strided tensor lie. Shapes and strides are in elements, outermost dimension first;
// strides are not negative.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace imbrex::runtime {

using Extents = std::vector<int64_t>;

/// Those of a row-major tensor without gaps.
Extents dense_strides(const Extents& shape);
/// Whether elements follow one another in row-major order; an extent of 1 leaves its stride open.
bool is_dense(const Extents& shape, const Extents& strides);
/// How many elements, from the first on, follow one another in row-major order.
int64_t dense_prefix(const Extents& shape, const Extents& strides);
/// From the first element to the end of the last; nothing where 63 bits do not hold the number of their bits.
std::optional<int64_t> span_of(const Extents& shape, const Extents& strides, int64_t bits);
/// Whether two elements may share memory: an extent beyond 1 has stride 0, or rows begin before others end.
bool may_overlap(const Extents& shape, const Extents& strides);
/// Strides of a tensor without gaps whose dimensions lie in memory in the order of `strides`.
Extents packed_like(const Extents& shape, const Extents& strides);

/// Rows of bytes, to be copied or filled.
struct ByteRows {
  int64_t width = 0, height = 1;         ///< bytes of a row, and rows
  int64_t to_pitch = 0, from_pitch = 0;  ///< bytes from one row to the next
};
/// Divides the copy of a tensor into as few sets of rows as that takes: calls `copy(to, from, rows)` with the bytes
/// from the first element to the first row of each. Elements of less than a byte must lie in rows of whole bytes.
void for_each_rows(const Extents& shape, const Extents& to_strides, const Extents& from_strides, int64_t bits,
                   const std::function<void(int64_t to, int64_t from, const ByteRows&)>& copy);

}  // namespace imbrex::runtime
