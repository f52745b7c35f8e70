// SPDX-License-Identifier: Apache-2.0
// Trying mutants: what the checkers say of each, and what was known before.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "mutants/rules.h"

namespace imbrex::mutants {

/// What is known of some mutants. `subjects` lists kernels ("V1 V2"), "*" means all; `at` is a part of the
/// kernel line, "" any; occurrence 0 means every one.
struct Known {
  const char* subjects;
  const char* rule;
  const char* at;  ///< a part of the line, or, behind ^, its beginning
  int occurrence;
  const char* reason;
  bool matches(const Mutant& mutant) const;
};
/// Mutants that are not bugs, and why.
std::span<const Known> equivalents();

enum class Status : uint8_t {
  kCaught,    ///< a checker reported it, naming a line of the kernel
  kUnplaced,  ///< reported, but without a line of the kernel
  kWrong,     ///< only the numbers are wrong
  kSurvived,  ///< nothing was found and the numbers are right
};

/// What vgpu::Strictness::kPractical makes of a bug.
enum class Practical : uint8_t { kFound, kNoted, kSilent };

struct Verdict {
  const Mutant* mutant;
  const Known* equivalent = nullptr;
  Status status = Status::kSurvived;
  std::string kind;     ///< of the first finding: "race", "deadlock", "refused", ...
  std::string message;  ///< of the first finding
  uint64_t seed = 0;    ///< under which it was found
  Practical practical = Practical::kFound;
};

const char* name(Status status);

/// Runs every mutant under seeds 0 ... seeds-1 (equivalent ones under a third of them) until something is
/// found, on as many threads as there are cores.
std::vector<Verdict> try_mutants(const std::vector<Mutant>& mutants, uint64_t seeds);

/// The rules by which docs/checkers-mutants.md accounts for faults that real projects shipped.
std::vector<std::string> rules_of_shipped_faults();
/// docs/checkers-mutants.md.
std::string report(const std::vector<Verdict>& verdicts);

/// body(i) for i in [0, count), on all cores.
void in_parallel(size_t count, const std::function<void(size_t)>& body);

}  // namespace imbrex::mutants
