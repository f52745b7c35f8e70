// SPDX-License-Identifier: Apache-2.0
// Control flow and scopes.
#include <fmt/format.h>

#include "ir/findings.h"

namespace imbrex::ir {
namespace {

void verify_for(const Op& op, Findings& out) {
  const DataType type = op.operands[0]->type.dtype;
  for (const Value* value : op.operands)
    if (value->type.dtype != type)
      return out.add(
          op,
          fmt::format("begin, end and step differ in type, {} and {}", type.name(), value->type.dtype.name()),
          "cast one of them");
  if (op.body().args.size() != 1 || op.body().args[0]->type != Type::scalar(type))
    return out.add(op, fmt::format("the region has one argument, the {} loop variable", type.name()));
  if (constant_int(op.operands[2]) == 0) out.add(op, "the step is 0, so the loop never ends");
  if (op.int_attr("unroll", 1) < 0)
    out.add(op, fmt::format("unroll is {}, it must be at least 0", op.int_attr("unroll")));
}

/// Finds the loops a break leaves, outward; thread groups and ifs on the way are left as well.
void verify_break(const Op& op, Findings& out) {
  int64_t depth = op.int_attr("depth", 0);
  if (depth < 0) return out.add(op, fmt::format("depth is {}, it must be at least 0", depth));
  int64_t loops = 0;
  for (const Op* outer = op.parent->parent; outer; outer = outer->parent->parent) {
    if (outer->code == Opcode::kTabulate) break;
    if (has(outer->code, Fact::kLoop)) ++loops;
  }
  if (loops <= depth)
    out.add(op, loops == 0 ? "there is no loop to leave"
                           : fmt::format("depth {} asks for {} enclosing loops, there {} {}", depth,
                                         depth + 1, loops == 1 ? "is" : "are", loops));
}

}  // namespace

void verify_control(const Op& op, Findings& out) {
  switch (op.code) {
    case Opcode::kFor:
      return verify_for(op, out);
    case Opcode::kBreak:
      return verify_break(op, out);
    case Opcode::kReturn:
      for (const Op* outer = op.parent->parent; outer; outer = outer->parent->parent)
        if (outer->code == Opcode::kThreadGroup || outer->code == Opcode::kTabulate)
          return out.add(op, "all threads of the CTA leave together, and here only some come",
                         "close the thread group first");
      return;
    case Opcode::kThreadGroup:
      if (op.int_attr("begin") < 0 || op.int_attr("threads") < 1)
        out.add(op, fmt::format("threads {} ... {}: the group needs at least one thread, from 0 on",
                                op.int_attr("begin"), op.int_attr("begin") + op.int_attr("threads") - 1));
      break;
    case Opcode::kYield:
      if (!op.parent->parent || op.parent->parent->code != Opcode::kTabulate)
        out.add(op, "belongs at the end of a tabulate region");
      break;
    default:
      break;
  }
  if (op.code == Opcode::kLoop || op.code == Opcode::kIf || op.code == Opcode::kThreadGroup)
    for (const auto& region : op.regions)
      if (!region->args.empty()) out.add(op, "its region takes no arguments");
}

}  // namespace imbrex::ir
