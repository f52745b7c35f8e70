// SPDX-License-Identifier: Apache-2.0
#include "ptx/check.h"

#include <gtest/gtest.h>

#include <sstream>

#include "ptx/reader.h"
#include "ptx_text.h"

namespace imbrex::ptx {
namespace {

std::string wrong(const std::string& instruction, const std::string& target = "sm_90a") {
  Module m = read(kernel(instruction, target));
  return check(m, m.functions[0], m.functions[0].body[0]);
}

TEST(Check, AcceptsWhatIsRight) {
  for (const char* good : {
           "add.s32 r0, r1, -1;",
           "add.cc.u32 r0, r1, r2;",
           "mul.wide.u32 w0, r1, r2;",
           "mad.wide.s32 w0, r1, 8, w1;",
           "mul.wide.u16 r0, h1, h2;",
           "setp.ltu.f32 p|q, f0, 0f00000000;",
           "mov.b32 {h0, h1}, r0;",
           "mov.b64 w0, {r0, r1};",
           "mov.b32 f0, r0;",
           "mov.pred p, -1;",
           "ld.global.u8 r0, [w0];",
           "ld.global.nc.L1::no_allocate.L2::128B.v4.b32 {r0, r1, r2, _}, [w0+16];",
           "st.global.f32 [w0], 0f3F800000;",
           "cvt.rn.f16.f32 h0, f0;",
           "cvt.u32.u8 r0, r1;",
           "cvt.rn.bf16x2.f32 r0, f0, f1;",
           "atom.global.cas.b32 r0, [w0], r1, r2;",
           "atom.add.f32 _, [w0], f0;",
           "shfl.sync.idx.b32 r0|p, r1, 0, 31, -1;",
           "selp.b32 r0, 1, 0, p;",
           "bar.sync 0;",
           "fma.rn.bf16x2 r0, r1, r2, r3;",
           "createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 w0, 0f3F800000;",
       })
    EXPECT_EQ(wrong(good), "") << good;
}

TEST(Check, OperandCount) {
  EXPECT_EQ(wrong("add.s32 r0, r1;"), "add: takes 3 operands, 2 given");
  EXPECT_EQ(wrong("bar.sync 0, 32, 64;"), "bar.sync: takes 1 to 2 operands, 3 given");
}

TEST(Check, OperandTypes) {
  EXPECT_EQ(wrong("add.s32 r0, f1, r2;"),
            "add: operand 2 is f1, a .f32 register, expected a .s32 register or constant");
  EXPECT_EQ(wrong("mul.wide.u32 r0, r1, r2;"),
            "mul: operand 1 is r0, a .b32 register, expected a .u64 register");
  EXPECT_EQ(wrong("ld.global.b32 r0, w0;"), "ld: operand 2 is w0, a .b64 register, expected an address [..]");
  EXPECT_EQ(wrong("ld.global.b64 r0, [w0];"),
            "ld: operand 1 is r0, a .b32 register, expected a .b64 register or a vector of them");
  EXPECT_EQ(wrong("selp.b32 r0, r1, r2, r3;"),
            "selp: operand 4 is r3, a .b32 register, expected a predicate");
  EXPECT_EQ(wrong("add.f32 f0, f1, 1;"),
            "add: operand 3 is the integer 1, expected a .f32 register or constant");
  EXPECT_EQ(wrong("add.s32 r0, r1, 0f3F800000;"),
            "add: operand 3 is a float, expected a .s32 register or constant");
  EXPECT_EQ(wrong("add.s32 5, r1, r2;"), "add: operand 1 is the integer 5, expected a .s32 register");
}

TEST(Check, Modifiers) {
  EXPECT_EQ(wrong("add.parity.s32 r0, r1, r2;"), "add: has no modifier '.parity'");
  EXPECT_EQ(wrong("setp.s32 p, r1, r2;").substr(0, 33), "setp: needs one of the modifiers ");
  EXPECT_EQ(wrong("add.rn.rz.f32 f0, f1, f2;"), "add: '.rz' clashes with another modifier");
  EXPECT_EQ(wrong("add.rn f0, f1, f2;").substr(0, 24), "add: needs a type, one o");
  EXPECT_EQ(wrong("add.b32 r0, r1, r2;").substr(0, 42), "add: type 1 is '.b32', expected one of u16");
  EXPECT_EQ(wrong("shl.b32.b32 r0, r1, 2;"), "shl: '.b32' is one type too many");
}

TEST(Check, Targets) {
  EXPECT_EQ(wrong("wgmma.fence.sync.aligned;", "sm_100a"),
            "wgmma.fence: needs sm_90a, the module's target is sm_100a");
  EXPECT_EQ(wrong("tcgen05.wait::ld.sync.aligned;", "sm_90a"),
            "tcgen05.wait::ld: needs an sm_10x or sm_11x target with suffix 'a' or 'f', the module's target "
            "is sm_90a");
  EXPECT_EQ(wrong("cp.async.bulk.commit_group;", "sm_80"),
            "cp.async.bulk.commit_group: needs sm_90 or later, the module's target is sm_80");
  EXPECT_EQ(wrong("mbarrier.arrive.expect_tx.shared::cta.b64 _, [r0], 16;", "sm_80"),
            "mbarrier.arrive: '.expect_tx' needs sm_90 or later, the module's target is sm_80");
}

TEST(Check, ConversionsRound) {
  EXPECT_EQ(wrong("cvt.f32.s32 f0, r0;"),
            "cvt: from .s32 to .f32 needs a rounding modifier, one of rn|rz|rm|rp");
  EXPECT_EQ(wrong("cvt.s32.f32 r0, f0;"),
            "cvt: from .f32 to .s32 needs a rounding modifier, one of rni|rzi|rmi|rpi");
  EXPECT_NE(wrong("cvt.f16.f32 h0, f0;"), "");
  EXPECT_EQ(wrong("cvt.f32.f16 f0, h0;"), "");
  EXPECT_EQ(wrong("cvt.rni.f32.f32 f0, f1;"), "");
}

// ptxas 13.0 refuses every line of this file for the target the line begins with; so must we.
TEST(Check, RejectsWhatPtxasRejects) {
  std::istringstream file(file_text(IMBREX_SOURCE_DIR "/tests/ptx/data/rejected.txt"));
  int count = 0;
  for (std::string target, instruction; file >> target && std::getline(file, instruction);) {
    if (target == "//") continue;
    ++count;
    try {
      EXPECT_NE(wrong(instruction + ";", target), "") << target << ": " << instruction;
    } catch (const ParseError&) {
    }
  }
  EXPECT_GT(count, 50);
}

TEST(Check, LaterForms) {
  EXPECT_EQ(wrong("min.f32 f0, f1, f2;", "sm_80"), "");
  EXPECT_EQ(wrong("min.f32 f0, f1, f2, f3;", "sm_90"),
            "min: this form (#4) needs sm_100 or later, the module's target is sm_90");
  EXPECT_EQ(wrong("add.rn.f32.f16 f0, h0, f1;", "sm_100"), "");
  EXPECT_EQ(wrong("add.rn.f32.f16 f0, h0, f1;", "sm_90"),
            "add: this form (%2) needs sm_100 or later, the module's target is sm_90");
  EXPECT_EQ(wrong("mbarrier.arrive.noComplete.shared::cta.b64 w0, [r0], 2;", "sm_80"), "");
  EXPECT_NE(wrong("mbarrier.arrive.shared::cta.b64 w0, [r0], 2;", "sm_80"), "");
  EXPECT_NE(wrong("ld.global.v4.u64 {w0, w1, w2, w3}, [w4];", "sm_90a"), "");
}

TEST(Check, Version) {
  Module m = read(kernel("mbarrier.try_wait.shared::cta.b64 p, [r0], w0;"));
  m.version = 70;
  EXPECT_EQ(check(m, m.functions[0], m.functions[0].body[0]),
            "mbarrier.try_wait: needs PTX 7.8, the module's version is 7.0");
}

TEST(Check, ModuleGivesLinesAndTheInstruction) {
  std::vector<Diagnostic> all = check(read(kernel("ret;\nadd.s32 r0, r1;\nret;\nshl.b32 r0;")), "kernel.ptx");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0].where.line, kBodyLine + 1);
  EXPECT_STREQ(all[0].where.file, "kernel.ptx");
  ASSERT_EQ(all[0].facts.size(), 1u);
  EXPECT_EQ(all[0].facts[0], "add.s32 r0, r1;");
}

}  // namespace
}  // namespace imbrex::ptx
