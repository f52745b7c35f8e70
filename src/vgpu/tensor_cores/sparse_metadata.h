// SPDX-License-Identifier: Apache-2.0
// Structured sparsity of A: half of its elements are stored, and metadata tells where along k each belongs. Four
// bits at a time are a code for the next few elements of k.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "imbrex/core/dtype.h"

namespace imbrex::vgpu {

/// What a code tells.
enum class Sparsity : uint8_t {
  kOneOfTwo,      ///< 32-bit elements: which of two is stored
  kTwoOfFour,     ///< 16 and 8 bits: two places among four
  kPairsOfEight,  ///< packed 4 bits: two pairs among four
};

/// The pattern of elements of `bits` bits; `packed` ones of 4 bits come in pairs.
constexpr Sparsity sparsity_of(int bits, bool packed) {
  if (bits == 32) return Sparsity::kOneOfTwo;
  return bits == 4 && packed ? Sparsity::kPairsOfEight : Sparsity::kTwoOfFour;
}
constexpr int64_t elements_per_code(Sparsity sparsity) {
  return sparsity == Sparsity::kOneOfTwo ? 2 : sparsity == Sparsity::kTwoOfFour ? 4 : 8;
}

/// Whose order the codes have. Places that descend are an error where the manual wants them ascending.
enum class MetadataOrder : uint8_t { kAny, kAscending };

/// Where along k each stored element of A belongs, row by row: `k / 2` numbers a row.
class StoredPlaces {
 public:
  StoredPlaces(Sparsity sparsity, MetadataOrder order, int64_t rows, int64_t k)
      : sparsity_(sparsity), order_(order), k_(k), places_(static_cast<size_t>(rows * k / 2)) {}

  int64_t codes_per_row() const { return k_ / elements_per_code(sparsity_); }
  /// The code of elements `index` * elements_per_code ... of `row`.
  void set(int64_t row, int64_t index, uint32_t code);

  /// What was wrong with the first code that means nothing; "" when all were right.
  const std::string& problem() const { return problem_; }
  const uint8_t* data() const { return places_.data(); }

 private:
  Sparsity sparsity_;
  MetadataOrder order_;
  int64_t k_;
  std::vector<uint8_t> places_;
  std::string problem_;
};

/// How many sparsity selectors a product of 16 rows has: each names other lanes of every four, the same for mma.sp and
/// wgmma. `bits`: of an element of A.
constexpr int selectors(int64_t k, int bits) {
  const int64_t row_bits = 4 * k / elements_per_code(sparsity_of(bits, true));
  return static_cast<int>(64 / row_bits);
}

/// 16 rows of metadata, from `row` on, out of a register of a warp: lanes 4g ... 4g + 3 hold those of rows g and g + 8.
/// With 16- and 32-bit elements a lane has 16 bits of each, with narrower ones 32 bits of one.
void read_warp_metadata(const uint32_t* lanes, int bits, int selector, int64_t row, StoredPlaces& places);

}  // namespace imbrex::vgpu
