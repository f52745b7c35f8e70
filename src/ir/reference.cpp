// SPDX-License-Identifier: Apache-2.0
// docs/ops.md from the table.
#include "ir/reference.h"

#include <fmt/format.h>

#include "ir/ir.h"

namespace imbrex::ir {
namespace {

/// The table in its order: titles of sections, and ops.
struct Row {
  std::string_view section;  // empty for an op
  Opcode op;
};
constexpr Row kRows[] = {
#define IR_SECTION(title) {title, Opcode::kCount},
#define IR_OP(id, ...) {{}, Opcode::k##id},
#include "ir/ops.def"
#undef IR_OP
};

/// The facts that a reader of the reference wants to know.
struct FactWord {
  Fact fact;
  std::string_view word;
};
constexpr FactWord kFactWords[] = {{Fact::kCommutative, "commutative"},
                                   {Fact::kReleases, "releases"},
                                   {Fact::kAcquires, "acquires"},
                                   {Fact::kReadsByAsyncProxy, "reads shared memory through the async proxy"}};

std::string kind_words(const OperandSpec& spec) {
  static constexpr std::string_view kWords[] = {"scalar", "pointer", "variable", "register", "shared",
                                                "global", "tmem",    "barrier",  "map"};
  if (spec.is_bool) return "bool";
  if (spec.is_integer) return "integer";
  std::string out;
  for (size_t i = 0; i < std::size(kWords); ++i)
    if (spec.kinds >> i & 1) out += (out.empty() ? "" : " or ") + std::string(kWords[i]);
  return out;
}

std::string operand_list(const std::vector<OperandSpec>& specs) {
  std::string out;
  for (const OperandSpec& spec : specs) {
    if (!out.empty()) out += ", ";
    out += fmt::format("`{}`{} {}", spec.name,
                       spec.is_variadic   ? "..."
                       : spec.is_optional ? "?"
                                          : "",
                       kind_words(spec));
  }
  return out;
}

std::string_view attr_word(AttrKind kind) {
  switch (kind) {
    case AttrKind::kInt:
      return "integer";
    case AttrKind::kInts:
      return "integers";
    case AttrKind::kBool:
      return "bool";
    case AttrKind::kFloat:
      return "number";
    case AttrKind::kString:
      return "string";
    case AttrKind::kDType:
      return "element type";
    case AttrKind::kLayout:
      return "layout";
  }
  return "";
}

std::string_view effect_word(Effect effect) {
  switch (effect) {
    case Effect::kPure:
      return "pure";
    case Effect::kReads:
      return "reads";
    case Effect::kWrites:
      return "writes";
    case Effect::kSync:
      return "synchronises";
    case Effect::kControl:
      return "control";
  }
  return "";
}

std::string_view scope_word(Scope scope) {
  switch (scope) {
    case Scope::kAny:
      return "any threads";
    case Scope::kOneThread:
      return "one thread";
    case Scope::kOneWarp:
      return "one warp";
    case Scope::kOneIssuer:
      return "one warp or one thread";
    case Scope::kWarps:
      return "whole warps";
    case Scope::kWarpGroups:
      return "whole warp groups";
    case Scope::kWarpOrGroups:
      return "one warp or whole warp groups";
    case Scope::kCta:
      return "the whole CTA";
  }
  return "";
}

/// Lines of at most 160 characters, broken at spaces; of a list's entry those behind the first are indented.
std::string wrapped(std::string_view text) {
  constexpr size_t kColumns = 160;
  const std::string indent = text.starts_with("- ") ? "  " : "";
  std::string out;
  while (!text.empty()) {
    const size_t room = kColumns - (out.empty() ? 0 : indent.size());
    const size_t space = text.size() > room ? text.rfind(' ', room) : text.npos;
    const size_t end = std::min(space, text.size());
    out += (out.empty() ? "" : indent) + std::string(text.substr(0, end)) + "\n";
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

std::string entry(const OpInfo& op) {
  std::string out = fmt::format("### {}\n\n{}\n", op.mnemonic, wrapped(op.meaning));
  if (!op.operands.empty()) out += wrapped(fmt::format("- takes {}", operand_list(op.operands)));
  if (!op.results.empty()) out += wrapped(fmt::format("- gives {}", operand_list(op.results)));
  std::string attrs;
  for (const AttrSpec& attr : op.attrs)
    attrs += fmt::format("{}`{}`{} {}", attrs.empty() ? "" : ", ", attr.name, attr.is_optional ? "?" : "",
                         attr_word(attr.kind));
  if (!attrs.empty()) out += wrapped("- attributes " + attrs);
  if (op.regions) out += fmt::format("- {} region{}\n", op.regions, op.regions > 1 ? "s" : "");
  std::string effect(effect_word(op.effect));
  for (const FactWord& fact : kFactWords)
    if (has(op.code, fact.fact)) effect += fmt::format(", {}", fact.word);
  return out + fmt::format("- {}; run by {}; from {}\n\n", effect, scope_word(op.scope), op.arch);
}

}  // namespace

std::string ops_reference() {
  std::string out =
      "# The IR, op by op\n\n"
      "Written from `src/ir/ops.def` by `ops_reference()`; a test sees to it that this page is current\n"
      "(`IMBREX_BLESS=1 test_ir` writes it anew). `?` marks what may be left out, `...` zero or more.\n\n"
      "*Pure* ops may be folded, merged, moved and dropped. What *reads* may be dropped when unused but not "
      "moved\n"
      "over writes. What *writes* or *synchronises* stays, in order.\n\n";
  for (const Row& row : kRows)
    out += row.section.empty() ? entry(info(row.op)) : fmt::format("## {}\n\n", row.section);
  out.pop_back();  // one newline at the end
  return out;
}

}  // namespace imbrex::ir
