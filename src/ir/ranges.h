// SPDX-License-Identifier: Apache-2.0
// What is known of integers at compile time: bounds and divisibility.
//
// Alignment proofs (how wide a vector access may be) and bounds proofs (whether a mask is needed) both read
// this.
#pragma once

#include <cstdint>
#include <limits>
#include <unordered_map>

#include "ir/ir.h"

namespace imbrex::ir {

/// lo <= x <= hi, and x is a multiple of `multiple` (0: x is zero, a multiple of everything).
struct Range {
  int64_t lo = std::numeric_limits<int64_t>::min();
  int64_t hi = std::numeric_limits<int64_t>::max();
  int64_t multiple = 1;

  static Range constant(int64_t x) { return {x, x, x < 0 ? -x : x}; }
  static Range of_type(DataType type);
  static Range between(int64_t lo, int64_t hi) { return {lo, hi, 1}; }
  bool is_constant() const { return lo == hi; }
  bool is_multiple_of(int64_t n) const { return n == 1 || multiple % n == 0; }

  // Results of exact arithmetic; bounds that leave 64 bits are forgotten.
  friend Range operator+(const Range& a, const Range& b);
  friend Range operator-(const Range& a, const Range& b);
  friend Range operator*(const Range& a, const Range& b);
};

/// Facts about the integer scalars of one function. Results are remembered.
class Ranges {
 public:
  explicit Ranges(const Function& function);
  Range of(const Value* value);

 private:
  Range compute(const Value* value);
  Range of_op(const Op& op, const Value* value);
  Range of_variable(const Value* variable);
  Range of_argument(const Value* value);
  void note_assumption(const Value* condition);

  const Function& function_;
  std::unordered_map<const Value*, Range> known_;
  std::unordered_map<const Value*, std::vector<const Value*>> assigned_;  // variable: what it gets
  std::unordered_map<const Value*, Range> assumed_;
};

}  // namespace imbrex::ir
