// SPDX-License-Identifier: Apache-2.0
#include "vgpu/machine/awaited_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "vgpu/machine/warp.h"

namespace imbrex::vgpu {

namespace {

/// How far behind a look its comparison is looked for.
constexpr uint32_t kReach = 48;

/// As PTX spells it, what it is called when the left side is what was looked at, and the comparison that holds where it does not.
struct Relation {
  std::string_view word, phrase, opposite, swapped;
};
constexpr Relation kRelations[] = {{"eq", "", "ne", "eq"},           {"ne", "other than ", "eq", "ne"},
                                   {"lt", "less than ", "ge", "gt"}, {"le", "at most ", "gt", "ge"},
                                   {"gt", "more than ", "le", "lt"}, {"ge", "at least ", "lt", "le"},
                                   {"lo", "less than ", "hs", "hi"}, {"ls", "at most ", "hi", "hs"},
                                   {"hi", "more than ", "ls", "lo"}, {"hs", "at least ", "lo", "ls"}};

const Relation* relation(std::string_view word) {
  const auto* const at = std::ranges::find(kRelations, word, &Relation::word);
  return at == std::end(kRelations) ? nullptr : at;
}

/// "setp", "ne", "s32" of "setp.ne.s32 %p1, %r5, 7;".
std::vector<std::string_view> words_of(std::string_view ptx) {
  if (ptx.starts_with('@')) ptx.remove_prefix(std::min(ptx.find(' ') + 1, ptx.size()));
  ptx = ptx.substr(0, ptx.find_first_of(" \t"));
  std::vector<std::string_view> words;
  while (!ptx.empty()) {
    const size_t dot = std::min(ptx.find('.'), ptx.size());
    words.push_back(ptx.substr(0, dot));
    ptx.remove_prefix(std::min(dot + 1, ptx.size()));
  }
  return words;
}

/// The comparison of a loop, and how its outcome leads out of the loop.
struct Comparison {
  const Instruction* insn;
  std::string_view word, type;
  bool is_left;        // what was looked at
  uint32_t predicate;  // by dense number
};

/// Whether the first operand that is compared is a register.
bool compares_register(std::string_view setp) {
  setp.remove_prefix(std::min(setp.find(',') + 1, setp.size()));
  return setp.find_first_not_of(" \t") == setp.find('%');
}

class Reader {
 public:
  explicit Reader(Warp& warp) : warp_(warp), program_(warp.program()), look_(warp.last_look.insn) {}

  std::string awaited() {
    const std::optional<Comparison> comparison = find_comparison();
    if (!comparison.has_value()) return "";
    const Relation* how = relation(comparison->word);
    if (how != nullptr && !comparison->is_left) how = relation(how->swapped);
    const std::optional<bool> leaves_when = leaves(*comparison);
    if (how == nullptr || comparison->type.find('f') != std::string_view::npos || !leaves_when.has_value())
      return "";
    if (!*leaves_when) how = relation(how->opposite);
    return std::string(how->phrase) + value(*comparison);
  }

 private:
  std::span<const uint32_t> registers(uint32_t at, bool written) const {
    const DefinedUse& use = program_.uses[at];
    const std::span<const uint32_t> all(program_.use_numbers.data() + use.first, use.all);
    return written ? all.subspan(use.reads) : all.first(use.reads);
  }
  std::string_view text(uint32_t at) {
    texts_.push_back(std::make_unique<std::string>(program_.place(at).ptx));
    return *texts_.back();
  }
  uint32_t end() const { return std::min(static_cast<uint32_t>(program_.code.size()), look_ + kReach); }

  /// The first one of what was loaded, which may have been moved in between.
  std::optional<Comparison> find_comparison() {
    const std::span<const uint32_t> loaded = registers(look_, true);
    std::set<uint32_t> carried(loaded.begin(), loaded.end());
    for (uint32_t at = look_ + 1; at < end(); ++at) {
      const std::span<const uint32_t> reads = registers(at, false);
      const bool is_used = std::ranges::any_of(reads, [&](uint32_t r) { return carried.contains(r); });
      if (!is_used) continue;
      const std::vector<std::string_view> words = words_of(text(at));
      if (words.size() >= 3 && words[0] == "setp" && !registers(at, true).empty())
        return Comparison{&program_.code[at], words[1], words.back(),
                          compares_register(text(at)) && carried.contains(reads.front()),
                          registers(at, true).front()};
      if (words.empty() || (words[0] != "mov" && words[0] != "cvt")) return std::nullopt;
      for (const uint32_t r : registers(at, true)) carried.insert(r);
    }
    return std::nullopt;
  }

  /// Whether the loop is left where the comparison holds (true) or where it does not, by the next branch that it decides.
  std::optional<bool> leaves(const Comparison& comparison) {
    for (uint32_t at = comparison.insn->index + 1; at < end(); ++at) {
      if (program_.info[at].guard != comparison.predicate) continue;
      if (words_of(text(at)).front() != "bra") return std::nullopt;
      const Instruction& branch = program_.code[at];
      const bool taken_when_true = branch.guard_flip == 0, is_backward = branch.immediate <= look_;
      return taken_when_true != is_backward;
    }
    return std::nullopt;
  }

  std::string value(const Comparison& comparison) const {
    const Instruction& insn = *comparison.insn;
    const Slot slot = comparison.is_left ? insn.b : insn.a;
    const auto lane = static_cast<size_t>(warp_.last_look.lane);
    const bool is_signed = comparison.type.starts_with('s');
    if (comparison.type.ends_with("64")) {
      const uint64_t bits = warp_.reg<uint64_t>(slot)[lane];
      return is_signed ? fmt::format("{}", static_cast<int64_t>(bits)) : fmt::format("{}", bits);
    }
    const uint32_t bits = warp_.reg<uint32_t>(slot)[lane];
    if (comparison.type.ends_with("16")) {
      const auto half = static_cast<uint16_t>(bits);
      return is_signed ? fmt::format("{}", static_cast<int16_t>(half)) : fmt::format("{}", half);
    }
    return is_signed ? fmt::format("{}", static_cast<int32_t>(bits)) : fmt::format("{}", bits);
  }

  Warp& warp_;
  const Program& program_;
  uint32_t look_;
  std::vector<std::unique_ptr<std::string>> texts_;
};

}  // namespace

std::string awaited_value(Warp& warp) {
  if (warp.program().uses.empty() || warp.program().use_numbers.empty()) return "";
  return Reader(warp).awaited();
}

}  // namespace imbrex::vgpu
