// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/host_program.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "codegen/values/fast_divmod.h"
#include "imbrex/core/error.h"
#include "ir/ir.h"

namespace imbrex::runtime {
namespace {

using codegen::HostStep;
using ir::Opcode;

int64_t binary(Opcode op, DataType dtype, int64_t a, int64_t b) {
  codegen::CompiledKernel kernel;
  HostStep left{HostStep::Kind::kParam}, right{HostStep::Kind::kParam}, step{HostStep::Kind::kBinary};
  left.a = 0, right.a = 1;
  left.dtype = right.dtype = step.dtype = dtype;
  step.op = op;
  step.a = 0, step.b = 1;
  kernel.host = {left, right, step};
  const int64_t arguments[] = {a, b};
  int64_t slots[3];
  evaluate_host(kernel, arguments, slots);
  return slots[2];
}

TEST(HostProgram, ArithmeticWrapsAsTheDeviceDoes) {
  EXPECT_EQ(binary(Opcode::kAdd, int32, 0x7FFFFFFF, 1), -0x80000000LL);
  EXPECT_EQ(binary(Opcode::kMul, uint32, 0x10000, 0x10000), 0);
  EXPECT_EQ(binary(Opcode::kSub, uint32, 0, 1), 0xFFFFFFFFLL);
  EXPECT_EQ(binary(Opcode::kDiv, int32, -7, 2), -3);
  EXPECT_EQ(binary(Opcode::kRem, int32, -7, 2), -1);
  EXPECT_EQ(binary(Opcode::kCeilDiv, int32, 129, 128), 2);
  EXPECT_EQ(binary(Opcode::kShr, int32, -8, 1), -4);
  EXPECT_EQ(binary(Opcode::kShr, uint32, 0xFFFFFFF8LL, 1), 0x7FFFFFFC);
  EXPECT_EQ(binary(Opcode::kMin, int32, -1, 1), -1);
  // At the edges of what the ops are defined for.
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(binary(Opcode::kDiv, int64, kLeast, -1), kLeast);
  EXPECT_EQ(binary(Opcode::kRem, int64, kLeast, -1), 0);
  EXPECT_EQ(binary(Opcode::kCeilDiv, int32, -5, 128), 0);
  EXPECT_EQ(binary(Opcode::kCeilDiv, uint64, -1, 2), kLeast);
  EXPECT_EQ(binary(Opcode::kShl, int32, 1, 40), 0);
  EXPECT_EQ(binary(Opcode::kShr, int32, -1, 40), -1);
}

TEST(HostProgram, DivisionByZeroNamesTheLine) {
  codegen::CompiledKernel kernel;
  HostStep zero{HostStep::Kind::kConstant}, step{HostStep::Kind::kBinary};
  step.op = Opcode::kDiv;
  step.where = {"kernel.cpp", 12, "f"};
  kernel.host = {zero, step};
  int64_t slots[2];
  try {
    evaluate_host(kernel, {}, slots);
    FAIL() << "no error";
  } catch (const LaunchError& error) {
    EXPECT_EQ(error.diagnostics().front().format(),
              "kernel.cpp:12: error: div: division of 0 by zero while computing the launch\n"
              "  help: check the sizes passed to the kernel");
  }
}

TEST(FastDivmod, AgreesWithDivisionEverywhereItMayBeUsed) {
  std::mt19937_64 random(20);
  auto check = [](uint32_t n, uint32_t divisor) {
    const uint64_t magic = codegen::fast_divmod_magic(divisor);
    const uint32_t quotient =
        static_cast<uint32_t>((uint64_t{2 * n} * static_cast<uint32_t>(magic)) >> 32) >> (magic >> 32);
    ASSERT_EQ(quotient, n / divisor) << n << " / " << divisor;
  };
  for (int i = 0; i < 200000; ++i) {
    const auto divisor = static_cast<uint32_t>(1 + random() % ((1u << (1 + random() % 31)) - 0));
    if (divisor == 0 || divisor > 0x7FFFFFFF) continue;
    for (uint32_t n : {0u, divisor - 1, divisor, 0x7FFFFFFFu, 0x7FFFFFFFu / divisor * divisor,
                       0x7FFFFFFFu / divisor * divisor - 1, static_cast<uint32_t>(random() >> 33)})
      if (n <= 0x7FFFFFFF) check(n, divisor);
  }
}

}  // namespace
}  // namespace imbrex::runtime
