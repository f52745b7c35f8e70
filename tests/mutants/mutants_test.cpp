// SPDX-License-Identifier: Apache-2.0
// The mutation suite: every single-fault mutant that is a bug is reported by a checker, at a line of the
// kernel; what is recorded as equivalent is neither reported nor wrong; the kernels themselves are clean.
//
// IMBREX_MUTANTS=FILE writes every verdict, IMBREX_MUTANTS_ONLY=TEXT tries only mutants whose name contains
// it, IMBREX_BLESS=1 rewrites docs/checkers-mutants.md.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <thread>

#include "mutants/verdict.h"

namespace imbrex::mutants {
namespace {

constexpr uint64_t kSeeds = 16;

struct Suite {
  std::vector<Mutant> mutants;
  std::vector<Verdict> verdicts;
};

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

const char* filter() { return std::getenv("IMBREX_MUTANTS_ONLY"); }

const Suite& suite() {
  static const Suite all = [] {
    Suite s;
    for (const Subject& subject : subjects())
      for (Mutant& mutant : mutants_of(subject))
        if (filter() == nullptr || mutant.name().find(filter()) != std::string::npos)
          s.mutants.push_back(std::move(mutant));
    s.verdicts = try_mutants(s.mutants, kSeeds);
    if (const char* file = std::getenv("IMBREX_MUTANTS")) {
      std::ofstream list(file);
      for (const Verdict& v : s.verdicts)
        list << fmt::format("{:<18} {:<20} seed {:<2} {:<10} {:<6} {} [{}] {}\n", name(v.status), v.kind,
                            v.seed, v.equivalent ? "equivalent" : "",
                            v.practical == Practical::kFound   ? ""
                            : v.practical == Practical::kNoted ? "note"
                                                               : "silent",
                            v.mutant->name(), v.mutant->place, v.message);
    }
    return s;
  }();
  return all;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/// A mutant that asks for memory without end fails here, and does not take the machine with it.
const bool kBounded = [] {
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  // Each worker thread reserves address space of its own: the allocator's arena, a virtual GPU's memory.
  const rlim_t bytes = (rlim_t{4} << 30) + std::thread::hardware_concurrency() * (rlim_t{1} << 29);
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, bytes);
  return setrlimit(RLIMIT_AS, &limit) == 0;
}();
TEST(Mutants, MemoryIsBounded) { EXPECT_TRUE(kBounded); }
#endif

TEST(Mutants, EveryBugIsReported) {
  for (const Verdict& v : suite().verdicts) {
    if (v.equivalent != nullptr) continue;
    EXPECT_EQ(v.status, Status::kCaught)
        << v.mutant->name() << " (" << v.mutant->place << "): " << name(v.status) << " " << v.message;
  }
}

TEST(Mutants, PracticeSaysSomethingOfEveryBug) {
  for (const Verdict& v : suite().verdicts) {
    if (v.equivalent != nullptr) continue;
    EXPECT_NE(v.practical, Practical::kSilent) << v.mutant->name() << " (" << v.mutant->place << ")";
  }
}

TEST(Mutants, EquivalentsAreNotReported) {
  std::set<const Known*> used;
  for (const Verdict& v : suite().verdicts) {
    if (v.equivalent == nullptr) continue;
    used.insert(v.equivalent);
    EXPECT_EQ(v.status, Status::kSurvived)
        << v.mutant->name() << " (" << v.mutant->place << ") under seed " << v.seed << ": " << name(v.status)
        << " " << v.message << "\nrecorded as equivalent: " << v.equivalent->reason;
  }
  if (filter() != nullptr) return;
  for (const Known& known : equivalents())
    EXPECT_TRUE(used.contains(&known)) << "no mutant is " << known.rule << " at '" << known.at << "' of "
                                       << known.subjects << ": take it out of the table";
}

TEST(Mutants, NamesAreUnique) {
  std::set<std::string> names;
  for (const Mutant& mutant : suite().mutants)
    EXPECT_TRUE(names.insert(mutant.name()).second) << mutant.name();
}

TEST(Mutants, EveryKindOfFindingIsDescribed) {
  const std::string page = text_of(IMBREX_SOURCE_DIR "/docs/checkers.md");
  for (int kind = 0; kind < static_cast<int>(vgpu::FindingKind::kCount); ++kind) {
    const std::string_view name = vgpu::name(static_cast<vgpu::FindingKind>(kind));
    EXPECT_TRUE(
        std::regex_search(page, std::regex(fmt::format("(^|\n)\\| (`[a-z-]+`, )*`{}`[,` a-z-]* \\|", name))))
        << "docs/checkers.md has no row for " << name;
  }
}

TEST(Mutants, EveryFaultThatShippedIsMade) {
  if (filter() != nullptr) GTEST_SKIP() << "only some mutants were tried";
  std::set<std::string> made;
  for (const Mutant& mutant : suite().mutants) made.insert(mutant.rule);
  for (const std::string& rule : rules_of_shipped_faults()) EXPECT_TRUE(made.contains(rule)) << rule;
}

TEST(Mutants, TableIsUpToDate) {
  if (filter() != nullptr) GTEST_SKIP() << "only some mutants were tried";
  const std::string path = IMBREX_SOURCE_DIR "/docs/checkers-mutants.md", fresh = report(suite().verdicts);
  if (std::getenv("IMBREX_BLESS") != nullptr) std::ofstream(path) << fresh;
  EXPECT_TRUE(text_of(path) == fresh)
      << "docs/checkers-mutants.md is out of date; rewrite it: IMBREX_BLESS=1 build/test_mutants";
}

}  // namespace
}  // namespace imbrex::mutants
