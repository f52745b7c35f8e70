// SPDX-License-Identifier: Apache-2.0
#include "passes/rewrite.h"

namespace imbrex::passes {

using ir::Block;
using ir::Op;
using ir::Opcode;
using ir::Value;

Value* ValueMap::operator()(Value* value) const {
  for (auto found = map_.find(value); found != map_.end(); found = map_.find(value)) value = found->second;
  return value;
}

void ValueMap::apply(Op& op) const {
  for (Value*& operand : op.operands) operand = (*this)(operand);
}

void ValueMap::apply(Block& block) const {
  if (empty()) return;
  ir::walk(block, [&](Op& op) { apply(op); });
}

void append(Block& block, Op& op) {
  op.parent = &block;
  block.ops.push_back(&op);
}

Op* clone(ir::Function& function, const Op& op, Block& to, ValueMap& map) {
  Op* copy = function.new_op(op.code);
  copy->where = op.where;
  copy->attrs = op.attrs;
  for (Value* operand : op.operands) copy->operands.push_back(map(operand));
  append(to, *copy);
  for (size_t i = 0; i < op.regions.size(); ++i) {
    for (const Value* argument : op.regions[i]->args)
      map.set(argument, function.add_argument(*copy->regions[i], argument->type, argument->name));
    for (const Op* inner : op.regions[i]->ops) clone(function, *inner, *copy->regions[i], map);
  }
  for (const Value* result : op.results) {
    Value* value = function.new_value(result->type, result->name);
    value->def = copy;
    copy->results.push_back(value);
    map.set(result, value);
  }
  return copy;
}

void splice(Block& from, Block& to) {
  for (Op* op : from.ops) append(to, *op);
  from.ops.clear();
}

void rebuild(Block& block, const std::function<void(Op&, Block&)>& visit) {
  std::vector<Op*> old = std::move(block.ops);
  block.ops.clear();
  block.ops.reserve(old.size());
  for (Op* op : old) visit(*op, block);
}

namespace {

bool is_loop(const Op& op) { return ir::has(op.code, ir::Fact::kLoop); }

/// Calls visit(break, depth it would have to have to leave the loop whose body `block` is).
template <class BlockType, class Visit>
void for_each_break(BlockType& block, int64_t depth, const Visit& visit) {
  for (Op* op : block.ops) {
    if (op->code == Opcode::kBreak) visit(*op, depth);
    for (auto& region : op->regions) for_each_break(*region, depth + is_loop(*op), visit);
  }
}

}  // namespace

bool has_break(const Block& body) {
  bool found = false;
  for_each_break(body, 0, [&](const Op& op, int64_t depth) { found |= op.int_attr("depth", 0) == depth; });
  return found;
}

void deepen_breaks(Block& block, int delta) {
  for_each_break(block, 0, [&](Op& op, int64_t depth) {
    const int64_t old = op.int_attr("depth", 0);
    if (old >= depth) op.set_attr("depth", old + delta);
  });
}

}  // namespace imbrex::passes
