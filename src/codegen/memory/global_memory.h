// SPDX-License-Identifier: Apache-2.0
// Addresses and bounds of a tile laid over a tensor in global memory.
#pragma once

#include "codegen/tile.h"

namespace imbrex::codegen {

/// A condition and the scope since which it exists.
struct Condition {
  Operand value = 1;  ///< predicate, or an immediate
  size_t depth = 0;
};

class GlobalTile {
 public:
  /// Tile dimension i runs along view dimension dims[i] (-1: none); the tile starts at `offsets` of the view.
  GlobalTile(const Tile& tile, const GlobalView& view, std::span<const int64_t> dims,
             std::span<const Integer> offsets);

  /// Each element's index along this view dimension is data, which is_inside() does not test; its offset is 0.
  void take_indices_along(int view_dim) {
    if (const int root = view_.view_dims[view_dim]; root >= 0) dims_[root].is_indexed = true;
  }
  /// What an index along a view dimension adds to an address.
  Integer bytes_along(int view_dim, const Integer& index) const {
    const int root = view_.view_dims[view_dim];
    return root < 0 ? Integers::constant(0) : bytes_to(index, dims_[root].stride);
  }

  /// The most elements of one access, at most `max_bytes`, that alignment permits; and the most whose bounds
  /// need one test.
  int64_t aligned_vector(int max_bytes) const;
  int64_t masked_vector(int64_t aligned) const;
  /// The tile dimension along which elements are neighbours in memory; -1: none.
  int unit_dim() const { return unit_dim_; }
  const Digit* vector_digit() const { return unit_dim_ < 0 ? nullptr : tile_.unit_digit(unit_dim_); }
  /// Largest alignment in elements that is proven for the start of every row along unit_dim().
  int64_t row_alignment() const;

  /// Notes in the kernel's arguments that accesses of this size rely on the pointer's alignment.
  void rely_on_alignment(int64_t bytes) const;
  /// Computes here what the addresses of all elements share.
  void prepare() const { base_address(); }
  /// Address of the element in `reg`: a run-time part and a constant that an instruction can add.
  struct Place {
    Integer base;
    int64_t constant;
  };
  Place place(int64_t reg) const;
  Operand address(int64_t reg) const {
    const Place at = place(reg);
    return ptx::address(at.base.value.reg(), at.constant);
  }
  /// True where it is inside the tensor. Along unit_dim() only if `along_unit_dim`.
  Condition in_bounds(int64_t reg, bool along_unit_dim) const;
  /// True when the whole tile lies inside along unit_dim(); the same in all threads.
  Operand whole_along_unit_dim() const;
  /// Elements from the one in `reg` to the end of the tensor along unit_dim(); may be negative.
  Integer remaining_along_unit_dim(int64_t reg) const;
  bool needs_test_along_unit_dim() const;
  /// Of elements of less than a byte: what keeps accesses from falling on whole bytes, "" when nothing does.
  std::string not_whole_bytes() const;

 private:
  struct Dim {
    Integer start;  // where the tile starts in the tensor, the same in all threads
    Integer extent, stride;
    int tile_dim = -1;
    int64_t last = 0;  // largest index inside the tile
    bool is_indexed = false;
  };
  Integer position(const Dim& dim) const;
  int64_t register_part(const Dim& dim, int64_t reg) const;
  Integer base_address() const;
  Integer bytes_to(const Integer& index, const Integer& stride) const;
  Condition inside(const Dim& dim, int64_t reg) const;

  const Tile& tile_;
  const GlobalView& view_;
  std::vector<Dim> dims_;
  int unit_dim_ = -1;   // of the tile
  int unit_root_ = -1;  // of dims_
};

/// Runs `access(vector, test_along_unit_dim)` for the tile: once, or, when vectors of at most `most` elements fit the
/// alignment but an edge may cut one, as vectors where the tile lies inside and element by element where it does not.
template <class F>
void with_vectors(Generator& g, const GlobalTile& global, int64_t most, F&& access) {
  const int64_t aligned = std::min(most, global.aligned_vector(16));
  const int64_t masked = global.masked_vector(aligned);
  if (aligned == masked) return access(aligned, true);
  const Operand whole = global.whole_along_unit_dim();
  if (whole.is_immediate()) return access(whole.value ? aligned : masked, !whole.value);
  global.prepare();
  Emitter& e = g.e();
  const ptx::LabelId edge = e.label("edge"), end = e.label("edge_end");
  e.branch_unless(whole.reg(), edge);
  e.enter_scope();
  access(aligned, false);
  e.leave_scope();
  e.branch(end);
  e.bind(edge);
  e.enter_scope();
  access(masked, true);
  e.leave_scope();
  e.bind(end);
}
/// The elements that a vector may have, where nothing but alignment limits them.
inline constexpr int64_t kAnyVector = 128;

/// The bits of a number as an element.
uint64_t bits_of(DataType dtype, double value);

}  // namespace imbrex::codegen
