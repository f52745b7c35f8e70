// SPDX-License-Identifier: Apache-2.0
#include "ptx/register_pressure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "ptx/reader.h"

namespace imbrex::ptx {
namespace {

int64_t live(const std::string& body) {
  const ptx::Module module = ptx::read(
      ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 x)\n{\n"
      ".reg .b32 %r<100>; .reg .b64 %rd<20>; .reg .f32 %f<100>; .reg .pred %p<10>;\n" +
      body + "\nret;\n}\n");
  return register_pressure(module.functions.at(0), module.target).live;
}

TEST(RegisterPressure, CountsWhatIsLiveAtOnce) {
  EXPECT_EQ(live("mov.u32 %r1, 1; mov.u32 %r2, 2; add.s32 %r3, %r1, %r2; st.shared.u32 [0], %r3;"), 2);
  EXPECT_EQ(live("ld.param.u64 %rd1, [x]; mov.u32 %r1, 1; st.global.u32 [%rd1], %r1;"),
            3);                                                             // 64 bits are two
  EXPECT_EQ(live("setp.eq.u32 %p1, 1, 2; @%p1 st.shared.u32 [0], 1;"), 0);  // predicates are free
}

TEST(RegisterPressure, SaysWhere) {
  const RegisterPressure worst = register_pressure(
      ".version 8.0\n.target sm_90a\n.address_size 64\n.file 1 \"kernel.h\"\n.file 2 \"step.h\"\n"
      ".visible .entry k()\n{\n.reg .b32 %r<9>;\n.loc 1 7 0\nmov.u32 %r1, 1;\n.loc 2 5 0\n"
      "mov.u32 %r2, 2; add.s32 %r3, %r1, %r2;\n.loc 1 9 0\nst.shared.u32 [0], %r3;\nret;\n}\n",
      "k");
  EXPECT_EQ(worst.live, 2);
  EXPECT_EQ(worst.file_name, "step.h");
  EXPECT_EQ(worst.line, 5u);
}

TEST(RegisterPressure, CarriesValuesAroundLoops) {
  // %r1 is the counter, %r2 a bound used in every round, %r3 the sum.
  EXPECT_EQ(live("mov.u32 %r1, 0; mov.u32 %r2, 10; mov.u32 %r3, 0;\n"
                 "L: add.s32 %r3, %r3, %r1; add.s32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, %r2; @%p1 bra L;\n"
                 "st.shared.u32 [0], %r3;"),
            3);
}

TEST(RegisterPressure, AGuardedWriteKeepsTheOldValue) {
  // %r1 must survive until the guarded move, which may not happen.
  EXPECT_EQ(live("mov.u32 %r1, 7; mov.u32 %r2, 1; setp.eq.u32 %p1, %r2, 3; @%p1 mov.u32 %r1, 8;\n"
                 "st.shared.u32 [0], %r1;"),
            2);
}

TEST(RegisterPressure, WgmmaAccumulatorsLiveAcrossTheLoop) {
  std::string accumulators = "{%f0, %f1, %f2, %f3}", zero;
  for (int i = 0; i < 4; ++i) zero += "mov.f32 %f" + std::to_string(i) + ", 0f00000000;";
  EXPECT_EQ(live(zero +
                 "mov.u32 %r1, 0; ld.param.u64 %rd1, [x];\n"
                 "L: wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 " +
                 accumulators +
                 ", %rd1, %rd1, 1, 1, 1, 0, 0;\n"
                 "add.s32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, 4; @%p1 bra L;\n"
                 "st.shared.v4.f32 [0], " +
                 accumulators + ";"),
            4 + 2 + 1);
}

TEST(RegisterPressure, OfALongRunTakesNoTimeThatGrowsWithItsSquare) {
  // Sorting networks are such runs. Sets for all of its instructions would be 1.25 GB.
  constexpr int kLength = 100'000;
  std::string body = ".reg .b32 %s<" + std::to_string(kLength + 1) + ">; mov.u32 %s0, 1;\n";
  for (int i = 0; i < kLength; ++i)
    body += "add.u32 %s" + std::to_string(i + 1) + ", %s" + std::to_string(i) + ", %s" +
            std::to_string(std::max(0, i - 9)) + ";\n";
  EXPECT_EQ(live(body), 10);
}

int64_t estimate(const std::string& target, const std::string& body, const std::string& directives = "") {
  const ptx::Module module = ptx::read(
      ".version 8.7\n.target " + target + "\n.address_size 64\n.visible .entry k(.param .u64 x)\n" +
      directives + "\n{\n.reg .b32 %r<100>; .reg .b64 %rd<20>; .reg .f32 %f<100>; .reg .pred %p<10>;\n" +
      body + "\nret;\n}\n");
  return register_pressure(module.functions.at(0), module.target).estimate;
}

TEST(RegisterEstimate, LoadsOfSharedMemoryMoveUpToTheBarrier) {
  // Each value is used at once, but the four loads can all be under way together.
  std::string body = "mov.u32 %r0, 0; mov.u32 %r9, 0;\n";
  for (int i = 1; i <= 4; ++i)
    body += "ld.shared.b32 %r" + std::to_string(i) + ", [%r0+" + std::to_string(4 * i) +
            "]; add.s32 %r9, %r9, %r" + std::to_string(i) + ";\n";
  body += "st.global.b32 [0], %r9;";
  EXPECT_EQ(estimate("sm_80", body), 2 + 4);
  std::string barriers = body;
  for (size_t at = 0; (at = barriers.find("ld.shared", at)) != std::string::npos; at += 25)
    barriers.insert(at, "bar.sync 0; ");
  EXPECT_EQ(estimate("sm_80", barriers), 2 + 1);
}

TEST(RegisterEstimate, WhatAWarpHoldsOnceIsNotAThreadsFromSm100On) {
  const std::string body =
      "mov.u32 %r0, %ctaid.x; shl.b32 %r1, %r0, 3; add.s32 %r2, %r1, 7; mov.u32 %r3, %tid.x;\n"
      "add.s32 %r4, %r2, %r3; st.shared.v2.b32 [%r4], {%r1, %r2};";
  EXPECT_EQ(estimate("sm_80", body), 3);        // ctaid * 8, + 7, the thread's sum
  EXPECT_EQ(estimate("sm_100a", body), 1 + 3);  // the sum, and what the system takes
}

TEST(RegisterEstimate, TheSizeOfACopyIsItsCondition) {
  const std::string address = "mov.u32 %r0, %tid.x; mov.u64 %rd0, 0; setp.lt.s32 %p1, %r0, 7;\n",
                    size = "selp.b32 %r1, 16, 0, %p1;\n",
                    copy = "cp.async.cg.shared.global [%r0], [%rd0], 16, %r1;\n";
  EXPECT_EQ(estimate("sm_80", address + size + copy), 1 + 2);
  EXPECT_EQ(estimate("sm_80", address + size + copy + "st.shared.b32 [%r0], %r1;"), 1 + 2 + 1);
  EXPECT_EQ(estimate("sm_80", address + "mov.b32 %r2, %tid.y; selp.b32 %r1, %r2, 0, %p1;" + copy), 1 + 2 + 1);
}

TEST(RegisterEstimate, LoadsOfTensorMemoryThatDoNotFitComeLater) {
  // Both halves are loaded, then packed two and two, then stored.
  const auto halves = [](int columns) {
    const auto names = [&](const char* kind, int first, int count) {
      std::string list;
      for (int i = first; i < first + count; ++i)
        list += (i == first ? "" : ", ") + (kind + std::to_string(i));
      return list;
    };
    std::string body = ".reg .b32 %x<256>; .reg .b32 %y<128>;\nmov.u32 %r0, %tid.x;\n";
    for (int half = 0; half < 2; ++half)
      body += "tcgen05.ld.sync.aligned.32x32b.x" + std::to_string(columns) + ".b32 {" +
              names("%x", half * columns, columns) + "}, [%r0];\n";
    body += "tcgen05.wait::ld.sync.aligned;\n";
    for (int i = 0; i < columns; ++i)
      body += "prmt.b32 %y" + std::to_string(i) + ", %x" + std::to_string(2 * i) + ", %x" +
              std::to_string(2 * i + 1) + ", 0x5410;\n";
    for (int i = 0; i < columns; i += 4)
      body += "st.shared.v4.b32 [%r0+" + std::to_string(4 * i) + "], {" + names("%y", i, 4) + "};\n";
    return body;
  };
  EXPECT_EQ(estimate("sm_100a", halves(64)), 3 + 1 + 2 * 64);          // all at once
  EXPECT_EQ(estimate("sm_100a", halves(128)), 3 + 1 + 128 / 2 + 128);  // the first half is packed by then
}

TEST(RegisterEstimate, SetmaxnregStartsWithEqualShares) {
  const std::string body = "setmaxnreg.inc.sync.aligned.u32 232; mov.u32 %r1, 0; st.shared.b32 [0], %r1;";
  EXPECT_EQ(estimate("sm_90a", body, ".maxntid 384, 1, 1"), 168);
  EXPECT_EQ(estimate("sm_90a", body, ".maxntid 256, 1, 1"), 256);
}

}  // namespace
}  // namespace imbrex::ptx
