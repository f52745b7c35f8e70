// SPDX-License-Identifier: Apache-2.0
// The layout algebra: where the elements of a tensor live, for register, shared and tensor memory alike. Layouts are values
// that a kernel computes with C++ while it is traced; annotate_layout(), relayout() and view() take them:
//
//   using namespace imbrex::layout;
//   annotate_layout(tile, spatial({8, 4}) * local({2, 2}));                   // a register tensor of 16 x 8 in one warp
//   annotate_layout(s_tile, row_major({64, 64}, 16).with_swizzle({Swizzle::k128B}));
//
// `imbrex layout "spatial(8, 4) * local(2, 2)"` prints and draws one, `imbrex explore` lets one play with them.
//
// A layout maps a tensor index to a coordinate on a few hardware axes. Every dimension is written as digits
// in a mixed radix, its *modes*, outermost first; a digit times its mode's stride is added to the mode's
// axis:
//
//     [64: 4t32 2r2 8t4, 16: 2r4 4t1 2r1]         the A fragment of wgmma, float16
//
// reads: row = (a, b, c) in radix (4, 2, 8), thread += 32a + 4c, register += 2b; column = (d, e, f) in radix
// (2, 4, 2), thread += e, register += 4d + f. Extents need not be powers of two.
//
// Units. All axes count *elements*: register 3 is the thread's fourth element, however many share a 32-bit
// register; address 3 is 3 elements (3 * element_bits bits) into the tensor; column 3 is 3 elements of
// element_bits along a tensor-memory lane, so 16-bit elements have two slots in each 32-bit column.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Only std::shared_ptr: all of libstdc++'s <memory> brings unistd.h, whose sync() makes a kernel's call of
// imbrex::sync() ambiguous where `using namespace imbrex` stands in the global namespace.
#if __has_include(<bits/shared_ptr.h>)
#include <bits/shared_ptr.h>
#else
#include <memory>
#endif

#include "imbrex/lang/swizzle.h"

namespace imbrex::layout {

/// What a mode's digit moves along.
enum class Axis : uint8_t {
  kThread,    ///< thread of the thread group that holds the tensor
  kRegister,  ///< element held by one thread
  kAddress,   ///< shared (or global) memory
  kLane,      ///< tensor-memory lane, 0...127
  kColumn,    ///< along a tensor-memory lane
  kCta,       ///< rank in the CTA pair
};
inline constexpr int kAxisCount = 6;
inline constexpr Axis kAxes[kAxisCount] = {Axis::kThread, Axis::kRegister, Axis::kAddress,
                                           Axis::kLane,   Axis::kColumn,   Axis::kCta};

/// "thread", "register", ...
std::string_view axis_name(Axis axis);

using Index = std::vector<int64_t>;
using Shape = std::vector<int64_t>;

/// A point on the hardware axes.
struct Coords {
  std::array<int64_t, kAxisCount> values{};
  int64_t& operator[](Axis axis) { return values[static_cast<size_t>(axis)]; }
  int64_t operator[](Axis axis) const { return values[static_cast<size_t>(axis)]; }
  friend bool operator==(const Coords&, const Coords&) = default;
  friend Coords operator+(Coords a, const Coords& b) {
    for (int i = 0; i < kAxisCount; ++i) a.values[i] += b.values[i];
    return a;
  }
};

/// One digit of a dimension: 0 <= digit < extent adds digit * stride to `axis`.
struct Mode {
  int64_t extent = 1;
  int64_t stride = 0;
  Axis axis = Axis::kRegister;
  friend bool operator==(const Mode&, const Mode&) = default;
};
using Modes = std::vector<Mode>;

struct Slice;

/// Where every element of a tensor lives. An immutable value; copying it copies a pointer.
///
/// *Canonical.* Modes are kept merged and free of extent 1, so layouts that map every index alike, with the
/// same copies, compare equal however they were made. *Replicas.* Modes that belong to no dimension: the
/// element is held at every value of their digits (several threads hold the same element, tensor memory keeps
/// four copies of scale factors). *Padding.* The extents of a dimension's modes may multiply to more than its
/// shape; slots beyond the shape hold nothing (and the inverse is empty there).
///
/// Bad requests throw CompileError without a source location; callers that know the line add it.
class Layout {
 public:
  /// The layout of a scalar: rank 0, at coordinate 0.
  Layout();
  /// `modes[d]`, outermost first, must multiply to at least shape[d]. `element_bits` is 0 where the layout
  /// does not depend on the element size (registers) and required with a swizzle.
  Layout(Shape shape, std::vector<Modes> modes, Modes replicas = {}, int element_bits = 0,
         Swizzle swizzle = {});

