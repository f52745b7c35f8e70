// SPDX-License-Identifier: Apache-2.0
#include "passes/simplify.h"

#include "passes/evaluate.h"

namespace imbrex::passes {
namespace {

using ir::Opcode;
using ir::Value;

/// a op b with its sides exchanged: a < b is b > a.
Opcode mirrored(Opcode comparison) {
  switch (comparison) {
    case Opcode::kLt:
      return Opcode::kGt;
    case Opcode::kLe:
      return Opcode::kGe;
    case Opcode::kGt:
      return Opcode::kLt;
    case Opcode::kGe:
      return Opcode::kLe;
    default:
      return comparison;
  }
}

Opcode negated(Opcode comparison) {
  switch (comparison) {
    case Opcode::kEq:
      return Opcode::kNe;
    case Opcode::kNe:
      return Opcode::kEq;
    case Opcode::kLt:
      return Opcode::kGe;
    case Opcode::kLe:
      return Opcode::kGt;
    case Opcode::kGt:
      return Opcode::kLe;
    default:
      return Opcode::kLt;
  }
}

/// Every value of `from` is a value of `to`.
bool widens(DataType from, DataType to) {
  if (!to.is_integer()) return false;
  if (from.is_bool()) return true;
  if (!from.is_integer()) return false;
  return from.is_signed() == to.is_signed() ? to.bits() >= from.bits()
                                            : to.is_signed() && to.bits() > from.bits();
}

class Simplifier {
 public:
  Simplifier(const ir::Op& op, ir::Builder& builder, ir::Ranges& ranges)
      : op_(op), builder_(builder), ranges_(ranges), type_(op.result()->type.dtype) {}

  Value* run() {
    switch (op_.code) {
      case Opcode::kSelect:
        return select();
      case Opcode::kCast:
        return cast();
      case Opcode::kNot:
        return logical_not();
      case Opcode::kNeg:
        return same_op_twice();
      default:
        break;
    }
    if (op_.operands.size() != 2 || !ir::is_elementwise(op_.code)) return nullptr;
    a_ = op_.operands[0];
    b_ = op_.operands[1];
    Opcode code = op_.code;
    // Numbers to the right; not of two that have no number as their result.
    if (constant_of(a_) && !constant_of(b_) &&
        ir::has(code, ir::Fact::kCommutative | ir::Fact::kComparison)) {
      std::swap(a_, b_);
      code = mirrored(code);
    }
    const DataType type = a_->type.dtype;
    if (Value* simpler = type.is_float()  ? float_binary(code)
                         : type.is_bool() ? bool_binary(code)
                                          : integers(code))
      return simpler;
    return a_ == op_.operands[0] ? nullptr : binary(code, a_, b_);
  }

 private:
  Value* number(int64_t value) { return materialize(builder_, Constant::integer(a_->type.dtype, value)); }
  Value* truth(bool value) { return materialize(builder_, Constant::boolean(value)); }
  Value* binary(Opcode code, Value* a, Value* b) { return builder_.binary(code, a, b); }
  Value* unary(Opcode code, Value* a) { return builder_.create(code, {a}, {a->type})->result(); }
  /// The constant that the right operand of `value`, an op of `code`, is.
  static std::optional<int64_t> right_constant(const Value* value, Opcode code) {
    const ir::Op* op = ir::defined_by(value, code);
    return op ? ir::constant_int(op->operands[1]) : std::nullopt;
  }
  /// (x op c1) op c2 = x op (c1 op c2)
  Value* reassociate(Opcode code, int64_t c2, int64_t (*combine)(int64_t, int64_t)) {
    const auto c1 = right_constant(a_, code);
    return c1 ? binary(code, a_->def->operands[0], number(combine(*c1, c2))) : nullptr;
  }

  // Floating point: x + 0 is not x for x = -0, and so on; these two are safe.
  Value* float_binary(Opcode code) {
    const auto c = ir::constant_float(b_);
    return c == 1.0 && (code == Opcode::kMul || code == Opcode::kDiv) ? a_ : nullptr;
  }

  Value* bool_binary(Opcode code) {
    const auto c = ir::constant_int(b_);
    switch (code) {
      case Opcode::kAnd:
        return a_ == b_ || c == 1 ? a_ : c == 0 ? b_ : nullptr;
      case Opcode::kOr:
        return a_ == b_ || c == 0 ? a_ : c == 1 ? b_ : nullptr;
      case Opcode::kXor:
      case Opcode::kNe:
        if (a_ == b_) return truth(false);
        return !c ? nullptr : *c ? unary(Opcode::kNot, a_) : a_;
      case Opcode::kEq:
        if (a_ == b_) return truth(true);
        return !c ? nullptr : *c ? a_ : unary(Opcode::kNot, a_);
      default:
        return nullptr;
    }
  }

