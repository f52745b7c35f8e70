// SPDX-License-Identifier: Apache-2.0
// Integer expressions of address and bounds arithmetic: folded, numbered, and hoisted as they are built.
//
// Every expression has a number; equal expressions have equal numbers and share a register. Results carry
// what is known of them, so that later questions (is it aligned? is it in bounds?) need no second analysis.
#pragma once

#include <map>
#include <tuple>

#include "codegen/emitter.h"
#include "codegen/ranges.h"

namespace imbrex::codegen {

/// A run-time integer of 32 bits (signed) or 64 bits, or a constant.
struct Integer {
  Operand value;         ///< a register or an immediate
  bool is_wide = false;  ///< 64 bits
  Range known = {};
  size_t depth = 0;  ///< scope since which it exists
  int64_t id = 0;    ///< number of the expression

  bool is_constant() const { return value.is_immediate(); }
  int64_t constant() const { return value.value; }
};

class Integers {
 public:
  explicit Integers(Emitter& emitter) : e_(emitter) {}

  static Integer constant(int64_t value);
  /// Something emitted elsewhere; `source` tells it apart from everything else of its kind.
  Integer leaf(int64_t kind, int64_t source, Operand value, bool is_wide, Range known, size_t depth);

  /// A number for something of that kind, to cache it under.
  int64_t name(int64_t kind, int64_t source) { return number(kLeaf, kind, source); }

  Integer add(const Integer& a, const Integer& b);
  Integer sub(const Integer& a, const Integer& b);
  Integer mul(const Integer& a, const Integer& b);  ///< wide when a factor is
  /// a * b in 64 bits.
  Integer wide_mul(const Integer& a, const Integer& b);
  Integer widen(const Integer& a);
  /// `a` in 32 bits, which its values must fit: indices into a CTA's memory, coordinates.
  Integer narrow(const Integer& a);
  // The rest for 32-bit non-negative values.
  Integer div(const Integer& a, int64_t divisor);
  Integer rem(const Integer& a, int64_t divisor);
  Integer and_mask(const Integer& a, int64_t mask);
  Integer shift_left(const Integer& a, int amount);
  Integer shift_right(const Integer& a, int amount);
  Integer xor_with(const Integer& a, const Integer& b);
  /// limit > value, as signed numbers; constant operands are folded into the immediate predicate 0 or 1.
  Operand less(const Integer& value, const Integer& limit);
  /// a && b of predicates (or immediates), remembered like the integers.
  Operand both(const Operand& a, const Operand& b, size_t depth);

  Emitter& emitter() { return e_; }

 private:
  enum Kind : int64_t {
    kLeaf,
    kAdd,
    kSub,
    kMul,
    kWideMul,
    kWiden,
    kNarrow,
    kDiv,
    kRem,
    kAnd,
    kShl,
    kShr,
    kXor,
    kLess,
    kBoth
  };
  int64_t number(Kind kind, int64_t a, int64_t b, int64_t c = 0);
  template <class Make>
  Integer expression(Kind kind, const Integer& a, const Integer& b, bool is_wide, Range known, Make&& make);

  Emitter& e_;
  std::map<std::tuple<int64_t, int64_t, int64_t, int64_t>, int64_t> numbers_;
};

}  // namespace imbrex::codegen
