// SPDX-License-Identifier: Apache-2.0
#include "passes/checks/check_thread_groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "core/target.h"
#include "imbrex/core/error.h"
#include "ir/entry_registers.h"
#include "passes/thread_group.h"

namespace imbrex::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::Opcode;
using ir::Scope;

constexpr int64_t kWarp = 32;
constexpr int64_t kWarpGroup = 128;

/// What the scope requires, in words, or "" when the group meets it.
std::string_view missing(Scope scope, const ThreadGroup& group, int64_t cta_threads) {
  const auto is_whole = [&](int64_t unit) { return group.begin % unit == 0 && group.threads % unit == 0; };
  switch (scope) {
    case Scope::kAny:
      return "";
    case Scope::kOneThread:
      return group.threads == 1 ? "" : "exactly one thread";
    case Scope::kOneWarp:
      return group.threads == kWarp && is_whole(kWarp) ? "" : "exactly one warp";
    case Scope::kOneIssuer:
      return group.threads == 1 || (group.threads == kWarp && is_whole(kWarp)) ? ""
                                                                               : "one warp or one thread";
    case Scope::kWarps:
      return is_whole(kWarp) ? "" : "whole warps";
    case Scope::kWarpGroups:
      return is_whole(kWarpGroup) ? "" : "whole warp groups (128 threads, from a multiple of 128)";
    case Scope::kWarpOrGroups:
      return (group.threads == kWarp && is_whole(kWarp)) || is_whole(kWarpGroup)
                 ? ""
                 : "one warp, or whole warp groups (128 threads, from a multiple of 128)";
    case Scope::kCta:
      return group.threads == cta_threads ? "" : "every thread of the CTA";
  }
  return "";
}

std::string_view remedy(Scope scope, const ThreadGroup& group) {
  switch (scope) {
    case Scope::kOneThread:
      return "put it under single_thread()";
    case Scope::kOneWarp:
    case Scope::kOneIssuer:
      return group.threads > kWarp ? "put it under single_warp()" : "move it out of the thread group";
    case Scope::kCta:
      return "move it out of the thread group";
    case Scope::kWarps:
      return "make its thread group whole warps";
    case Scope::kWarpGroups:
    case Scope::kWarpOrGroups:
      return "run it in a CTA of warps(4), or under warp_group(0, 4), warp_group(4, 4), ...";
    default:
      return "";
  }
}

/// Scalars that differ between the threads of a group: their number, and what is computed from it.
class ThreadNumbers {
 public:
  explicit ThreadNumbers(const ir::Function& function) {
    for (size_t before = 1; before != of_threads_.size();) {  // variables may be assigned behind their uses
      before = of_threads_.size();
      ir::walk(function.body, [&](const Op& op) { look(op); });
    }
  }
  bool has(const ir::Value* value) const { return of_threads_.contains(value); }

 private:
  void look(const Op& op) {
    bool depends = op.code == Opcode::kThreadIdx;
    if (op.code != Opcode::kItem && op.code != Opcode::kReduce)
      for (const ir::Value* operand : op.operands) depends = depends || (is_scalar(*operand) && has(operand));
    if (!depends) return;
    if (op.code == Opcode::kAssign) of_threads_.insert(op.operands[0]);
    for (const ir::Value* result : op.results)
      if (is_scalar(*result)) of_threads_.insert(result);
  }
  static bool is_scalar(const ir::Value& value) {
    return value.type.kind == ir::TypeKind::kScalar ||
           (value.type.kind == ir::TypeKind::kVariable && value.type.shape.empty());
  }

  std::set<const ir::Value*> of_threads_;
};

/// Ops by which the threads of a group wait for each other.
bool waits_for_all(const Op& op) {
  return op.code == Opcode::kSync || op.code == Opcode::kClusterSync || op.code == Opcode::kItem;
}

class Checker {
 public:
  explicit Checker(const ir::Function& function) : function_(function), numbers_(function) {}