  Value* integers(Opcode code) {
    if (Value* simpler = integer_binary(code)) return simpler;
    if (a_->type.dtype == uint64)
      return nullptr;  // whose upper half bounds of 64 bits with a sign cannot tell
    return by_ranges(code, ranges_.of(a_), ranges_.of(b_));
  }
  /// What bounds and divisors decide.
  Value* by_ranges(Opcode code, const ir::Range& a, const ir::Range& b) {
    const bool apart = a.hi < b.lo || a.lo > b.hi;
    switch (code) {
      case Opcode::kLt:
        return a.hi < b.lo ? truth(true) : a.lo >= b.hi ? truth(false) : nullptr;
      case Opcode::kLe:
        return a.hi <= b.lo ? truth(true) : a.lo > b.hi ? truth(false) : nullptr;
      case Opcode::kGt:
        return a.lo > b.hi ? truth(true) : a.hi <= b.lo ? truth(false) : nullptr;
      case Opcode::kGe:
        return a.lo >= b.hi ? truth(true) : a.hi < b.lo ? truth(false) : nullptr;
      case Opcode::kEq:
        return apart ? truth(false) : nullptr;
      case Opcode::kNe:
        return apart ? truth(true) : nullptr;
      case Opcode::kMin:
        return a.hi <= b.lo ? a_ : b.hi <= a.lo ? b_ : nullptr;
      case Opcode::kMax:
        return a.lo >= b.hi ? a_ : b.lo >= a.hi ? b_ : nullptr;
      case Opcode::kDiv:
        if (a.lo >= 0 && a.hi < b.lo) return number(0);
        return exact_quotient();
      case Opcode::kCeilDiv:
        return exact_quotient();
      case Opcode::kRem:
        if (a.lo >= 0 && a.hi < b.lo) return a_;
        return b.is_constant() && b.lo > 0 && a.is_multiple_of(b.lo) ? number(0) : nullptr;
      default:
        return nullptr;
    }
  }
  /// (x * c) / c = x where the product does not wrap.
  Value* exact_quotient() {
    const auto c = right_constant(a_, Opcode::kMul);
    if (!c || *c <= 0 || ir::constant_int(b_) != c) return nullptr;
    Value* x = a_->def->operands[0];
    const ir::Range product = ranges_.of(x) * ir::Range::constant(*c), limits = ir::Range::of_type(type_);
    const bool is_bounded = product.lo > ir::Range().lo && product.hi < ir::Range().hi;
    return is_bounded && product.lo >= limits.lo && product.hi <= limits.hi ? x : nullptr;
  }

