// SPDX-License-Identifier: Apache-2.0
#include "vgpu/tensor_cores/sparse_metadata.h"

#include <fmt/format.h>

namespace imbrex::vgpu {

void StoredPlaces::set(int64_t row, int64_t index, uint32_t code) {
  const int64_t covered = elements_per_code(sparsity_), first_k = index * covered;
  uint8_t* out = places_.data() + row * (k_ / 2) + index * covered / 2;
  const uint32_t first = code & 3, second = code >> 2 & 3;
  const char* why = nullptr;
  switch (sparsity_) {
    case Sparsity::kOneOfTwo:
      // The two halves of a 32-bit element are what two 16-bit ones would be.
      out[0] = static_cast<uint8_t>(first_k + (code >> 3 & 1));
      if (code != 0b0100 && code != 0b1110)
        why = "32-bit elements have 0b0100 (the first) and 0b1110 (the second)";
      break;
    case Sparsity::kTwoOfFour:
      out[0] = static_cast<uint8_t>(first_k + first);
      out[1] = static_cast<uint8_t>(first_k + second);
      break;
    case Sparsity::kPairsOfEight:
      for (uint32_t i = 0; i < 2; ++i) {
        out[i] = static_cast<uint8_t>(first_k + 2 * first + i);
        out[2 + i] = static_cast<uint8_t>(first_k + 2 * second + i);
      }
      break;
  }
  if (sparsity_ != Sparsity::kOneOfTwo) {
    if (first == second) why = "both places are the same";
    if (first > second && order_ == MetadataOrder::kAscending) why = "the first place lies behind the second";
  }
  if (why != nullptr && problem_.empty())
    problem_ = fmt::format("sparsity metadata {:#06b} of row {}, k {} to {}: {}", code, row, first_k,
                           first_k + covered - 1, why);
}

void read_warp_metadata(const uint32_t* lanes, int bits, int selector, int64_t row, StoredPlaces& places) {
  const int64_t codes = places.codes_per_row();
  const int64_t first_lane = selector * codes / 4;  // of every four: 1, 2 or 4 of them hold the metadata
  for (int64_t g = 0; g < 8; ++g)
    for (int64_t half = 0; half < 2; ++half)
      for (int64_t c = 0; c < codes; ++c) {
        const bool shares_lane = bits >= 16;  // both rows
        const int64_t lane = 4 * g + first_lane + (shares_lane ? c / 4 : half + c / 8 * 2);
        const int64_t bit = shares_lane ? 16 * half + c % 4 * 4 : c % 8 * 4;
        places.set(row + g + 8 * half, c, lanes[lane] >> bit & 0xF);
      }
}

}  // namespace imbrex::vgpu