  void run() {
    const Target* target = find_target(function_.target);
    budgets_.resize(static_cast<size_t>(function_.threads() / kWarp));
    block(function_.body, {0, function_.threads(), nullptr}, nullptr);
    check_budgets();
    if (findings_.empty()) check_sum_of_budgets();
    const int64_t ids = target ? target->named_barriers - 1 : 15;  // 0 is the CTA's
    if (static_cast<int64_t>(barriers_.size()) > ids)
      findings_.push_back({function_.where,
                           fmt::format("kernel {}: {} thread groups synchronise, there are {} barriers",
                                       function_.name, barriers_.size(), ids),
                           {},
                           "use mbarriers for some of them"});
    if (!findings_.empty()) throw CompileError(std::move(findings_));
  }

 private:
  /// `divides`: the condition or loop by which the group's threads do not all come here, if there is one.
  void block(const Block& block, const ThreadGroup& group, const Op* divides) {
    for (const Op* op : block.ops) {
      check(*op, group);
      if (divides && waits_for_all(*op))
        find(*op, group,
             fmt::format("every thread of the group executes it, and the {} of line {} depends on the "
                         "thread's number",
                         divides->code == Opcode::kIf ? "condition" : "loop", divides->where.line),
             "move it out, or take the threads by thread_group() or single_warp()");
      if (divides && op->code == Opcode::kReturn)
        find(*op, group,
             fmt::format(
                 "every thread of the CTA leaves, and the {} of line {} depends on the thread's number",
                 divides->code == Opcode::kIf ? "condition" : "loop", divides->where.line),
             "guard what follows by when(); loads and stores leave out what is outside their tensor by "
             "themselves");
      const bool narrows = op->code == Opcode::kThreadGroup;
      const ThreadGroup inside = narrows ? group.narrowed(*op) : group;
      const bool divides_here = (op->code == Opcode::kIf || op->code == Opcode::kFor) &&
                                std::any_of(op->operands.begin(), op->operands.end(),
                                            [&](const ir::Value* v) { return numbers_.has(v); });
      const Op* by = narrows ? nullptr : divides_here ? op : divides;
      for (const auto& region : op->regions) this->block(*region, inside, by);
    }
  }

  void check(const Op& op, const ThreadGroup& group) {
    if (op.code == Opcode::kThreadGroup) return check_nesting(op, group);
    Scope scope = op.attr("each_thread") ? Scope::kAny : op.info().scope;
    if (scope == Scope::kWarpOrGroups) {  // a warp reaches a quarter of the lanes
      const ir::Type& memory = op.operands[0]->type;
      if (memory.elements() / memory.shape.back() > kWarp) scope = Scope::kWarpGroups;
    }
    if (const std::string_view needs = missing(scope, group, function_.threads()); !needs.empty())
      return find(op, group, fmt::format("needs {}, it runs in {}", needs, group.describe()),
                  remedy(scope, group));
    if (op.code == Opcode::kSync) check_sync(op, group);
    if (op.code == Opcode::kSetmaxnreg)
      for (int64_t warp = group.begin / kWarp; warp < (group.begin + group.threads) / kWarp; ++warp)
        budgets_[static_cast<size_t>(warp)].push_back({&op, group});
  }

  /// A warp group's registers change hands when all its four warps ask for the same.
  void check_budgets() {
    const auto registers = [](const std::vector<Budget>& asked) {
      std::vector<int64_t> numbers;
      for (const Budget& budget : asked) numbers.push_back(budget.op->int_attr("registers"));
      return numbers;
    };
    constexpr size_t kWarps = kWarpGroup / kWarp;
    for (size_t first = 0; first < budgets_.size(); first += kWarps) {
      if (first + kWarps > budgets_.size() && !budgets_[first].empty())
        find(*budgets_[first].front().op, budgets_[first].front().group,
             fmt::format("needs whole warp groups, the CTA's last one has {} warps", budgets_.size() - first),
             "give the CTA a multiple of four warps()");
      for (size_t warp = first + 1; warp < std::min(first + kWarps, budgets_.size()); ++warp) {
        if (registers(budgets_[warp]) == registers(budgets_[first])) continue;
        const size_t asks = budgets_[warp].empty() ? first : warp, other = asks == warp ? first : warp;
        const Budget& budget = budgets_[asks].front();
        find(*budget.op, budget.group,
             fmt::format("warp {} of the CTA asks for {} registers, warp {} of the same warp group for {}",
                         asks, fmt::join(registers(budgets_[asks]), ", then "), other,
                         budgets_[other].empty()
                             ? "none"
                             : fmt::format("{}", fmt::join(registers(budgets_[other]), ", then "))),
             "put it in front of the warps' roles, under warp_group(), or let all four warps ask for the "
             "same");
        break;
      }
    }
  }

