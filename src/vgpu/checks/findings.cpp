// SPDX-License-Identifier: Apache-2.0
#include "vgpu/checks/findings.h"

#include <fmt/format.h>

#include "core/text.h"
#include "imbrex/core/error.h"

namespace imbrex::vgpu {

std::string_view name(FindingKind kind) {
  switch (kind) {
    case FindingKind::kOutOfBounds:
      return "out-of-bounds";
    case FindingKind::kMisaligned:
      return "misaligned";
    case FindingKind::kDeadlock:
      return "deadlock";
    case FindingKind::kEndlessRun:
      return "endless-run";
    case FindingKind::kTrap:
      return "trap";
    case FindingKind::kInterrupted:
      return "interrupted";
    case FindingKind::kIllegalInstruction:
      return "illegal-instruction";
    case FindingKind::kUninitializedRead:
      return "uninitialized-read";
    case FindingKind::kUseAfterFree:
      return "use-after-free";
    case FindingKind::kRace:
      return "race";
    case FindingKind::kMissingProxyFence:
      return "missing-proxy-fence";
    case FindingKind::kMissingTensorFence:
      return "missing-tcgen05-fence";
    case FindingKind::kOperandLayout:
      return "operand-layout";
    case FindingKind::kInvalidBarrier:
      return "invalid-barrier";
    case FindingKind::kDivergentCollective:
      return "divergent-collective";
    case FindingKind::kAsyncInFlight:
      return "async-in-flight";
    case FindingKind::kResourceLeak:
      return "resource-leak";
    case FindingKind::kTensorMemory:
      return "tensor-memory";
    case FindingKind::kCount:
      break;
  }
  return "unknown";
}

Actor FindingLog::actor(const Who& who) {
  Actor actor;
  if (who.cta != nullptr)
    for (size_t i = 0; i < 3; ++i) actor.cta[i] = static_cast<int>(who.cta->id()[i]);
  actor.warp = who.warp;
  actor.lane = who.lane;
  actor.unit = who.unit;
  return actor;
}

/// The first of the instructions around it that come from the same source line. What moves a tile is many
/// instructions, which would be reported in all their pairs.
uint32_t FindingLog::first_of_line(uint32_t place) const {
  const std::vector<InstructionInfo>& info = program_->info;
  if (place >= info.size() || info[place].line == 0) return place;
  while (place > 0 && info[place - 1].line == info[place].line && info[place - 1].file == info[place].file)
    --place;
  return place;
}

Finding* FindingLog::open(FindingKind kind, const Who& who, uint64_t address, const Who* other, Bend bend) {
  const BentRule rule = bend.rule;
  const bool by_wait = bend.by != Bend::kNowhere && program_->info[bend.by].tests;
  // A flag in memory, of which no instruction is known, is no matter of how mbarriers are waited for.
  const bool is_flag = rule == BentRule::kRelaxedWait && bend.by == Bend::kNowhere;
  const bool passes =
      rule != BentRule::kNone && is_practical() && (is_flag || !program_->habits.is_slip(rule, by_wait));
  const Severity severity = passes ? Severity::kNote : Severity::kFinding;
  constexpr uint32_t kNowhere = ~0u;
  const uint32_t place = who.insn != nullptr ? who.insn->index : kNowhere;
  const uint32_t other_place = other != nullptr && other->insn != nullptr ? other->insn->index : kNowhere;
  if (const auto seen = seen_.find({kind, severity, place, other_place}); seen != seen_.end()) {
    if (seen->second != kNotKept) ++findings_[seen->second].count;
    return nullptr;
  }
  const std::pair lines = other_place == kNowhere
                              ? std::pair(place, other_place)
                              : std::pair(first_of_line(place), first_of_line(other_place));
  const auto [of_lines, is_new] = seen_of_lines_.try_emplace({kind, severity, lines.first, lines.second},
                                                             is_full(severity) ? kNotKept : findings_.size());
  const size_t number = of_lines->second;
  seen_.emplace(std::tuple(kind, severity, place, other_place), number);
  if (number == kNotKept) return nullptr;
  if (!is_new) {
    ++findings_[number].count;
    return nullptr;
  }
  Finding& finding = findings_.emplace_back();
  places_.push_back(lines);
  ++counts_[static_cast<size_t>(severity)];
  finding.kind = kind;
  finding.severity = severity;
  finding.rule = rule;
  finding.address = address;
  if (place != kNowhere) finding.place = program_->place(place);
  finding.actor = actor(who);
  if (other != nullptr) {
    if (other_place != kNowhere) finding.other_place = program_->place(other_place);
    finding.other_actor = actor(*other);
  }
  return &finding;
}

// ---- text

namespace {

std::string actor_text(const Actor& actor) {
  std::string text;
  if (!actor.unit.empty()) text = actor.unit + " for ";
  if (actor.cta[0] < 0) return actor.unit;
  if (actor.rank >= 0) text += fmt::format("rank {}, ", actor.rank);
  text += fmt::format("CTA ({}, {}, {})", actor.cta[0], actor.cta[1], actor.cta[2]);
  if (actor.warp >= 0) text += fmt::format(" warp {}", actor.warp);
  if (actor.lane >= 0) text += fmt::format(" lane {}", actor.lane);
  return text;
}

std::string place_line(const CodePlace& place) {
  std::string text;
  if (!place.file.empty())
    text = fmt::format("{}:{}{}", place.file, place.line, place.ptx_line > 0 ? ", " : "");
  if (place.ptx_line > 0) text += fmt::format("PTX line {}: {}", place.ptx_line, place.ptx);
  if (!place.function.empty())
    text += place.ptx_line > 0 ? fmt::format("  (in {})", place.function) : ": " + place.function;
  return text;
}

}  // namespace

std::string Finding::format() const {
  std::string out;
  if (!place.file.empty())
    out = fmt::format("{}:{}: ", place.file, place.line);
  else if (place.ptx_line > 0)
    out = fmt::format("PTX line {}: ", place.ptx_line);
  if (severity == Severity::kNote) out += "note: ";
  out += fmt::format("{}: {}", name(kind), message);
  if (count > 1) out += fmt::format("  ({} times)", count);
  if (!place.file.empty()) {
    const std::string quoted = source_line(place.file.c_str(), place.line);
    if (!quoted.empty()) out += fmt::format("\n{:5} | {}", place.line, quoted);
  }
  if (place.ptx_line > 0) out += "\n  at    " + place_line(place);
  const std::string who = actor_text(actor);
  if (!who.empty()) out += "\n  by    " + who;
  if (other_place.is_known()) out += "\n  other " + place_line(other_place);
  const std::string other = actor_text(other_actor);
  if (!other.empty()) out += "\n  by    " + other;
  for (const std::string& fact : facts) out += "\n  " + fact;
  if (rule != BentRule::kNone) out += fmt::format("\n  rule  {}: {}", name(rule), explain(rule));
  if (!hint.empty()) out += "\n  help: " + hint;
  return out;
}

std::string Report::format() const {
  std::string out;
  for (const std::vector<Finding>* list : {&findings, &notes})
    for (const Finding& finding : *list) out += (out.empty() ? "" : "\n") + finding.format();
  return out;
}

void Report::expect_clean() const {
  if (clean()) return;
  std::vector<Diagnostic> diagnostics;
  for (const Finding& f : findings) {
    Diagnostic d;
    if (!f.place.file.empty())
      d.where = {intern(f.place.file), static_cast<uint32_t>(f.place.line), intern(f.place.function)};
    d.message = fmt::format("{}: {}", name(f.kind), f.message);
    if (f.place.ptx_line > 0) d.facts.push_back("at " + place_line(f.place));
    if (const std::string who = actor_text(f.actor); !who.empty()) d.facts.push_back("by " + who);
    if (f.other_place.is_known()) {
      const std::string other = actor_text(f.other_actor);
      d.facts.push_back("other: " + place_line(f.other_place) + (other.empty() ? "" : " by " + other));
    }
    d.facts.insert(d.facts.end(), f.facts.begin(), f.facts.end());
    if (f.rule != BentRule::kNone)
      d.facts.push_back(fmt::format("rule {}: {}", name(f.rule), explain(f.rule)));
    d.help = f.hint;
    diagnostics.push_back(std::move(d));
  }
  if (diagnostics.empty())
    diagnostics.push_back({{}, "virtual gpu: the kernel did not run to its end", {}, ""});
  throw DeviceError(std::move(diagnostics));
}

}  // namespace imbrex::vgpu
