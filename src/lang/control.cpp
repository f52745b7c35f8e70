// SPDX-License-Identifier: Apache-2.0
// Control flow: the C++ objects whose lifetimes are the traced scopes.
#include "imbrex/lang/control.h"

#include <fmt/format.h>

#include <exception>

#include "lang/arithmetic.h"
#include "lang/source_text.h"

namespace imbrex {

using lang::Instruction;
using lang::OpenScope;
using lang::ScopeKind;
using lang::Trace;

// --- loops ---

namespace detail {

struct LoopState {
  std::string_view name;
  SourceLocation where;
  ir::Opcode code;
  std::vector<ir::Value*> operands;  // of `for`
  int64_t unroll = 1;
  enum { kFresh, kOpen, kClosed } state = kFresh;
  uint64_t scope = 0;
  int exceptions = std::uncaught_exceptions();
};

void LoopScope::restart() {
  if (state_->state == LoopState::kClosed) state_->state = LoopState::kFresh;
}

bool LoopScope::enter() {
  if (state_->state != LoopState::kFresh) return false;
  const Instruction at(state_->name, state_->where);
  Trace& trace = at.trace();
  std::vector<ir::Attr> attrs;
  if (state_->unroll != 1) attrs.push_back({"unroll", state_->unroll});
  ir::Op* op = at.emit(state_->code, state_->operands, {}, std::move(attrs));
  if (state_->code == ir::Opcode::kFor)
    trace.function().add_argument(op->body(), state_->operands[0]->type, lang::declared_name(at.where()));
  state_->scope = trace.open({.kind = ScopeKind::kLoop, .op = op, .block = &op->body(), .where = at.where()});
  state_->state = LoopState::kOpen;
  return true;
}

void LoopScope::close() {
  if (Trace* trace = Trace::active()) trace->close(state_->scope);
  state_->state = LoopState::kClosed;
}

Expr LoopScope::index() const {
  const Instruction at(state_->name, state_->where);
  ir::Value* index = at.trace().scope().block->args.at(0);
  return Expr(at.handle(index), index->type.dtype);
}

uint64_t LoopScope::serial() const { return state_->scope; }

LoopScope::~LoopScope() {
  if (Trace* trace = Trace::active(); trace && state_->state == LoopState::kOpen) {
    const bool is_exception = std::uncaught_exceptions() > state_->exceptions;
    trace->fail_later({state_->where,
                       fmt::format("{}: the loop's body was left by a C++ {}", state_->name,
                                   is_exception ? "exception" : "break, return or goto"),
                       {"the rest of the body would be missing from the kernel"},
                       "to leave the loop at run time use break_if(condition)"});
    trace->close(state_->scope, /*cut_short=*/true);
  }
  delete state_;
}

}  // namespace detail

Range range(const ScalarArg& begin, const ScalarArg& end, const ScalarArg& step, RangeOptions options,
            SourceLocation where) {
  const Instruction at("range", where);
  for (const ScalarArg* bound : {&begin, &end, &step})
    if (!bound->dtype.is_integer())
      at.fail(fmt::format("bounds and step are integers, not {}", bound->dtype.name()));
  if (lang::number(step) == 0) at.fail("the step is 0");
  if (options.unroll < 0) at.fail(fmt::format("cannot unroll {} times", options.unroll));
  if (options.unroll == 0 && !(begin.is_number() && end.is_number() && step.is_number()))
    at.fail("cannot unroll completely: a bound or the step is known only at run time", {},
            "give the number of copies, as in {.unroll = 4}");
  DataType type = lang::common_type(at, begin, end);
  // A 64-bit number that fits widens nothing, here as elsewhere; three numbers make an int32 loop if they
  // can.
  auto is_small = [](const ScalarArg& x) {
    return x.is_number() ? x.integer == static_cast<int32_t>(x.integer) : x.dtype == int32;
  };
  if (!step.is_number() || !is_small(step)) type = lang::common_type(at, type, step.dtype);
  if (is_small(begin) && is_small(end) && is_small(step)) type = int32;
  type = lang::promote(type);
  auto* state = new detail::LoopState{.name = "range", .where = where, .code = ir::Opcode::kFor};
  state->operands = {lang::materialize(at, begin, type), lang::materialize(at, end, type),
                     lang::materialize(at, step, type)};
  state->unroll = options.unroll;
  return Range(state);
}

Range range(const ScalarArg& begin, const ScalarArg& end, RangeOptions options, SourceLocation where) {
  return range(begin, end, ScalarArg(1, where), options, where);
}

Range range(const ScalarArg& end, RangeOptions options, SourceLocation where) {
  return range(ScalarArg(0, where), end, ScalarArg(1, where), options, where);
}

Forever forever(SourceLocation where) {
  const Instruction at("forever", where);
  return Forever(new detail::LoopState{.name = "forever", .where = where, .code = ir::Opcode::kLoop});
}

namespace {

/// Loops between here and the loop of this scope (0: the innermost loop).
int64_t break_depth(const Instruction& at, uint64_t loop) {
  int64_t depth = 0;
  const std::vector<OpenScope>& scopes = at.trace().scopes();
  for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
    if (scope->kind == ScopeKind::kGroup)
      at.fail("cannot leave a loop from inside a thread group: the loop's other threads would go on",
              {fmt::format("the group is opened at {}:{}", scope->where.file, scope->where.line)},
              "close the group first, or put the loop inside it");
    if (scope->kind != ScopeKind::kLoop) continue;
    if (loop == 0 || scope->serial == loop) return depth;
    ++depth;
  }
  at.fail(loop == 0 ? "not inside a traced loop" : "that loop has ended");
}

void emit_break(const Instruction& at, int64_t depth) {
  std::vector<ir::Attr> attrs;
  if (depth > 0) attrs.push_back({"depth", depth});
  at.emit(ir::Opcode::kBreak, {}, {}, std::move(attrs));
}

void break_where(const Instruction& at, uint64_t loop, const ScalarArg& condition) {
  const int64_t depth = break_depth(at, loop);
  ir::Op* op = at.emit(ir::Opcode::kIf, {lang::condition(at, condition)});
  ir::Builder& builder = at.trace().builder();
  builder.set_insertion_point(op->body());
  std::vector<ir::Attr> attrs;
  if (depth > 0) attrs.push_back({"depth", depth});
  builder.create(ir::Opcode::kBreak, {}, {}, std::move(attrs));
  builder.set_insertion_point(*at.trace().scope().block);
}

}  // namespace

