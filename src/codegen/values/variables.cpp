// SPDX-License-Identifier: Apache-2.0
// Mutable variables: registers that are assigned in place.
//
// A read gives the value of the moment, so in general it copies. Most reads are used up before the variable
// changes again; those give the variable's own registers.
#include "codegen/generator.h"
#include "codegen/values/words.h"
#include "imbrex/core/error.h"

namespace imbrex::codegen {

using ir::Opcode;

namespace {

/// The position in `block` of the op that is, or contains, `op`; -1 when it is elsewhere.
int64_t position_in(const Uses& uses, const ir::Block* block, const ir::Op* op) {
  while (op && op->parent != block) op = op->parent ? op->parent->parent : nullptr;
  return op ? uses.position(op) : -1;
}

/// Calls body(op) for every op that may use the registers of `value`.
template <class Body>
void for_each_use(const Uses& uses, const ir::Value* value, const Body& body) {
  for (const ir::Op* use : uses.of(value)) {
    body(use);
    // What a region yields becomes part of its op's result.
    const ir::Op* maker = use->code == Opcode::kYield ? use->parent->parent : use;
    if (ir::has(maker->code, ir::Fact::kForwardsRegisters))
      for (const ir::Value* result : maker->results) for_each_use(uses, result, body);
  }
}

/// True when no assignment can come between the read and any use of what it read.
bool is_used_before_change(const Uses& uses, const ir::Op& read) {
  const int64_t begin = uses.position(&read);
  int64_t end = begin;
  const ir::Op* last = nullptr;
  bool is_local = true;
  for_each_use(uses, read.result(), [&](const ir::Op* use) {
    const int64_t p = position_in(uses, read.parent, use);
    is_local = is_local && p >= 0;
    if (p >= end) {
      end = p;
      last = use;
    }
  });
  if (!is_local) return false;
  for (const ir::Op* change : uses.of(read.operands[0])) {
    if (ir::written_variable(*change) != read.operands[0]) continue;
    const int64_t p = position_in(uses, read.parent, change);
    if (p > begin && p < end) return false;
    // The last use may be the assignment itself; inside a loop or branch it is too hard to tell.
    if (p == end && p > begin && !(change == last && change->parent == read.parent)) return false;
  }
  return true;
}

}  // namespace

Uses::Uses(const ir::Function& function) {
  auto visit = [&](auto&& self, const ir::Block& block) -> void {
    for (size_t i = 0; i < block.ops.size(); ++i) {
      const ir::Op* op = block.ops[i];
      positions_[op] = static_cast<int64_t>(i);
      for (const ir::Value* v : op->operands)
        if (v) uses_[v].push_back(op);
      for (const auto& region : op->regions) self(self, *region);
    }
  };
  visit(visit, function.body);
}

const std::vector<const ir::Op*>& Uses::of(const ir::Value* value) const {
  static const std::vector<const ir::Op*> none;
  const auto it = uses_.find(value);
  return it == uses_.end() ? none : it->second;
}

void emit_Var(Generator& g, const ir::Op& op) {
  const ir::Value* init = op.operands[0];
  const DataType dtype = op.result()->type.dtype;
  if (init->type.is_scalar()) {
    const Reg r = g.e().reg(register_type(dtype));
    g.e().move(register_type(dtype), r, g.scalar(init));
    g.bind(op.result(), r);
    return;
  }
  const RegisterTensor& from = g.get<RegisterTensor>(init);
  const layout::Layout& layout = op.result()->type.layout ? *op.result()->type.layout : from.layout;
  RegisterTensor tensor = g.new_tensor(dtype, layout);
  if (ir::defined_by(init, Opcode::kUninitialized)) {
    g.bind(op.result(), std::move(tensor));
    return;
  }
  const std::vector<Operand> words = words_in_layout(g, op, from, layout);
  for (size_t i = 0; i < words.size(); ++i) g.e().move(word_type(dtype), tensor.words[i].reg(), words[i]);
  g.bind(op.result(), std::move(tensor));
}

/// Registers that are never written: the virtual GPU reports reads of them.
void emit_Uninitialized(Generator& g, const ir::Op& op) { g.bind(op.result(), g.new_tensor(op.result())); }

void emit_Read(Generator& g, const ir::Op& op) {
  const ir::Value* variable = op.operands[0];
  const DataType dtype = variable->type.dtype;
  const bool shares = is_used_before_change(g.uses(), op);
  if (op.result()->type.is_scalar()) {
    const Operand current = g.scalar(variable);
    if (shares) {
      g.bind(op.result(), current);
      return;
    }
    const Reg copy = g.e().reg(register_type(dtype));
    g.e().move(register_type(dtype), copy, current);
    g.bind(op.result(), copy);
    return;
  }
  RegisterTensor tensor = g.get<RegisterTensor>(variable);
  if (!shares) {
    for (Operand& word : tensor.words) {
      const Reg copy = g.e().reg(word_type(dtype));
      g.e().move(word_type(dtype), copy, word);
      word = copy;
    }
  }
  g.bind(op.result(), std::move(tensor));
}

void emit_Assign(Generator& g, const ir::Op& op) {
  const ir::Value* variable = op.operands[0];
  const ir::Value* value = op.operands[1];
  const DataType dtype = variable->type.dtype;
  if (value->type.is_scalar()) {
    g.e().move(register_type(dtype), g.scalar(variable).reg(), g.scalar(value));
    return;
  }
  const RegisterTensor& target = g.get<RegisterTensor>(variable);
  std::vector<Operand> words = words_in_layout(g, op, g.get<RegisterTensor>(value), target.layout);
  // The value may consist of the variable's own registers in another order: take those aside first.
  std::map<uint32_t, size_t> own;
  for (size_t i = 0; i < target.words.size(); ++i) own[target.words[i].reg().id] = i;
  for (size_t i = 0; i < words.size(); ++i) {
    if (!words[i].is_reg()) continue;
    const auto it = own.find(words[i].reg().id);
    if (it == own.end() || it->second == i) continue;
    const Reg copy = g.e().reg(word_type(dtype));
    g.e().move(word_type(dtype), copy, words[i]);
    words[i] = copy;
  }
  for (size_t i = 0; i < words.size(); ++i) g.e().move(word_type(dtype), target.words[i].reg(), words[i]);
}

}  // namespace imbrex::codegen
