// SPDX-License-Identifier: Apache-2.0
#include "passes/unroll.h"

#include <fmt/format.h>

#include "imbrex/core/error.h"
#include "passes/rewrite.h"
#include "passes/trip_count.h"

namespace imbrex::passes {

using ir::Block;
using ir::Op;
using ir::Opcode;
using ir::Type;
using ir::Value;

std::optional<int64_t> trip_count(const Op& loop) {
  if (loop.code != Opcode::kFor) return std::nullopt;
  const auto begin = ir::constant_int(loop.operands[0]);
  const auto end = ir::constant_int(loop.operands[1]);
  const auto step = ir::constant_int(loop.operands[2]);
  if (!begin || !end || !step || *step == 0) return std::nullopt;
  const __int128 distance = *step > 0 ? __int128{*end} - *begin : __int128{*begin} - *end;
  const __int128 stride = *step > 0 ? __int128{*step} : -__int128{*step};
  if (distance <= 0) return 0;
  return static_cast<int64_t>((distance + stride - 1) / stride);
}

namespace {

constexpr int64_t kMaxOps = 100'000;  // more than this after unrolling one loop is a mistake, not a kernel

int64_t count_ops(const Block& block) {
  int64_t count = 0;
  ir::walk(block, [&](const Op&) { ++count; });
  return count;
}

/// Nothing in the block runs after its last op, a break or a return.
bool has_ended(const Block& block) {
  return !block.ops.empty() && ir::has(block.ops.back()->code, ir::Fact::kEndsBlock);
}

class Unroller {
 public:
  explicit Unroller(ir::Function& function) : function_(function), builder_(function) {}

  void block(Block& block) {
    rebuild(block, [this](Op& op, Block& to) {
      if (has_ended(to)) return;                             // from a loop that ran once
      for (auto& region : op.regions) this->block(*region);  // inner loops first
      if (op.code != Opcode::kFor || !unrolled(op, to)) append(to, op);
    });
  }

 private:
  Value* number(const Op& loop, int64_t value) {
    return builder_.constant(loop.operands[0]->type.dtype, value);
  }

  /// Appends what stands for `loop` to `to`; false when the loop stays as it is.
  bool unrolled(Op& loop, Block& to) {
    const int64_t factor = loop.int_attr("unroll", 1);
    loop.remove_attr("unroll");
    const auto trips = trip_count(loop);
    if (factor == 0 && !trips)
      throw CompileError(
          Diagnostic{loop.where,
                     "for: cannot be unrolled completely, the number of trips is known only at run time",
                     {},
                     "give a number of copies, or make begin, end and step compile-time numbers"});
    if (trips == 0) return true;
    if (trips != 1 && factor == 1) return false;
    const bool complete = trips && (factor == 0 || *trips < 2 * factor);
    check_size(loop, complete ? *trips : factor);

    hoist_allocations(loop, to);

    // Copies outside a loop, or after one, need another loop around them for breaks to leave.
    const bool one_loop = !complete && trips && *trips % factor == 0;
    const bool wraps = has_break(loop.body()) && !one_loop;
    Block* outside = &to;
    if (wraps) {
      builder_.set_insertion_point(to);
      builder_.set_location(loop.where);
      outside = &builder_.create(Opcode::kLoop, {}, {})->body();
    }
    const int shift = wraps ? 1 : 0;  // loops that a break has to leave more, in a loop inside the wrapper
    const int copies_shift = wraps ? 0 : -1;
    builder_.set_location(loop.where);
    if (complete) {
      copies(loop, *outside, 0, *trips, copies_shift);
    } else if (trips) {
      const int64_t whole = *trips / factor * factor;
      builder_.set_insertion_point(*outside);
      Value* end = number(loop, ir::constant_int(loop.operands[0]).value() + whole * step(loop));
      main_loop(loop, *outside, end, factor, shift);
      copies(loop, *outside, whole, *trips, copies_shift);
    } else {
      run_time_trips(loop, *outside, factor, shift);
    }
    if (wraps && !has_ended(*outside)) {
      builder_.set_insertion_point(*outside);
      builder_.create(Opcode::kBreak, {}, {});
    }
    return true;
  }

