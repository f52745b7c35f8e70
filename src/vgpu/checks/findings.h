// SPDX-License-Identifier: Apache-2.0
// Collecting findings: one per kind and instruction, or pair of source lines (of instructions, where PTX
// names no lines), counted, limited.
#pragma once

#include <array>
#include <map>
#include <tuple>
#include <vector>

#include "imbrex/vgpu/bent_rule.h"
#include "imbrex/vgpu/virtual_gpu.h"
#include "vgpu/checks/who.h"
#include "vgpu/program/program.h"

namespace imbrex::vgpu {

/// The findings of one cluster. Cheap when nothing is wrong, and when the same thing is wrong again.
class FindingLog {
 public:
  FindingLog(const Program& program, int limit, Strictness strictness)
      : program_(&program), limit_(limit), strictness_(strictness) {}
  /// `who` as the public Actor.
  static Actor actor(const Who& who);

  /// Opens a finding, or the note that it is where a bent rule is let pass; null when an equal one exists (its
  /// count is raised) or the log is full. The place and the actor are filled in; the caller writes message,
  /// facts and hint.
  Finding* open(FindingKind kind, const Who& who, uint64_t address = 0, const Who* other = nullptr,
                Bend bend = {});
  /// A rule that the kernel bends throughout is a note.
  bool is_practical() const { return strictness_ == Strictness::kPractical; }
  /// Of findings; notes have a limit of their own and stop nothing.
  bool full() const { return is_full(Severity::kFinding); }
  /// Findings and notes.
  std::vector<Finding>& findings() { return findings_; }
  /// The instruction indices by which findings()[i] was told apart.
  std::pair<uint32_t, uint32_t> places(size_t i) const { return places_[i]; }

 private:
  static constexpr size_t kNotKept = ~size_t{0};  // the log was full

  uint32_t first_of_line(uint32_t place) const;
  bool is_full(Severity severity) const { return counts_[static_cast<size_t>(severity)] >= limit_; }

  const Program* program_;
  int limit_;
  Strictness strictness_;
  std::array<int, 2> counts_{};  // by severity
  using Places = std::map<std::tuple<FindingKind, Severity, uint32_t, uint32_t>, size_t>;
  Places seen_, seen_of_lines_;  // to the index in findings_
  std::vector<Finding> findings_;
  std::vector<std::pair<uint32_t, uint32_t>> places_;
};

}  // namespace imbrex::vgpu
