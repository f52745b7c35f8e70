// SPDX-License-Identifier: Apache-2.0
// docs/checkers.md: what the checkers are, and how many mutants they report.
#include <fmt/format.h>

#include <algorithm>

#include "mutants/verdict.h"

namespace imbrex::mutants {
namespace {

constexpr const char* kIntroduction =
    R"(<!-- Written by the mutation suite: IMBREX_BLESS=1 build/test_mutants. Do not edit. -->
# The checkers, and how we know that they work

The virtual GPU judges the PTX that ships. Every finding names what happened, the kernel's source line (of both sides,
where there are two), the CTA and the warp, and what to do about it. All checkers are on unless switched off
(`vgpu::CheckSet`, `imbrex run --checks`).

)";

constexpr const char* kSuite = R"(
Schedules are adversarial and seeded: warps run in any order, asynchronous work is early, late and out of order. A finding
prints the seed that replays it.

## The mutation suite

`tests/mutants` derives single-fault mutants *by rule* from the PTX that the compiler emits for the ladder's kernels (and
from their launch plans), at every place where a rule applies. Each is run under seeds 0 to 15 until something is found
(those listed as equivalent under a third of them).
A mutant that is a bug must be **reported by a checker, at a line of the kernel**; a wrong number does not count. Mutants
that are no bugs are listed below with the argument, and must be neither reported nor wrong. Faults that change only which
numbers are computed (a wrong coordinate, another element of a tile that was written and is in order, one product too few
in a kernel without roles) are not made: nothing but the result can tell those.

    ctest --test-dir build -L mutants                        # the suite
    IMBREX_MUTANTS=verdicts.txt build/test_mutants           # every mutant, what was said and where
    IMBREX_MUTANTS_ONLY='V5 drop-wait' build/test_mutants    # those whose name contains this

The kernels themselves, and lawful patterns that naive checkers flag (two copies completing one barrier, a phase waited for
twice, barriers used again by persistent CTAs, bytes that arrive before they are announced), must be clean: 16 seeds each
in the suite, 200 in `ctest -L full -R mutants`: 19 kernels, 3800 runs, no finding, the same numbers (2026-11-22).
)";

struct Row {
  std::vector<vgpu::FindingKind> kinds;
  const char* says;
};
/// Every kind of finding; a test counts them.
const std::vector<Row>& rows() {
  using enum vgpu::FindingKind;
  static const std::vector<Row> all = {
      {{kOutOfBounds, kMisaligned},
       "an access outside every allocation, variable or window, or off its alignment"},
      {{kDeadlock},
       "nobody can run: who waits for what, with the counts of every barrier, and what is in flight"},
      {{kEndlessRun}, "the instruction budget was used up, or a loop waits without anything happening"},
      {{kTrap}, "`trap`, or an assertion of the kernel that failed"},
      {{kIllegalInstruction},
       "operands or a state that the hardware answers with an error or leaves undefined: descriptors, masks, "
       "cluster ranks, the protocol of cluster launch control"},
      {{kUninitializedRead},
       "registers, shared, local or tensor memory that nobody wrote, also as operands of TMA and of the "
       "tensor core"},
      {{kUseAfterFree}, "freed global memory"},
      {{kRace},
       "two accesses of which one writes, by threads or asynchronous units, with nothing that orders them "
       "(happens-before under the PTX memory model)"},
      {{kMissingProxyFence},
       "ordered, but the generic and the asynchronous proxy were not joined by a fence"},
      {{kMissingTensorFence}, "ordered, but without the `tcgen05.fence` that tensor memory needs"},
      {{kOperandLayout},
       "a matrix descriptor or a tensor map disagrees with how the data were written: swizzle, strides, "
       "start, major-ness; a tile of the trip before is read in place of the one that was loaded; a product "
       "is "
       "added to one whose rows lie in other lanes, or that took the same tile the other way round"},
      {{kInvalidBarrier},
       "an mbarrier not initialised, initialised over a live one, arrived at too often, or for a phase "
       "before "
       "any wait has seen the end of the one before; counts and bytes out of range"},
      {{kDivergentCollective}, "an `.aligned` or `.sync` instruction executed by fewer lanes than it names"},
      {{kAsyncInFlight},
       "a CTA exits, or a register is read, while asynchronous work is under way, or copies that nobody has "
       "waited for"},
      {{kResourceLeak, kTensorMemory},
       "tensor memory not given back, given back twice, used outside an allocation or by the wrong warp's "
       "lanes"},
  };
  return all;
}

