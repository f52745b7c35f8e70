// SPDX-License-Identifier: Apache-2.0
// Counts by instruction, of a cluster and then of all clusters of a launch.
#pragma once

#include <algorithm>
#include <vector>

#include "vgpu/program/program.h"

namespace imbrex::vgpu {

/// `Count` has is_zero(), add(const Count&) and use(CodePlace), which is what a report says of the instruction.
template <class Count>
class InstructionCounts {
 public:
  explicit InstructionCounts(size_t instructions) : counts_(instructions) {}

  Count& operator[](const Instruction& insn) { return counts_[insn.index]; }
  /// Adds what another cluster counted.
  void add(const InstructionCounts& other) {
    for (size_t i = 0; i < counts_.size(); ++i)
      if (!other.counts_[i].is_zero()) counts_[i].add(other.counts_[i]);
  }
  /// The instructions that counted something, in the order of the PTX.
  auto report(const Program& program) const {
    std::vector<decltype(counts_[0].use(CodePlace{}))> uses;
    for (size_t i = 0; i < counts_.size(); ++i)
      if (!counts_[i].is_zero()) uses.push_back(counts_[i].use(program.place(static_cast<uint32_t>(i))));
    std::stable_sort(uses.begin(), uses.end(),
                     [](const auto& a, const auto& b) { return a.place.ptx_line < b.place.ptx_line; });
    return uses;
  }

 private:
  std::vector<Count> counts_;
};

}  // namespace imbrex::vgpu