  Value* integer_binary(Opcode code) {
    using Wrapping = uint64_t;
    static constexpr auto add = [](int64_t x, int64_t y) {
      return static_cast<int64_t>(Wrapping(x) + Wrapping(y));
    };
    static constexpr auto mul = [](int64_t x, int64_t y) {
      return static_cast<int64_t>(Wrapping(x) * Wrapping(y));
    };
    const auto c = ir::constant_int(b_);
    const bool same = a_ == b_;
    switch (code) {
      case Opcode::kAdd:
        if (c == 0) return a_;
        return c ? reassociate(code, *c, add) : nullptr;
      case Opcode::kSub:
        if (same) return number(0);
        if (c == 0) return a_;
        return c ? binary(Opcode::kAdd, a_, number(static_cast<int64_t>(0 - Wrapping(*c)))) : difference();
      case Opcode::kMul:
        if (c == 0) return b_;
        if (c == 1) return a_;
        return c ? reassociate(code, *c, mul) : nullptr;
      case Opcode::kDiv:
      case Opcode::kCeilDiv:
        return c == 1 ? a_ : nullptr;
      case Opcode::kRem:
        if (c == 1) return number(0);
        return c && right_constant(a_, Opcode::kRem) == c ? a_ : nullptr;
      case Opcode::kMin:
      case Opcode::kMax:
        return same ? a_ : nullptr;
      case Opcode::kAnd:
        return same || is_all_ones(c) ? a_ : c == 0 ? b_ : nullptr;
      case Opcode::kOr:
        return same || c == 0 ? a_ : is_all_ones(c) ? b_ : nullptr;
      case Opcode::kXor:
        return same ? number(0) : c == 0 ? a_ : nullptr;
      case Opcode::kShl:
      case Opcode::kShr:
        return c == 0 ? a_ : nullptr;
      case Opcode::kEq:
      case Opcode::kNe:
        return equality(code, c);
      case Opcode::kLe:
      case Opcode::kGe:
        return same ? truth(true) : nullptr;
      case Opcode::kLt:
      case Opcode::kGt:
        return same ? truth(false) : nullptr;
      default:
        return nullptr;
    }
  }
  bool is_all_ones(std::optional<int64_t> c) const {
    return c && *c == Constant::integer(a_->type.dtype, -1).i;
  }
  /// (x + y) - x = y, (x + c) - x = c
  Value* difference() {
    const ir::Op* sum = ir::defined_by(a_, Opcode::kAdd);
    if (!sum) return nullptr;
    return sum->operands[0] == b_ ? sum->operands[1] : sum->operands[1] == b_ ? sum->operands[0] : nullptr;
  }
  Value* equality(Opcode code, std::optional<int64_t> c) {
    const bool equal = code == Opcode::kEq;
    if (a_ == b_) return truth(equal);
    if (!c) return nullptr;
    if (const auto c1 = right_constant(a_, Opcode::kAdd))  // x + c1 == c is x == c - c1
      return binary(code, a_->def->operands[0], number(static_cast<int64_t>(uint64_t(*c) - uint64_t(*c1))));
    const ir::Op* widened = ir::defined_by(a_, Opcode::kCast);
    if (widened && widened->operands[0]->type == ir::Type::scalar(boolean)) {  // int(p) == c
      Value* p = widened->operands[0];
      if (*c != 0 && *c != 1) return truth(!equal);
      return (*c == 1) == equal ? p : unary(Opcode::kNot, p);
    }
    return nullptr;
  }

  Value* select() {
    a_ = op_.operands[1];
    b_ = op_.operands[2];
    Value* condition = op_.operands[0];
    if (!op_.result()->type.is_scalar() || !condition->type.is_scalar()) return nullptr;
    if (a_ == b_) return a_;
    if (const auto known = ir::constant_int(condition)) return *known ? a_ : b_;
    if (!type_.is_bool()) return nullptr;
    const auto x = ir::constant_int(a_), y = ir::constant_int(b_);
    if (x == 1 && y == 0) return condition;
    if (x == 0 && y == 1) return unary(Opcode::kNot, condition);
    return nullptr;
  }

  Value* cast() {
    Value* from = op_.operands[0];
    const DataType to = op_.dtype_attr("dtype");
    if (from->type.dtype == to) return from;
    const ir::Op* inner = ir::defined_by(from, Opcode::kCast);
    if (!inner) return nullptr;
    Value* origin = inner->operands[0];
    // The middle type holds every value of the origin, so that it may be left out.
    if (!widens(origin->type.dtype, from->type.dtype)) return nullptr;
    if (origin->type.dtype == to) return origin;
    if (!to.is_integer()) return nullptr;
    return builder_.create(Opcode::kCast, {origin}, {op_.result()->type}, {{"dtype", to}})->result();
  }

  Value* logical_not() {
    if (Value* inner = same_op_twice()) return inner;
    const ir::Op* comparison = op_.operands[0]->def;
    if (!type_.is_bool() || !comparison || !ir::is_comparison(comparison->code)) return nullptr;
    if (comparison->operands[0]->type.dtype.is_float()) return nullptr;  // NaN
    return binary(negated(comparison->code), comparison->operands[0], comparison->operands[1]);
  }
  /// not not x, - - x
  Value* same_op_twice() {
    const ir::Op* inner = ir::defined_by(op_.operands[0], op_.code);
    return inner ? inner->operands[0] : nullptr;
  }

  const ir::Op& op_;
  ir::Builder& builder_;
  ir::Ranges& ranges_;
  DataType type_;
  Value* a_ = nullptr;
  Value* b_ = nullptr;
};

}  // namespace

ir::Value* simplify(const ir::Op& op, ir::Builder& builder, ir::Ranges& ranges) {
  if (op.results.size() != 1) return nullptr;
  // Element-wise ops on tensors follow the same algebra, but numbers would need broadcasting.
  for (const Value* operand : op.operands)
    if (!operand->type.is_scalar()) return nullptr;
  return Simplifier(op, builder, ranges).run();
}

}  // namespace imbrex::passes
