// SPDX-License-Identifier: Apache-2.0
// docs/checkers-mutants.md: how many mutants of each rule and kernel the checkers report.
#include <fmt/format.h>

#include <algorithm>

#include "mutants/verdict.h"

namespace imbrex::mutants {
namespace {

constexpr const char* kIntroduction =
    R"(<!-- Written by the mutation suite: IMBREX_BLESS=1 build/test_mutants. Do not edit. -->
# Every mutant

The appendix to [the checkers](checkers.md): what the mutation suite made of each kernel, one fault at a time, and what
became of it. `tests/mutants` derives single-fault mutants *by rule* from the PTX that the compiler emits for a kernel
(and from its launch plan), at every place where the rule applies. Each mutant runs under the seeds 0 to 15 until
something is found; those listed as equivalent run under a third of them.

A mutant that is a bug must be **reported by a checker, at a line of the kernel**; a wrong result alone does not count.
Mutants that are not bugs are listed below with the argument, and must neither be reported nor change the result.
Faults that only change which numbers are computed (a wrong coordinate, another element of a tile that was written and
is properly ordered, a missing product in a kernel without roles) are not made: only the result can reveal those. Where a rule
makes only such faults in one kernel, subjects_language.cpp leaves it out there.

    ctest --test-dir build -L mutants                        # the suite
    IMBREX_MUTANTS=verdicts.txt build/test_mutants           # every mutant: the verdict, the message, the place
    IMBREX_MUTANTS_ONLY='V5 drop-wait' build/test_mutants    # only mutants whose name contains this text

V0 to V6 are the steps of the Blackwell ladder, mxf8 and nvf4 the block-scaled product in two of its types, H0 to H9 the
steps of the Hopper ladder. Of the library beside them: histogram; split-k and stream-k, products whose CTAs take turns;
turns and gated-turns, H8 whose consumers do; groups8, masked groups of float8 with scales of blocks; gated and few-rows, gated products with results in float8;
int4, int4-ampere and int4-tcgen05, packed weights; mma-nvf4, the block-scaled product by mma.sync; attention: forward (attention), its
gradients (dkv, dkv-large of large heads, dq, dqkv in five products, and dqkv-in-order), and decoding from caches of float16 (decode), of float8 (decode8) and of latent
attention (latent, latent8 of float8), on Blackwell forward (b-attention) and decoding (b-decode); gradients of layer norm (norm-gradient), and softmax of rows that move as
spans (span). Of the suite's own: locked, ordered,
rows, viewed and masked (tests/mutants/language_kernels.h).
)";

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
      {"correct, but flagged by naive checkers: a phase waited for twice, bytes that arrive before they are "
       "announced",
       {"double-wait", "late-expect"}},
  };
  return all;
}

/// The bugs of which practice says less than the letter: by rule.
std::string practice(const std::vector<Verdict>& verdicts) {
  struct Row {
    int noted = 0, silent = 0;
  };
  std::map<std::string, Row> rows;
  Row total;
  int bugs = 0;
  for (const Verdict& v : verdicts) {
    if (v.equivalent != nullptr) continue;
    ++bugs;
    if (v.practical == Practical::kFound) continue;
    ++(v.practical == Practical::kNoted ? rows[v.mutant->rule].noted : rows[v.mutant->rule].silent);
    ++(v.practical == Practical::kNoted ? total.noted : total.silent);
  }
  const auto share = [&](int count) { return 100.0 * count / std::max(1, bugs); };
  std::string text = fmt::format(
      "\n## In practice\n\nAll of the above is by the letter (`strict`). Under `practical`, where what "
      "libraries rely "
      "on is a note, {} of the {} bugs ({:.1f}%) are findings, {} ({:.1f}%) are notes and nothing else, and "
      "of {} "
      "({:.1f}%) nothing is said:\n\n| rule | notes only | nothing |\n|---|---|---|\n",
      bugs - total.noted - total.silent, bugs, share(bugs - total.noted - total.silent), total.noted,
      share(total.noted), total.silent, share(total.silent));
  for (const Rule& rule : all_rules())
    if (const auto at = rows.find(rule.name); at != rows.end())
      text += fmt::format("| `{}` | {} | {} |\n", rule.name, at->second.noted, at->second.silent);
  return text;
}

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
  text += fmt::format(
      "\n**{} mutants: {} bugs, {} of them reported ({:.1f}%); {} equivalent; 0 findings on correct "
      "code.**\n\n",
      total.all, total.caught + total.missed, total.caught,
      100.0 * total.caught / std::max(1, total.caught + total.missed), total.equivalent);
  text +=
      "## By rule and kernel\n\nA cell with `3` means three bugs, all of them reported; `2 of 3`, that one "
      "is not; `=1`, one "
      "equivalent mutant.\n\n";
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
      "\n## Faults that shipped\n\nMistakes that real projects have shipped, and the rules that make them "
      "here.\n\n"
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

  text += "\n## Which finding reported them\n\n| finding | mutants |\n|---|---|\n";
  for (const auto& [kind, count] : by_kind) text += fmt::format("| `{}` | {} |\n", kind, count);

  text += practice(verdicts);
  text += "\n## Equivalent mutants\n\n| kernels | rule | where | why it is not a bug |\n|---|---|---|---|\n";
  for (const Known& known : equivalents())
    text += fmt::format(
        "| {} | `{}` | {} | {} |\n", known.subjects == std::string("*") ? "all" : known.subjects, known.rule,
        *known.at == 0 ? "everywhere" : fmt::format("`{}`", known.at + (*known.at == '^')), known.reason);
  return text;
}

}  // namespace imbrex::mutants