  // What it is.
  const Shape& shape() const;
  int rank() const { return static_cast<int>(shape().size()); }
  /// Product of the shape.
  int64_t size() const;
  const Modes& modes(int dim) const;
  const Modes& replicas() const;
  Swizzle swizzle() const;
  int element_bits() const;
  /// True when the layout uses `axis` (a mode or a replica moves along it).
  bool uses(Axis axis) const;
  /// One more than the largest coordinate on `axis`, before swizzling; 1 for an unused axis.
  int64_t extent(Axis axis) const;
  int64_t threads() const { return extent(Axis::kThread); }
  int64_t registers() const { return extent(Axis::kRegister); }
  int64_t lanes() const { return extent(Axis::kLane); }
  /// Shared-memory bytes from address 0 to the last element, whole swizzle rows when swizzled.
  int64_t bytes() const;
  /// 32-bit tensor-memory columns.
  int64_t columns() const;
  /// Number of places that hold one element.
  int64_t copies() const;
  /// True when some dimension's modes reach beyond its shape.
  bool is_padded() const;

  // The mapping.
  /// Coordinates of an element before swizzling, at replica 0. Offsets of slices add to these.
  Coords linear(std::span<const int64_t> index) const;
  Coords linear(std::initializer_list<int64_t> index) const { return linear({index.begin(), index.size()}); }
  /// Coordinates of an element at replica 0; `base` (the offset of a slice) is added before swizzling.
  Coords map(std::span<const int64_t> index, const Coords& base = {}) const;
  Coords map(std::initializer_list<int64_t> index, const Coords& base = {}) const {
    return map({index.begin(), index.size()}, base);
  }
  /// All places of an element, replica 0 first.
  std::vector<Coords> places(std::span<const int64_t> index) const;
  /// The element at a place (any replica), or nothing when the place holds none.
  std::optional<Index> inverse(const Coords& place) const;
  /// The element a thread holds in a register.
  std::optional<Index> element(int64_t thread, int64_t reg) const;
  /// True when no two elements share a place.
  bool is_injective() const;
  /// Injective, and every slot of every used axis (extent by extent) holds an element.
  bool is_bijective() const;

  // Changing the view. Each keeps every element where it is.
  /// Result dimension d is dimension order[d].
  Layout permute(std::span<const int> order) const;
  /// Swaps the last two dimensions.
  Layout transpose() const;
  /// Row-major regrouping of the dimensions; an error when a merged or split dimension has no such modes.
  Layout reshape(const Shape& shape) const;
  /// Removes dimension `dim` of extent 1.
  Layout squeeze(int dim) const;
  /// Inserts a dimension of extent 1 before dimension `dim`.
  Layout unsqueeze(int dim) const;
  /// The box of `extents` at `starts`: its layout, and the offset to add to its linear coordinates. An error
  /// when the box cuts through modes (starts not aligned to the extents' modes).
  Slice slice(std::span<const int64_t> starts, std::span<const int64_t> extents) const;
  /// The layout of any box of `extents` whose starts are multiples of `alignment`, for starts known only at
  /// run time; linear_offset() of the start is then the offset. An error when there is none.
  Layout slice_at(std::span<const int64_t> extents, std::span<const int64_t> alignment) const;
  /// Index `i` of the leading dimension, which is dropped.
  Slice at(int64_t i) const;
  /// Without the leading dimension, for an index known only at run time.
  Layout without_leading() const;
  /// Drops a dimension: its thread modes become replicas, its register modes vanish and the remaining
  /// registers are renumbered densely. With `keep`, the dimension stays with extent 1. What a reduction along
  /// it yields.
  Layout reduce(int dim, bool keep = false) const;
  /// Another element size with the same linear coordinates (a cast in place); drops a swizzle when bits is 0.
  Layout with_element_bits(int bits) const;
  Layout with_swizzle(Swizzle swizzle) const;
  /// Adds copies on further threads until `threads` are used; an error when threads() does not divide it.
  Layout replicate_to(int64_t threads) const;