void Loop::break_if(const ScalarArg& condition, SourceLocation where) const {
  break_where(Instruction("break_if", where), serial_, condition);
}

void Loop::break_loop(SourceLocation where) const {
  const Instruction at("break_loop", where);
  emit_break(at, break_depth(at, serial_));
}

void break_if(const ScalarArg& condition, SourceLocation where) {
  break_where(Instruction("break_if", where), 0, condition);
}

namespace {

void reject_in_group(const Instruction& at) {
  for (const OpenScope& scope : at.trace().scopes())
    if (scope.kind == ScopeKind::kGroup)
      at.fail("only some of the CTA's threads would leave the kernel, and the others wait for them",
              {fmt::format("the group is opened at {}:{}", scope.where.file, scope.where.line)},
              "close the group first, or put the rest of the group's work in a when() block");
}

}  // namespace

void return_(SourceLocation where) {
  const Instruction at("return_", where);
  reject_in_group(at);
  at.emit(ir::Opcode::kReturn, {});
}

void return_if(const ScalarArg& condition, SourceLocation where) {
  const Instruction at("return_if", where);
  reject_in_group(at);
  ir::Op* op = at.emit(ir::Opcode::kIf, {lang::condition(at, condition)});
  ir::Builder& builder = at.trace().builder();
  builder.set_insertion_point(op->body());
  builder.create(ir::Opcode::kReturn, {}, {});
  builder.set_insertion_point(*at.trace().scope().block);
}

// --- guards ---

Guard::Guard(uint64_t serial) : serial_(serial), exceptions_(std::uncaught_exceptions()) {}

Guard::~Guard() {
  Trace* trace = Trace::active();
  if (!trace || !trace->is_open(serial_)) return;
  const bool is_cut = std::uncaught_exceptions() > exceptions_;
  if (is_cut)
    trace->fail_later({trace->scope().where,
                       "the block opened here was left by a C++ exception",
                       {"the rest of the block would be missing from the kernel"},
                       ""});
  trace->close(serial_, is_cut);
}

namespace {

/// A block that C++ leaves early looks to the trace as if it ended there, so its text is searched first.
void reject_early_exit(const Instruction& at) {
  const std::optional<lang::EarlyExit> exit = lang::early_exit(at.where(), at.name());
  if (!exit) return;
  const SourceLocation line{at.where().file, static_cast<uint32_t>(exit->line), at.where().function};
  const std::string opened = fmt::format("the block is opened at {}:{}", at.where().file, at.where().line);
  if (exit->word == "else")
    throw CompileError(Diagnostic{line,
                                  fmt::format("{}: a C++ else after a traced block never runs", at.name()),
                                  {opened},
                                  "write `if (auto arm = otherwise())` after the closing brace"});
  throw CompileError(
      Diagnostic{line,
                 fmt::format("{}: a C++ {} leaves a traced block", at.name(), exit->word),
                 {opened, "what follows it would be missing from the kernel"},
                 "put the rest in otherwise(), or leave a traced loop with break_if(condition)"});
}

Guard open_arm(const Instruction& at, ir::Op* op, size_t region, ir::Op* chain) {
  return Guard(at.trace().open({.kind = ScopeKind::kArm,
                                .op = op,
                                .block = op->regions[region].get(),
                                .where = at.where(),
                                .chain = chain}));
}

/// The arm that otherwise() continues: the last thing traced in this block.
Trace::ClosedArm preceding_arm(const Instruction& at) {
  const Trace::ClosedArm arm = at.trace().closed_arm;
  if (!arm.chain || arm.chain->parent != at.trace().scope().block)
    at.fail("there is no when() or otherwise_when() block right before it in this scope");
  return arm;
}

}  // namespace

