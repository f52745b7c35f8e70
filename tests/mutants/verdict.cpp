// SPDX-License-Identifier: Apache-2.0
#include "mutants/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>

#include "imbrex/vgpu/bent_rule.h"

namespace imbrex::mutants {

bool Known::matches(const Mutant& mutant) const {
  const std::string_view text = at;
  if (mutant.rule != rule || (text.starts_with('^') ? !mutant.at.starts_with(text.substr(1))
                                                    : mutant.at.find(text) == std::string::npos))
    return false;
  if (occurrence != 0 && occurrence != mutant.occurrence) return false;
  if (std::string_view(subjects) == "*") return true;
  std::istringstream words{std::string(subjects)};
  for (std::string word; words >> word;)
    if (word == mutant.subject->name) return true;
  return false;
}

const char* name(Status status) {
  constexpr const char* kNames[] = {"caught", "unplaced", "wrong number only", "survived"};
  return kNames[static_cast<int>(status)];
}

void in_parallel(size_t count, const std::function<void(size_t)>& body) {
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t)
    threads.emplace_back([&] {
      for (size_t i; (i = next++) < count;) body(i);
    });
  for (std::thread& thread : threads) thread.join();
}

namespace {

/// A bug of which the strict run under `seed` says only what bends rules: what practice says of it, under any seed.
Practical judge_practically(const Subject& subject, const Mutant& mutant, uint64_t seeds) {
  bool is_noted = false;
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const Outcome outcome =
        run(subject, mutant.kernel, seed, vgpu::TensorMath::kFast, vgpu::Strictness::kPractical);
    if (!outcome.is_clean()) return Practical::kFound;
    is_noted = is_noted || !outcome.notes.empty();
  }
  return is_noted ? Practical::kNoted : Practical::kSilent;
}

bool all_bend_rules(const std::vector<vgpu::Finding>& findings) {
  return std::all_of(findings.begin(), findings.end(),
                     [](const vgpu::Finding& f) { return f.rule != vgpu::BentRule::kNone; });
}

/// The subject as the mutant is called.
Subject subject_of(const Mutant& mutant) {
  Subject subject = *mutant.subject;
  TensorArgument& tensor = subject.tensors[static_cast<size_t>(mutant.unzeroed)];
  tensor.is_zeroed = false;
  tensor.is_output = true;
  return subject;
}

}  // namespace

std::vector<Verdict> try_mutants(const std::vector<Mutant>& mutants, uint64_t seeds) {
  std::map<const Subject*, std::vector<std::byte>> right;
  for (const Mutant& mutant : mutants)
    if (auto [at, is_new] = right.try_emplace(mutant.subject); is_new)
      at->second = run(*mutant.subject, mutant.subject->kernel, 0).results;

  std::vector<Verdict> verdicts(mutants.size());
  in_parallel(mutants.size(), [&](size_t i) {
    const Mutant& mutant = mutants[i];
    Verdict& verdict = verdicts[i];
    verdict.mutant = &mutant;
    for (const Known& known : equivalents())
      if (known.matches(mutant)) verdict.equivalent = &known;
    std::optional<Subject> called;
    if (mutant.unzeroed >= 0) called = subject_of(mutant);
    const Subject& subject = called ? *called : *mutant.subject;
    // What is known as equivalent survives them all: there a sample is tried, of each another one.
    const uint64_t step = verdict.equivalent != nullptr ? 3 : 1;
    for (uint64_t seed = verdict.equivalent != nullptr ? i % step : 0; seed < seeds; seed += step) {
      Outcome outcome;
      try {
        outcome = run(subject, mutant.kernel, seed);
      } catch (const std::bad_alloc&) {
        verdict.status = Status::kUnplaced;
        verdict.message = "takes all memory";
        return;
      }
      if (outcome.is_clean()) {
        if (outcome.results != right.at(mutant.subject)) verdict.status = Status::kWrong;
        continue;
      }
      verdict.seed = seed;
      verdict.status = Status::kCaught;
      if (!outcome.refused.empty()) {
        verdict.kind = "refused";
        verdict.message = outcome.refused;
        return;
      }
      const vgpu::Finding& first = outcome.findings.front();
      verdict.kind = vgpu::name(first.kind);
      verdict.message = fmt::format("{}:{}: {}", first.place.file, first.place.line, first.message);
      if (first.place.line == 0) verdict.status = Status::kUnplaced;
      if (all_bend_rules(outcome.findings)) verdict.practical = judge_practically(subject, mutant, seeds);
      return;
    }
  });
  return verdicts;
}

}  // namespace imbrex::mutants
