// SPDX-License-Identifier: Apache-2.0
// Scalar ops on compile-time numbers, with the chip's results.
#pragma once

#include <optional>
#include <span>

#include "ir/ir.h"

namespace imbrex::passes {

/// A compile-time number, normalised to its type: integers (and bool) sign- or zero-extended in `i`, uint64
/// as its bits; floating point exactly in `f`.
struct Constant {
  DataType dtype;
  int64_t i = 0;
  double f = 0;

  static Constant integer(DataType dtype, int64_t value);
  static Constant floating(DataType dtype, double value);
  static Constant boolean(bool value) { return {imbrex::boolean, value, 0}; }
  /// Equal bits: -0 differs from 0, and a NaN equals itself.
  friend bool operator==(const Constant& a, const Constant& b);
};

/// The number a value is, when a `const` defines it.
std::optional<Constant> constant_of(const ir::Value* value);
/// Appends a `const`.
ir::Value* materialize(ir::Builder& builder, const Constant& constant);
/// What a scalar op of one result gives for these operands; nothing when that is not known at compile time
/// (division by zero, approximations, conversions out of range, ops that are not arithmetic).
std::optional<Constant> evaluate(const ir::Op& op, std::span<const Constant> operands);
/// The same for an op on integers or bools, by its code. The host part of a launch computes with these too.
std::optional<Constant> evaluate_integer(ir::Opcode code, const Constant& a);
std::optional<Constant> evaluate_integer(ir::Opcode code, const Constant& a, const Constant& b);

}  // namespace imbrex::passes
