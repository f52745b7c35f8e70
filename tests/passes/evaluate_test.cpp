// SPDX-License-Identifier: Apache-2.0
// Scalar ops on numbers: the corners. The arithmetic itself is core's, and tested there.
#include "passes/evaluate.h"

#include <gtest/gtest.h>

#include <limits>

namespace imbrex::passes {
namespace {

using ir::Opcode;

std::optional<Constant> compute(Opcode code, std::vector<Constant> operands, DataType result) {
  ir::Function f;
  ir::Builder builder(f);
  std::vector<ir::Value*> values;
  for (const Constant& operand : operands) values.push_back(materialize(builder, operand));
  ir::Op* op = builder.create(code, values, {ir::Type::scalar(result)});
  if (code == Opcode::kCast) op->set_attr("dtype", result);
  return evaluate(*op, operands);
}

std::optional<int64_t> integer(Opcode code, DataType type, int64_t a, int64_t b) {
  const auto result = compute(code, {Constant::integer(type, a), Constant::integer(type, b)}, type);
  return result ? std::optional(result->i) : std::nullopt;
}

TEST(Evaluate, IntegersWrapInTheirType) {
  EXPECT_EQ(integer(Opcode::kAdd, int8, 127, 1), -128);
  EXPECT_EQ(integer(Opcode::kSub, uint32, 0, 1), 0xFFFFFFFF);
  EXPECT_EQ(integer(Opcode::kMul, int64, std::numeric_limits<int64_t>::max(), 2), -2);
  EXPECT_EQ(integer(Opcode::kMin, uint64, -1, 1), 1);  // -1 is the largest uint64
  EXPECT_EQ(integer(Opcode::kLt, uint32, -1, 1), 0);
  EXPECT_EQ(integer(Opcode::kLt, int32, -1, 1), 1);
}

TEST(Evaluate, DivisionTruncatesAndRefusesZero) {
  EXPECT_EQ(integer(Opcode::kDiv, int32, -7, 2), -3);
  EXPECT_EQ(integer(Opcode::kRem, int32, -7, 2), -1);
  EXPECT_EQ(integer(Opcode::kCeilDiv, int32, 7, 2), 4);
  EXPECT_EQ(integer(Opcode::kDiv, int32, 1, 0), std::nullopt);
  EXPECT_EQ(integer(Opcode::kCeilDiv, int32, -7, 2), std::nullopt);
  EXPECT_EQ(integer(Opcode::kDiv, int64, std::numeric_limits<int64_t>::min(), -1), std::nullopt);
}

TEST(Evaluate, ShiftsClampTheirAmount) {
  EXPECT_EQ(integer(Opcode::kShl, int32, 1, 31), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(integer(Opcode::kShl, int32, 1, 32), 0);
  EXPECT_EQ(integer(Opcode::kShr, int32, -8, 1), -4);
  EXPECT_EQ(integer(Opcode::kShr, int32, -8, 40), -1);
  EXPECT_EQ(integer(Opcode::kShr, uint32, -8, 28), 15);
}

TEST(Evaluate, FloatsRoundInTheirType) {
  const auto f = [](DataType type, double x) { return Constant::floating(type, x); };
  EXPECT_EQ(Constant::floating(float32, 0.1).f, 0.1f);
  EXPECT_EQ(compute(Opcode::kAdd, {f(float16, 2048), f(float16, 1)}, float16)->f, 2048);
  EXPECT_EQ(compute(Opcode::kMul, {f(bfloat16, 1.0078125), f(bfloat16, 1.0078125)}, bfloat16)->f, 1.015625);
  EXPECT_EQ(
      compute(Opcode::kFma, {f(float32, 1 + 0x1p-23), f(float32, 1 - 0x1p-23), f(float32, -1)}, float32)->f,
      -0x1p-46);
  EXPECT_EQ(compute(Opcode::kDiv, {f(float32, 0), f(float32, 0)}, float32), std::nullopt);  // a NaN
  EXPECT_EQ(compute(Opcode::kExp2, {f(float32, 1)}, float32), std::nullopt);  // an approximation
}

TEST(Evaluate, CastsOnlyWithinRange) {
  EXPECT_EQ(compute(Opcode::kCast, {Constant::floating(float32, -2.75)}, int32)->i, -2);
  EXPECT_EQ(compute(Opcode::kCast, {Constant::floating(float32, 300)}, int8), std::nullopt);
  EXPECT_EQ(compute(Opcode::kCast, {Constant::integer(int32, 300)}, int8)->i, 44);
  EXPECT_EQ(compute(Opcode::kCast, {Constant::integer(int32, 16777217)}, float32)->f, 16777216);
  EXPECT_EQ(compute(Opcode::kCast, {Constant::integer(int32, 2)}, boolean)->i, 1);
}

TEST(Constant, ComparesBits) {
  EXPECT_NE(Constant::floating(float32, 0.0), Constant::floating(float32, -0.0));
  const Constant nan = Constant::floating(float32, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(nan, nan);
}

}  // namespace
}  // namespace imbrex::passes
