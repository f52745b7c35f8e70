// SPDX-License-Identifier: Apache-2.0
#include "imbrex/kernels/low_precision/packed_weights.h"

#include <fmt/format.h>

#include "imbrex/core/error.h"

namespace imbrex::kernels {

namespace {

int64_t tiles(int64_t extent, int64_t tile) { return (extent + tile - 1) / tile; }

[[noreturn]] void refuse(std::string message, std::string help) {
  throw LaunchError(Diagnostic{{}, std::move(message), {}, std::move(help)});
}

}  // namespace

std::vector<int64_t> packed_weights_shape(int64_t n, int64_t k, int bits) {
  return {tiles(n, kWeightTileN), tiles(k, kWeightTileK), 2 * bits, 256};
}

HostTensor pack_weights(const HostTensor& codes, int bits, int padding) {
  if (codes.shape().size() != 2 || codes.dtype() != uint8)
    refuse("pack_weights: the codes are no uint8 matrix [n, k]", "store each code in a byte");
  if (bits < 1 || bits > 8)
    refuse(fmt::format("pack_weights: codes of {} bits", bits), "codes have 1 to 8 bits");
  const int64_t n = codes.shape()[0], k = codes.shape()[1];
  HostTensor packed(uint32, packed_weights_shape(n, k, bits));
  auto* words = reinterpret_cast<uint32_t*>(packed.bytes().data());
  const auto* from = reinterpret_cast<const uint8_t*>(codes.bytes().data());
  std::vector<std::vector<CodePart>> parts;
  for (int step = 0; step < kWeightSteps; ++step) parts.push_back(code_parts(bits, step));
  const int64_t tiles_n = packed.shape()[0], tiles_k = packed.shape()[1];
  for (int64_t row = 0; row < tiles_n * kWeightTileN; ++row)
    for (int64_t column = 0; column < tiles_k * kWeightTileK; ++column) {
      const bool is_inside = row < n && column < k;
      const uint32_t code = is_inside ? from[row * k + column] : static_cast<uint32_t>(padding);
      if (code >> bits != 0)
        refuse(
            fmt::format("pack_weights: code {} at [{}, {}] has more than {} bits", code, row, column, bits),
            "codes are integers below 2^bits");
      const int64_t tile = row / kWeightTileN * tiles_k + column / kWeightTileK;
      const int64_t r = row % kWeightTileN, c = column % kWeightTileK;
      const int64_t thread = 32 * (r / 16) + r % 8 * 4 + c % 8 / 2;
      const int64_t word = r / 8 % 2 + 2 * (c / 8 % 2);
      for (const CodePart& part : parts[c / 16]) {
        const uint32_t bits_of_part = code >> part.to & ((1u << part.width) - 1);
        words[((tile * bits + part.plane) * 128 + thread) * 4 + word] |= bits_of_part
                                                                         << (c % 2 * 16 + part.from);
      }
    }
  return packed;
}

HostTensor pack_group_values(const HostTensor& factors, const HostTensor* zero_points) {
  if (factors.shape().size() != 2) refuse("pack_group_values: the factors are no matrix [n, groups]", "");
  if (zero_points && zero_points->shape() != factors.shape())
    refuse("pack_group_values: not as many zero points as factors", "there is one for each factor");
  const int64_t n = factors.shape()[0], groups = factors.shape()[1], each = zero_points ? 2 : 1;
  HostTensor packed(factors.dtype(), {tiles(n, kWeightTileN), groups * each, kWeightTileN});
  for (int64_t row = 0; row < n; ++row)
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t at = row * groups + group;
      const int64_t to = ((row / kWeightTileN * groups + group) * each) * kWeightTileN + row % kWeightTileN;
      packed.set(to, factors.get(at));
      if (zero_points) packed.set(to + kWeightTileN, zero_points->get(at));
    }
  return packed;
}

}  // namespace imbrex::kernels
