// SPDX-License-Identifier: Apache-2.0
// Mutants of kernels of several ranks, by the rules about signals: each that is a bug is reported, at a line of the kernel.
// IMBREX_MUTANTS=FILE writes every verdict.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "mutants/verdict.h"

namespace imbrex::mutants {
namespace {

constexpr uint64_t kSeeds = 16;

/// Places that nothing comes to: k has so many blocks that the last tile's owner has been told before the next tile is
/// stored. And the words that a thread stores for itself, to its own rank's box.
bool is_dead(const Mutant& mutant) {
  if (mutant.subject->name == "low latency")
    return mutant.occurrence <= 2 && mutant.at.starts_with("atomic::exch");
  return mutant.subject->name == "reduce-scatter" && mutant.occurrence == 2 &&
         (mutant.at == "call_->stored(owner_, part_);" || mutant.at == "tma::wait_group(0);");
}

TEST(RankMutants, EveryBugIsReportedAndNothingElse) {
  const std::vector<Subject> subjects = rank_subjects();
  std::vector<Mutant> mutants;
  for (const Subject& subject : subjects) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const Outcome right = run(subject, subject.kernel, seed);
      EXPECT_TRUE(right.is_clean()) << subject.name << ", seed " << seed << ": " << right.refused
                                    << (right.findings.empty() ? "" : right.findings.front().message);
    }
    const std::vector<Mutant> more = mutants_of(subject, signal_rules());
    EXPECT_GE(more.size(), 10u) << subject.name;
    mutants.insert(mutants.end(), more.begin(), more.end());
  }
  const std::vector<Verdict> verdicts = try_mutants(mutants, kSeeds);
  std::ofstream list;
  if (const char* file = std::getenv("IMBREX_MUTANTS")) list.open(file);
  std::map<std::string, int> reported;  // by rule
  for (const Verdict& v : verdicts) {
    list << fmt::format("{:<18} {:<14} seed {:<2} {} [{}] {}\n", name(v.status), v.kind, v.seed,
                        v.mutant->name(), v.mutant->place, v.message);
    if (is_dead(*v.mutant)) {
      EXPECT_EQ(v.status, Status::kSurvived) << v.mutant->name() << ": " << v.message;
      continue;
    }
    EXPECT_EQ(v.status, Status::kCaught)
        << v.mutant->name() << " (" << v.mutant->place << "): " << name(v.status) << " " << v.message;
    ++reported[v.mutant->rule];
  }
  for (const Rule& rule : signal_rules())
    EXPECT_GT(reported[rule.name], 0) << rule.name << " is tried nowhere";
}

}  // namespace
}  // namespace imbrex::mutants
