// SPDX-License-Identifier: Apache-2.0
#include "passes/checks/check_variables.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "imbrex/core/error.h"
#include "passes/thread_group.h"

namespace imbrex::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::Opcode;

struct Use {
  const Op* op;
  ThreadGroup group;
  int64_t position;  // in the order of the text
};

bool covers(const ThreadGroup& all, const ThreadGroup& some) {
  return all.begin <= some.begin && some.begin + some.threads <= all.begin + all.threads;
}
bool overlap(const ThreadGroup& a, const ThreadGroup& b) {
  return a.begin < b.begin + b.threads && b.begin < a.begin + a.threads;
}
bool is_inside(const Op& op, const Block& block) {
  for (const Block* at = op.parent; at; at = at->parent ? at->parent->parent : nullptr)
    if (at == &block) return true;
  return false;
}
/// True where a loop inside the variable's block has both, so that control comes from one to the other either way.
bool share_a_loop(const Op& a, const Op& b, const Block& of_variable) {
  for (const Op* outer = a.parent->parent; outer && is_inside(*outer, of_variable);
       outer = outer->parent->parent)
    if ((outer->code == Opcode::kFor || outer->code == Opcode::kLoop) && is_inside(b, *outer->regions[0]))
      return true;
  return false;
}

class Checker {
 public:
  explicit Checker(const ir::Function& function) : function_(function) {}

  void run() {
    collect(function_.body, {0, function_.threads(), nullptr});
    for (const ir::Value* variable : in_order_) {
      const Uses& uses = variables_.at(variable);
      for (const Use& assigned : uses.assigned)
        if (const Use* read = read_by_others(*variable, uses.assigned, uses.read, assigned)) {
          report(*variable, assigned, *read);
          break;
        }
    }
    if (!findings_.empty()) throw CompileError(std::move(findings_));
  }

 private:
  struct Uses {
    std::vector<Use> assigned, read;
  };

  void collect(const Block& block, const ThreadGroup& group) {
    for (const Op* op : block.ops) {
      ++position_;
      if ((op->code == Opcode::kAssign || op->code == Opcode::kRead) && op->operands[0]->def != nullptr) {
        const auto [known, is_new] = variables_.try_emplace(op->operands[0]);
        if (is_new) in_order_.push_back(op->operands[0]);
        Uses& uses = known->second;
        (op->code == Opcode::kAssign ? uses.assigned : uses.read).push_back({op, group, position_});
      }
      const ThreadGroup inside = op->code == Opcode::kThreadGroup ? group.narrowed(*op) : group;
      for (const auto& region : op->regions) collect(*region, inside);
    }
  }

  /// The first read by threads of which the assignment reaches some and not others.
  static const Use* read_by_others(const ir::Value& variable, const std::vector<Use>& all_assigned,
                                   const std::vector<Use>& reads, const Use& assigned) {
    for (const Use& read : reads) {
      if (!overlap(assigned.group, read.group) || covers(assigned.group, read.group)) continue;
      const bool comes_later = read.position > assigned.position;
      if (!comes_later && !share_a_loop(*assigned.op, *read.op, *variable.def->parent)) continue;
      // All readers have assigned it once more on the way.
      const auto settles = [&](const Use& other) {
        const bool lies_between = comes_later
                                      ? other.position > assigned.position && other.position < read.position
                                      : other.position < read.position || other.position > assigned.position;
        return lies_between && covers(other.group, read.group) && is_inside(*read.op, *other.op->parent);
      };
      if (std::any_of(all_assigned.begin(), all_assigned.end(), settles)) continue;
      return &read;
    }
    return nullptr;
  }

  void report(const ir::Value& variable, const Use& assigned, const Use& read) {
    const std::string name = variable.name.empty() ? "a variable" : "'" + variable.name + "'";
    std::vector<std::string> facts;
    if (read.op->where.is_known())
      facts.push_back(fmt::format("read at {}:{}, by {}", read.op->where.file, read.op->where.line,
                                  read.group.describe()));
    facts.push_back(fmt::format("the CTA has {} threads", function_.threads()));
    findings_.push_back(
        {assigned.op->where,
         fmt::format("assign: {} is set by {} only, and read by others too, which keep the value from before",
                     name, assigned.group.describe()),
         std::move(facts), "set it in all threads that read it, or hand the value over in shared memory"});
  }

  const ir::Function& function_;
  std::map<const ir::Value*, Uses> variables_;
  std::vector<const ir::Value*> in_order_;
  std::vector<Diagnostic> findings_;
  int64_t position_ = 0;
};

}  // namespace

void check_variables(ir::Function& function) { Checker(function).run(); }

}  // namespace imbrex::passes
