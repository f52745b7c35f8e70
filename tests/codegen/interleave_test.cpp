// SPDX-License-Identifier: Apache-2.0
#include "codegen/interleave.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ptx/reader.h"

namespace imbrex::codegen {
namespace {

const char* const kCopy = "cp.async.cg.shared.global [%r91], [%rd1], 16;\n";

/// Loads registers n ... n + 3.
std::string load(int n) {
  return fmt::format("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r{}, %r{}, %r{}, %r{}}}, [%r90];\n", n,
                     n + 1, n + 2, n + 3);
}

/// Products of %r0 ... %r5, each with sums of its own.
std::string products(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += fmt::format(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f{0}, %f{1}, %f{2}, %f{3}}}, {{%r0, %r1, %r2, "
        "%r3}}, {{%r4, %r5}}, {{%f{0}, %f{1}, %f{2}, %f{3}}};\n",
        4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3);
  return text;
}

/// A letter for every instruction after interleaving: load, copy, (commit) group, product, else a dot.
std::string order_of(const std::string& body) {
  ptx::Module module = ptx::read(
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n.reg .pred %p<4>;\n.reg .b32 "
      "%r<100>;\n.reg .f32 %f<100>;\n.reg .b64 %rd<8>;\n" +
          body + "ret;\n}\n",
      "test.ptx");
  interleave_loads(module.functions[0]);
  std::string order;
  for (const ptx::Instruction& i : module.functions[0].body) switch (i.op) {
      case ptx::Op::ldmatrix:
        order += 'L';
        break;
      case ptx::Op::cp_async:
        order += 'c';
        break;
      case ptx::Op::cp_async_commit_group:
        order += 'g';
        break;
      case ptx::Op::mma_sync:
        order += 'm';
        break;
      case ptx::Op::ret:
        break;
      default:
        order += '.';
    }
  return order;
}

TEST(Interleave, LoadsOfTheNextStepComeEarlyAndCopiesEvenlyAfterThem) {
  EXPECT_EQ(order_of(load(10) + load(20) + products(8)), "LmmLmmmmmm");
  EXPECT_EQ(order_of(load(10) + load(20) + kCopy + kCopy + products(8)), "LmmLmmmcmmcm");
  EXPECT_EQ(order_of(kCopy + std::string("cp.async.commit_group;\n") + load(10) + products(6)), "Lmmmcmmgm");
  EXPECT_EQ(order_of(load(10) + load(20) + load(30) + products(2)), "LmmLL");
}

TEST(Interleave, WhatTheProductsReadStaysBeforeThem) {
  EXPECT_EQ(order_of(load(0) + products(4)), "Lmmmm");
  EXPECT_EQ(order_of(load(10) + load(20) + load(0) + products(4)), "LLmmLmm");
  EXPECT_EQ(order_of(load(10) + "mov.b32 %r4, %r11;\n" + load(20) + load(30) + products(4)), "L.LmmLmm");
}

TEST(Interleave, AnAddressThatGoesOnKeepsEverythingInPlace) {
  EXPECT_EQ(order_of(load(10) + load(20) + "add.s32 %r90, %r90, 64;\n" + products(4)), "LL.mmmm");
  EXPECT_EQ(order_of(kCopy + std::string("add.s64 %rd1, %rd1, 64;\n") + products(4)), "c.mmmm");
  EXPECT_EQ(order_of("@%p1 " + std::string(kCopy) + "setp.lt.s32 %p1, %r90, %r91;\n" + products(4)),
            "c.mmmm");
}

TEST(Interleave, NothingCrossesBarriersAndLabels) {
  EXPECT_EQ(order_of(load(10) + "barrier.sync.aligned 0;\n" + load(20) + load(30) + products(4)), "L.LmmLmm");
  EXPECT_EQ(order_of(load(10) + load(20) + "LOOP:\n" + products(4)), "LLmmmm");
  EXPECT_EQ(order_of(load(10) + load(20) + products(2) + "LOOP:\n" + products(4)), "LmmLmmmm");
}

}  // namespace
}  // namespace imbrex::codegen
