// SPDX-License-Identifier: Apache-2.0
#include "ir/ranges.h"

#include <algorithm>
#include <numeric>

namespace imbrex::ir {

namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

/// Both bounds, or no bounds at all when one of them overflowed.
Range bounded(bool overflow, int64_t lo, int64_t hi, int64_t multiple) {
  return overflow ? Range{kMin, kMax, multiple} : Range{lo, hi, multiple};
}

int64_t product_multiple(int64_t a, int64_t b) {
  int64_t product;
  // A multiple of a * b is one of a and of b too, so the larger is taken when the product is out of range.
  return __builtin_mul_overflow(a, b, &product) ? std::max(a, b) : product;
}

int64_t power_of_two_factor(int64_t x) { return x == 0 ? int64_t{1} << 62 : x & -x; }

/// The range as the type holds it: arithmetic wraps modulo 2^bits, which keeps powers of two as divisors.
Range wrapped(const Range& r, DataType type) {
  const Range limits = Range::of_type(type);
  if (r.lo >= limits.lo && r.hi <= limits.hi) return r;
  return {limits.lo, limits.hi, power_of_two_factor(r.multiple)};
}

}  // namespace

Range Range::of_type(DataType type) {
  if (type.is_bool()) return between(0, 1);
  if (!type.is_integer() || type.bits() == 64) return type == uint64 ? between(0, kMax) : Range{};
  const int bits = type.bits();
  if (type.is_signed()) return between(-(int64_t{1} << (bits - 1)), (int64_t{1} << (bits - 1)) - 1);
  return between(0, (int64_t{1} << bits) - 1);
}

Range operator+(const Range& a, const Range& b) {
  int64_t lo, hi;
  const bool below = __builtin_add_overflow(a.lo, b.lo, &lo), above = __builtin_add_overflow(a.hi, b.hi, &hi);
  return bounded(below || above, lo, hi, std::gcd(a.multiple, b.multiple));
}

Range operator-(const Range& a, const Range& b) {
  int64_t lo, hi;
  const bool below = __builtin_sub_overflow(a.lo, b.hi, &lo), above = __builtin_sub_overflow(a.hi, b.lo, &hi);
  return bounded(below || above, lo, hi, std::gcd(a.multiple, b.multiple));
}

Range operator*(const Range& a, const Range& b) {
  int64_t corners[4];
  bool overflow = false;
  for (int i = 0; i < 4; ++i)
    overflow |= __builtin_mul_overflow(i & 1 ? a.hi : a.lo, i & 2 ? b.hi : b.lo, &corners[i]);
  return bounded(overflow, *std::min_element(corners, corners + 4), *std::max_element(corners, corners + 4),
                 product_multiple(a.multiple, b.multiple));
}

Ranges::Ranges(const Function& function) : function_(function) {
  walk(function.body, [&](const Op& op) {
    if (op.code == Opcode::kVar) assigned_[op.results[0]].push_back(op.operands[0]);
    if (op.code == Opcode::kAssign) assigned_[op.operands[0]].push_back(op.operands[1]);
    // An assumption may stand behind the first use of what it speaks of; only those at the top level hold
    // everywhere.
    if (op.code == Opcode::kAssume && op.parent == &function.body) note_assumption(op.operands[0]);
  });
}

/// n % c == 0 and comparisons with constants.
void Ranges::note_assumption(const Value* condition) {
  const Op* op = condition->def;
  if (!op || op->operands.size() != 2) return;
  const Value* subject = op->operands[0];
  const std::optional<int64_t> bound = constant_int(op->operands[1]);
  if (!bound) return;
  if (op->code == Opcode::kEq && *bound == 0) {
    const Op* rem = defined_by(subject, Opcode::kRem);
    const std::optional<int64_t> divisor = rem ? constant_int(rem->operands[1]) : std::nullopt;
    if (divisor && *divisor > 0) {
      Range& r = assumed_.try_emplace(rem->operands[0], Range{}).first->second;
      r.multiple = std::lcm(r.multiple, *divisor);
    }
    return;
  }
  Range& r = assumed_.try_emplace(subject, Range{}).first->second;
  switch (op->code) {
    case Opcode::kLt:
      r.hi = std::min(r.hi, *bound - 1);
      break;
    case Opcode::kLe:
      r.hi = std::min(r.hi, *bound);
      break;
    case Opcode::kGt:
      r.lo = std::max(r.lo, *bound + 1);
      break;
    case Opcode::kGe:
      r.lo = std::max(r.lo, *bound);
      break;
    default:
      break;
  }
}

