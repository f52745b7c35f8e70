// SPDX-License-Identifier: Apache-2.0
// Places of a tile's elements in global or shared memory, some of whose indices come from tiles of indices.
#pragma once

#include "codegen/memory/global_memory.h"

namespace imbrex::codegen {

class IndexedTile {
 public:
  /// Operands of the tile's op from `first` on are offsets and, of a masked op, the mask.
  IndexedTile(const Tile& tile, size_t first);

  Mod space() const { return global_ ? Mod::global : Mod::shared; }
  /// Runs `access(vector, test_along_unit_dim)` as with_vectors() does; with `one_path`, once in any case.
  template <class F>
  void with_vectors(int64_t most, bool one_path, F&& access) const {
    if (!global_) return access(int64_t{1}, true);
    if (!shares_indices_) most = 1;
    if (one_path) return access(global_->masked_vector(std::min(most, global_->aligned_vector(16))), true);
    codegen::with_vectors(tile_.g(), *global_, most, access);
  }
  const Digit* vector_digit() const { return global_ ? global_->vector_digit() : nullptr; }
  /// Address of the element in `reg`.
  Operand address(int64_t reg) const;
  /// True where it is inside the tensor along scalar offsets, and the mask holds.
  Operand is_inside(int64_t reg, bool along_unit_dim) const;
  /// Notes that accesses of this size rely on the pointer's alignment.
  void rely_on_alignment(int64_t bytes) const {
    if (global_) global_->rely_on_alignment(bytes);
  }
  /// Where assumptions are checked: traps where an index that `holds` and the mask let through is outside the tensor.
  void check_indices(const Operand& holds) const;

 private:
  /// The index along a view dimension that the index tile gives the element in `reg`.
  Integer index(size_t dim, int64_t reg) const;
  Integer shared_position(size_t dim, int64_t reg) const;

  const Tile& tile_;
  std::vector<int64_t> dims_;     // of the tile: the view dimension each runs along, or -1
  std::vector<Integer> offsets_;  // per view dimension; 0 where there is a tile
  std::vector<std::optional<RegisterTensor>> tiles_;  // per view dimension, laid out as the tile
  std::optional<RegisterTensor> mask_;
  bool shares_indices_ = true;  // elements that are neighbours in memory have the same indices
  const SharedView* shared_ = nullptr;
  std::optional<GlobalTile> global_;
};

}  // namespace imbrex::codegen