  /// Each trip used the same shared memory; so do the copies.
  static void hoist_allocations(Op& loop, Block& to) {
    for (auto& region : loop.regions) {
      for (Op*& op : region->ops) {
        hoist_allocations(*op, to);
        if (op->code != Opcode::kSharedAlloc) continue;
        append(to, *op);
        op = nullptr;
      }
      std::erase(region->ops, nullptr);
    }
  }

  static int64_t step(const Op& loop) { return ir::constant_int(loop.operands[2]).value(); }

  void check_size(const Op& loop, int64_t copies) {
    const int64_t body = count_ops(loop.body());
    if (body == 0 || copies <= kMaxOps / body) return;
    throw CompileError(Diagnostic{
        loop.where,
        fmt::format("for: {} copies of a body of {} ops are more than {} ops", copies, body, kMaxOps),
        {},
        "unroll by a smaller number"});
  }

  /// Trips first ... last - 1, one after the other, with numbers for the loop variable.
  void copies(const Op& loop, Block& to, int64_t first, int64_t last, int break_shift) {
    for (int64_t trip = first; trip < last; ++trip) {
      if (has_ended(to)) return;
      builder_.set_insertion_point(to);
      copy(loop, to, number(loop, ir::constant_int(loop.operands[0]).value() + trip * step(loop)),
           break_shift);
    }
  }

  void copy(const Op& loop, Block& to, Value* index, int break_shift) {
    ValueMap map;
    map.set(loop.body().args[0], index);
    Block staging;
    for (const Op* op : loop.body().ops) clone(function_, *op, staging, map);
    deepen_breaks(staging, break_shift);
    splice(staging, to);
  }

  /// for begin, end, factor * step with `factor` copies. The index of copy j is that of the trip plus j
  /// steps.
  void main_loop(const Op& loop, Block& to, Value* end, int64_t factor, int break_shift) {
    builder_.set_insertion_point(to);
    const DataType type = loop.operands[0]->type.dtype;
    Value* stride = multiple(loop.operands[2], factor);
    Op* main = builder_.create(Opcode::kFor, {loop.operands[0], end, stride}, {});
    const Value* index = loop.body().args[0];
    Value* trip = function_.add_argument(main->body(), Type::scalar(type), index->name);
    for (int64_t j = 0; j < factor; ++j) {
      Block& body = main->body();
      if (has_ended(body)) break;
      builder_.set_insertion_point(body);
      Value* own = j == 0 ? trip : builder_.binary(Opcode::kAdd, trip, multiple(loop.operands[2], j));
      copy(loop, body, own, break_shift);
    }
  }

  Value* multiple(Value* step, int64_t factor) {
    if (factor == 1) return step;
    const DataType type = step->type.dtype;
    if (const auto known = ir::constant_int(step)) return builder_.constant(type, *known * factor);
    return builder_.binary(Opcode::kMul, step, builder_.constant(type, factor));
  }

  /// groups = trips / factor, then what remains, `factor` trips at most. A step known only at run time is
  /// positive.
  void run_time_trips(const Op& loop, Block& to, int64_t factor, int break_shift) {
    builder_.set_insertion_point(to);
    Value* begin = loop.operands[0];
    Value* end = loop.operands[1];
    const bool down = ir::constant_int(loop.operands[2]).value_or(1) < 0;
    Value* low = down ? end : begin;
    Value* high = builder_.binary(Opcode::kMax, down ? begin : end, low);
    Value* length = down ? multiple(loop.operands[2], -1) : loop.operands[2];
    // Rounded down, since rounding up would overflow near 2^31: the last trip is the second loop's then.
    Value* trips = builder_.binary(Opcode::kDiv, builder_.binary(Opcode::kSub, high, low), length);
    Value* groups = builder_.binary(Opcode::kDiv, trips, number(loop, factor));
    Value* whole = builder_.binary(Opcode::kMul, groups, multiple(loop.operands[2], factor));
    Value* middle = builder_.binary(Opcode::kAdd, begin, whole);
    main_loop(loop, to, middle, factor, break_shift);
    builder_.set_insertion_point(to);
    Op* rest = builder_.create(Opcode::kFor, {middle, end, loop.operands[2]}, {});
    const Value* index = loop.body().args[0];
    copy(loop, rest->body(), function_.add_argument(rest->body(), index->type, index->name), break_shift);
  }

  ir::Function& function_;
  ir::Builder builder_;
};

}  // namespace

void unroll(ir::Function& function) { Unroller(function).block(function.body); }

}  // namespace imbrex::passes