/// Faults that real projects shipped, and the rules that make them here.
struct Shipped {
  const char* fault;
  std::vector<const char*> rules;
};
const std::vector<Shipped>& shipped() {
  static const std::vector<Shipped> all = {
      {"one elected lane arrives (or fences) for the accesses of 32",
       {"one-lane-arrive", "one-lane-proxy-fence"}},
      {"no barrier between a store and a load of warps with different roles",
       {"drop-sync", "early-sync", "late-sync"}},
      {"shared memory stored to by a TMA store without a proxy fence",
       {"drop-proxy-fence", "early-proxy-fence"}},
      {"a staging buffer written again while a bulk store still reads it",
       {"drop-group-wait", "loose-group-wait", "late-group-wait", "group-wait-of-other"}},
      {"a CTA of a cluster exits before its peer's multicast or arrival has landed",
       {"drop-cluster-sync", "drop-cluster-wait", "relaxed-cluster-sync", "cta-for-cluster-sync"}},
      {"roles disagree on whether a cancel request was granted",
       {"unchecked-grant", "misread-grant", "grant-always", "grant-never"}},
      {"a wait that comes after the first use", {"late-wait", "mma-before-wait", "late-wait-load"}},
      {"a phase variable that starts, or goes on, with the wrong parity", {"initial-phase", "wrong-parity"}},
      {"lawful, but flagged by naive checkers: a phase waited for twice, bytes that arrive before they are "
       "announced",
       {"double-wait", "late-expect"}},
  };
  return all;
}

constexpr const char* kSanitizer = R"(
### Beside compute-sanitizer

`tests/mutants/compute_sanitizer` ran 180 of the Hopper mutants that are bugs (of every rule and kernel one, thinned evenly)
on an H200 under compute-sanitizer 2025.3.1 (driver 580.159, 2026-11-21). The virtual GPU reports all 180, at a kernel line.

| on the H200 | mutants |
|---|---|
| reported by a tool of compute-sanitizer | 40 |
| ... by racecheck, synccheck, memcheck, initcheck | 11, 21, 27, 0 |
| no tool reports it, the driver ends the kernel with an error | 15 |
| no tool reports it, the kernel runs to its end | 51 |
| the kernel hangs (killed after 6 s; the tools report when a kernel ends, so they were not run) | 74 |
)";

struct Count {
  int all = 0, caught = 0, equivalent = 0, missed = 0;
  void add(const Verdict& v) {
    ++all;
    const bool is_caught = v.status == Status::kCaught;
    if (v.equivalent != nullptr)
      ++equivalent;
    else
      ++(is_caught ? caught : missed);
  }
  std::string text() const {
    if (all == 0) return "";
    std::string text = caught == 0 && missed == 0 ? "" : std::to_string(caught);
    if (missed > 0) text += fmt::format(" of {}", caught + missed);
    if (equivalent > 0) text += fmt::format("{}={}", text.empty() ? "" : " ", equivalent);
    return text;
  }
};

}  // namespace

std::vector<std::string> rules_of_shipped_faults() {
  std::vector<std::string> all;
  for (const Shipped& row : shipped()) all.insert(all.end(), row.rules.begin(), row.rules.end());
  return all;
}

std::vector<vgpu::FindingKind> described_kinds() {
  std::vector<vgpu::FindingKind> all;
  for (const Row& row : rows()) all.insert(all.end(), row.kinds.begin(), row.kinds.end());
  return all;
}