  /// What the warps hold in the end is at most what the CTA began with: else the last to ask waits for ever.
  void check_sum_of_budgets() {
    const Target* target = find_target(function_.target);
    const auto asks = [](const std::vector<Budget>& asked) { return !asked.empty(); };
    const auto changes_its_mind = [](const std::vector<Budget>& asked) { return asked.size() > 1; };
    if (target == nullptr || std::ranges::none_of(budgets_, asks) ||
        std::ranges::any_of(budgets_, changes_its_mind))
      return;
    const int64_t entry = ir::registers_at_entry(function_, *target);
    int64_t sum = 0;
    std::vector<int64_t> shares;
    const Budget* largest = nullptr;
    for (size_t warp = 0; warp < budgets_.size(); ++warp) {
      const std::vector<Budget>& asked = budgets_[warp];
      const int64_t share = asked.empty() ? entry : asked.front().op->int_attr("registers");
      sum += share;
      if (warp % (kWarpGroup / kWarp) == 0) shares.push_back(share);
      if (!asked.empty() && (largest == nullptr || share > largest->op->int_attr("registers")))
        largest = &asked.front();
    }
    const auto pool = entry * static_cast<int64_t>(budgets_.size());
    if (sum <= pool) return;
    find(*largest->op, largest->group,
         fmt::format("the warp groups ask for {} registers in each thread, {} with all warps; the CTA begins "
                     "with {} in "
                     "each of {} warps, {}",
                     fmt::join(shares, ", "), sum, entry, budgets_.size(), pool),
         "ask for fewer, or let the warps that load give more back: the last to ask would wait for ever");
  }

  void check_nesting(const Op& op, const ThreadGroup& group) {
    const int64_t begin = op.int_attr("begin"), threads = op.int_attr("threads");
    if (begin + threads > group.threads)
      return find(op, group,
                  fmt::format("threads {} ... {} do not lie in the enclosing group, which has {}", begin,
                              begin + threads - 1, group.threads));
    const ThreadGroup inside = group.narrowed(op);
    const bool straddles = inside.begin / kWarp != (inside.begin + inside.threads - 1) / kWarp &&
                           (inside.begin % kWarp != 0 || inside.threads % kWarp != 0);
    if (straddles)
      find(op, group,
           fmt::format("threads {} ... {} of the CTA cut through warps", inside.begin,
                       inside.begin + inside.threads - 1),
           "make groups of whole warps, or of threads of one warp");
  }

  void check_sync(const Op& op, const ThreadGroup& group) {
    if (group.threads == 1)
      find(op, group, "a single thread has no other thread to wait for",
           "move it out of the single-thread scope");
    if (group.threads > kWarp && group.threads < function_.threads())
      barriers_.insert({group.begin, group.threads});
  }

  void find(const Op& op, const ThreadGroup& group, const std::string& fact, std::string_view help = "") {
    Diagnostic diagnostic{op.where, fmt::format("{}: {}", op.info().mnemonic, fact), {}, std::string(help)};
    for (const Op* scope = group.op; scope; scope = enclosing_thread_group(*scope)) {
      std::string line =
          fmt::format("thread group {} ... {} of its enclosing group", scope->int_attr("begin"),
                      scope->int_attr("begin") + scope->int_attr("threads") - 1);
      if (scope->attr("name")) line += fmt::format(" ({})", scope->string_attr("name"));
      if (scope->where.is_known())
        line += fmt::format("  opened at {}:{}", scope->where.file, scope->where.line);
      diagnostic.facts.push_back(line);
    }
    diagnostic.facts.push_back(fmt::format("the CTA has {} threads", function_.threads()));
    findings_.push_back(std::move(diagnostic));
  }

  const ir::Function& function_;
  const ThreadNumbers numbers_;
  std::vector<Diagnostic> findings_;
  std::set<std::pair<int64_t, int64_t>> barriers_;
  struct Budget {
    const Op* op;
    ThreadGroup group;
  };
  std::vector<std::vector<Budget>> budgets_;  // what each warp executes of setmaxnreg
};

}  // namespace

void check_thread_groups(ir::Function& function) { Checker(function).run(); }

}  // namespace imbrex::passes
