// SPDX-License-Identifier: Apache-2.0
// Scalar operators: C++'s conversions, with the differences that the head of imbrex/lang/scalar.h states.
#include "lang/arithmetic.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "lang/source_text.h"

namespace imbrex {
namespace lang {

const ArithInfo& arith_info(detail::Arith op) {
  using ir::Opcode;
  static const ArithInfo table[] = {
      // symbol, code, bitwise, comparison, shift, logical
      {"+", Opcode::kAdd, false, false, false, false},
      {"-", Opcode::kSub, false, false, false, false},
      {"*", Opcode::kMul, false, false, false, false},
      {"/", Opcode::kDiv, false, false, false, false},
      {"%", Opcode::kRem, false, false, false, false},
      {"cdiv", Opcode::kCeilDiv, false, false, false, false},
      {"min", Opcode::kMin, false, false, false, false},
      {"max", Opcode::kMax, false, false, false, false},
      {"&", Opcode::kAnd, true, false, false, false},
      {"|", Opcode::kOr, true, false, false, false},
      {"^", Opcode::kXor, true, false, false, false},
      {"<<", Opcode::kShl, false, false, true, false},
      {">>", Opcode::kShr, false, false, true, false},
      {"==", Opcode::kEq, false, true, false, false},
      {"!=", Opcode::kNe, false, true, false, false},
      {"<", Opcode::kLt, false, true, false, false},
      {"<=", Opcode::kLe, false, true, false, false},
      {">", Opcode::kGt, false, true, false, false},
      {">=", Opcode::kGe, false, true, false, false},
      {"&&", Opcode::kAnd, false, false, false, true},
      {"||", Opcode::kOr, false, false, false, true},
  };
  return table[static_cast<size_t>(op)];
}

const UnaryInfo& unary_info(detail::Unary op) {
  using ir::Opcode;
  static const UnaryInfo table[] = {
      {"-", Opcode::kNeg, false},      {"~", Opcode::kNot, false},      {"!", Opcode::kNot, false},
      {"abs", Opcode::kAbs, false},    {"exp", Opcode::kExp, true},     {"exp2", Opcode::kExp2, true},
      {"log", Opcode::kLog, true},     {"sqrt", Opcode::kSqrt, true},   {"rsqrt", Opcode::kRsqrt, true},
      {"tanh", Opcode::kTanh, true},   {"sin", Opcode::kSin, true},     {"cos", Opcode::kCos, true},
      {"round", Opcode::kRound, true}, {"floor", Opcode::kFloor, true}, {"ceil", Opcode::kCeil, true},
  };
  return table[static_cast<size_t>(op)];
}

namespace {

bool is_integral(DataType t) { return t.is_integer() || t.is_bool(); }

bool fits(int64_t value, int bits, bool is_signed) {
  if (bits == 64) return is_signed || value >= 0;
  const int64_t range = int64_t{1} << bits;
  return is_signed ? value >= -range / 2 && value < range / 2 : value >= 0 && value < range;
}
bool fits(int64_t value, DataType t) {
  return t.is_bool() ? value == 0 || value == 1 : fits(value, t.bits(), t.is_signed());
}

/// `value` modulo 2^bits, as the type holds it.
int64_t wrap(int64_t value, DataType t) {
  if (t.bits() == 64) return value;
  const int64_t low = value & ((int64_t{1} << t.bits()) - 1);
  return t.is_signed() && (low >> (t.bits() - 1)) ? low - (int64_t{1} << t.bits()) : low;
}

ir::Value* float_constant(const Instruction& at, DataType t, double value) {
  return at.emit(ir::Opcode::kConst, {}, {ir::Type::scalar(t)}, {{"float", value}})->result();
}

ir::Value* number_as(const Instruction& at, const ScalarOperand& arg, DataType to) {
  if (to.is_float())
    return float_constant(
        at, to, arg.kind == ScalarOperand::Kind::kFloat ? arg.real : static_cast<double>(arg.integer));
  if (arg.kind == ScalarOperand::Kind::kFloat)
    at.fail(fmt::format("{} where {} is wanted", arg.real, to.name()), {},
            "write an integer, or convert with cast()");
  if (to.is_bool() && !arg.dtype.is_bool())
    at.fail(fmt::format("{} where a bool is wanted", arg.integer), {}, "write true or false");
  // As in C++, -1 may stand for the largest unsigned number.
  if (!to.is_bool() && !fits(arg.integer, to.bits(), true) && !fits(arg.integer, to.bits(), false))
    at.fail(fmt::format("{} does not fit {}", arg.integer, to.name()));
  return at.constant(to, wrap(arg.integer, to));
}

}  // namespace

DataType promote(DataType t) { return is_integral(t) && (t.is_bool() || t.bits() < 32) ? int32 : t; }

std::optional<int64_t> number(const ScalarOperand& arg) {
  if (arg.kind != ScalarOperand::Kind::kInteger) return std::nullopt;
  return arg.integer;
}

ir::Value* materialize(const Instruction& at, const ScalarOperand& arg) {
  switch (arg.kind) {
    case ScalarOperand::Kind::kScalar:
      return at.read(arg.handle);
    case ScalarOperand::Kind::kLaunch: {
      const bool is_block = arg.launch.kind == LaunchIndex::Kind::kBlockIdx;
      return at
          .emit(is_block ? ir::Opcode::kBlockIdx : ir::Opcode::kGridDim, {}, {ir::Type::scalar(int32)},
                {{"axis", int64_t{arg.launch.axis}}})
          ->result();
    }
    case ScalarOperand::Kind::kElement:
      return only_element(at, at.use(arg.handle));
    case ScalarOperand::Kind::kInteger:
    case ScalarOperand::Kind::kFloat:
      break;
  }
  return number_as(at, arg, arg.dtype);
}

ir::Value* materialize(const Instruction& at, const ScalarOperand& arg, DataType to) {
  return arg.is_number() ? number_as(at, arg, to) : convert(at, materialize(at, arg), to);
}

ir::Value* condition(const Instruction& at, const ScalarOperand& arg) {
  if (!arg.dtype.is_bool())
    at.fail(fmt::format("the condition is {}, not bool", arg.dtype.name()), {}, "compare it, as in x != 0");
  return materialize(at, arg);
}

ir::Value* index_value(const Instruction& at, const ScalarOperand& arg) {
  if (!is_integral(arg.dtype))
    at.fail(fmt::format("{} where an integer is wanted", arg.dtype.name()), {}, "convert with cast()");
  const bool is_narrow =
      arg.kind == ScalarOperand::Kind::kInteger ? fits(arg.integer, int32) : promote(arg.dtype) == int32;
  return materialize(at, arg, is_narrow ? int32 : int64);
}

ir::Value* convert(const Instruction& at, ir::Value* value, DataType to, bool is_explicit) {
  const DataType from = value->type.dtype;
  if (from == to) return value;
  if (!is_explicit && from.is_float() && !to.is_float())
    at.fail(fmt::format("{} does not become {} by itself", from.name(), to.name()),
            {Instruction::describe("it", value)}, "convert with cast()");
  if (!is_explicit && to.is_bool())
    at.fail(fmt::format("{} does not become bool by itself", from.name()),
            {Instruction::describe("it", value)}, "compare it, as in x != 0");
  ir::Type type = ir::Type::tensor(value->type.kind, to, value->type.shape);
  if (to.is_bool()) {
    const bool compares = !from.is_float() || from == float16 || from == bfloat16 || from == float32 ||
                          from == float64;  // formats of tensor cores do not
    if (!compares) return convert(at, convert(at, value, float32, true), to, true);
    ir::Value* zero = from.is_float() ? float_constant(at, from, 0.0) : at.constant(from, 0);
    return at.emit(ir::Opcode::kNe, {value, zero}, {std::move(type)})->result();
  }
  return at.emit(ir::Opcode::kCast, {value}, {std::move(type)}, {{"dtype", to}})->result();
}

ir::Value* without_shared_bytes(const Instruction& at, ir::Value* value) {
  const DataType from = value->type.dtype;
  return from.bits() >= 8 ? value : convert(at, value, from.is_float() ? float32 : int32, true);
}

DataType common_type(const Instruction& at, DataType a, DataType b) {
  if (a == b) return a;
  if (a.is_float() && b.is_float()) {
    if (a.bits() == b.bits() || a.bits() < 16 || b.bits() < 16)
      at.fail(fmt::format("{} and {} have no common type", a.name(), b.name()), {},
              "convert one with cast()");
    return a.bits() > b.bits() ? a : b;
  }
  if (a.is_float()) return a;
  if (b.is_float()) return b;
  a = promote(a), b = promote(b);
  if (a.bits() != b.bits()) return a.bits() > b.bits() ? a : b;
  return a.is_signed() ? b : a;
}

DataType common_type(const Instruction& at, const ScalarOperand& a, const ScalarOperand& b) {
  auto with_number = [&](const ScalarOperand& number, DataType other) {
    if (number.kind == ScalarOperand::Kind::kFloat) return other.is_float() ? other : float32;
    if (other.is_float()) return other;
    if (number.dtype.bits() == 64 && fits(number.integer, promote(other))) return promote(other);
    return common_type(at, number.dtype, other);
  };
  if (a.is_number() && !b.is_number()) return with_number(a, b.dtype);
  if (b.is_number() && !a.is_number()) return with_number(b, a.dtype);
  return common_type(at, a.dtype, b.dtype);
}

bool has_arithmetic(DataType type) { return type.is_bool() || type.bits() >= (type.is_float() ? 16 : 8); }

void check_operand_type(const Instruction& at, const ArithInfo& op, DataType dtype) {
  if (!has_arithmetic(dtype))
    at.fail(fmt::format("there is no arithmetic on {}", dtype.name()), {}, "convert with cast()");
  const bool integers_only =
      op.is_bitwise || op.is_shift || op.code == ir::Opcode::kRem || op.code == ir::Opcode::kCeilDiv;
  if (integers_only && dtype.is_float()) at.fail(fmt::format("works on integers, not on {}", dtype.name()));
}

}  // namespace lang

// --- what the headers declare ---

using lang::Instruction;

namespace detail {

SourceLocation last_location() {
  const lang::Trace* trace = lang::Trace::active();
  return trace ? trace->last_location() : SourceLocation{};
}

Expr binary(Arith op, const ScalarOperand& a, const ScalarOperand& b) {
  const lang::ArithInfo& info = lang::arith_info(op);
  const Instruction at(info.symbol, a.where);
  DataType type = lang::common_type(at, a, b);
  if (info.is_shift && !type.is_float()) type = a.dtype;
  const bool keeps_bool = info.is_bitwise || op == Arith::kEq || op == Arith::kNe;
  if (!type.is_bool() || !keeps_bool) type = lang::promote(type);
  lang::check_operand_type(at, info, type);
  const bool divides = op == Arith::kDiv || op == Arith::kRem || op == Arith::kCeilDiv;
  if (divides && !type.is_float() && lang::number(b) == 0) at.fail("division by zero");
  if (info.is_shift)
    if (auto n = lang::number(b); n && (*n < 0 || *n >= type.bits()))
      at.fail(fmt::format("a shift of {} bits by {}", type.bits(), *n));
  ir::Value* left = lang::materialize(at, a, type);
  ir::Value* right = lang::materialize(at, b, type);
  const DataType result = info.is_comparison ? boolean : type;
  return Expr(at.handle(at.emit(info.code, {left, right}, {ir::Type::scalar(result)})->result()), result);
}

Expr logical(Arith op, const ScalarOperand& a, const ScalarOperand& b) {
  const lang::ArithInfo& info = lang::arith_info(op);
  const Instruction at(info.symbol, a.where);
  ir::Value* left = lang::condition(at, a);
  ir::Value* right = lang::condition(at, b);
  return Expr(at.handle(at.emit(info.code, {left, right}, {ir::Type::scalar(boolean)})->result()), boolean);
}

Expr unary(Unary op, const ScalarOperand& a) {
  const lang::UnaryInfo& info = lang::unary_info(op);
  const Instruction at(info.symbol, a.where);
  DataType type = a.dtype;
  if (op == Unary::kLogicalNot && !type.is_bool())
    at.fail(fmt::format("the operand is {}, not bool", type.name()), {}, "compare it, as in x == 0");
  if (op == Unary::kNot && type.is_bool()) at.fail("the operand is bool", {}, "write !x");
  if (op == Unary::kNot && type.is_float()) at.fail(fmt::format("works on integers, not on {}", type.name()));
  if (info.needs_float && !type.is_float())
    at.fail(fmt::format("works on floating types, not on {}", type.name()), {}, "convert with cast()");
  if (op != Unary::kLogicalNot) type = lang::promote(type);
  if (!lang::has_arithmetic(type))
    at.fail(fmt::format("there is no arithmetic on {}", type.name()), {}, "convert with cast()");
  ir::Value* value = lang::materialize(at, a, type);
  return Expr(at.handle(at.emit(info.code, {value}, {ir::Type::scalar(type)})->result()), type);
}

Handle new_variable(DataType dtype, const ScalarOperand& init, SourceLocation where) {
  const Instruction at(dtype.name(), where);
  ir::Value* value = lang::materialize(at, init, dtype);
  ir::Value* variable =
      at.emit(ir::Opcode::kVar, {value}, {ir::Type::variable(ir::Type::scalar(dtype))})->result();
  at.trace().function().set_name(*variable, lang::declared_name(at.where()));
  return at.handle(variable);
}

void assign(Handle& variable, DataType dtype, const ScalarOperand& value) {
  if (!variable.value) {  // moved from: a fresh variable
    variable = new_variable(dtype, value, value.where);
    return;
  }
  const Instruction at("=", value.where);
  ir::Value* target = at.use(variable);
  at.emit(ir::Opcode::kAssign, {target, lang::materialize(at, value, dtype)});
}

Expr read(const Scalar& variable, SourceLocation where) {
  const Instruction at(variable.dtype().name(), where);
  return Expr(at.handle(at.read(variable.handle())), variable.dtype());
}

}  // namespace detail

Expr Scalar::to(DataType dtype, SourceLocation where) const {
  return cast(ScalarOperand(*this, where), dtype);
}

Expr cast(const ScalarOperand& a, DataType dtype) {
  const Instruction at("cast", a.where);
  // A C++ number is known: converting it is C++'s business unless the type is one C++ lacks.
  ir::Value* value = lang::convert(at, lang::materialize(at, a), dtype, true);
  return Expr(at.handle(value), dtype);
}

Expr select(const ScalarOperand& condition, const ScalarOperand& a, const ScalarOperand& b) {
  const Instruction at("select", condition.where);
  ir::Value* c = lang::condition(at, condition);
  const DataType type = lang::common_type(at, a, b);
  ir::Value* left = lang::materialize(at, a, type);
  ir::Value* right = lang::materialize(at, b, type);
  return Expr(at.handle(at.emit(ir::Opcode::kSelect, {c, left, right}, {ir::Type::scalar(type)})->result()),
              type);
}

Expr fma(const ScalarOperand& a, const ScalarOperand& b, const ScalarOperand& c) {
  const Instruction at("fma", a.where);
  DataType type = float32;
  bool has_scalar = false;
  for (const ScalarOperand* x : {&a, &b, &c}) {
    if (x->is_number()) continue;
    type = has_scalar ? lang::common_type(at, type, x->dtype) : x->dtype;
    has_scalar = true;
  }
  if (!type.is_float()) at.fail(fmt::format("works on floating types, not on {}", type.name()));
  ir::Value* x = lang::materialize(at, a, type);
  ir::Value* y = lang::materialize(at, b, type);
  ir::Value* z = lang::materialize(at, c, type);
  return Expr(at.handle(at.emit(ir::Opcode::kFma, {x, y, z}, {ir::Type::scalar(type)})->result()), type);
}

Divmod fast_divmod(const ScalarArg& a, const ScalarArg& b) {
  const Instruction at("fast_divmod", a.where);
  for (const ScalarArg* x : {&a, &b})
    if (!x->dtype.is_integer()) at.fail(fmt::format("works on integers, not on {}", x->dtype.name()));
  if (auto n = lang::number(b); n && *n <= 0) at.fail(fmt::format("the divisor is {}, not positive", *n));
  const DataType type = lang::common_type(at, a, b);
  ir::Value* dividend = lang::materialize(at, a, type);
  ir::Value* divisor = lang::materialize(at, b, type);
  ir::Op* op =
      at.emit(ir::Opcode::kFastDivmod, {dividend, divisor}, {ir::Type::scalar(type), ir::Type::scalar(type)});
  return {Expr(at.handle(op->results[0]), type), Expr(at.handle(op->results[1]), type)};
}

}  // namespace imbrex
