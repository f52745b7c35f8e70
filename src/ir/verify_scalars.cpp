// SPDX-License-Identifier: Apache-2.0
// Constants, variables, the launch.
#include <fmt/format.h>

#include "ir/findings.h"

namespace imbrex::ir {
namespace {

bool representable(DataType type, int64_t value) {
  if (type.is_bool()) return value == 0 || value == 1;
  if (type.bits() >= 64) return true;  // uint64 keeps its bits in an int64
  const int64_t span = int64_t{1} << type.bits();
  return type.is_signed() ? value >= -span / 2 && value < span / 2 : value >= 0 && value < span;
}

void verify_const(const Op& op, Findings& out) {
  const DataType type = op.result()->type.dtype;
  const bool has_int = op.attr("int"), has_float = op.attr("float");
  if (has_int == has_float) return out.add(op, "takes one number, `int` or `float`");
  if (has_float != type.is_float())
    return out.add(
        op, fmt::format("a {} constant is given by `{}`", type.name(), type.is_float() ? "float" : "int"));
  if (has_int && !representable(type, op.int_attr("int")))
    out.add(op, fmt::format("{} does not fit {}", op.int_attr("int"), type.name()));
}

/// Equal but for layouts, which inference adds to one side at a time.
bool holds(const Type& variable, const Type& value) {
  return variable.dtype == value.dtype && variable.shape == value.shape &&
         (value.kind == TypeKind::kRegister || variable.shape.empty());
}

}  // namespace

void verify_scalars(const Op& op, Findings& out) {
  switch (op.code) {
    case Opcode::kConst:
      return verify_const(op, out);
    case Opcode::kVar:
    case Opcode::kRead: {
      const Type& variable = op.code == Opcode::kVar ? op.result()->type : op.operands[0]->type;
      const Type& value = op.code == Opcode::kVar ? op.operands[0]->type : op.result()->type;
      if (!holds(variable, value))
        out.add(op, fmt::format("a {} does not hold a {}", variable.to_string(), value.to_string()));
      return;
    }
    case Opcode::kAssign:
      if (!holds(op.operands[0]->type, op.operands[1]->type))
        out.add(op,
                fmt::format("a {} cannot be set to a {}", op.operands[0]->type.to_string(),
                            op.operands[1]->type.to_string()),
                "cast the value");
      return;
    case Opcode::kLaunchGrid:
      if (op.operands.empty() || op.operands.size() > 3)
        out.add(op, fmt::format("a grid has one to three extents, not {}", op.operands.size()));
      return;
    case Opcode::kBlockIdx:
    case Opcode::kGridDim:
      if (op.int_attr("axis") < 0 || op.int_attr("axis") > 2)
        out.add(op, fmt::format("axis is 0, 1 or 2, not {}", op.int_attr("axis")));
      return;
    case Opcode::kFastDivmod:
      for (const Value* value : {op.operands[0], op.operands[1], op.results[0], op.results[1]})
        if (value->type.dtype != int32 && value->type.dtype != uint32)
          return out.add(op, fmt::format("works on int32 and uint32, not {}", value->type.dtype.name()));
      return;
    default:
      return;
  }
}

}  // namespace imbrex::ir
