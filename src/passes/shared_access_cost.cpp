// SPDX-License-Identifier: Apache-2.0
// Bank conflicts of plain shared-memory accesses, to choose between layouts that instructions like equally.
#include <algorithm>
#include <array>
#include <set>

#include "layout/queries.h"
#include "layout/registers.h"
#include "passes/layout_inference.h"

namespace imbrex::passes {
namespace {

constexpr int64_t kBanks = 32;
constexpr int64_t kBankBytes = 4;
constexpr int64_t kWarp = 32;
constexpr int kSampledAccesses = 4;  // accesses of one tile hardly differ

}  // namespace

int64_t shared_access_cost(const layout::Layout& registers, const layout::Layout& memory) {
  using layout::Axis;
  const int64_t bits = memory.element_bits();
  const int64_t vector = layout::vector_length(registers, memory);
  const int64_t bytes = std::max<int64_t>(1, vector * bits / 8);
  // The hardware serves 128 bytes at a time: 32 lanes of 4 bytes, 16 of 8, 8 of 16.
  const int64_t lanes_per_phase = std::clamp<int64_t>(kBanks * kBankBytes / bytes, 1, kWarp);
  const int64_t accesses = std::max<int64_t>(1, registers.registers() / vector);

  int64_t wavefronts = 0, sampled = 0;
  for (int64_t access = 0; access < accesses && sampled < kSampledAccesses; ++access, ++sampled)
    for (int64_t first = 0; first < kWarp; first += lanes_per_phase) {
      std::array<std::set<int64_t>, kBanks> words;
      for (int64_t lane = first; lane < first + lanes_per_phase; ++lane) {
        const std::optional<layout::Index> element = registers.element(lane, access * vector);
        if (!element) continue;
        const int64_t address = memory.map(*element)[Axis::kAddress] * bits / 8;
        for (int64_t word = address / kBankBytes; word <= (address + bytes - 1) / kBankBytes; ++word)
          words[static_cast<size_t>(word % kBanks)].insert(word);
      }
      size_t deepest = 0;
      for (const std::set<int64_t>& bank : words) deepest = std::max(deepest, bank.size());
      wavefronts += static_cast<int64_t>(deepest);
    }
  return sampled == 0 ? 0 : wavefronts * accesses / sampled;
}

int64_t matrix_access_cost(const layout::Layout& registers, const layout::Layout& memory) {
  const int bits = memory.element_bits();
  for (const layout::MatrixMove& move : layout::matrix_moves(registers, bits))
    if (layout::vector_length(move.rows, memory) * bits == 128) return shared_access_cost(move.rows, memory);
  return shared_access_cost(registers, memory);
}

}  // namespace imbrex::passes
