// SPDX-License-Identifier: Apache-2.0
#include "runtime/assemble/ptx_lines.h"

#include <gtest/gtest.h>

namespace imbrex::runtime {
namespace {

constexpr const char* kPtx =
    ".version 8.0\n"
    ".file 1 \"kernel.cpp\"\n"
    ".visible .entry k() {\n"
    "  .loc 1 10 0\n"
    "  add.s32 %r0, %r1, %r2;\n"
    "  .loc 1 20 0\n"
    "  sub.s32 %r0, %r1, %r2;\n"
    "}\n";

TEST(PtxLines, TheLastLocBeforeALineCounts) {
  EXPECT_FALSE(kernel_line(kPtx, 3).is_known());
  EXPECT_EQ(kernel_line(kPtx, 5).line, 10u);
  EXPECT_EQ(kernel_line(kPtx, 7).line, 20u);
  EXPECT_STREQ(kernel_line(kPtx, 7).file, "kernel.cpp");
}

TEST(PtxLines, AssemblerLogsAreMappedToKernelLines) {
  codegen::CompiledKernel kernel;
  kernel.name = "k";
  kernel.ptx = kPtx;
  CompileError error =
      assembly_error(kernel, "ptxas application ptx input, line 7; error   : Arguments mismatch\n", "unused");
  ASSERT_EQ(error.diagnostics().size(), 1u);
  EXPECT_EQ(error.diagnostics()[0].where.line, 20u);
  EXPECT_EQ(assembly_error(kernel, "", "CUDA_ERROR").diagnostics()[0].message, "assembling k: CUDA_ERROR");
}

}  // namespace
}  // namespace imbrex::runtime