std::string report(const std::vector<Verdict>& verdicts) {
  std::map<std::string, std::map<std::string, Count>> by_rule;
  std::map<std::string, Count> by_subject;
  std::map<std::string, int> by_kind;
  Count total;
  for (const Verdict& v : verdicts) {
    by_rule[v.mutant->rule][v.mutant->subject->name].add(v);
    by_rule[v.mutant->rule][""].add(v);
    by_subject[v.mutant->subject->name].add(v);
    total.add(v);
    if (v.equivalent == nullptr && v.status == Status::kCaught) ++by_kind[v.kind];
  }
  std::string text = kIntroduction;
  text += "| finding | what was found |\n|---|---|\n";
  for (const Row& row : rows()) {
    std::string names;
    for (const vgpu::FindingKind kind : row.kinds)
      names += fmt::format("{}`{}`", names.empty() ? "" : ", ", vgpu::name(kind));
    text += fmt::format("| {} | {} |\n", names, row.says);
  }
  text += kSuite;
  text += fmt::format(
      "\n**{} mutants: {} bugs, {} of them reported ({:.1f}%); {} equivalent; 0 findings on lawful "
      "code.**\n\n",
      total.all, total.caught + total.missed, total.caught,
      100.0 * total.caught / std::max(1, total.caught + total.missed), total.equivalent);
  text +=
      "In the table, `3` means three bugs, all reported; `2 of 3` that one is not; `=1` one equivalent "
      "mutant.\n\n";
  text += "| rule | the fault |";
  std::string line = "|---|---|";
  for (const Subject& subject : subjects()) {
    text += fmt::format(" {} |", subject.name);
    line += "---|";
  }
  text += " all |\n" + line + "---|\n";
  for (const Rule& rule : all_rules()) {
    if (!by_rule.contains(rule.name)) continue;
    text += fmt::format("| `{}` | {} |", rule.name, rule.says);
    for (const Subject& subject : subjects())
      text += fmt::format(" {} |", by_rule[rule.name][subject.name].text());
    text += fmt::format(" {} |\n", by_rule[rule.name][""].text());
  }
  text += "| **all** | |";
  for (const Subject& subject : subjects()) text += fmt::format(" {} |", by_subject[subject.name].text());
  text += fmt::format(" {} |\n", total.text());

  text +=
      "\n### Faults that shipped\n\nWhat real projects got wrong, as the rules make it here.\n\n"
      "| fault | rules | kernels | bugs reported | equivalent, silent |\n|---|---|---|---|---|\n";
  for (const Shipped& row : shipped()) {
    std::string rules, kernels;
    int bugs = 0, caught = 0, equivalent = 0;
    for (const char* rule : row.rules) {
      rules += fmt::format("{}`{}`", rules.empty() ? "" : ", ", rule);
      const Count& all = by_rule[rule][""];
      bugs += all.caught + all.missed;
      caught += all.caught;
      equivalent += all.equivalent;
    }
    for (const Subject& subject : subjects()) {
      int here = 0;
      for (const char* rule : row.rules) here += by_rule[rule][subject.name].all;
      if (here > 0) kernels += (kernels.empty() ? "" : " ") + subject.name;
    }
    text += fmt::format("| {} | {} | {} | {} | {} |\n", row.fault, rules, kernels,
                        bugs == 0 ? "" : fmt::format("{} of {}", caught, bugs), equivalent);
  }

  text += "\n### What reported them\n\n| finding | mutants |\n|---|---|\n";
  for (const auto& [kind, count] : by_kind) text += fmt::format("| `{}` | {} |\n", kind, count);

  text += kSanitizer;
  text += "\n### Equivalent mutants\n\n| kernels | rule | where | why it is no bug |\n|---|---|---|---|\n";
  for (const Known& known : equivalents())
    text +=
        fmt::format("| {} | `{}` | {} | {} |\n", known.subjects == std::string("*") ? "all" : known.subjects,
                    known.rule, *known.at == 0 ? "everywhere" : fmt::format("`{}`", known.at), known.reason);
  return text;
}

}  // namespace imbrex::mutants
