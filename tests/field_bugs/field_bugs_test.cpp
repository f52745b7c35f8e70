// SPDX-License-Identifier: Apache-2.0
// Bugs that public projects have shipped, made anew: the faulty kernel is reported at a line that its source marks
// with the bug's name, the mended one is clean whatever the schedule. By the letter, and in practice.
//
// cuda/ has the sources, each kernel as a template faulty or mended; ptx/ is what tests/field_bugs/generate made of
// them. IMBREX_FIELD_BUGS=1 prints under how many seeds, and first under which, each was found.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "../full.h"
#include "../param_name.h"
#include "imbrex/vgpu/virtual_gpu.h"

namespace imbrex::vgpu {
namespace {

struct Bug {
  const char* name;
  const char* source;
  const char* target;
  int64_t threads;
  FindingKind kind;
  int64_t ctas = 1;        // one cluster
  bool only_late = false;  // nothing is wrong, or known to be, in most schedules
  bool is_note = false;    // in practice
};
std::ostream& operator<<(std::ostream& out, const Bug& bug) { return out << bug.name; }

using K = FindingKind;
constexpr Bug kBugs[] = {
    {"scratch_for_two_stages", "pipelines", "sm_90a", 64, K::kRace},
    {"scores_overwritten", "pipelines", "sm_90a", 64, K::kRace},
    {"packed_work_item", "pipelines", "sm_90a", 96, K::kDeadlock},
    {"empty_tiles", "pipelines", "sm_90a", 64, K::kDeadlock},
    {"bulk_copies_in_a_loop", "pipelines", "sm_90a", 96, K::kRace, 1, true},
    {"pipeline_tail", "pipelines", "sm_90a", 32, K::kRace},
    {"bytes_of_the_last_tile", "pipelines", "sm_90a", 64, K::kDeadlock},
    {"barrier_of_no_arrivals", "pipelines", "sm_90a", 32, K::kInvalidBarrier},
    {"group_barrier_of_four_warps", "pipelines", "sm_90a", 128, K::kDeadlock},
    {"register_budgets", "pipelines", "sm_90a", 128, K::kDivergentCollective},
    {"exit_before_the_store_has_read", "pipelines", "sm_90a", 32, K::kAsyncInFlight, 1, false, true},
    {"stage_given_back_unfenced", "pipelines", "sm_90a", 64, K::kMissingProxyFence},
    {"refill_overtakes_loads", "pipelines", "sm_90a", 64, K::kMissingProxyFence},
    {"arrives_twice", "pipelines", "sm_90a", 64, K::kDeadlock, 1, true},
    {"phase_word_flipped", "pipelines", "sm_90a", 128, K::kDeadlock, 1, true},
    {"pair_out_of_step", "clusters", "sm_90a", 32, K::kDeadlock, 2},
    {"mailbox_cleared", "clusters", "sm_90a", 32, K::kRace, 2},
    {"arrival_at_an_exited_cta", "clusters", "sm_90a", 32, K::kAsyncInFlight, 2},
    {"read_of_an_exited_cta", "clusters", "sm_90a", 32, K::kAsyncInFlight, 2, true},
    {"cluster_phase_word", "clusters", "sm_90a", 64, K::kRace, 2},
    {"given_back_in_use", "tensor_memory", "sm_100a", 128, K::kRace},
    {"address_read_early", "tensor_memory", "sm_100a", 128, K::kRace},
    {"maxima_published_early", "tensor_memory", "sm_100a", 160, K::kRace},
};

std::string text_of(const std::string& path) {
  std::ifstream file(std::string(IMBREX_SOURCE_DIR) + "/tests/field_bugs/" + path);
  if (!file.good()) throw std::runtime_error("no tests/field_bugs/" + path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// Lines of the source that end with `// NAME`.
std::set<int> lines_of(const Bug& bug) {
  std::istringstream text(text_of(fmt::format("cuda/{}.cu", bug.source)));
  std::set<int> lines;
  std::string line;
  const std::string mark = fmt::format("// {}", bug.name);
  for (int number = 1; std::getline(text, line); ++number)
    if (line.ends_with(mark)) lines.insert(number);
  return lines;
}

Report run(const Bug& bug, bool mended, uint64_t seed, Strictness strictness) {
  VirtualGpu gpu({.target = bug.target,
                  .host_threads = 1,
                  .seed = seed,
                  .strictness = strictness,
                  .stall_budget = 1 << 20,
                  .memory_bytes = 1 << 20});
  const Module module =
      gpu.load_module(text_of(fmt::format("ptx/{}.{}.ptx", bug.source, bug.target)), bug.source);
  const std::vector<std::string> names = module.function_names();
  const std::string part = fmt::format("{}ILb{}E", bug.name, mended ? 1 : 0);
  const auto name = std::find_if(names.begin(), names.end(),
                                 [&](const std::string& n) { return n.find(part) != std::string::npos; });
  if (name == names.end()) throw std::runtime_error("no kernel " + part);
  constexpr int64_t kBytes = 1024;
  DeviceAddress out = gpu.allocate(kBytes), in = gpu.allocate(kBytes);
  gpu.fill(out, 0xFF, kBytes);
  gpu.fill(in, 3, kBytes);
  int n = 9;
  void* arguments[] = {&out, &in, &n};
  return gpu.launch(
      module.function(*name),
      {.grid = {bug.ctas}, .cluster = {bug.ctas}, .block = {bug.threads}, .arguments = arguments});
}

/// Does the finding, or what it tells of those who wait, name one of the lines?
bool names_line(const Finding& finding, const std::set<int>& lines) {
  if (lines.contains(finding.place.line) || lines.contains(finding.other_place.line)) return true;
  return std::any_of(lines.begin(), lines.end(), [&](int line) {
    return std::any_of(finding.facts.begin(), finding.facts.end(), [&](const std::string& fact) {
      return fact.find(fmt::format(".cu:{} ", line)) != std::string::npos;
    });
  });
}

/// The first finding (or note) of the kind that names one of the bug's lines.
bool reports(const Bug& bug, const Report& report, bool in_notes, const std::set<int>& lines) {
  const std::vector<Finding>& list = in_notes ? report.notes : report.findings;
  return std::any_of(list.begin(), list.end(),
                     [&](const Finding& f) { return f.kind == bug.kind && names_line(f, lines); });
}

int seeds(int few, int many) { return is_full() ? many : few; }

class FieldBugs : public testing::TestWithParam<Bug> {};

TEST_P(FieldBugs, TheFaultyIsReportedAtItsLine) {
  const Bug& bug = GetParam();
  const std::set<int> lines = lines_of(bug);
  ASSERT_FALSE(lines.empty());
  for (const Strictness strictness : {Strictness::kStrict, Strictness::kPractical}) {
    const bool in_notes = bug.is_note && strictness == Strictness::kPractical;
    const int tried = bug.only_late ? seeds(20, 200) : seeds(5, 200);
    int found = 0, first = -1;
    std::string last;
    for (int seed = 0; seed < tried; ++seed) {
      const Report report = run(bug, false, static_cast<uint64_t>(seed), strictness);
      last = report.format();
      if (!reports(bug, report, in_notes, lines)) continue;
      if (first < 0) first = seed;
      ++found;
    }
    EXPECT_GE(first, 0) << "not found under seeds 0 to " << tried - 1 << "; the last said\n" << last;
    if (!bug.only_late) {
      EXPECT_EQ(first, 0) << "late warps are not what it takes";
    }
    if (std::getenv("IMBREX_FIELD_BUGS") != nullptr)
      fmt::print("{:<32} {:>3} of {} seeds, first {}\n", bug.name, found, tried, first);
  }
}

TEST_P(FieldBugs, TheMendedIsClean) {
  const Bug& bug = GetParam();
  for (int seed = 0; seed < seeds(20, 200); ++seed) {
    const Report report = run(bug, true, static_cast<uint64_t>(seed), Strictness::kStrict);
    ASSERT_TRUE(report.clean()) << "seed " << seed << "\n" << report.format();
  }
}

INSTANTIATE_TEST_SUITE_P(All, FieldBugs, testing::ValuesIn(kBugs), ParamName{});

}  // namespace
}  // namespace imbrex::vgpu
