// SPDX-License-Identifier: Apache-2.0
// A tile spread over the registers of a thread group, as memory accesses see it.
#pragma once

#include "codegen/generator.h"

namespace imbrex::codegen {

/// Registers that one access moves: `count` of them, every `step`-th from `first`.
struct RegisterRun {
  int64_t first;
  int64_t step;
  int64_t count;
  std::vector<int64_t> registers() const;
};

/// A register layout taken apart for the threads of a group.
class Tile {
 public:
  Tile(Generator& g, const ir::Op& op, const layout::Layout& layout, const Group& group);

  Generator& g() const { return *g_; }
  const ir::Op& op() const { return *op_; }
  const layout::Layout& layout() const { return layout_; }
  const Group& group() const { return group_; }
  const IndexDigits& digits() const { return digits_; }

  /// The part of an element's index in `dim` that depends on the thread.
  Integer thread_index(int dim) const;
  /// The part of the index that a register adds; nothing when it holds nothing.
  const std::optional<layout::Index>& register_index(int64_t reg) const { return indices_[reg]; }
  /// The register digit that moves along `dim` element by element; null when there is none.
  const Digit* unit_digit(int dim) const;
  /// All registers that hold something, in runs of `count` along the digit (null: single registers).
  std::vector<RegisterRun> runs(const Digit* digit, int64_t count) const;
  /// True where the element in `reg` is inside the tile: an immediate unless the layout is padded.
  Operand in_shape(int64_t reg) const;

 private:
  Generator* g_;
  const ir::Op* op_;
  layout::Layout layout_;
  Group group_;
  IndexDigits digits_;
  std::vector<std::optional<layout::Index>> indices_;
};

/// What an access tells the caches; none by default.
struct CacheHints {
  std::optional<Mod> l1;          ///< its priority in the L1 cache
  std::optional<Operand> policy;  ///< of the L2 cache, as createpolicy makes them
};

/// Collects loaded registers into the words of a tensor.
class WordFiller {
 public:
  /// The elements end up in `targets` where those are given, else in whatever registers they are loaded to.
  WordFiller(Generator& g, DataType dtype, int64_t registers, std::span<const Operand> targets = {});
  /// Loads one run from `address` in `space` (global or shared) where `predicate` holds; elsewhere each
  /// element has the bits `other`.
  void load(Mod space, const RegisterRun& run, const Operand& address, const Operand& predicate,
            uint64_t other, const CacheHints& hints = {});
  /// The words; what was never loaded is zero.
  std::vector<Operand> finish();

 private:
  Generator& g_;
  DataType dtype_;
  std::vector<Operand> targets_;
  std::vector<Operand> words_;
  std::vector<Operand> elements_;
};

/// Stores one run of a tensor's registers.
void store_run(Generator& g, Mod space, const RegisterTensor& tensor, const RegisterRun& run,
               const Operand& address, const Operand& predicate, const CacheHints& hints = {});

/// How elements of this type lie in memory: bool as bytes.
inline DataType memory_type(DataType type) { return type.is_bool() ? uint8 : type; }

/// The largest power of two that divides x; 0 counts as infinitely divisible.
inline int64_t power_of_two_divisor(int64_t x) { return x == 0 ? int64_t{1} << 40 : x & -x; }

}  // namespace imbrex::codegen
