// SPDX-License-Identifier: Apache-2.0
#include "codegen/fuse_logic.h"

#include <gtest/gtest.h>

#include "ptx/reader.h"
#include "ptx/writer.h"

namespace imbrex::codegen {
namespace {

/// The body's instructions afterwards, a line each, labels too.
std::string fused(const std::string& body) {
  ptx::Module module = ptx::read(
      ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n.reg .pred %p<4>;\n.reg .b32 "
      "%r<10>;\n" +
          body + "ret;\n}\n",
      "test.ptx");
  fuse_logic(module.functions[0]);
  const std::string text = ptx::write(module);
  std::string lines;
  for (size_t at = text.find("%r<10>") + 8, end; (end = text.find('\n', at)) != std::string::npos;
       at = end + 1) {
    const std::string line = text.substr(at, end - at);
    const size_t first = line.find_first_not_of(" \t");
    if (first == std::string::npos || line.find("ret;") != std::string::npos || line[first] == '}') continue;
    lines += line.substr(first) + "\n";
  }
  return lines;
}

TEST(FuseLogic, MaskAndConstantBecomeOneInstruction) {
  EXPECT_EQ(fused("and.b32 %r1, %r0, 983055;\nor.b32 %r2, %r1, 1677747200;\nadd.u32 %r3, %r2, %r0;\n"),
            "lop3.b32 %r2, %r0, 0x000F000F, 0x64006400, 234;\nadd.u32 %r3, %r2, %r0;\n");
  EXPECT_EQ(fused("and.b32 %r1, %r0, 8;\nxor.b32 %r2, %r1, 16;\n"), "lop3.b32 %r2, %r0, 8, 16, 106;\n");
}

TEST(FuseLogic, LabelsStayWhereTheyAre) {
  EXPECT_EQ(fused("and.b32 %r1, %r0, 8;\nor.b32 %r2, %r1, 16;\nloop:\nadd.u32 %r3, %r2, %r3;\nbra loop;\n"),
            "lop3.b32 %r2, %r0, 8, 16, 234;\nloop:\nadd.u32 %r3, %r2, %r3;\nbra loop;\n");
}

TEST(FuseLogic, LeavesWhatItMustNot) {
  for (const char* body : {
           // The masked value is read elsewhere.
           "and.b32 %r1, %r0, 8;\nor.b32 %r2, %r1, 16;\nadd.u32 %r3, %r1, %r2;\n",
           // What was masked is written in between.
           "and.b32 %r1, %r0, 8;\nadd.u32 %r0, %r0, 1;\nor.b32 %r2, %r1, 16;\n",
           // It is written twice.
           "and.b32 %r1, %r0, 8;\n@%p0 mov.b32 %r1, 4;\nor.b32 %r2, %r1, 16;\n",
           // Another way leads to the second.
           "and.b32 %r1, %r0, 8;\nhere:\nor.b32 %r2, %r1, 16;\nbra here;\n",
           // Only some threads execute one of them.
           "@%p0 and.b32 %r1, %r0, 8;\nor.b32 %r2, %r1, 16;\n",
           "and.b32 %r1, %r0, 8;\n@%p0 or.b32 %r2, %r1, 16;\n",
           // One constant: the assembler does it.
           "and.b32 %r1, %r0, %r3;\nor.b32 %r2, %r1, 16;\n",
       })
    EXPECT_EQ(fused(body), body);
}

}  // namespace
}  // namespace imbrex::codegen
