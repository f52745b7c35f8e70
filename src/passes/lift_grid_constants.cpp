// SPDX-License-Identifier: Apache-2.0
#include "passes/lift_grid_constants.h"

#include <fmt/format.h>

#include <algorithm>

#include "imbrex/core/error.h"
#include "passes/rewrite.h"

namespace imbrex::passes {
namespace {

using ir::Block;
using ir::Op;
using ir::Opcode;
using ir::Value;

bool is_division(Opcode code) {
  return code == Opcode::kDiv || code == Opcode::kRem || code == Opcode::kCeilDiv;
}

/// Scalar arithmetic that the host evaluates bit for bit: integers, and no approximations.
bool runs_on_host(const Op& op) {
  if (op.code == Opcode::kConst) return true;
  if (!ir::is_elementwise(op.code)) return false;
  const auto is_whole = [](const Value* value) {
    return value->type.is_scalar() && !value->type.dtype.is_float();
  };
  for (const Value* operand : op.operands)
    if (!is_whole(operand)) return false;
  return is_whole(op.result());
}

class Lifter {
 public:
  explicit Lifter(ir::Function& function) : function_(function), builder_(function) {
    builder_.set_insertion_point(function.host);
    for (Value* param : function.params) on_host_[param] = param;
    for (Op* op : function.host.ops)
      for (Value* result : op->results) on_host_[result] = result;
  }

  void run() {
    grid(function_.body);
    block(function_.body, true);
  }

 private:
  // --- what can be lifted ---

  /// True when `value` depends on parameters, numbers and the grid alone.
  bool is_grid_constant(const Value* value) {
    const auto [found, is_new] = constant_.try_emplace(value, false);
    if (is_new) {
      const bool is = compute_is_grid_constant(value);
      constant_[value] = is;
      return is;
    }
    return found->second;
  }
  bool compute_is_grid_constant(const Value* value) {
    if (on_host_.count(value)) return true;
    const Op* op = value->def;
    if (!op) return false;
    if (op->code == Opcode::kGridDim) return !function_.grid.empty();
    if (!runs_on_host(*op)) return false;
    for (const Value* operand : op->operands)
      if (!is_grid_constant(operand)) return false;
    return true;
  }

  /// The first op on the way from `value` that keeps it off the host, for messages.
  const Value* culprit(const Value* value) {
    while (value->def && runs_on_host(*value->def)) {
      const Value* next = nullptr;
      for (const Value* operand : value->def->operands)
        if (!is_grid_constant(operand)) next = operand;
      if (!next) break;
      value = next;
    }
    return value;
  }

  [[noreturn]] void fail(const Op& op, std::string_view role, Value* value, const std::string& help) {
    const Value* cause = culprit(value);
    Diagnostic diagnostic;
    diagnostic.where = op.where;
    diagnostic.message = fmt::format("{}: {} is not known at launch", op.info().mnemonic, role);
    std::string fact = fmt::format("it depends on {}", ir::print(*cause));
    if (cause->def) fact += fmt::format(", a {}", cause->def->info().mnemonic);
    if (cause->def && cause->def->where.is_known())
      fact += fmt::format(", at {}:{}", cause->def->where.file, cause->def->where.line);
    diagnostic.facts = {fact};
    diagnostic.help = help;
    throw CompileError(std::move(diagnostic));
  }

  // --- lifting ---

  /// The host's copy of a grid constant.
  Value* to_host(Value* value) {
    if (const auto found = on_host_.find(value); found != on_host_.end()) return found->second;
    Value* lifted = nullptr;
    if (value->def->code == Opcode::kGridDim) {
      lifted = function_.grid.at(static_cast<size_t>(value->def->int_attr("axis")));
      if (lifted->type != value->type)
        lifted =
            builder_.create(Opcode::kCast, {lifted}, {value->type}, {{"dtype", value->type.dtype}})->result();
    } else {
      for (Value* operand : value->def->operands) host_.set(operand, to_host(operand));
      lifted = clone(function_, *value->def, function_.host, host_)->result();
      lifted->name.swap(value->name);  // the host's copy is the one that stays
    }
    on_host_[lifted] = lifted;
    return on_host_[value] = lifted;
  }

