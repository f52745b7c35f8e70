// SPDX-License-Identifier: Apache-2.0
// Addresses of a tile in shared memory, swizzles included, and transfers of whole tiles.
#pragma once

#include "codegen/tile.h"

namespace imbrex::codegen {

class SharedTile {
 public:
  SharedTile(const Tile& tile, const SharedView& view);

  /// The register digit along which elements are neighbours in memory; null when there is none.
  const Digit* vector_digit() const { return unit_ ? &*unit_ : nullptr; }
  /// The most elements that one access of at most `max_bytes` may move.
  int64_t vector(int max_bytes) const;
  /// Address of the element in `reg`.
  Operand address(int64_t reg) const;

 private:
  /// Where the shared memory begins that the view is in.
  Integer base() const;
  int64_t register_bytes(int64_t reg) const;
  Integer thread_address() const;
  /// The address as index arithmetic, for layouts whose digits do not nest.
  Operand address_by_index(int64_t reg) const;
  Operand swizzled(int64_t reg) const;

  const Tile& tile_;
  const SharedView& view_;
  int64_t base_multiple_;  // what the view's start is known to be a multiple of, its constant part aside
  std::optional<std::vector<MemoryTerm>> terms_;
  std::optional<Digit> unit_;
  // Of a swizzled view: what is added before swizzling, and whole periods added after it.
  std::vector<ScaledInteger> early_terms_, late_terms_;
  int64_t early_offset_ = 0;
  uint64_t thread_bits_ = 0;  // address bits that what is added before may set
};

/// The whole view in a register layout; `group` numbers its threads.
RegisterTensor load_shared_tile(Generator& g, const ir::Op& op, const SharedView& view,
                                const layout::Layout& layout);
void store_shared_tile(Generator& g, const ir::Op& op, const SharedView& view, const RegisterTensor& value);

/// Address of the element of a view at an index known at run time.
Operand shared_address(Generator& g, const SharedView& view, std::span<const Integer> index);

/// Where the shared memory of the CTA of that rank of the cluster begins. [PTX: mapa]
Integer remote_base(Generator& g, ir::Value* rank);

/// Coordinate on `axis` of an index known at run time, in elements before swizzling: a sum of digits.
std::vector<ScaledInteger> linear_terms(Generator& g, const layout::Layout& layout,
                                        std::span<const Integer> index, layout::Axis axis);
Integer sum_of(Generator& g, std::span<const ScaledInteger> terms);
/// A byte address before swizzling, swizzled.
Integer swizzle_address(Generator& g, layout::Swizzle swizzle, const Integer& address);

}  // namespace imbrex::codegen
