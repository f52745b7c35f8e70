// SPDX-License-Identifier: Apache-2.0
// docs/ops.md from the table. The table's own comments give the sections.
#include "ir/reference.h"

#include <fmt/format.h>

#include "ir/ir.h"

namespace imbrex::ir {
namespace {

/// The first op of each section of the reference.
struct Section {
  Opcode first;
  std::string_view title;
};
constexpr Section kSections[] = {
    {Opcode::kConst, "Constants and variables"},
    {Opcode::kFor, "Control flow and scopes"},
    {Opcode::kLaunchGrid, "The launch"},
    {Opcode::kAdd, "Arithmetic"},
    {Opcode::kGlobalView, "Views"},
    {Opcode::kTabulate, "Register tensors"},
    {Opcode::kLoadGlobal, "Global and shared memory"},
    {Opcode::kSync, "Synchronisation"},
    {Opcode::kMbarrierAlloc, "mbarrier"},
    {Opcode::kWgmmaFence, "wgmma"},
    {Opcode::kSetmaxnreg, "Registers and dependent launches"},
    {Opcode::kTcgen05Alloc, "tcgen05 and tensor memory"},
    {Opcode::kPrintf, "Debugging"},
};

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
    case Scope::kCta:
      return "the whole CTA";
  }
  return "";
}

std::string entry(const OpInfo& op) {
  std::string out = fmt::format("### {}\n\n{}\n\n", op.mnemonic, op.meaning);
  if (!op.operands.empty()) out += fmt::format("- takes {}\n", operand_list(op.operands));
  if (!op.results.empty()) out += fmt::format("- gives {}\n", operand_list(op.results));
  std::string attrs;
  for (const AttrSpec& attr : op.attrs)
    attrs += fmt::format("{}`{}`{} {}", attrs.empty() ? "" : ", ", attr.name, attr.is_optional ? "?" : "",
                         attr_word(attr.kind));
  if (!attrs.empty()) out += fmt::format("- attributes {}\n", attrs);
  if (op.regions) out += fmt::format("- {} region{}\n", op.regions, op.regions > 1 ? "s" : "");
  return out +
         fmt::format("- {}; run by {}; from {}\n\n", effect_word(op.effect), scope_word(op.scope), op.arch);
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
  for (int i = 0; i < static_cast<int>(Opcode::kCount); ++i) {
    const OpInfo& op = info(static_cast<Opcode>(i));
    for (const Section& section : kSections)
      if (section.first == op.code) out += fmt::format("## {}\n\n", section.title);
    out += entry(op);
  }
  out.pop_back();  // one newline at the end
  return out;
}

}  // namespace imbrex::ir
