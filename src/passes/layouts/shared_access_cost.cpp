// SPDX-License-Identifier: Apache-2.0
// Bank conflicts of plain shared-memory accesses, to choose between layouts that instructions like equally.
#include <algorithm>

#include "imbrex/inspect/banks.h"
#include "layout/queries.h"
#include "layout/registers.h"
#include "passes/layouts/layout_inference.h"

namespace imbrex::passes {
namespace {

constexpr int kWarp = 32;
constexpr int kSampledAccesses = 4;  // accesses of one tile hardly differ

}  // namespace

int64_t shared_access_cost(const layout::Layout& registers, const layout::Layout& memory) {
  using layout::Axis;
  const int64_t bits = memory.element_bits();
  if (layout::crosses_bytes(bits)) return 0;  // moved as bytes, of which one layout alone is tried
  const int64_t vector = layout::vector_length(registers, memory);
  const int64_t accesses = std::max<int64_t>(1, registers.registers() / vector);

  int64_t wavefronts = 0, sampled = 0;
  for (int64_t access = 0; access < accesses && sampled < kSampledAccesses; ++access, ++sampled) {
    WarpAccess warp{.addresses = {},
                    .bytes = static_cast<int>(std::max<int64_t>(1, vector * bits / 8)),
                    .access = BankAccess::kStore};  // the same layouts are stored through
    for (int lane = 0; lane < kWarp; ++lane) {
      const std::optional<layout::Index> element = registers.element(lane, access * vector);
      warp.addresses.push_back(element ? memory.map(*element)[Axis::kAddress] * bits / 8 : -1);
    }
    wavefronts += bank_report(warp).wavefronts;
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
