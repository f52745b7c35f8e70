// SPDX-License-Identifier: Apache-2.0
// Where two register layouts of an op do not agree, the elements move between threads: a relayout that the author did
// not write, right behind the definition of the value that moves, so that a loop that uses it does not repeat it.
#include <algorithm>

#include "imbrex/core/error.h"
#include "layout/queries.h"
#include "passes/layouts/layout_inference.h"
#include "passes/thread_group.h"

namespace imbrex::passes {

using ir::Opcode;
using ir::TypeKind;
using layout::Layout;

namespace {

bool agree(const Layout& has, const Layout& wanted) {
  return has == wanted || layout::register_map(has, wanted).has_value();
}

ir::Op* relayout_of(ir::Function& function, ir::Value* from, ir::Value* to, SourceLocation where) {
  ir::Op* op = function.new_op(Opcode::kRelayout);
  op->operands = {from};
  op->results = {to};
  op->where = where;
  to->def = op;
  return op;
}

void insert(ir::Block& block, ir::Op& op, const ir::Op& after) {
  op.parent = &block;
  block.ops.insert(std::ranges::find(block.ops, &after) + 1, &op);
}

/// A layout of the operand of a slice, each thread of which holds its part of every box of the result's shape; nothing
/// where the shape does not consist of such boxes.
std::optional<Layout> layout_of_boxes(const ir::Op& slice, const Layout& box) {
  layout::Shape times = slice.operands[0]->type.shape;
  for (size_t i = 0; i < times.size(); ++i) {
    const int64_t extent = box.shape()[i];
    if (times[i] % extent != 0 || *ir::constant_int(slice.operands[i + 1]) % extent != 0) return std::nullopt;
    times[i] /= extent;
  }
  return layout::repeat(box, times);
}

}  // namespace

bool RegisterInference::can_move(const ir::Value& value, const ir::Op& at) const {
  if (value.type.kind != TypeKind::kRegister || !value.def) return false;
  if (enclosing_thread_group(*value.def) != enclosing_thread_group(at)) return false;
  const ThreadGroup group = thread_group_of(function_, at);
  return group.begin % 32 == 0 && group.threads % 32 == 0;
}

bool RegisterInference::move_operand(ir::Op& op, ir::Value* operand, const Layout& wanted,
                                     std::optional<size_t> position) {
  if (!can_move(*operand, op)) return false;
  std::vector<ir::Value*>& moved = moved_[operand];
  auto it = std::ranges::find(moved, std::optional(wanted), [](ir::Value* v) { return v->type.layout; });
  if (it == moved.end()) {
    ir::Value* fresh = function_.new_value(operand->type);
    fresh->type.layout = wanted;
    insert(*operand->def->parent, *relayout_of(function_, operand, fresh, op.where), *operand->def);
    it = moved.insert(moved.end(), fresh);
  }
  for (size_t i = 0; i < op.operands.size(); ++i)
    if (op.operands[i] == operand && (!position || i == *position)) op.operands[i] = *it;
  return true;
}

bool RegisterInference::move_result(ir::Op& op, const Layout& made) {
  ir::Value* result = op.result();
  if (!can_move(*result, op)) return false;
  ir::Value* fresh = function_.new_value(result->type);
  fresh->type.layout = made;
  fresh->def = &op;
  op.results[0] = fresh;
  insert(*op.parent, *relayout_of(function_, fresh, result, op.where), op);
  return true;
}

bool RegisterInference::move_for(const Demand& demand) {
  ir::Op& op = *demand.origin;
  if (op.code == Opcode::kAnnotateLayout || op.code == Opcode::kRelayout) return false;
  const Known& has = known_.at(demand.value);
  if (has.origin->code == Opcode::kAnnotateLayout) return false;  // the author wants it so
  if (std::ranges::count(op.operands, demand.value))
    return move_operand(op, demand.value, demand.known.layout, demand.operand);
  return op.results.size() == 1 && op.result() == demand.value && move_result(op, demand.known.layout);
}

bool RegisterInference::move_for(const Relation& relation) {
  ir::Op& op = *relation.op;
  const Layout& wanted = known_.at(relation.to).layout;
  switch (relation.kind) {
    case RelationKind::kSame:
      // Elements that share bytes move once they are converted.
      if (op.code == Opcode::kCast && relation.from->type.dtype.bits() < 8 &&
          move_result(op, known_.at(relation.from).layout))
        return true;
      return op.code == Opcode::kRead
                 ? move_result(op, known_.at(relation.from).layout)
                 : move_operand(
                       op, relation.from, wanted,
                       op.code == Opcode::kMma || op.code == Opcode::kMmaScaled || op.code == Opcode::kDot
                           ? std::optional<size_t>(2)
                           : std::nullopt);
    case RelationKind::kBroadcast: {
      const std::optional<Layout> source = derive(relation, false);
      return source && agree(*source, wanted) && move_operand(op, relation.from, *source);
    }
    case RelationKind::kReduce:
    case RelationKind::kPermute:
    case RelationKind::kSlice:
    case RelationKind::kReshape:
    case RelationKind::kView:
      if (const std::optional<Layout> made = derive(relation, true)) return move_result(op, *made);
  }
  std::optional<Layout> source =
      relation.kind == RelationKind::kSlice ? layout_of_boxes(op, wanted) : derive(relation, false);
  return source && move_operand(op, relation.from, *source);
}

}  // namespace imbrex::passes
