// SPDX-License-Identifier: Apache-2.0
// Questions about pairs of layouts that decide how code is generated: vectors, register renaming,
// broadcasting.
#pragma once

#include <numeric>

#include "layout/layout.h"

namespace imbrex::layout {

/// Runs of elements that are neighbours on an axis.
struct Run {
  int dim = -1;           ///< the dimension along which they are neighbours in the tensor; -1: no runs
  int64_t length = 1;     ///< elements in a run; runs start at indices that are multiples of it
  int64_t alignment = 1;  ///< every run starts at a coordinate that is a multiple of this (elements)
};
/// The runs of `layout` on kRegister or kAddress (the dimension whose innermost mode has stride 1 there). For
/// swizzled layouts runs end at the atom.
Run contiguous_run(const Layout& layout, Axis axis);

/// Elements that one vector access may move between registers and memory: the largest power of two v such
/// that aligned groups of v elements are neighbours in both layouts and v * element_bits <= 8 * max_bytes. 1
/// when there is none. `memory` has element_bits; starts of slices must be multiples of v as well.
int64_t vector_length(const Layout& registers, const Layout& memory, int max_bytes = 16);

/// For every register of `to`, the register of `from` that holds the same element in the same thread; -1 for
/// registers of `to` that hold nothing. Nothing when some thread lacks an element, or would need different
/// registers in different threads. Dimensions of extent 1 in `from` broadcast; missing leading dimensions
/// too.
std::optional<std::vector<int64_t>> register_map(const Layout& from, const Layout& to);

/// `to` with the dimensions reduced that have extent 1 in `shape` (leading ones dropped): the layout an
/// operand of that shape needs so that it broadcasts to `to` without moving data.
Layout broadcast_source(const Layout& to, const Shape& shape);

/// The least number of elements that fill whole bytes: 8 of 3 bits, 4 of 6, 2 of 4, 1 from a byte on.
constexpr int64_t whole_byte_elements(int64_t bits) { return 8 / std::gcd<int64_t>(8, bits); }
/// True of elements of 3, 5, 6 and 7 bits, which lie across the borders of bytes.
constexpr bool crosses_bytes(int64_t bits) { return bits < 8 && 8 % bits != 0; }

/// The layout of the same registers, or of the same memory, as elements of another width, of which dimension `dim` (-1:
/// the last) has correspondingly more or fewer: nothing where an element's bits are not together.
std::optional<Layout> view_as_width(const Layout& layout, int64_t from_bits, int64_t to_bits, int dim = -1,
                                    Axis axis = Axis::kRegister);

/// True when every thread that holds an element in `small` holds it in `large` as well.
bool covers(const Layout& large, const Layout& small);

}  // namespace imbrex::layout
