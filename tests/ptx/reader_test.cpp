// SPDX-License-Identifier: Apache-2.0
#include "ptx/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "imbrex/core/error.h"
#include "ptx/writer.h"
#include "ptx_text.h"

namespace imbrex::ptx {
namespace {

using testing::HasSubstr;

// The instructions of kernel(body), printed.
std::vector<std::string> lines(const std::string& body, const std::string& target = "sm_90a") {
  Module m = read(kernel(body, target));
  std::vector<std::string> out;
  for (const Instruction& i : m.functions[0].body) out.push_back(write(m, m.functions[0], i));
  return out;
}

// The only operand of interest: the last one of the first instruction.
Operand last_operand(const std::string& body) {
  Module m = read(kernel(body));
  const Function& f = m.functions[0];
  return f.operands_of(f.body[0]).back();
}

// Reads what must not be read; gives the diagnostics.
std::vector<Diagnostic> errors(const std::string& text) {
  try {
    read(text, "test.ptx");
  } catch (const ParseError& e) {
    return e.diagnostics();
  }
  ADD_FAILURE() << "was read:\n" << text;
  return {Diagnostic{}};
}
Diagnostic body_error(const std::string& body) { return errors(kernel(body))[0]; }

// The assembler takes words in any order, and CUB writes the first of these.
TEST(Reader, TakesSyncAnywhere) {
  EXPECT_EQ(
      lines("vote.ballot.sync.b32 r0, p, 0xFFFFFFFF;\nshfl.bfly.b32.sync r0|p, r1, 16, 31, 0xFFFFFFFF;\n"
            "match.any.sync.b32 r0, r1, 0xFFFFFFFF;"),
      (std::vector<std::string>{"vote.sync.ballot.b32 r0, p, 0xFFFFFFFF;",
                                "shfl.sync.bfly.b32 r0|p, r1, 16, 31, 0xFFFFFFFF;",
                                "match.any.sync.b32 r0, r1, 0xFFFFFFFF;"}));
  EXPECT_THAT(body_error("warp.bar.sync 0xFFFFFFFF;").message,
              HasSubstr("unknown instruction 'warp.bar.sync'"));
}

TEST(Reader, PrintsWhatItReads) {
  const std::vector<std::string> text = {
      "add.s32 r0, r1, 2;",
      "@p bra $done;",
      "@!p bra.uni $done;",
      "setp.lt.and.f32 p|q, f0, 0f3F800000, !p;",
      "ld.global.L1::no_allocate.v4.f32 {f0, f1, f2, f3}, [w0+16];",
      "st.shared::cta.b32 [r0+-4], r1;",
      "mov.u32 r0, %tid.x;",
      "mov.b64 {r0, _}, w0;",
      "mov.u64 w0, map+8;",
      "ld.param.u64 w0, [a];",
      "ld.global.b32 r0, [4096];",
      "shfl.sync.bfly.b32 r0|p, r1, 16, 31, 0xFFFFFFFF;",
      "elect.sync _|p, 0xFFFFFFFF;",
      "and.b32 r0, r1, 0xDEADBEEF;",
      "add.u64 w0, w1, 18446744073709551615U;",
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [r0], [w0, {r1, 0}], "
      "[r2];",
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {f0, f1, f2, f3}, w0, w1, p, 1, -1, 0, 1;",
  };
  std::string body;
  for (const std::string& line : text) body += line + "\n";
  std::vector<std::string> printed = lines(body + "$done:");
  EXPECT_EQ(printed, text);
}

TEST(Reader, Immediates) {
  struct Case {
    const char* text;
    OperandKind kind;
    int64_t value;
  };
  for (const Case& c : std::initializer_list<Case>{
           {"0", OperandKind::immediate, 0},
           {"-5", OperandKind::immediate, -5},
           {"0x1F", OperandKind::immediate, 31},
           {"017", OperandKind::immediate, 15},
           {"0b101", OperandKind::immediate, 5},
           {"~0", OperandKind::immediate, -1},
           {"(3 + 4 * 2)", OperandKind::immediate, 11},
           {"1 << 4", OperandKind::immediate, 16},
           {"7 - 2 - 1", OperandKind::immediate, 4},
           {"WARP_SZ", OperandKind::immediate, 32},
           {"4294967295", OperandKind::immediate, 4294967295},
           {"0f3F800000", OperandKind::f32, 0x3f800000},
           {"0F3f800000", OperandKind::f32, 0x3f800000},
           {"-0f3F800000", OperandKind::f32, 0xbf800000},
           {"0d3FF0000000000000", OperandKind::f64, 0x3ff0000000000000},
           {"1.5", OperandKind::f64, std::bit_cast<int64_t>(1.5)},
           {"1e-3", OperandKind::f64, std::bit_cast<int64_t>(1e-3)},
           {"2.5E+2", OperandKind::f64, std::bit_cast<int64_t>(250.0)},
       }) {
    Operand o = last_operand(std::string("mov.b64 w0, ") + c.text + ";");
    EXPECT_EQ(o.kind, c.kind) << c.text;
    EXPECT_EQ(o.value, c.value) << c.text;
    EXPECT_FALSE(o.is_unsigned) << c.text;
  }
  Operand big = last_operand("mov.u64 w0, 18446744073709551615;");
  EXPECT_TRUE(big.is_unsigned);
  EXPECT_EQ(big.value, -1);
  EXPECT_TRUE(last_operand("mov.u64 w0, 5U;").is_unsigned);
}

TEST(Reader, SuffixesKeepTheirOrder) {
  Module m = read(kernel("wgmma.mma_async.sync.aligned.m64n96k32.s32.u8.s8.satfinite {r0}, w0, w1, p;"));
  const Instruction& i = m.functions[0].body[0];
  EXPECT_EQ(i.op, Op::wgmma_mma_async);
  EXPECT_EQ(i.shape(), (Shape{64, 96, 32}));
  EXPECT_EQ(i.type_count(), 3);
  EXPECT_EQ(i.type(0), ScalarType::s32);
  EXPECT_EQ(i.type(1), ScalarType::u8);
  EXPECT_EQ(i.type(2), ScalarType::s8);
  EXPECT_TRUE(i.has(Mod::satfinite));
  EXPECT_FALSE(i.has(Mod::trans));
  EXPECT_EQ(i.suffixes().back(), Suffix(Mod::satfinite));
}

TEST(Reader, TensorOperandHoldsMapAndCoordinates) {
  Module m =
      read(kernel("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [r0], [map, "
                  "{r1, 8, r3}], [r2];"));
  const Function& f = m.functions[0];
  auto operands = f.operands_of(f.body[0]);
  ASSERT_EQ(operands.size(), 3u);
  ASSERT_EQ(operands[1].kind, OperandKind::tensor);
  auto both = f.elements_of(operands[1]);
  EXPECT_EQ(both[0].kind, OperandKind::address);
  EXPECT_EQ(both[0].ref, Ref::param);
  EXPECT_EQ(both[0].id, 1u);
  auto coordinates = f.elements_of(both[1]);
  ASSERT_EQ(coordinates.size(), 3u);
  EXPECT_EQ(coordinates[1].value, 8);
}

TEST(Reader, CallsHaveOneShape) {
  std::string module =
      ".version 9.0\n.target sm_80\n.address_size 64\n"
      ".func (.param .b32 out) f(.param .b32 in);\n.func g();\n"
      ".entry k()\n{\n.param .b32 x, y;\n.reg .b64 %rd<2>;\n"
      "call.uni (x), f, (y);\ncall g;\n"
      "proto: .callprototype (.param .b32 _) _ (.param .b32 _);\n"
      "call (x), %rd1, (y), proto;\nret;\n}\n";
  Module m = read(module);
  const Function& f = *m.find_function("k");
  auto first = f.operands_of(f.body[0]);
  ASSERT_EQ(first.size(), 3u);
  EXPECT_EQ(first[0].kind, OperandKind::tuple);
  EXPECT_EQ(first[1].ref, Ref::function);
  EXPECT_EQ(f.elements_of(first[2])[0].ref, Ref::local);
  auto second = f.operands_of(f.body[1]);
  ASSERT_EQ(second.size(), 3u);
  EXPECT_EQ(second[0].count, 0u);
  EXPECT_EQ(second[2].count, 0u);
  auto third = f.operands_of(f.body[2]);
  ASSERT_EQ(third.size(), 4u);
  EXPECT_EQ(third[1].kind, OperandKind::reg);
  EXPECT_EQ(third[3].ref, Ref::prototype);
  EXPECT_EQ(write(m, f, f.body[2]), "call (x), %rd1, (y), proto;");
  EXPECT_EQ(write(m, f, f.body[1]), "call g;");
}

TEST(Reader, RegistersAreNumberedByUse) {
  Module m = read(kernel(".reg .b32 %v<4000000>;\nadd.s32 %v7, %v3999999, %v7;"));
  const Function& f = m.functions[0];
  auto operands = f.operands_of(f.body[0]);
  EXPECT_EQ(operands[0].id, operands[2].id);
  EXPECT_EQ(f.registers.size(), 2u);
  EXPECT_EQ(f.register_name(operands[1].reg()), "%v3999999");
}

TEST(Reader, RangesThatEndInDigits) {
  Module m =
      read(kernel(".reg .b32 %x<20>;\n.reg .b64 %x1_<5>, %y1<30>;\nmov.b32 %x12, 0;\nmov.b64 %y13, "
                  "0;\nmov.b64 %y129, 0;"));
  const Function& f = m.functions[0];
  EXPECT_EQ(f.type_of(f.operands_of(f.body[0])[0].reg()), ScalarType::b32);
  EXPECT_EQ(f.registers[f.operands_of(f.body[1])[0].id].number, 3u);
  EXPECT_EQ(f.registers[f.operands_of(f.body[2])[0].id].number, 29u);
}

TEST(Reader, Variables) {
  Module m = read(
      ".version 9.0\n.target sm_90a, debug\n.address_size 64\n"
      ".extern .shared .align 1024 .b8 smem[];\n"
      ".visible .global .align 16 .v4 .f32 quad = {1.0, 0f40000000, 3, -4.5};\n"
      ".global .u32 grid[2][3] = {{1, 2}, {4, 5, 6}};\n"
      ".global .u64 where[3] = {grid, generic(grid)+8, 0};\n"
      ".const .b8 odd[9] = {1, 0xff(grid), 0xff00(grid), 0xff0000(grid)};\n"
      ".global .f64 single = -0.5, other;\n");
  EXPECT_EQ(m.target_options, std::vector<std::string>{"debug"});
  ASSERT_EQ(m.variables.size(), 7u);
  EXPECT_EQ(m.variables[0].dims, std::vector<int64_t>{Variable::kUnsized});
  EXPECT_EQ(m.variables[0].alignment(), 1024);
  const Variable& quad = m.variables[1];
  EXPECT_EQ(quad.size(), 16);
  float f[4];
  ASSERT_EQ(quad.initialiser.size(), sizeof f);
  std::copy(quad.initialiser.begin(), quad.initialiser.end(), reinterpret_cast<uint8_t*>(f));
  EXPECT_THAT(f, testing::ElementsAre(1.0f, 2.0f, 3.0f, -4.5f));
  const Variable& grid = m.variables[2];
  EXPECT_EQ(grid.size(), 24);
  EXPECT_EQ(grid.initialiser[12], 4) << "rows that are not full are padded";
  const Variable& where = m.variables[3];
  ASSERT_EQ(where.relocations.size(), 2u);
  EXPECT_EQ(where.relocations[1].addend, 8);
  EXPECT_FALSE(where.relocations[0].generic);
  const Variable& odd = m.variables[4];
  ASSERT_EQ(odd.relocations.size(), 3u);
  EXPECT_EQ(odd.relocations[2].shift, 16);
  EXPECT_EQ(odd.relocations[2].size, 1);
  EXPECT_EQ(m.variables[6].name, "other");
  std::string difference;
  EXPECT_TRUE(equivalent(m, read(write(m)), &difference)) << difference;
}

TEST(Reader, SkipsCommentsAndKeepsSections) {
  Module m = read(
      "// first line\n.version 9.0 /* here\n and there */ .target sm_80\n.address_size 64\n"
      ".section .debug_str\n{\nlabel:\n.b8 1,2,3\n.b8 0\n}\n.entry k() { ret; }\n");
  ASSERT_EQ(m.sections.size(), 1u);
  EXPECT_EQ(m.sections[0].name, ".debug_str");
  EXPECT_THAT(m.sections[0].text, HasSubstr(".b8 1,2,3"));
  EXPECT_EQ(m.functions[0].body[0].pos.line, 11u);
  EXPECT_EQ(m.functions[0].body[0].pos.column, 14u);
}

TEST(Reader, LocStaysInForce) {
  Module m = read(kernel(".loc 1 10 3\nmov.b32 r0, 1;\nmov.b32 r1, 2;\n.loc 1 11 0\nmov.b32 r2, 3;"));
  const Function& f = m.functions[0];
  EXPECT_EQ(f.locs[f.body[0].loc].line, 10u);
  EXPECT_EQ(f.locs[f.body[0].loc].column, 3u);
  EXPECT_EQ(f.body[1].loc, f.body[0].loc);
  EXPECT_EQ(f.locs[f.body[2].loc].line, 11u);
}

// Messages: where, what was found, what was expected, and the nearest right word.

TEST(ReaderErrors, UnknownInstruction) {
  Diagnostic d = body_error("mov.b32 r0, 1;\nmbarrier.try_wiat.parity.shared::cta.b64 p, [r0], 0;");
  EXPECT_EQ(d.where.line, kBodyLine + 1);
  EXPECT_STREQ(d.where.file, "test.ptx");
  EXPECT_THAT(d.message, HasSubstr("unknown instruction 'mbarrier.try_wiat"));
  EXPECT_EQ(d.help, "did you mean 'mbarrier.try_wait'?");
}

TEST(ReaderErrors, UnknownModifier) {
  Diagnostic d = body_error("ld.glolab.b32 r0, [w0];");
  EXPECT_EQ(d.message, "unknown modifier '.glolab' of ld (column 3)");
  EXPECT_EQ(d.help, "did you mean '.global'?");
}

TEST(ReaderErrors, UnknownNames) {
  EXPECT_THAT(body_error("add.s32 %r1, r0, r0;").message, HasSubstr("register '%r1' is not declared"));
  EXPECT_EQ(body_error("ld.param.b32 r0, [mapp];").help, "did you mean 'map'?");
  EXPECT_THAT(body_error("add.s32 r10, r0, r0;").message, HasSubstr("'r10' is not declared"));
  EXPECT_THAT(body_error("mov.u32 r0, %tid.w;").message, HasSubstr("unknown special register '%tid.w'"));
  EXPECT_THAT(body_error("bra $nowhere;").message, HasSubstr("label '$nowhere' is not defined"));
  EXPECT_THAT(body_error("brx.idx r0, $list;").message, HasSubstr("'$list' is no .branchtargets"));
}

TEST(ReaderErrors, Syntax) {
  EXPECT_THAT(body_error("add.s32 r0 r1, r2;").message, HasSubstr("expected ';', found 'r1'"));
  EXPECT_THAT(body_error("add.s32 r0, , r2;").message, HasSubstr("expected an operand, found ','"));
  EXPECT_THAT(body_error("ld.global.b32 r0, [w0;").message, HasSubstr("expected ']', found ';'"));
  EXPECT_THAT(body_error("@r0 bra x;").message, HasSubstr("guard r0 is a .b32 register"));
  EXPECT_THAT(body_error("mov.b32 r0, 0f3F8;").message, HasSubstr("0f takes 8 hexadecimal digits"));
  EXPECT_THAT(body_error("mov.b64 w0, 99999999999999999999;").message,
              HasSubstr("no number of at most 64 bits"));
  EXPECT_THAT(body_error("mov.b32 r0, 1 / 0;").message, HasSubstr("division by zero"));
  EXPECT_THAT(body_error(".shraed .b32 x;").help, HasSubstr("'.shared'"));
  EXPECT_THAT(body_error("/* never closed").message, HasSubstr("comment is never closed"));
  EXPECT_THAT(body_error(".reg .b32 r<3>;").message, HasSubstr("'r' is declared twice"));
  EXPECT_THAT(errors(".version 9.0\n.target sm_80\n.address_size 64\n.entry k() {")[0].message,
              HasSubstr("expected '}', found the end"));
  EXPECT_THAT(errors("hello")[0].message, HasSubstr("expected '.version', found 'hello'"));
  EXPECT_THAT(errors(".version 9.0\n.target sm_8x\n")[0].message, HasSubstr("unknown target 'sm_8x'"));
  EXPECT_THAT(errors(".version 9.0\n.target sm_80\n.global .b8 x[2] = {1,2,3};\n")[0].message,
              HasSubstr("2 bytes and 3 bytes of initialiser"));
}

TEST(ReaderErrors, SeveralInOneRun) {
  std::vector<Diagnostic> all = errors(kernel("foo r0;\nadd.s32 r0, r1, r2;\nadd.bar r1;\nmov.b32 q9, 0;"));
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].where.line, kBodyLine);
  EXPECT_EQ(all[1].where.line, kBodyLine + 2);
  EXPECT_EQ(all[2].where.line, kBodyLine + 3);
}

