// SPDX-License-Identifier: Apache-2.0
// How a reduce goes through shared memory, where it must.
#pragma once

#include <optional>
#include <vector>

#include "codegen/digits.h"
#include "codegen/generator.h"

namespace imbrex::codegen {

/// The step of a reduction that joins warps: every thread of the group writes `values` words, then reads
/// those of the threads that differ from it in the digits of `across`.
struct ReductionAcrossWarps {
  int64_t values = 0;
  int64_t word_bytes = 4;
  int64_t round = 1;  ///< values that go through the scratch space together
  std::vector<Digit> across;

  /// Byte distances from the first of the threads whose words a thread reads.
  std::vector<int64_t> partner_offsets() const;
};
/// Nothing where threads of one warp, or a thread alone, do it all.
std::optional<ReductionAcrossWarps> reduction_across_warps(const ir::Op& op, const Group& group);

}  // namespace imbrex::codegen