Guard when(const ScalarArg& condition, SourceLocation where) {
  const Instruction at("when", where);
  reject_early_exit(at);
  ir::Op* op = at.emit(ir::Opcode::kIf, {lang::condition(at, condition)});
  return open_arm(at, op, 0, op);
}

Guard otherwise(SourceLocation where) {
  const Instruction at("otherwise", where);
  reject_early_exit(at);
  const Trace::ClosedArm arm = preceding_arm(at);
  if (const ir::Op* last = at.trace().scope().block->ops.back(); last != arm.chain)
    at.fail("it must follow the when() block directly",
            {fmt::format("{} at {}:{} stands between", last->info().mnemonic, last->where.file,
                         last->where.line)});
  return open_arm(at, arm.last, 1, arm.chain);
}

Guard otherwise_when(const ScalarArg& condition, SourceLocation where) {
  const Instruction at("otherwise_when", where);
  reject_early_exit(at);
  const Trace::ClosedArm arm = preceding_arm(at);
  ir::Value* value = lang::condition(at, condition);
  // C++ has traced the condition's own ops after the first `if`: they belong into its other region.
  std::vector<ir::Op*>& ops = at.trace().scope().block->ops;
  ir::Block& other = *arm.last->regions[1];
  size_t first = ops.size();
  while (ops[first - 1] != arm.chain) --first;
  for (size_t i = first; i < ops.size(); ++i) {
    const ir::Effect effect = ops[i]->info().effect;
    if (effect != ir::Effect::kPure && effect != ir::Effect::kReads)
      at.fail("only its own condition may stand between it and the block before",
              {fmt::format("{} at {}:{} stands there too", ops[i]->info().mnemonic, ops[i]->where.file,
                           ops[i]->where.line)});
    ops[i]->parent = &other;
    other.ops.push_back(ops[i]);
  }
  ops.resize(first);
  ir::Builder& builder = at.trace().builder();
  builder.set_insertion_point(other);
  builder.set_location(at.where());
  ir::Op* op = builder.create(ir::Opcode::kIf, {value}, {});
  return open_arm(at, op, 0, arm.chain);
}

namespace {

Guard open_group(std::string_view name, int64_t begin, int64_t threads, SourceLocation where) {
  const Instruction at(name, where);
  reject_early_exit(at);
  const int64_t enclosing = at.trace().scope().threads;
  if (threads <= 0 || begin < 0 || begin + threads > enclosing)
    at.fail(threads <= 0 ? fmt::format("a group of {} threads", threads)
                         : fmt::format("threads {}...{} of a group that has {}", begin, begin + threads - 1,
                                       enclosing),
            {}, at.trace().scopes().size() == 1 ? "warps(n) sets the CTA's size" : "");
  at.trace().has_thread_groups = true;
  ir::Op* op = at.emit(ir::Opcode::kThreadGroup, {}, {}, {{"begin", begin}, {"threads", threads}});
  return Guard(at.trace().open(
      {.kind = ScopeKind::kGroup, .op = op, .block = &op->body(), .where = at.where(), .threads = threads}));
}

}  // namespace

Guard thread_group(int64_t begin, int64_t threads, SourceLocation where) {
  return open_group("thread_group", begin, threads, where);
}
Guard single_warp(int64_t warp, SourceLocation where) {
  return open_group("single_warp", 32 * warp, 32, where);
}
Guard single_thread(int64_t thread, SourceLocation where) {
  return open_group("single_thread", thread, 1, where);
}
Guard warp_group(int64_t first_warp, int64_t warps, SourceLocation where) {
  return open_group("warp_group", 32 * first_warp, 32 * warps, where);
}

// --- statements ---

void sync(SourceLocation where) { Instruction("sync", where).emit(ir::Opcode::kSync, {}); }

void assume(const ScalarArg& condition, SourceLocation where) {
  const Instruction at("assume", where);
  at.emit(ir::Opcode::kAssume, {lang::condition(at, condition)});
}

void check(const ScalarArg& condition, const char* message, SourceLocation where) {
  const Instruction at("check", where);
  at.emit(ir::Opcode::kCheck, {lang::condition(at, condition)}, {}, {{"message", std::string(message)}});
}

void detail::requirement_failed(SourceLocation where, const char* format, const MessageArg* args, int count) {
  std::string message;
  int next = 0;
  for (const char* c = format; *c; ++c) {
    if (c[0] != '{' || c[1] != '}' || next == count) {
      message += *c;
      continue;
    }
    const MessageArg& arg = args[next++];
    if (arg.kind == MessageArg::kInteger) message += std::to_string(arg.integer);
    if (arg.kind == MessageArg::kFloat) message += fmt::format("{}", arg.real);
    if (arg.kind == MessageArg::kText) message += arg.text;
    ++c;
  }
  throw CompileError(Diagnostic{where, std::move(message), {}, ""});
}

}  // namespace imbrex
