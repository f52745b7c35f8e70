// SPDX-License-Identifier: Apache-2.0
// Register tensors: arithmetic, conversions, reductions, variables.
#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "lang/source_text.h"
#include "lang/tiles.h"

namespace imbrex {
namespace lang {

ir::Value* tile(const Instruction& at, const TileArg& arg) { return at.read(arg.handle); }

std::optional<Shape> broadcast_shape(const Shape& a, const Shape& b) {
  Shape shape(std::max(a.size(), b.size()));
  for (size_t i = 1; i <= shape.size(); ++i) {  // from the last dimension on
    const int64_t x = i <= a.size() ? a[a.size() - i] : 1;
    const int64_t y = i <= b.size() ? b[b.size() - i] : 1;
    if (x != y && x != 1 && y != 1) return std::nullopt;
    shape[shape.size() - i] = std::max(x, y);
  }
  return shape;
}

ir::Value* broadcast(const Instruction& at, ir::Value* value, const Shape& shape) {
  const Shape& from = value->type.shape;
  if (from == shape) return value;
  if (broadcast_shape(from, shape) != shape)
    at.fail(fmt::format("{} does not broadcast to {}", shape_text(from), shape_text(shape)),
            {Instruction::describe("it", value)});
  if (!value->type.is_scalar() && from.size() < shape.size()) {
    Shape padded(shape.size() - from.size(), 1);
    padded.insert(padded.end(), from.begin(), from.end());
    value = at.emit(ir::Opcode::kReshape, {value}, {register_type(value->type.dtype, padded)},
                    {{"shape", padded}})
                ->result();
    if (padded == shape) return value;
  }
  return at
      .emit(ir::Opcode::kBroadcast, {value}, {register_type(value->type.dtype, shape)}, {{"shape", shape}})
      ->result();
}

namespace {

struct Operands {
  ir::Value *a, *b;
  Shape shape;
};

/// Both operands in one element type and, where both are tensors, one shape. Scalars stay scalars.
Operands meet(const Instruction& at, const NumArg& a, const NumArg& b) {
  ir::Value* x = a.is_tile ? at.read(a.handle) : nullptr;
  ir::Value* y = b.is_tile ? at.read(b.handle) : nullptr;
  if (x && y) {
    const std::optional<Shape> shape = broadcast_shape(x->type.shape, y->type.shape);
    if (!shape)
      at.fail(fmt::format("shapes {} and {} do not broadcast", shape_text(x->type.shape),
                          shape_text(y->type.shape)),
              {Instruction::describe("a", x), Instruction::describe("b", y)},
              "extents, aligned at the last dimension, must be equal or 1");
    const DataType type = common_type(at, x->type.dtype, y->type.dtype);
    return {broadcast(at, convert(at, x, type), *shape), broadcast(at, convert(at, y, type), *shape), *shape};
  }
  const DataType type = (x ? x : y)->type.dtype;
  const Shape shape = (x ? x : y)->type.shape;
  if (!x) x = materialize(at, a.scalar, type);
  if (!y) y = materialize(at, b.scalar, type);
  return {x, y, shape};
}

/// Checks what is reduced.
ir::Value* reducible(const Instruction& at, const TileArg& a) {
  ir::Value* value = tile(at, a);
  const bool is_logical = at.name() == "any" || at.name() == "all";
  if (is_logical != value->type.dtype.is_bool())
    at.fail(fmt::format("works on {}, not on {}", is_logical ? "bool tensors" : "numbers",
                        value->type.dtype.name()),
            {Instruction::describe("it", value)}, is_logical ? "compare first, as in x != 0" : "");
  return value;
}

ir::Op* reduce_axis(const Instruction& at, ir::Value* value, int64_t axis, bool keep) {
  Shape shape = value->type.shape;
  if (keep)
    shape[static_cast<size_t>(axis)] = 1;
  else
    shape.erase(shape.begin() + axis);
  std::vector<ir::Attr> attrs = {{"axis", axis}, {"kind", std::string(at.name())}};
  if (keep) attrs.push_back({"keep", true});
  return at.emit(ir::Opcode::kReduce, {value}, {register_type(value->type.dtype, std::move(shape))},
                 std::move(attrs));
}

RegisterValue reduce(std::string_view kind, const TileArg& a, const ReduceOptions& options) {
  const Instruction at(kind, a.where);
  ir::Value* value = reducible(at, a);
  const int rank = value->type.rank();
  Shape axes = options.axes.empty() ? Shape{options.axis} : options.axes;
  for (int64_t& axis : axes) {
    const int64_t given = axis;
    if (axis < 0) axis += rank;
    if (axis < 0 || axis >= rank)
      at.fail(fmt::format("axis {} of a tensor of {} dimensions", given, rank),
              {Instruction::describe("it", value)});
    if (std::count(axes.begin(), axes.end(), axis) != 1)
      at.fail(fmt::format("axis {} is named twice", given), {Instruction::describe("it", value)});
  }
  std::sort(axes.begin(), axes.end(), std::greater());
  ir::Op* op = nullptr;
  for (int64_t axis : axes) {
    op = reduce_axis(at, value, axis, options.keep);
    value = op->result();
  }
  return result(at, op);
}

/// All elements to one scalar: the axes in turn, each result in all threads that took part.
Expr reduce_all(std::string_view kind, const TileArg& a) {
  const Instruction at(kind, a.where);
  ir::Value* value = reducible(at, a);
  const int64_t rank = value->type.rank();
  for (int64_t axis = rank - 1; axis >= 0; --axis)
    if (value->type.shape[static_cast<size_t>(axis)] > 1)
      value = reduce_axis(at, value, axis, true)->result();
  std::vector<ir::Value*> operands(1 + static_cast<size_t>(rank), rank > 0 ? at.constant(int32, 0) : nullptr);
  operands[0] = value;
  ir::Value* item =
      at.emit(ir::Opcode::kItem, std::move(operands), {ir::Type::scalar(value->type.dtype)})->result();
  at.name_result(item);
  return Expr(at.handle(item), item->type.dtype);
}

}  // namespace
}  // namespace lang

using lang::Instruction;

namespace detail {

RegisterValue tile_binary(Arith op, const NumArg& a, const NumArg& b) {
  const lang::ArithInfo& info = lang::arith_info(op);
  const Instruction at(info.symbol, a.where);
  const lang::Operands v = lang::meet(at, a, b);
  const DataType type = v.a->type.dtype;
  if (info.is_logical && !type.is_bool())
    at.fail(fmt::format("works on bool tensors, not on {}", type.name()));
  if (type.is_bool() && !info.is_logical && !info.is_bitwise && !info.is_comparison)
    at.fail("there is no arithmetic on bool", {}, "convert with .to(int32)");
  lang::check_operand_type(at, info, type);
  return lang::result(at, at.emit(info.code, {v.a, v.b},
                                  {lang::register_type(info.is_comparison ? boolean : type, v.shape)}));
}

RegisterValue tile_unary(Unary op, const TileArg& a) {
  const lang::UnaryInfo& info = lang::unary_info(op);
  const Instruction at(info.symbol, a.where);
  ir::Value* value = lang::tile(at, a);
  const DataType type = value->type.dtype;
  const bool wants_bool = op == Unary::kLogicalNot, wants_integer = op == Unary::kNot;
  if (wants_bool != type.is_bool() || (wants_integer && type.is_float()) ||
      (info.needs_float && !type.is_float()))
    at.fail(fmt::format("works on {} tensors, not on {}",
                        wants_bool         ? "bool"
                        : wants_integer    ? "integer"
                        : info.needs_float ? "floating"
                                           : "number",
                        type.name()),
            {Instruction::describe("it", value)});
  if (!lang::has_arithmetic(type))
    at.fail(fmt::format("there is no arithmetic on {}", type.name()), {},
            type.is_float() ? "convert with .to(float32)" : "convert with .to(int32)");
  return lang::result(at, at.emit(info.code, {value}, {lang::register_type(type, value->type.shape)}));
}

Handle new_tile_variable(const TileArg& init, SourceLocation where) {
  const Instruction at("RegisterTensor", where);
  ir::Value* value = lang::tile(at, init);
  ir::Value* variable =
      at.emit(ir::Opcode::kVar, {value},
              {ir::Type::variable(lang::register_type(value->type.dtype, value->type.shape))})
          ->result();
  at.trace().function().set_name(*variable, lang::declared_name(at.where()));
  return at.handle(variable);
}

void assign_tile(const RegisterBase& variable, const NumArg& value) {
  const Instruction at("=", value.where);
  ir::Value* target = at.use(variable.handle());
  const ir::Type& type = target->type;
  ir::Value* v = value.is_tile ? lang::convert(at, at.read(value.handle), type.dtype)
                               : lang::materialize(at, value.scalar, type.dtype);
  if (!v->type.is_scalar() && lang::broadcast_shape(v->type.shape, type.shape) != type.shape)
    at.fail(fmt::format("{} does not broadcast to {}", lang::shape_text(v->type.shape),
                        lang::shape_text(type.shape)),
            {lang::Instruction::describe("value", v), lang::Instruction::describe("variable", target)},
            "a variable keeps the shape of its first value: declare it with the largest that it will hold, "
            "`RegisterTensor x = zeros(float32, {m, n})`");
  at.emit(ir::Opcode::kAssign, {target, lang::broadcast(at, v, type.shape)});
}

}  // namespace detail

RegisterValue RegisterBase::to(DataType dtype, SourceLocation where) const {
  return cast(TileArg(*this, where), dtype);
}

RegisterValue cast(const TileArg& a, DataType dtype) {
  const Instruction at("cast", a.where);
  return RegisterValue(at.handle(lang::convert(at, lang::tile(at, a), dtype, true)));
}

RegisterValue select(const TileArg& condition, const NumArg& a, const NumArg& b) {
  const Instruction at("select", condition.where);
  ir::Value* c = lang::tile(at, condition);
  if (!c->type.dtype.is_bool())
    at.fail(fmt::format("the condition is {}, not bool", c->type.dtype.name()),
            {Instruction::describe("condition", c)}, "compare it, as in x != 0");
  ir::Value *x, *y;
  Shape shape = c->type.shape;
  if (a.is_tile || b.is_tile) {
    const lang::Operands v = lang::meet(at, a, b);
    const std::optional<Shape> all = lang::broadcast_shape(shape, v.shape);
    if (!all)
      at.fail(fmt::format("the condition's shape {} and the values' {} do not broadcast",
                          lang::shape_text(shape), lang::shape_text(v.shape)),
              {Instruction::describe("condition", c)});
    shape = *all;
    x = v.a->type.is_scalar() ? v.a : lang::broadcast(at, v.a, shape);
    y = v.b->type.is_scalar() ? v.b : lang::broadcast(at, v.b, shape);
  } else {
    const DataType type = lang::common_type(at, a.scalar, b.scalar);
    x = lang::materialize(at, a.scalar, type);
    y = lang::materialize(at, b.scalar, type);
  }
  c = lang::broadcast(at, c, shape);
  return lang::result(
      at, at.emit(ir::Opcode::kSelect, {c, x, y}, {lang::register_type(x->type.dtype, std::move(shape))}));
}

RegisterValue fma(const TileArg& a, const NumArg& b, const NumArg& c) {
  const Instruction at("fma", a.where);
  const lang::Operands ab = lang::meet(at, a, b);
  if (!ab.a->type.dtype.is_float())
    at.fail(fmt::format("works on floating tensors, not on {}", ab.a->type.dtype.name()));
  const lang::Operands ac = lang::meet(at, a, c);
  if (ac.a->type.dtype != ab.a->type.dtype || ac.shape != ab.shape)
    at.fail(fmt::format("a * b is {}{}, c is {}{}", ab.a->type.dtype.name(), lang::shape_text(ab.shape),
                        ac.a->type.dtype.name(), lang::shape_text(ac.shape)));
  return lang::result(
      at, at.emit(ir::Opcode::kFma, {ab.a, ab.b, ac.b}, {lang::register_type(ab.a->type.dtype, ab.shape)}));
}

RegisterValue sum(const TileArg& a, ReduceOptions options) { return lang::reduce("sum", a, options); }
RegisterValue min(const TileArg& a, ReduceOptions options) { return lang::reduce("min", a, options); }
RegisterValue max(const TileArg& a, ReduceOptions options) { return lang::reduce("max", a, options); }
RegisterValue any(const TileArg& a, ReduceOptions options) { return lang::reduce("any", a, options); }
RegisterValue all(const TileArg& a, ReduceOptions options) { return lang::reduce("all", a, options); }

Expr sum(const TileArg& a) { return lang::reduce_all("sum", a); }
Expr min(const TileArg& a) { return lang::reduce_all("min", a); }
Expr max(const TileArg& a) { return lang::reduce_all("max", a); }
Expr any(const TileArg& a) { return lang::reduce_all("any", a); }
Expr all(const TileArg& a) { return lang::reduce_all("all", a); }

RegisterValue full(DataType dtype, const Shape& shape, const ScalarArg& value, SourceLocation where) {
  const Instruction at("full", where);
  lang::check_shape(at, shape);
  ir::Value* scalar = lang::materialize(at, value, dtype);
  return lang::result(
      at, at.emit(ir::Opcode::kBroadcast, {scalar}, {lang::register_type(dtype, shape)}, {{"shape", shape}}));
}

RegisterValue zeros(DataType dtype, const Shape& shape, SourceLocation where) {
  return dtype.is_bool() ? full(dtype, shape, ScalarArg(false, where), where)
                         : full(dtype, shape, ScalarArg(0, where), where);
}

RegisterValue relayout(const TileArg& a, SourceLocation where) {
  const Instruction at("relayout", where);
  ir::Value* value = lang::tile(at, a);
  return lang::result(at, at.emit(ir::Opcode::kRelayout, {value},
                                  {lang::register_type(value->type.dtype, value->type.shape)}));
}

RegisterValue relayout(const TileArg& a, const layout::Layout& layout, SourceLocation where) {
  const Instruction at("relayout", where);
  ir::Value* value = lang::tile(at, a);
  return lang::result(
      at, at.emit(ir::Opcode::kRelayout, {value}, {lang::register_type(value->type.dtype, value->type.shape)},
                  {{"layout", layout}}));
}

}  // namespace imbrex
