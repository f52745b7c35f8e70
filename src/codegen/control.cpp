// SPDX-License-Identifier: Apache-2.0
// Loops, branches, thread groups.
#include <fmt/format.h>

#include "codegen/generator.h"
#include "imbrex/core/error.h"

namespace imbrex::codegen {

using ir::Opcode;

namespace {

/// The counter of a for loop and its end.
struct Counter {
  Reg value;
  Operand end, step;
  ScalarType type;
  bool is_down;
};

/// Leaves for `exit` when the counter has passed the end.
void leave_when_done(Generator& g, const Counter& c, ptx::LabelId exit) {
  const Reg done = g.e().reg(ScalarType::pred);
  g.e().emit(Op::setp, {c.is_down ? Mod::le : Mod::ge, c.type}, {done, c.value, c.end});
  g.e().branch_if(done, exit);
}

/// Every iteration written out, the counter a constant.
void unroll_completely(Generator& g, const ir::Op& op) {
  const std::optional<int64_t> begin = ir::constant_int(op.operands[0]),
                               end = ir::constant_int(op.operands[1]),
                               step = ir::constant_int(op.operands[2]);
  if (!begin || !end || !step)
    g.fail(op, "unroll = 0 needs constant bounds and step", {},
           "give the number of copies, or constant bounds");
  if (*step == 0) g.fail(op, "the step is 0");
  const ptx::LabelId exit = g.e().label("for_end");
  g.loop_exits().push_back(exit);
  for (int64_t i = *begin; *step > 0 ? i < *end : i > *end; i += *step) {
    g.e().enter_scope();
    g.bind(op.body().args[0], Operand(i));
    g.emit_block(op.body());
    g.e().leave_scope();
  }
  g.loop_exits().pop_back();
  g.e().bind(exit);
}

}  // namespace

void emit_For(Generator& g, const ir::Op& op) {
  const int64_t copies = op.int_attr("unroll", 1);
  if (copies == 0) return unroll_completely(g, op);
  Emitter& e = g.e();
  const ir::Value* index = op.body().args[0];
  const Range begin = g.ranges().of(op.operands[0]), end = g.ranges().of(op.operands[1]),
              step = g.ranges().of(op.operands[2]);
  Counter c;
  c.type = arithmetic_type(index->type.dtype);
  c.is_down = step.is_constant() && step.lo < 0;
  c.end = g.scalar(op.operands[1]);
  c.step = g.scalar(op.operands[2]);
  c.value = e.reg(register_type(index->type.dtype));
  e.move(register_type(index->type.dtype), c.value, g.scalar(op.operands[0]));

  const ptx::LabelId exit = e.label("for_end");
  const bool runs_at_least_once = c.is_down ? begin.lo > end.hi : begin.hi < end.lo;
  if (!runs_at_least_once) {
    leave_when_done(g, c, exit);
    e.enter_scope();  // what moves in front of the loop runs only when the loop does
  }
  e.enter_scope(true);
  const ptx::LabelId top = e.label("for");
  e.bind(top);
  g.loop_exits().push_back(exit);
  // A trip count that the copies divide needs one test for all of them.
  const bool divides = begin.is_constant() && end.is_constant() && step.is_constant() && step.lo > 0 &&
                       (end.lo - begin.lo) % (step.lo * copies) == 0;
  for (int64_t copy = 0; copy < copies; ++copy) {
    if (copy > 0 && !divides) leave_when_done(g, c, exit);
    e.enter_scope();
    g.bind(index, c.value);
    g.emit_block(op.body());
    e.leave_scope();
    e.set_location(op.where);
    e.emit(Op::add, {c.type}, {c.value, c.value, c.step});
  }
  const Reg again = e.reg(ScalarType::pred);
  e.emit(Op::setp, {c.is_down ? Mod::gt : Mod::lt, c.type}, {again, c.value, c.end});
  e.branch_if(again, top);
  g.loop_exits().pop_back();
  e.leave_scope();
  if (!runs_at_least_once) e.leave_scope();
  e.bind(exit);
}

void emit_Loop(Generator& g, const ir::Op& op) {
  Emitter& e = g.e();
  const ptx::LabelId exit = e.label("loop_end");
  e.enter_scope(true);
  const ptx::LabelId top = e.label("loop");
  e.bind(top);
  g.loop_exits().push_back(exit);
  g.emit_block(op.body());
  e.set_location(op.where);
  e.branch(top);
  g.loop_exits().pop_back();
  e.leave_scope();
  e.bind(exit);
}

void emit_Break(Generator& g, const ir::Op& op) {
  const size_t depth = static_cast<size_t>(op.int_attr("depth", 0));
  const std::vector<ptx::LabelId>& exits = g.loop_exits();
  if (depth >= exits.size()) throw InternalError("codegen: " + ir::print(op) + " stands in no loop");
  g.e().branch(exits[exits.size() - 1 - depth]);
}

void emit_Return(Generator& g, const ir::Op&) { g.e().emit(Op::ret, {}, {}); }

void emit_If(Generator& g, const ir::Op& op) {
  Emitter& e = g.e();
  const ir::Block& then = *op.regions[0];
  const ir::Block& otherwise = *op.regions[1];
  const Operand condition = g.scalar(op.operands[0]);
  auto region = [&](const ir::Block& block) {
    e.enter_scope();
    g.emit_block(block);
    e.leave_scope();
  };
  if (condition.is_immediate()) return region(condition.value ? then : otherwise);
  const Reg p = e.to_register(ScalarType::pred, condition);
  const ptx::LabelId end = e.label("if_end");
  if (then.ops.empty()) {
    e.branch_if(p, end);
    region(otherwise);
  } else if (otherwise.ops.empty()) {
    e.branch_unless(p, end);
    region(then);
  } else {
    const ptx::LabelId else_label = e.label("else");
    e.branch_unless(p, else_label);
    region(then);
    e.branch(end);
    e.bind(else_label);
    region(otherwise);
  }
  e.bind(end);
}

void emit_ThreadGroup(Generator& g, const ir::Op& op) {
  Emitter& e = g.e();
  const Group outer = g.group();
  Group inner{outer.begin + op.int_attr("begin"), op.int_attr("threads"), 0};
  if (inner.begin < outer.begin || inner.begin + inner.threads > outer.begin + outer.threads)
    g.fail(op, fmt::format("threads {} ... {} are outside the enclosing group of {}", op.int_attr("begin"),
                           op.int_attr("begin") + inner.threads - 1, outer.threads));
  const ptx::LabelId end = e.label("group_end");
  Integers& ints = g.ints();
  auto only = [&](const Operand& predicate) {
    if (!predicate.is_immediate()) e.branch_unless(predicate.reg(), end);
  };
  const bool is_narrower = inner.threads < outer.threads;
  // Where any thread of a warp will do, one predicate, made in front of the loops, picks it.
  const bool picks_one =
      is_narrower && inner.threads == 1 && inner.begin % 32 == 0 && outer.is_whole_warps() && g.arch() >= 90;
  int scopes = 0;
  if (picks_one) {
    const Operand elected = g.elected();
    only(outer.is_warp() ? elected : ints.both(elected, g.is_warp(inner.begin / 32), outer.depth));
  } else if (is_narrower && outer.threads > 32 && outer.is_whole_warps()) {
    // Which warps: decided on the uniform warp number.
    const int64_t first = inner.begin / 32, last = (inner.begin + inner.threads - 1) / 32;
    const Integer relative = ints.sub(g.warp_index(), Integers::constant(first));
    if (first == last) {
      only(g.is_warp(first));
    } else if (first == outer.begin / 32) {
      only(ints.less(g.warp_index(), Integers::constant(last + 1)));
    } else if (last == (outer.begin + outer.threads - 1) / 32) {
      only(ints.less(Integers::constant(first - 1), g.warp_index()));
    } else {
      const Reg p = e.make(ScalarType::pred, Op::setp, {Mod::lo, ScalarType::u32},
                           {e.to_register(ScalarType::b32, relative.value), last - first + 1});
      only(p);
    }
    e.enter_scope();
    ++scopes;
  }
  // Which threads of the warps that are left.
  if (is_narrower && !inner.is_whole_warps() && !picks_one) {
    const Reg tid = e.make(ScalarType::b32, Op::mov, {ScalarType::u32}, {ptx::SpecialReg::tid_x});
    Reg relative = tid;
    if (inner.begin != 0) relative = e.make(ScalarType::b32, Op::sub, {ScalarType::u32}, {tid, inner.begin});
    only(e.make(ScalarType::pred, Op::setp, {Mod::lo, ScalarType::u32}, {relative, inner.threads}));
  }
  e.enter_scope();
  ++scopes;
  inner.depth = e.depth();
  g.enter_group(inner);
  g.emit_block(op.body());
  g.leave_group();
  for (; scopes > 0; --scopes) e.leave_scope();
  e.bind(end);
}

void emit_Yield(Generator& g, const ir::Op& op) { g.yielded = g.scalar(op.operands[0]); }

void emit_LaunchGrid(Generator& g, const ir::Op& op) {
  if (!g.function().grid.empty()) return;
  if (op.operands.size() > 3) g.fail(op, fmt::format("{} extents, a grid has at most 3", op.operands.size()));
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const std::optional<int32_t> slot = g.host().slot(op.operands[i]);
    if (!slot) g.fail(op, fmt::format("extent {} depends on more than the kernel's parameters", i));
    g.kernel().grid_slots[i] = *slot;
  }
}

