// SPDX-License-Identifier: Apache-2.0
#include "passes/dead_code.h"

#include <algorithm>
#include <unordered_map>

namespace imbrex::passes {
namespace {

using ir::Block;
using ir::Effect;
using ir::Fact;
using ir::Op;
using ir::Value;

/// False for an operand that the op names without needing it.
bool needs(const Op& op, size_t operand) { return operand > 0 || !ir::has(op.code, Fact::kNeedsNotFirst); }

class DeadCode {
 public:
  explicit DeadCode(ir::Function& function) : function_(function) {}

  void run() {
    ir::walk(function_.host, [&](Op& op) { count(op, 1); });
    ir::walk(function_.body, [&](Op& op) { count(op, 1); });
    for (Value* extent : function_.grid) ++uses_[extent];
    do {
      changed_ = false;
      sweep(function_.body);
    } while (changed_);
    sweep(function_.host);
  }

 private:
  void count(Op& op, int delta) {
    for (size_t i = 0; i < op.operands.size(); ++i)
      if (needs(op, i)) uses_[op.operands[i]] += delta;
  }

  bool is_dead(const Op& op) const {
    const auto is_used = [&](const Value* value) {
      const auto found = uses_.find(value);
      return found != uses_.end() && found->second > 0;
    };
    const auto is_empty = [](const auto& region) { return region->ops.empty(); };
    if (ir::has(op.code, Fact::kNeedsNotFirst)) return !is_used(op.operands[0]);
    if (ir::has(op.code, Fact::kDeadWhenEmpty))
      return std::all_of(op.regions.begin(), op.regions.end(), is_empty);
    const Effect effect = op.info().effect;
    if (effect != Effect::kPure && effect != Effect::kReads && !ir::has(op.code, Fact::kDeadWhenUnused))
      return false;
    return std::none_of(op.results.begin(), op.results.end(), is_used);
  }

  /// Users come after what they use, so backwards; a variable's assignment in a loop may still precede its
  /// last read, which is why run() repeats.
  void sweep(Block& block) {
    for (size_t i = block.ops.size(); i-- > 0;) {
      Op& op = *block.ops[i];
      for (auto& region : op.regions) sweep(*region);
      if (!is_dead(op)) continue;
      count(op, -1);
      for (auto& region : op.regions) ir::walk(*region, [&](Op& inner) { count(inner, -1); });
      block.ops[i] = nullptr;
      changed_ = true;
    }
    std::erase(block.ops, nullptr);
  }

  ir::Function& function_;
  std::unordered_map<const Value*, int> uses_;
  bool changed_ = false;
};

}  // namespace

void dead_code(ir::Function& function) { DeadCode(function).run(); }

}  // namespace imbrex::passes
