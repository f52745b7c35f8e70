// SPDX-License-Identifier: Apache-2.0
#include "passes/checks/check_registers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/target.h"
#include "imbrex/core/error.h"
#include "passes/describe.h"
#include "passes/thread_group.h"

namespace imbrex::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::Opcode;
using ir::TypeKind;
using ir::Value;

bool is_loop(const Op& op) { return op.code == Opcode::kFor || op.code == Opcode::kLoop; }

/// 32-bit registers of each thread; 0 of what is no tile. Narrow elements count as packed.
int64_t registers_of(const Value& value) {
  if (!value.type.layout || value.type.dtype == boolean) return 0;
  if (value.type.kind != TypeKind::kRegister && value.type.kind != TypeKind::kVariable) return 0;
  return (value.type.layout->registers() * value.type.dtype.bits() + 31) / 32;
}

/// What the op gives cannot be computed again when it is needed.
bool is_made_once(const Op& op) {
  switch (op.code) {
    case Opcode::kLoadGlobal:
    case Opcode::kLoadShared:
    case Opcode::kGather:
    case Opcode::kMma:
    case Opcode::kMmaScaled:
    case Opcode::kTcgen05Load:
      return true;
    default:
      return false;
  }
}

/// The tile made once from which alone `value` is computed, element by element: one of the two is kept. Null where there
/// is none.
const Value* kept_for(const Value* value) {
  while (value->def != nullptr && !is_made_once(*value->def)) {
    const Value* from = nullptr;
    for (const Value* operand : value->def->operands)
      if (operand->type.kind == TypeKind::kRegister) {
        if (from != nullptr) return nullptr;
        from = operand;
      }
    const bool is_elementwise = ir::has(value->def->code, ir::Fact::kNumbers | ir::Fact::kAnyType);
    if (from == nullptr || !is_elementwise || from->type.elements() != value->type.elements()) return nullptr;
    value = from;
  }
  return value->def == nullptr ? nullptr : value;
}

class Checker {
 public:
  Checker(const ir::Function& function, const Target& target) : function_(function), target_(target) {}