void emit_BlockIdx(Generator& g, const ir::Op& op) {
  const ptx::SpecialReg axes[] = {ptx::SpecialReg::ctaid_x, ptx::SpecialReg::ctaid_y,
                                  ptx::SpecialReg::ctaid_z};
  g.bind(op.result(), g.e().make(ScalarType::b32, Op::mov, {ScalarType::u32}, {axes[op.int_attr("axis")]}));
}

void emit_GridDim(Generator& g, const ir::Op& op) {
  const ptx::SpecialReg axes[] = {ptx::SpecialReg::nctaid_x, ptx::SpecialReg::nctaid_y,
                                  ptx::SpecialReg::nctaid_z};
  g.bind(op.result(), g.e().make(ScalarType::b32, Op::mov, {ScalarType::u32}, {axes[op.int_attr("axis")]}));
}

void emit_ThreadIdx(Generator& g, const ir::Op& op) {
  g.bind(op.result(), g.e().make(ScalarType::b32, Op::mov, {ScalarType::u32}, {ptx::SpecialReg::tid_x}));
}

void emit_ClusterRank(Generator& g, const ir::Op& op) {
  g.bind(op.result(),
         g.e().make(ScalarType::b32, Op::mov, {ScalarType::u32}, {ptx::SpecialReg::cluster_ctarank}));
}

}  // namespace imbrex::codegen
