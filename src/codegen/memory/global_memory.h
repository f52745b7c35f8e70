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
  /// Tile dimension i runs along view dimension dims[i]; the tile starts at `offsets` of the view.
  GlobalTile(const Tile& tile, const GlobalView& view, std::span<const int64_t> dims,
             std::span<const Integer> offsets);

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
  /// Address of the element in `reg`.
  Operand address(int64_t reg) const;
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

}  // namespace imbrex::codegen
