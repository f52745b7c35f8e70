// SPDX-License-Identifier: Apache-2.0
// How weights of 1 to 8 bits lie in memory: one packing for products of few rows and of many, on every target.
//
// A weight is stored as a code of `bits` bits; what codes mean is in weight_types.h. Codes are packed in tiles of
// 64 x 256 weights, [n, k], each 2048 * bits bytes in one piece. Tensor cores take 16 of k at a time, of which each of
// 128 threads holds 8 weights as 4 words of 2: so a tile is
//
//     [bits planes][128 threads][4 words][2 lanes of 16 bits]
//
// A thread reads 16 bytes of each plane. The lane of the same word in all planes, 16 * bits bits, has the codes of the
// 16 steps of k: 16 / bits whole ones in each plane, from the lowest bit on, and the others made of what those leave at
// the top. Two lanes make two neighbouring elements, so that a mask and a constant in front give two float16 whose
// mantissas hold the codes: nothing is shuffled.
//
// Weight (row, column) of a tile, for the product's fragments: thread 32 * (row / 16) + row % 8 * 4 + column % 8 / 2,
// word row / 8 % 2 + 2 * (column / 8 % 2), lane column % 2, step column / 16.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "imbrex/runtime/host_tensor.h"

namespace imbrex::kernels {

inline constexpr int kWeightTileN = 64, kWeightTileK = 256, kWeightSteps = 16;

/// `width` bits from bit `from` of a lane of plane `plane`: they are those of the code from bit `to` on.
struct CodePart {
  int plane, from, width, to;
};

/// Where the code of step `step` is in its lanes.
inline std::vector<CodePart> code_parts(int bits, int step) {
  const int whole = 16 / bits, rest = 16 - whole * bits;  // codes in a plane, bits at its top
  if (step < whole * bits) return {{step / whole, step % whole * bits, bits, 0}};
  std::vector<CodePart> parts;
  int at = (step - whole * bits) * bits;  // among the bits at the tops of the planes
  for (int have = 0; have < bits;) {
    const int plane = at / rest, from = at % rest, width = std::min(bits - have, rest - from);
    parts.push_back({plane, whole * bits + from, width, have});
    have += width;
    at += width;
  }
  return parts;
}

/// The shape of the packed weights, uint32: a tile is 2 * bits rows of 1024 bytes.
std::vector<int64_t> packed_weights_shape(int64_t n, int64_t k, int bits);
/// Codes [n, k], integers below 2^bits, as packed weights; codes beyond n and k are `padding`. LaunchError for a tensor
/// that is no matrix of such codes.
HostTensor pack_weights(const HostTensor& codes, int bits, int padding = 0);
/// Factors [n, groups] in the order of packed weights, [n tiles, groups, 64]: those beyond are 0. With zero points, which
/// take the factors' type, [n tiles, 2 groups, 64]: of each group the factors, then the zero points.
HostTensor pack_group_values(const HostTensor& factors, const HostTensor* zero_points = nullptr);

}  // namespace imbrex::kernels