Range Ranges::of(const Value* value) {
  if (auto it = known_.find(value); it != known_.end()) return it->second;
  Range r = wrapped(compute(value), value->type.dtype);
  if (auto it = assumed_.find(value); it != assumed_.end()) {
    r.lo = std::max(r.lo, it->second.lo);
    r.hi = std::min(r.hi, it->second.hi);
    r.multiple = std::lcm(r.multiple, it->second.multiple);
  }
  return known_[value] = r;
}

Range Ranges::compute(const Value* value) {
  if (!value->type.dtype.is_integer() && !value->type.dtype.is_bool()) return {};
  if (const std::optional<int64_t> c = constant_int(value)) return Range::constant(*c);
  if (value->type.kind == TypeKind::kVariable) return of_variable(value);
  if (value->owner) return of_argument(value);
  if (!value->def) return Range::of_type(value->type.dtype);
  return of_op(*value->def, value);
}

Range Ranges::of_argument(const Value* value) {
  const Range type = Range::of_type(value->type.dtype);
  const Op* loop = value->owner->parent;
  if (!loop) return type;
  if (loop->code == Opcode::kTabulate) {
    const std::vector<int64_t>& shape = loop->ints_attr("shape");
    for (size_t d = 0; d < shape.size(); ++d)
      if (value->owner->args[d] == value) return Range::between(0, shape[d] - 1);
  }
  if (loop->code != Opcode::kFor) return type;
  const Range begin = of(loop->operands[0]), end = of(loop->operands[1]), step = of(loop->operands[2]);
  const int64_t multiple = std::gcd(begin.multiple, step.multiple);
  if (step.lo > 0) {
    int64_t hi = end.hi - 1;
    // With everything constant the last value is known exactly.
    if (begin.is_constant() && end.is_constant() && step.is_constant() && end.lo > begin.lo)
      hi = begin.lo + (end.lo - 1 - begin.lo) / step.lo * step.lo;
    return {begin.lo, std::max(begin.lo, hi), multiple};
  }
  if (step.hi < 0) return {std::min(end.lo + 1, begin.hi), begin.hi, multiple};
  return {type.lo, type.hi, multiple};
}

Range Ranges::of_variable(const Value* variable) {
  const DataType dtype = variable->type.dtype;
  const std::vector<const Value*>& values = assigned_[variable];
  // Divisibility: start from "anything goes" for the variable itself and lower it until it holds.
  Range guess = Range::of_type(dtype);
  guess.multiple = 0;
  for (int round = 0; round < 4; ++round) {
    std::unordered_map<const Value*, Range> saved = known_;
    known_[variable] = guess;
    int64_t multiple = 0;
    for (const Value* v : values) multiple = std::gcd(multiple, of(v).multiple);
    known_ = std::move(saved);
    if (multiple == guess.multiple) break;
    guess.multiple = round == 3 ? 1 : multiple;
  }
  // Bounds: a variable that is only ever set to bounded things that do not depend on it stays within them;
  // counters do not, so only the signs of constants are worth a look.
  if (values.size() == 1) {
    const Range only = of(values[0]);
    guess.lo = only.lo;
    guess.hi = only.hi;
  }
  return guess;
}