  void run() {
    number(function_.body);
    find_uses(function_.body);
    check(function_.body);
    if (worst_.found.empty()) return;
    std::vector<std::pair<int64_t, const Value*>> tiles;
    for (const auto& [value, count] : worst_.found) tiles.emplace_back(count, value);
    std::sort(tiles.begin(), tiles.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second->id < b.second->id;
    });
    std::vector<std::string> facts;
    for (const auto& [count, value] : tiles)
      facts.push_back(fmt::format("{:>6} registers  {}", count, tensor_text(*value)));
    throw CompileError(Diagnostic{
        worst_.at->where,
        fmt::format("{}: tiles alive here at once need {} registers of each thread, {}",
                    worst_.at->info().mnemonic, worst_.needed, worst_.allowed),
        std::move(facts),
        "use smaller tiles or more warps(), or raise max_registers(); IMBREX_ALLOW=spills accepts that "
        "registers are spilled to memory"});
  }

 private:
  using Tiles = std::map<const Value*, int64_t>;
  struct Place {
    int64_t begin = 0, end = 0;  // in the order of the text, regions included
  };
  struct Worst {
    const Op* at = nullptr;
    int64_t needed = 0, excess = 0;
    std::string allowed;
    Tiles found;
  };

  void number(const Block& block) {
    for (const Op* op : block.ops) {
      Place& place = places_[op];
      place.begin = ++position_;
      for (const auto& region : op->regions) number(*region);
      place.end = position_;
      if (op->code == Opcode::kSetmaxnreg) sets_registers_ = true;
    }
  }
  /// Who uses a value, and the last place where; in a loop that it comes from outside of, the loop's end.
  void find_uses(const Block& block) {
    for (const Op* op : block.ops) {
      for (const Value* operand : op->operands) {
        if (registers_of(*operand) == 0) continue;
        users_[operand].push_back(op);
        int64_t last = places_.at(op).begin;
        for (const Op* outer = op->parent->parent; outer != nullptr; outer = outer->parent->parent)
          if (is_loop(*outer) && is_before(*operand, *outer)) last = std::max(last, places_.at(outer).end);
        int64_t& known = last_use_[operand];
        known = std::max(known, last);
      }
      for (const auto& region : op->regions) find_uses(*region);
    }
  }
  bool is_before(const Value& value, const Op& op) const {
    return value.def != nullptr && places_.at(value.def).end < places_.at(&op).begin;
  }

  void check(const Block& block) {
    for (const Op* op : block.ops) {
      if (is_loop(*op)) judge(*op, carried(*op));
      if (op->code == Opcode::kSync) judge(*op, kept_across(*op, nullptr));
      if (op->code == Opcode::kReduce) {
        const std::set<const Value*> later = computed_from(*op);
        judge(*op, kept_across(*op, &later));
      }
      for (const auto& region : op->regions) check(*region);
    }
  }

  /// Variables that the loop's trips hand on, and tiles that all of its trips use.
  Tiles carried(const Op& loop) const {
    Tiles tiles;
    std::set<const Value*> seen, written;
    ir::walk(static_cast<const Block&>(loop.body()), [&](const Op& op) {
      if (const Value* variable = ir::written_variable(op)) written.insert(variable);
    });
    ir::walk(static_cast<const Block&>(loop.body()), [&](const Op& op) {
      for (const Value* operand : op.operands) {
        const int64_t count = registers_of(*operand);
        if (count == 0 || !is_before(*operand, loop) || !seen.insert(operand).second) continue;
        const bool is_variable = operand->type.kind == TypeKind::kVariable;
        const bool begins_anew =
            is_variable && (op.code == Opcode::kAssign ||
                            (op.code == Opcode::kWgmmaMma && ir::constant_int(op.operands[3]) == 0));
        if (is_variable ? written.count(operand) > 0 && !begins_anew : is_made_once(*operand->def))
          tiles[operand] = count;
      }
    });
    return tiles;
  }

  /// Tiles made before `op` and used behind it; with `later`, together with one of those.
  Tiles kept_across(const Op& op, const std::set<const Value*>* later) const {
    Tiles tiles;
    const Place& here = places_.at(&op);
    for (const auto& [value, last] : last_use_) {
      if (last <= here.end || value->def == nullptr || value->type.kind != TypeKind::kRegister) continue;
      if (places_.at(value->def).end >= here.begin || !surrounds(*value->def->parent, op)) continue;
      const Value* kept = kept_for(value);
      if (kept == nullptr || (later != nullptr && !meets(*value, here, *later))) continue;
      const int64_t count = std::min(registers_of(*value), registers_of(*kept));
      const auto [known, is_new] = tiles.try_emplace(kept, count);
      if (!is_new) known->second = std::min(known->second, count);
    }
    return tiles;
  }
  static bool surrounds(const Block& block, const Op& op) {
    for (const Block* at = op.parent; at != nullptr; at = at->parent ? at->parent->parent : nullptr)
      if (at == &block) return true;
    return false;
  }
  /// The results that need that of `op`, in its block.
  static std::set<const Value*> computed_from(const Op& op) {
    std::set<const Value*> results = {op.result()};
    const std::vector<Op*>& ops = op.parent->ops;
    for (auto at = std::find(ops.begin(), ops.end(), &op); at != ops.end(); ++at)
      if (std::any_of((*at)->operands.begin(), (*at)->operands.end(),
                      [&](const Value* operand) { return results.count(operand) > 0; }))
        results.insert((*at)->results.begin(), (*at)->results.end());
    return results;
  }
  /// Is there an op behind `here` that takes the value together with one of `later`?
  bool meets(const Value& value, const Place& here, const std::set<const Value*>& later) const {
    const std::vector<const Op*>& users = users_.at(&value);
    return std::any_of(users.begin(), users.end(), [&](const Op* op) {
      return places_.at(op).begin > here.end &&
             std::any_of(op->operands.begin(), op->operands.end(),
                         [&](const Value* operand) { return later.count(operand) > 0; });
    });
  }

  void judge(const Op& op, Tiles tiles) {
    int64_t needed = 0;
    for (const auto& [value, count] : tiles) needed += count;
    int64_t limit = target_.max_registers_per_thread;
    std::string allowed = fmt::format("there are {}", limit);
    const auto at_most = [&](int64_t count, std::string text) {
      if (count < limit) limit = count, allowed = std::move(text);
    };
    const int64_t of_cta = target_.registers_per_sm / function_.threads() / 8 * 8;
    if (function_.max_registers)
      at_most(*function_.max_registers, fmt::format("max_registers() allows {}", *function_.max_registers));
    if (!sets_registers_)
      at_most(of_cta, fmt::format("a CTA of {} threads has {} for each", function_.threads(), of_cta));
    if (const int64_t set = set_around(op); set > 0) at_most(set, fmt::format("setmaxnreg() leaves {}", set));
    if (needed - limit <= worst_.excess) return;
    worst_ = {&op, needed, needed - limit, std::move(allowed), std::move(tiles)};
  }
  /// The most registers that the thread group around an op asks for; 0 without.
  static int64_t set_around(const Op& op) {
    int64_t most = 0;
    for (const Op* group = enclosing_thread_group(op); group != nullptr && most == 0;
         group = enclosing_thread_group(*group))
      for (const Op* inside : group->body().ops)
        if (inside->code == Opcode::kSetmaxnreg) most = std::max(most, inside->int_attr("registers"));
    return most;
  }

  const ir::Function& function_;
  const Target& target_;
  std::map<const Op*, Place> places_;
  std::map<const Value*, int64_t> last_use_;
  std::map<const Value*, std::vector<const Op*>> users_;
  int64_t position_ = 0;
  bool sets_registers_ = false;
  Worst worst_;
};

/// The tiles of a kernel together; where they fit there is nothing to look for.
bool may_exceed(const ir::Function& function, const Target& target) {
  int64_t all = 0;
  ir::walk(function.body, [&](const Op& op) {
    for (const Value* result : op.results)
      if (op.code == Opcode::kVar || is_made_once(op)) all += registers_of(*result);
  });
  const int64_t of_cta = target.registers_per_sm / function.threads() / 8 * 8;
  int64_t least = std::min(target.max_registers_per_thread, of_cta);
  if (function.max_registers) least = std::min(least, *function.max_registers);
  ir::walk(function.body, [&](const Op& op) {
    if (op.code == Opcode::kSetmaxnreg) least = std::min(least, op.int_attr("registers"));
  });
  return all > least;
}

}  // namespace

void check_registers(const ir::Function& function) {
  const Target* target = find_target(function.target);
  if (target == nullptr || !may_exceed(function, *target)) return;
  Checker(function, *target).run();
}

}  // namespace imbrex::passes
