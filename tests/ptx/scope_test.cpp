// SPDX-License-Identifier: Apache-2.0
// Nested scopes: registers, variables and labels that inline assembly declares again and again.
#include <gtest/gtest.h>

#include "imbrex/core/parse_error.h"
#include "ptx/reader.h"
#include "ptx/writer.h"
#include "ptx_text.h"

namespace imbrex::ptx {
namespace {

uint32_t target_of_branch(const Function& f, size_t instruction) {
  return f.labels[f.operands_of(f.body[instruction]).back().id].position;
}

TEST(Scopes, SameNamesAreDifferentRegisters) {
  Module m = read(kernel("{\n.reg .b32 t;\nmov.b32 t, 1;\n}\n{\n.reg .b64 t;\nmov.b64 t, 2;\n}"));
  const Function& f = m.functions[0];
  Reg first = f.operands_of(f.body[0])[0].reg();
  Reg second = f.operands_of(f.body[1])[0].reg();
  EXPECT_NE(first, second);
  EXPECT_EQ(f.type_of(first), ScalarType::b32);
  EXPECT_EQ(f.type_of(second), ScalarType::b64);
  EXPECT_EQ(f.register_name(first), "t");
  EXPECT_EQ(f.register_name(second), "t$2");
}

TEST(Scopes, InnerNameHidesTheOuterUntilItsEnd) {
  Module m = read(kernel(
      ".reg .b32 t;\nmov.b32 t, 0;\n{\n.reg .b32 t;\nmov.b32 t, 1;\n{\nmov.b32 t, 2;\n}\n}\nmov.b32 t, 3;"));
  const Function& f = m.functions[0];
  auto destination = [&](size_t i) { return f.operands_of(f.body[i])[0].id; };
  EXPECT_EQ(destination(0), destination(3));
  EXPECT_EQ(destination(1), destination(2));
  EXPECT_NE(destination(0), destination(1));
}

TEST(Scopes, RangesAreRenamedToo) {
  Module m = read(kernel("{\n.reg .b32 %t<3>;\nmov.b32 %t2, 0;\n}\n{\n.reg .b32 %t<5>;\nmov.b32 %t2, 1;\n}"));
  const Function& f = m.functions[0];
  EXPECT_EQ(f.register_name(f.operands_of(f.body[1])[0].reg()), "%t$2_2");
  std::string difference;
  EXPECT_TRUE(equivalent(m, read(write(m)), &difference)) << difference;
}

TEST(Scopes, LabelsBelongToTheirScope) {
  const char* loop = "{\nWAIT:\nadd.s32 r0, r0, 1;\n@p bra DONE;\nbra WAIT;\nDONE:\n}\n";
  Module m = read(kernel(std::string(loop) + loop + "ret;"));
  const Function& f = m.functions[0];
  ASSERT_EQ(f.labels.size(), 4u);
  EXPECT_EQ(target_of_branch(f, 1), 3u);
  EXPECT_EQ(target_of_branch(f, 2), 0u);
  EXPECT_EQ(target_of_branch(f, 4), 6u);
  EXPECT_EQ(target_of_branch(f, 5), 3u);
}

TEST(Scopes, BranchesOutOfAScope) {
  // Forward and backward, from two levels down; `out` is first referred to inside, then outside.
  Module m =
      read(kernel("top:\nmov.b32 r0, 0;\n{\n{\nbra out;\nbra top;\n}\nbra out;\n}\nbra out;\nmov.b32 r0, "
                  "1;\nout:\nret;"));
  const Function& f = m.functions[0];
  EXPECT_EQ(f.labels.size(), 2u);
  EXPECT_EQ(target_of_branch(f, 1), 6u);
  EXPECT_EQ(target_of_branch(f, 2), 0u);
  EXPECT_EQ(target_of_branch(f, 3), 6u);
  EXPECT_EQ(target_of_branch(f, 4), 6u);
}

TEST(Scopes, AnInnerLabelWinsOverAnOuterOneDefinedBefore) {
  Module m = read(kernel("x:\nmov.b32 r0, 0;\n{\nbra x;\nmov.b32 r0, 1;\nx:\nmov.b32 r0, 2;\n}\nbra x;"));
  const Function& f = m.functions[0];
  EXPECT_EQ(target_of_branch(f, 1), 3u);
  EXPECT_EQ(target_of_branch(f, 4), 0u);
}

TEST(Scopes, BranchTables) {
  Module m = read(kernel("$t: .branchtargets $a, $b;\nbrx.idx r0, $t;\n$a:\nmov.b32 r0, 1;\n$b:\nret;"));
  const Function& f = m.functions[0];
  ASSERT_EQ(f.target_lists.size(), 1u);
  EXPECT_EQ(f.labels[f.target_lists[0].targets[0]].position, 1u);
  EXPECT_EQ(f.labels[f.target_lists[0].targets[1]].position, 2u);
  EXPECT_EQ(f.operands_of(f.body[0])[1].ref, Ref::target_list);
}

TEST(Scopes, ALabelInsideIsNotSeenOutside) {
  EXPECT_THROW(read(kernel("{\ninner:\nret;\n}\nbra inner;")), ParseError);
}

TEST(Scopes, AVariableInsideIsNotSeenOutside) {
  EXPECT_THROW(read(kernel("{\n.reg .b32 t;\n}\nmov.b32 t, 0;")), ParseError);
}

}  // namespace
}  // namespace imbrex::ptx
