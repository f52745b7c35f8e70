// SPDX-License-Identifier: Apache-2.0
#include "passes/promote_constant_variables.h"

#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace imbrex::passes {

void promote_constant_variables(ir::Function& function) {
  std::unordered_set<const ir::Value*> assigned;
  bool has_variables = false;
  ir::walk(function.body, [&](ir::Op& op) {
    if (const ir::Value* variable = ir::written_variable(op)) assigned.insert(variable);
    has_variables |= op.code == ir::Opcode::kVar;
  });
  if (!has_variables) return;

  std::unordered_map<const ir::Value*, ir::Value*> replacement;  // variables and their reads -> the value
  auto resolve = [&](ir::Value*& value) {
    if (auto found = replacement.find(value); found != replacement.end()) value = found->second;
  };
  std::unordered_set<const ir::Op*> dropped;
  ir::walk(function.body, [&](ir::Op& op) {
    for (ir::Value*& operand : op.operands) resolve(operand);
    if (op.code == ir::Opcode::kVar && !assigned.contains(op.result())) {
      ir::Value* init = op.operands[0];
      replacement[op.result()] = init;
      if (init->name.empty()) init->name = std::exchange(op.result()->name, "");
      dropped.insert(&op);
    } else if (op.code == ir::Opcode::kRead && !assigned.contains(op.operands[0])) {
      // the operand has been resolved to the variable's value above
      replacement[op.result()] = op.operands[0];
      dropped.insert(&op);
    }
  });
  auto is_dropped = [&](const ir::Op* op) { return dropped.contains(op); };
  std::erase_if(function.body.ops, is_dropped);
  ir::walk(function.body, [&](ir::Op& op) {
    for (auto& region : op.regions) std::erase_if(region->ops, is_dropped);
  });
}

}  // namespace imbrex::passes
