// SPDX-License-Identifier: Apache-2.0
// An abstract run of the kernel in which a scalar is a number or unknown. A loop's body runs assuming that
// each variable holds at its head what it held before the loop; variables that end the body otherwise lose
// their number, and the body runs again, until the assumption agrees with what the body does.
#include "passes/propagate_constants.h"

#include "passes/evaluate.h"
#include "passes/rewrite.h"
#include "passes/trip_count.h"

namespace imbrex::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::Opcode;
using ir::Value;

/// What each variable is known to hold; nothing at all where control never comes.
using State = std::unordered_map<const Value*, Constant>;
using Reached = std::optional<State>;

State intersection(const State& a, const State& b) {
  State out;
  for (const auto& [variable, number] : a) {
    const auto other = b.find(variable);
    if (other != b.end() && other->second == number) out.emplace(variable, number);
  }
  return out;
}

Reached merge(const Reached& a, const Reached& b) {
  if (!a) return b;
  if (!b) return a;
  return intersection(*a, *b);
}

class Propagation {
 public:
  explicit Propagation(ir::Function& function) : function_(function), builder_(function) {}

  void run() {
    for (const Op* op : function_.host.ops) compute(*op);
    this->block(function_.body, State());
    replace(function_.body);
    map_.apply(function_.body);
  }

 private:
  const Constant* known(const Value* value) const {
    const auto found = numbers_.find(value);
    return found == numbers_.end() ? nullptr : &found->second;
  }
  void learn(const Value* value, const Constant* number) {
    if (number)
      numbers_.insert_or_assign(value, *number);
    else
      numbers_.erase(value);  // what an earlier, too optimistic run of a loop's body assumed
  }

  void compute(const Op& op) {
    if (op.results.size() != 1 || !op.result()->type.is_scalar()) return;
    if (auto number = constant_of(op.result())) return learn(op.result(), &*number);
    std::vector<Constant> operands;
    for (const Value* operand : op.operands) {
      const Constant* number = known(operand);
      if (!number) return learn(op.result(), nullptr);
      operands.push_back(*number);
    }
    const auto result = evaluate(op, operands);
    learn(op.result(), result ? &*result : nullptr);
  }

  /// Runs a block from `state`; the state at its end.
  Reached block(const Block& block, Reached state) {
    for (const Op* op : block.ops) {
      if (!state) break;
      state = visit(*op, std::move(*state));
    }
    return state;
  }

  Reached visit(const Op& op, State state) {
    switch (op.code) {
      case Opcode::kVar:
      case Opcode::kAssign: {
        const Value* variable = op.code == Opcode::kVar ? op.result() : op.operands[0];
        const Constant* number = known(op.operands.back());
        if (number)
          state.insert_or_assign(variable, *number);
        else
          state.erase(variable);
        return state;
      }
      case Opcode::kRead: {
        const auto found = state.find(op.operands[0]);
        learn(op.result(), found == state.end() ? nullptr : &found->second);
        return state;
      }
      case Opcode::kIf: {
        const Constant* condition = known(op.operands[0]);
        const Reached yes = !condition || condition->i ? block(*op.regions[0], state) : Reached();
        const Reached no = !condition || !condition->i ? block(*op.regions[1], state) : Reached();
        return merge(yes, no);
      }
      case Opcode::kThreadGroup:
        return merge(block(op.body(), state), state);
      case Opcode::kFor:
      case Opcode::kLoop:
        return loop(op, state);
      case Opcode::kReturn:
        return std::nullopt;
      case Opcode::kBreak: {
        Reached& exit = exits_.at(exits_.size() - 1 - static_cast<size_t>(op.int_attr("depth", 0)));
        exit = merge(exit, state);
        return std::nullopt;
      }
      case Opcode::kTabulate:
        block(op.body(), state);
        return state;
      default:
        compute(op);
        return state;
    }
  }

  Reached loop(const Op& op, const State& entry) {
    const std::vector<Reached> outer_exits = exits_;
    State head = entry;
    for (;;) {
      exits_ = outer_exits;
      exits_.emplace_back();
      const Reached end = block(op.body(), head);
      State next = end ? intersection(head, *end) : head;
      if (next.size() < head.size()) {  // it only ever shrinks
        head = std::move(next);
        continue;
      }
      const Reached broken = exits_.back();
      exits_.pop_back();
      if (op.code == Opcode::kLoop) return broken;
      const auto trips = trip_count(op);
      return merge(trips && *trips > 0 ? end : Reached(head), broken);
    }
  }

  void replace(Block& block) {
    rebuild(block, [this](Op& op, Block& to) {
      const bool may_go = op.info().effect == ir::Effect::kPure || op.code == Opcode::kRead;
      const Constant* number = may_go && op.results.size() == 1 ? known(op.result()) : nullptr;
      if (number && op.code != Opcode::kConst) {
        builder_.set_insertion_point(to);
        builder_.set_location(op.where);
        map_.set(op.result(), materialize(builder_, *number));
        return;
      }
      append(to, op);
      for (auto& region : op.regions) replace(*region);
    });
  }

  ir::Function& function_;
  ir::Builder builder_;
  ValueMap map_;
  std::unordered_map<const Value*, Constant> numbers_;
  std::vector<Reached> exits_;  // of the loops around the present place: states that breaks leave with
};

}  // namespace

void propagate_constants(ir::Function& function) { Propagation(function).run(); }

}  // namespace imbrex::passes