TEST(ReaderErrors, QuoteTheLine) {
  Diagnostic d = body_error("add.s32 r0 r1, r2;");
  ASSERT_EQ(d.facts.size(), 1u);
  EXPECT_THAT(d.facts[0], HasSubstr("add.s32 r0 r1, r2;"));
}

TEST(ReaderErrors, OfOneBodyNeedNotRefuseTheModule) {
  const std::string text =
      ".version 8.0\n.target sm_90a\n.address_size 64\n"
      ".func helper()\n{\n  frobnicate;\n  .reg .b32 x\n}\n.visible .entry k()\n{\n  ret;\n}\n";
  EXPECT_THROW(read(text), ParseError);
  UnreadBodies unread;
  const Module m = read(text, "two.ptx", unread);
  ASSERT_EQ(m.functions.size(), 2u);
  EXPECT_TRUE(m.functions[0].body.empty());
  EXPECT_EQ(m.functions[1].body.size(), 1u);
  ASSERT_EQ(unread.size(), 1u);
  EXPECT_EQ(unread.at(0).diagnostics().at(0).where.line, 6u);
  EXPECT_EQ(unread.at(0).lacking(), "");
  EXPECT_THROW(read(text + ".visible .entry broken(\n", "two.ptx", unread), ParseError);
}

TEST(ReaderErrors, TellWhatImbrexDoesNotHave) {
  const auto lacking = [](const std::string& statement) {
    const std::string text =
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\n" + statement + "\n}\n";
    UnreadBodies unread;
    read(text, "one.ptx", unread);
    EXPECT_EQ(unread.size(), 1u) << statement;
    try {
      read(text);
    } catch (const ParseError& error) {
      EXPECT_EQ(error.lacking(), unread.at(0).lacking());
      return error.lacking();
    }
    return std::string("nothing was thrown");
  };
  EXPECT_EQ(lacking("tex.2d.v4.f32.s32 {a, b, c, d}, [t, {x, y}];"), "textures");
  EXPECT_EQ(lacking("sust.b.2d.b32.trap [s, {x, y}], {v};"), "surfaces");
  EXPECT_EQ(lacking("frobnicate;\ntex.2d.v4.f32.s32 {a, b, c, d}, [t, {x, y}];"), "")
      << "the first is told of";
}

}  // namespace
}  // namespace imbrex::ptx