  /// Numbers and parameters are as good in the kernel as on the host.
  static bool is_free(const Value* value) { return !value->def || value->def->code == Opcode::kConst; }

  /// True when computing a grid constant cannot divide by zero, so that it may be done though the kernel
  /// might not.
  bool cannot_trap(const Value* value) const {
    if (!value->def || on_host_.count(value)) return true;
    const Op& op = *value->def;
    if (is_division(op.code) && ir::constant_int(op.operands[1]).value_or(0) == 0) return false;
    return std::all_of(op.operands.begin(), op.operands.end(),
                       [this](const Value* operand) { return cannot_trap(operand); });
  }

  void lift_operand(Op& op, size_t i, bool runs_always) {
    Value*& operand = op.operands[i];
    if (!is_free(operand) && is_grid_constant(operand) && (runs_always || cannot_trap(operand)))
      operand = to_host(operand);
  }

  void grid(Block& block) {
    for (size_t i = 0; i < block.ops.size(); ++i) {
      Op& op = *block.ops[i];
      if (op.code != Opcode::kLaunchGrid) continue;
      builder_.set_location(op.where);
      if (!function_.grid.empty())
        throw CompileError(
            Diagnostic{op.where, "launch_grid: the grid is set twice", {}, "set it once per kernel"});
      std::vector<Value*> extents;
      for (Value* extent : op.operands) {
        if (!is_grid_constant(extent))
          fail(op, fmt::format("the grid's {}", "xyz"[extents.size()]), extent,
               "compute the grid from the kernel's parameters");
        extents.push_back(to_host(extent));
      }
      if (extents.size() < 3) extents.resize(3, builder_.constant(int32, 1));
      function_.grid = std::move(extents);
      constant_.clear();  // grid_dim has become known
      block.ops.erase(block.ops.begin() + static_cast<std::ptrdiff_t>(i--));
    }
  }

  /// `runs_always`: no if or loop decides whether the block runs, so that a division by zero in it is one.
  void block(Block& block, bool runs_always) {
    rebuild(block, [&](Op& op, Block& to) {
      map_.apply(op);
      builder_.set_location(op.where);
      if (op.code == Opcode::kLaunchGrid)
        throw CompileError(Diagnostic{op.where,
                                      "launch_grid: belongs at the kernel's top level",
                                      {},
                                      "move it out of loops, conditions and thread groups"});
      if (op.code == Opcode::kFastDivmod) divisor(op, runs_always);
      if (op.code == Opcode::kGlobalView)
        for (size_t i = 1; i < op.operands.size(); ++i) lift_operand(op, i, runs_always);
      if (is_division(op.code) && is_grid_constant(op.result()) &&
          (runs_always || cannot_trap(op.result()))) {
        Value* lifted = to_host(op.result());
        map_.set(op.result(), lifted);
        return;
      }
      append(to, op);
      const bool always = runs_always && op.code == Opcode::kThreadGroup;
      for (auto& region : op.regions) this->block(*region, always);
    });
  }

  void divisor(Op& op, bool runs_always) {
    Value*& divisor = op.operands[1];
    if (!is_grid_constant(divisor))
      fail(op, "the divisor", divisor, "fast_divmod divides by what the whole grid shares; use / and % here");
    Value* lifted = to_host(divisor);
    // Where an if may keep the kernel from dividing by zero, the host must not trip over it either.
    if (!runs_always && !ir::constant_int(lifted))
      lifted = builder_.binary(Opcode::kMax, lifted, builder_.constant(lifted->type.dtype, 1));
    divisor = lifted;
  }

  ir::Function& function_;
  ir::Builder builder_;  // appends to the host block
  ValueMap map_;         // body values that host values have replaced
  ValueMap host_;        // operands, for cloning into the host block
  std::unordered_map<const Value*, Value*> on_host_;
  std::unordered_map<const Value*, bool> constant_;
};

}  // namespace

void lift_grid_constants(ir::Function& function) { Lifter(function).run(); }

}  // namespace imbrex::passes
