// SPDX-License-Identifier: Apache-2.0
// Follows the kernel's text with the set of allocations that are freed on every path. What happens on some
// path only is left to the virtual GPU.
#include "passes/checks/check_tensor_memory.h"

#include <fmt/format.h>

#include <set>
#include <unordered_map>

#include "imbrex/core/error.h"
#include "passes/describe.h"

namespace imbrex::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::Opcode;

class Checker {
 public:
  explicit Checker(const ir::Function& function) : function_(function) {}

  void run() {
    ir::walk(function_.body, [&](const Op& op) {
      if (op.code == Opcode::kTcgen05Dealloc) freed_by_[op.operands[0]->def].push_back(&op);
    });
    block(function_.body, {});
    if (!findings_.empty()) throw CompileError(std::move(findings_));
  }

 private:
  /// What has happened on every path when control is at a place.
  struct State {
    std::set<const Op*> freed;         // allocations
    const Op* relinquished = nullptr;  // where the permit to allocate was given up
  };

  State block(const Block& block, State state) {
    for (const Op* op : block.ops) {
      check(*op, state);
      switch (op->code) {
        case Opcode::kTcgen05Dealloc:
          state.freed.insert(op->operands[0]->def);
          break;
        case Opcode::kTcgen05RelinquishAllocPermit:
          state.relinquished = op;
          break;
        case Opcode::kIf: {
          const State yes = this->block(*op->regions[0], state), no = this->block(*op->regions[1], state);
          std::set<const Op*> both;
          for (const Op* alloc : yes.freed)
            if (no.freed.count(alloc)) both.insert(alloc);
          state = {std::move(both), yes.relinquished && no.relinquished ? yes.relinquished : nullptr};
          break;
        }
        case Opcode::kThreadGroup:
          state = this->block(op->body(), state);
          break;
        default:  // loops may run no trip
          for (const auto& region : op->regions) this->block(*region, state);
      }
    }
    return state;
  }

  void check(const Op& op, const State& state) {
    if (op.code == Opcode::kTcgen05Alloc) check_allocation(op, state);
    if (op.code == Opcode::kTcgen05Dealloc) check_free(op);
    for (const ir::Value* operand : op.operands) {
      if (!operand || operand->type.kind != ir::TypeKind::kTensorMemory) continue;
      const Op* alloc = ir::view_root(const_cast<ir::Value*>(operand))->def;
      if (state.freed.count(alloc) == 0) continue;
      find(op,
           op.code == Opcode::kTcgen05Dealloc
               ? fmt::format("{} has been freed before", ir::print(*operand))
               : fmt::format("uses {} after it was freed", ir::print(*operand)),
           {"freed by " + op_text(*freed_by_.at(alloc).front())}, "free it once, after its last use");
    }
  }

  void check_allocation(const Op& op, const State& state) {
    if (state.relinquished)
      find(op, "the permit to allocate has been given up", {"by " + op_text(*state.relinquished)},
           "relinquish it after the last allocation");
    const auto freed = freed_by_.find(&op);
    if (freed == freed_by_.end())
      return find(op, fmt::format("{} is never freed", ir::print(*op.result())), {tensor_text(*op.result())},
                  "end the kernel with tcgen05::dealloc(), after every use");
    const Op* loop = enclosing_loop(op);
    if (!loop) return;
    for (const Op* free : freed->second)
      if (is_inside(*free, *loop)) return;
    find(op, "a second trip of the loop would allocate again, and nothing is freed in between",
         {"in " + op_text(*loop)}, "allocate before the loop");
  }

  void check_free(const Op& op) {
    const Op* loop = enclosing_loop(op);
    if (!loop || is_inside(*op.operands[0]->def, *loop)) return;
    find(op, fmt::format("a second trip of the loop would free {} again", ir::print(*op.operands[0])),
         {"in " + op_text(*loop), tensor_text(*op.operands[0])}, "free it after the loop");
  }

  static const Op* enclosing_loop(const Op& op) {
    for (const Op* outer = op.parent->parent; outer; outer = outer->parent->parent)
      if (ir::has(outer->code, ir::Fact::kLoop)) return outer;
    return nullptr;
  }
  static bool is_inside(const Op& op, const Op& loop) {
    for (const Op* outer = op.parent->parent; outer; outer = outer->parent->parent)
      if (outer == &loop) return true;
    return false;
  }

  void find(const Op& op, const std::string& fact, std::vector<std::string> facts, std::string help) {
    findings_.push_back(
        {op.where, fmt::format("{}: {}", op.info().mnemonic, fact), std::move(facts), std::move(help)});
  }

  const ir::Function& function_;
  std::unordered_map<const Op*, std::vector<const Op*>> freed_by_;  // of each allocation
  std::vector<Diagnostic> findings_;
};

}  // namespace

void check_tensor_memory(ir::Function& function) { Checker(function).run(); }

}  // namespace imbrex::passes