Range Ranges::of_op(const Op& op, const Value* value) {
  const DataType dtype = value->type.dtype;
  const Range type = Range::of_type(dtype);
  auto operand = [&](size_t i) { return of(op.operands[i]); };
  switch (op.code) {
    case Opcode::kAdd:
      return operand(0) + operand(1);
    case Opcode::kSub:
      return operand(0) - operand(1);
    case Opcode::kMul:
      return operand(0) * operand(1);
    case Opcode::kShl: {
      const Range n = operand(1);
      if (n.is_constant() && n.lo >= 0 && n.lo < 31) return operand(0) * Range::constant(int64_t{1} << n.lo);
      return type;
    }
    case Opcode::kShr: {
      const Range a = operand(0), n = operand(1);
      if (!n.is_constant() || n.lo < 0 || n.lo > 31 || a.lo < 0) return type;
      const int64_t power = int64_t{1} << n.lo;
      return {a.lo >> n.lo, a.hi >> n.lo, a.multiple % power == 0 ? a.multiple / power : 1};
    }
    case Opcode::kDiv:
    case Opcode::kCeilDiv: {
      Range a = operand(0);
      const Range b = operand(1);
      if (op.code == Opcode::kCeilDiv) a.lo = std::max<int64_t>(a.lo, 0);  // promised by its definition
      if (!b.is_constant() || b.lo <= 0 || a.lo < 0) return type;
      const int64_t up = op.code == Opcode::kCeilDiv ? b.lo - 1 : 0;
      const int64_t hi = a.hi > kMax - up ? kMax / b.lo + 1 : (a.hi + up) / b.lo;
      return {(a.lo + up) / b.lo, hi, a.multiple % b.lo == 0 ? a.multiple / b.lo : 1};
    }
    case Opcode::kRem: {
      const Range a = operand(0), b = operand(1);
      if (b.lo <= 0) return type;
      const int64_t most = std::min(b.hi - 1, std::max<int64_t>(a.hi, 0));
      return {a.lo < 0 ? -(b.hi - 1) : 0, most, std::gcd(a.multiple, b.multiple)};
    }
    case Opcode::kFastDivmod: {
      const Range a = operand(0), b = operand(1);
      if (a.lo < 0 || b.lo <= 0) return Range{0, type.hi, 1};
      if (value == op.results[0]) return Range::between(0, a.hi / b.lo);
      return Range::between(0, std::min(a.hi, b.hi - 1));
    }
    case Opcode::kAnd: {
      const Range a = operand(0), b = operand(1);
      if (a.lo >= 0 && b.lo >= 0) return Range::between(0, std::min(a.hi, b.hi));
      if (b.lo >= 0) return Range::between(0, b.hi);
      if (a.lo >= 0) return Range::between(0, a.hi);
      return type;
    }
    case Opcode::kMin: {
      const Range a = operand(0), b = operand(1);
      return {std::min(a.lo, b.lo), std::min(a.hi, b.hi), std::gcd(a.multiple, b.multiple)};
    }
    case Opcode::kMax: {
      const Range a = operand(0), b = operand(1);
      return {std::max(a.lo, b.lo), std::max(a.hi, b.hi), std::gcd(a.multiple, b.multiple)};
    }
    case Opcode::kSelect: {
      const Range a = operand(1), b = operand(2);
      return {std::min(a.lo, b.lo), std::max(a.hi, b.hi), std::gcd(a.multiple, b.multiple)};
    }
    case Opcode::kCast:
      return op.operands[0]->type.dtype.is_integer() || op.operands[0]->type.dtype.is_bool() ? operand(0)
                                                                                             : type;
    case Opcode::kBlockIdx: {
      const size_t axis = static_cast<size_t>(op.int_attr("axis"));
      const int64_t limit = axis == 0 ? std::numeric_limits<int32_t>::max() : 65535;
      const int64_t extent =
          axis < function_.grid.size() && function_.grid[axis] ? of(function_.grid[axis]).hi : limit;
      return Range::between(0, std::max<int64_t>(0, std::min(limit, extent) - 1));
    }
    case Opcode::kGridDim:
      return Range::between(1, std::numeric_limits<int32_t>::max());
    case Opcode::kClusterRank:
      return Range::between(0, function_.cluster[0] * function_.cluster[1] * function_.cluster[2] - 1);
    case Opcode::kRead:
      return operand(0);
    default:
      return type;
  }
}

}  // namespace imbrex::ir
