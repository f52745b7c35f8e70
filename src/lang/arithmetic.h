// SPDX-License-Identifier: Apache-2.0
// Scalar arguments and the conversions between element types.
#pragma once

#include "imbrex/lang/scalar.h"
#include "lang/trace.h"

namespace imbrex::lang {

/// The argument as a value of its own type; a C++ number becomes a constant.
ir::Value* materialize(const Instruction& at, const ScalarOperand& arg);
/// The argument as a value of type `to`, converted as C++ would; from floating to integer is an error.
ir::Value* materialize(const Instruction& at, const ScalarOperand& arg, DataType to);
/// The element of a tensor or view in memory that has only one, read here.
ir::Value* only_element(const Instruction& at, ir::Value* tensor);
/// The argument as a bool; other types are an error that suggests a comparison.
ir::Value* condition(const Instruction& at, const ScalarOperand& arg);
/// The argument as an offset or extent: int32, or int64 where its type or value needs it.
ir::Value* index_value(const Instruction& at, const ScalarOperand& arg);
/// What a C++ integer says; nothing for run-time scalars.
std::optional<int64_t> number(const ScalarOperand& arg);

/// Whether there is arithmetic on elements of this type: not on floats and integers smaller than 16 and 8 bits.
bool has_arithmetic(DataType type);
/// `value` (a scalar or register tensor) with elements of type `to`, by an op where needed. An explicit
/// conversion may go from floating to integer and to bool.
ir::Value* convert(const Instruction& at, ir::Value* value, DataType to, bool is_explicit = false);
/// Elements of less than a byte as int32 or float32, which hold all their values; others as they are.
ir::Value* without_shared_bytes(const Instruction& at, ir::Value* value);

/// Integral promotion: bool and integers below 32 bits become int32.
DataType promote(DataType t);
/// The type two run-time operands meet in.
DataType common_type(const Instruction& at, DataType a, DataType b);
/// The same where either may be a C++ number.
DataType common_type(const Instruction& at, const ScalarOperand& a, const ScalarOperand& b);

struct ArithInfo {
  std::string_view symbol;
  ir::Opcode code;
  bool is_bitwise, is_comparison, is_shift, is_logical;
};
const ArithInfo& arith_info(detail::Arith op);
struct UnaryInfo {
  std::string_view symbol;
  ir::Opcode code;
  bool needs_float;
};
const UnaryInfo& unary_info(detail::Unary op);

/// Rejects element types an operator does not work on (floating bits, arithmetic on 8-bit floats, ...).
void check_operand_type(const Instruction& at, const ArithInfo& op, DataType dtype);

}  // namespace imbrex::lang
