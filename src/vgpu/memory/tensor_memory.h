// SPDX-License-Identifier: Apache-2.0
// Tensor memory: 128 lanes of 512 32-bit columns, handed out in whole columns, and the shapes in which warps
// load and store it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "vgpu/lanes.h"
#include "vgpu/memory/recycled_block.h"

namespace imbrex::vgpu {

struct Instruction;

/// A tensor-memory address: lane in the upper half, column in the lower.
struct TensorAddress {
  uint32_t lane = 0;
  uint32_t column = 0;
  static constexpr TensorAddress from_bits(uint32_t bits) { return {bits >> 16, bits & 0xFFFF}; }
  constexpr uint32_t bits() const { return lane << 16 | column; }
};

/// The cells, with one "defined" bit each: allocation and deallocation leave contents undefined.
class TensorMemory {
 public:
  static constexpr uint32_t kLanes = 128;
  static constexpr uint32_t kColumns = 512;
  /// Cells between two lanes' rows. Not a power of two, so that a column does not fall into one cache set.
  static constexpr uint32_t kPitch = kColumns + 16;

  TensorMemory() : cells_(kLanes * kPitch * sizeof(uint32_t)) {
    std::memset(cells_.data(), 0, cells_.size());
  }

  uint32_t* row(uint32_t lane) { return reinterpret_cast<uint32_t*>(cells_.data()) + lane * kPitch; }
  uint32_t& at(uint32_t lane, uint32_t column) { return row(lane)[column]; }

  void define(uint32_t lane, uint32_t column, uint32_t count = 1) {
    for_words(column, count, [&](uint32_t word, uint64_t bits) { defined_[lane][word] |= bits; });
  }
  bool is_defined(uint32_t lane, uint32_t column, uint32_t count = 1) const {
    bool all = true;
    for_words(column, count,
              [&](uint32_t word, uint64_t bits) { all = all && (~defined_[lane][word] & bits) == 0; });
    return all;
  }
  /// Forgets what `count` columns hold.
  void undefine_columns(uint32_t column, uint32_t count);

  /// How the result of a product that a column holds is spread over the lanes.
  struct ResultForm {
    const Instruction* insn = nullptr;  // that wrote it; null: the column holds something else
    uint32_t rows = 0;                  // M
    bool is_pair = false, is_weight_stationary = false;
    uint64_t sum = 0;  // the same for results that are added up
    bool is_spread_like(const ResultForm& other) const {
      return rows == other.rows && is_pair == other.is_pair &&
             is_weight_stationary == other.is_weight_stationary;
    }
  };
  const ResultForm& result_in(uint32_t column) const { return results_[column]; }
  uint64_t new_sum() { return ++sums_; }
  void set_result(uint32_t column, uint32_t count, const ResultForm& form) {
    std::fill_n(results_.begin() + column, count, form);
  }

 private:
  RecycledBlock cells_;
  /// Calls body(word, bits) for the words of a lane's bits that hold `count` columns from `column` on.
  template <class Body>
  static void for_words(uint32_t column, uint32_t count, Body&& body) {
    for (const uint32_t end = column + count; column < end;) {
      const uint32_t in_word = column % 64, bits = std::min(64 - in_word, end - column);
      body(column / 64, (bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1) << in_word);
      column += bits;
    }
  }
  std::array<std::array<uint64_t, kColumns / 64>, kLanes> defined_{};
  std::array<ResultForm, kColumns> results_{};
  uint64_t sums_ = 0;
};

/// Who owns which columns of one SM's tensor memory. Owners are CTAs, named by any number of the caller's.
class TensorAllocator {
 public:
  struct Block {
    int64_t owner;
    uint32_t column;
    uint32_t columns;
    const Instruction* allocated_by = nullptr;
  };

  /// Columns come in powers of two from 32 to 512.
  static bool is_valid_size(int64_t columns) {
    return columns >= 32 && columns <= TensorMemory::kColumns && (columns & (columns - 1)) == 0;
  }
  /// Columns at which a block of this size may begin now. Empty: an alloc has to wait.
  std::vector<uint32_t> free_places(uint32_t columns) const;
  /// Takes the place, which must be one of free_places().
  void take(int64_t owner, uint32_t column, uint32_t columns, const Instruction* by = nullptr) {
    blocks_.push_back({owner, column, columns, by});
  }
  /// False when the owner has no block of exactly this place and size.
  bool release(int64_t owner, uint32_t column, uint32_t columns);
  /// The owner's block that holds columns [column, column + columns), or null.
  const Block* find(int64_t owner, uint32_t column, uint32_t columns) const;
  /// Whether anybody's block holds the column.
  bool is_taken(uint32_t column) const;
  std::vector<Block> blocks_of(int64_t owner) const;

 private:
  std::vector<Block> blocks_;
};

/// What one CTA has done with alloc so far, and whether it may go on.
struct TensorPermit {
  uint32_t last_columns = 0;  // of the previous alloc; 0 before the first
  bool relinquished = false;

  /// Why an alloc of so many columns is illegal; "" when it is not.
  std::string refuse(int64_t columns) const;
};

/// Shapes of tcgen05.ld and st.
enum class TensorShape : uint8_t { k32x32b, k16x64b, k16x128b, k16x256b, k16x32bx2 };

/// Registers per thread of shape.xN.
constexpr uint32_t registers_of(TensorShape shape, uint32_t repeat) {
  return shape == TensorShape::k16x128b ? 2 * repeat : shape == TensorShape::k16x256b ? 4 * repeat : repeat;
}

/// The cell of register r of one thread, relative to the address operand.
constexpr TensorAddress cell_of(TensorShape shape, uint32_t thread, uint32_t r, uint32_t half_split) {
  const uint32_t t = thread;
  switch (shape) {
    case TensorShape::k32x32b:
      return {t, r};
    case TensorShape::k16x64b:
      return {8 * (t & 1) + (t >> 2), (t >> 1 & 1) + 2 * r};
    case TensorShape::k16x128b:
      return {(t >> 2) + 8 * (r & 1), (t & 3) + 4 * (r >> 1)};
    case TensorShape::k16x256b:
      return {(t >> 2) + 8 * (r >> 1 & 1), 2 * (t & 3) + (r & 1) + 8 * (r >> 2)};
    case TensorShape::k16x32bx2:
      return {t % 16, t < 16 ? r : r + half_split};
  }
  return {};
}

/// Columns from the address operand's on that shape.xN reaches (before .pack/.unpack double them).
constexpr uint32_t columns_of(TensorShape shape, uint32_t repeat, uint32_t half_split) {
  switch (shape) {
    case TensorShape::k32x32b:
      return repeat;
    case TensorShape::k16x64b:
      return 2 * repeat;
    case TensorShape::k16x128b:
      return 4 * repeat;
    case TensorShape::k16x256b:
      return 8 * repeat;
    case TensorShape::k16x32bx2:
      return repeat + half_split;
  }
  return 0;
}

/// Why a warp (its rank in the CTA) may not use `address` with this shape; "" when it may. Lane 0 stands for the
/// first of the warp's own quarter: so the chip takes it, and DeepGEMM counts on that.
std::string refuse_address(TensorShape shape, TensorAddress address, int warp);

}  // namespace imbrex::vgpu
