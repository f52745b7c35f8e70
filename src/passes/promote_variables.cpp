// SPDX-License-Identifier: Apache-2.0
#include "passes/promote_variables.h"

#include <unordered_set>

#include "passes/rewrite.h"

namespace imbrex::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::Opcode;
using ir::Value;

using Variables = std::unordered_set<const Value*>;
/// What each variable is known to hold. Values are visible wherever the entry is: regions work on a copy.
using State = std::unordered_map<const Value*, Value*>;

/// The variable whose value the op needs. An op that changes a variable in place reads it too.
const Value* read_variable(const Op& op) {
  if (op.code == Opcode::kRead) return op.operands[0];
  return op.code == Opcode::kAssign ? nullptr : ir::written_variable(op);
}

/// The variables that ops inside the op's regions name, as `variable_of` says.
Variables named_inside(const Op& op, const Value* (*variable_of)(const Op&)) {
  Variables out;
  for (const auto& region : op.regions)
    ir::walk(static_cast<const Block&>(*region), [&](const Op& inner) {
      if (const Value* variable = variable_of(inner)) out.insert(variable);
    });
  return out;
}

bool is_loop(const Op& op) { return ir::has(op.code, ir::Fact::kLoop); }

class Promoter {
 public:
  void forward(Block& block, State& state) {
    rebuild(block, [&](Op& op, Block& to) {
      map_.apply(op);
      switch (op.code) {
        case Opcode::kVar:
          state[op.result()] = op.operands[0];
          break;
        case Opcode::kAssign:
          state[op.operands[0]] = op.operands[1];
          break;
        case Opcode::kRead: {
          Value*& known = state[op.operands[0]];
          if (known && known->type.layout == op.result()->type.layout) {
            if (known->name.empty() && known->def && known->def->code == Opcode::kRead)
              known->name.swap(op.result()->name);
            map_.set(op.result(), known);
            return;
          }
          known = op.result();
          break;
        }
        default:
          if (const Value* variable = ir::written_variable(op)) state.erase(variable);
          break;
      }
      append(to, op);
      if (op.regions.empty()) return;
      const Variables assigned = named_inside(op, ir::written_variable);
      // A loop's body is also entered from its own end; what follows any region may have skipped it.
      if (is_loop(op)) forget(state, assigned);
      for (auto& region : op.regions) {
        State inside = state;
        forward(*region, inside);
      }
      forget(state, assigned);
    });
  }

  /// Removes assignments that another one in the same block overwrites before any read.
  static void drop_overwritten(Block& block) {
    Variables overwritten;
    for (size_t i = block.ops.size(); i-- > 0;) {
      Op& op = *block.ops[i];
      for (auto& region : op.regions) drop_overwritten(*region);
      switch (op.code) {
        case Opcode::kAssign:
          if (!overwritten.insert(op.operands[0]).second) block.ops[i] = nullptr;
          break;
        case Opcode::kBreak:
          overwritten.clear();
          break;  // reads outside the loop follow
        default:
          if (const Value* variable = read_variable(op)) overwritten.erase(variable);
          for (const Value* variable : named_inside(op, read_variable)) overwritten.erase(variable);
          if (leaves(op)) overwritten.clear();
      }
    }
    std::erase(block.ops, nullptr);
  }

 private:
  static void forget(State& state, const Variables& variables) {
    for (const Value* variable : variables) state.erase(variable);
  }
  /// Has a break that may leave a loop around the op.
  static bool leaves(const Op& op) {
    bool found = false;
    for (const auto& region : op.regions)
      ir::walk(static_cast<const Block&>(*region),
               [&](const Op& inner) { found |= inner.code == Opcode::kBreak; });
    return found;
  }

  ValueMap map_;
};

}  // namespace

void promote_variables(ir::Function& function) {
  Promoter promoter;
  State state;
  promoter.forward(function.body, state);
  Promoter::drop_overwritten(function.body);
}

}  // namespace imbrex::passes