  // Building larger ones.
  /// Product: `outer` says where whole tiles of `inner` go. Shapes multiply (the lower rank is padded in
  /// front), and on every axis (outer * inner)(i) = outer(i / inner.shape) * inner.extent(axis) + inner(i %
  /// inner.shape).
  friend Layout operator*(const Layout& outer, const Layout& inner);
  /// Dimensions of a, then of b: (a, b)(i, j) = a(i) * b.extent(axis) + b(j).
  friend Layout concat(const Layout& a, const Layout& b);

  friend bool operator==(const Layout& a, const Layout& b);
  size_t hash() const;

  /// "[64: 4t32 2r2 8t4, 16: 2r4 4t1 2r1; rep 2t128; bits 16; swizzle 128B]"; parse() reads it back exactly.
  /// Axis letters: t thread, r register, a address, l lane, c column, x CTA of the pair.
  std::string to_string() const;
  /// Throws ParseError (imbrex/core/parse_error.h), naming the place in the text.
  static Layout parse(std::string_view text);
  /// A table for people: for every element of a matrix (a vector is one row), who holds it. `max_elements`
  /// bounds the rows and columns shown.
  std::string grid(int64_t max_rows = 64, int64_t max_columns = 32) const;

 private:
  struct Data;
  std::shared_ptr<const Data> data_;
};

/// A part of a tensor: element i of the part is at layout.map(i, offset).
struct Slice {
  Layout layout;
  Coords offset;
};

Layout operator*(const Layout& outer, const Layout& inner);
Layout concat(const Layout& a, const Layout& b);

/// One element per thread, last dimension fastest.
Layout spatial(const Shape& shape);
/// One element per thread, first dimension fastest.
Layout column_spatial(const Shape& shape);
/// All elements in every thread's registers, last dimension fastest.
Layout local(const Shape& shape);
/// As local, first dimension fastest.
Layout column_local(const Shape& shape);

/// outer * inner, by its other name.
inline Layout compose(const Layout& outer, const Layout& inner) { return outer * inner; }
/// What `inner` has to be multiplied by: the layout q with q * inner == whole. CompileError where there is none.
Layout divide(const Layout& whole, const Layout& inner);

/// Shared memory: dense, last dimension fastest. with_swizzle() permutes its bytes.
Layout row_major(const Shape& shape, int element_bits);
/// The same with `padding` elements after every row of the last dimension.
Layout padded_row_major(const Shape& shape, int element_bits, int64_t padding);

/// What an expression says, in the words of this header: "spatial(8, 4) * local(2, 2)", "row_major(64, 64, bits = 16)
/// .with_swizzle(128B)", "divide(...)", "compose(...)", ".transpose()", ".permute(1, 0)", ".reshape(8, 32)",
/// ".reduce(1)", ".replicate_to(128)", "concat(...)", and text forms "[8: 8t4, 8: 4t1 2r1]". ParseError, naming the place
/// in the text; CompileError where an operation is not possible.
Layout evaluate(std::string_view expression);

/// `outer` repeated inside: tile-wise product with registers, base * local(shape) and local(shape) * base.
inline Layout within(const Layout& base, const Shape& shape) { return base * local(shape); }
inline Layout repeat(const Layout& base, const Shape& shape) { return local(shape) * base; }

}  // namespace imbrex::layout

template <>
struct std::hash<imbrex::layout::Layout> {
  size_t operator()(const imbrex::layout::Layout& layout) const { return layout.hash(); }
};
