// SPDX-License-Identifier: Apache-2.0
// Logs of ptxas are read from recorded text; assembling itself is tested where ptxas is installed.
#include "runtime/assemble/assembler.h"
#include "core/sha256.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "../skip.h"
#include "runtime/host/files.h"

namespace imbrex::runtime {
namespace {

using testing::HasSubstr;

constexpr const char* kSpills =
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
    "ptxas info    : Function properties for k\n"
    "    232 bytes stack frame, 228 bytes spill stores, 226 bytes spill loads\n"
    "ptxas info    : Used 24 registers, used 0 barriers, 232 bytes cumulative stack size\n"
    "ptxas info    : Compile time = 36.617 ms\n";
constexpr const char* kSerialized =
    "ptxas info    : (C7519) warpgroup.arrive is injected in around line 8 by compiler to allow use of "
    "registers in "
    "GMMA in function 'k'\n"
    "ptxas info    : (C7514) Potential Performance Loss: wgmma.mma_async instructions are serialized due to "
    "non wgmma "
    "instructions reading accumulator registers of  a wgmma between start and end of the pipeline stage in "
    "the "
    "function 'k'\n"
    "ptxas info    : Used 58 registers, used 0 barriers\n";

codegen::CompiledKernel kernel_of(const std::string& body) {
  codegen::CompiledKernel kernel;
  kernel.name = "k";
  kernel.target = "sm_80";
  kernel.where = {"kernel.cpp", 5, ""};
  kernel.ptx =
      ".version 8.0\n.target sm_80\n.address_size 64\n.file 1 \"kernel.cpp\"\n"
      ".visible .entry k(.param .u64 p)\n" +
      body;
  return kernel;
}

TEST(AssemblerLog, SpillsAndRegisters) {
  const AssemblerLog log = read_assembler_log(kSpills);
  EXPECT_EQ(log.registers, 24);
  EXPECT_EQ(log.stack_bytes, 232);
  EXPECT_EQ(log.spill_store_bytes, 228);
  EXPECT_EQ(log.spill_load_bytes, 226);
  EXPECT_TRUE(log.remarks.empty());
  const codegen::CompiledKernel kernel = kernel_of("{ ret; }\n");
  const std::vector<Diagnostic> errors = performance_errors(kernel, log, {});
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0].where.line, 5u);
  EXPECT_THAT(errors[0].message, HasSubstr("228 bytes stored and 226 bytes loaded"));
  EXPECT_THAT(errors[0].help, HasSubstr("smaller register tiles"));
  EXPECT_TRUE(performance_errors(kernel, log, {.spills = true}).empty());
}

TEST(AssemblerLog, SerializedProductsStandAtTheKernelsLines) {
  const AssemblerLog log = read_assembler_log(kSerialized);
  ASSERT_EQ(log.remarks.size(), 2u);
  EXPECT_EQ(log.remarks[0].code, 7519);
  EXPECT_EQ(log.remarks[0].ptx_line, 8);
  EXPECT_EQ(log.remarks[1].ptx_line, 0) << "'pipeline stage' is not a line";
  codegen::CompiledKernel kernel = kernel_of(
      "{\n.loc 1 30 0\n wgmma.fence.sync.aligned;\n .loc 1 31 0\n wgmma.mma_async.sync.aligned;\n }\n");
  const std::vector<Diagnostic> errors = performance_errors(kernel, log, {});
  ASSERT_EQ(errors.size(), 2u);
  EXPECT_EQ(errors[0].where.line, 30u);
  EXPECT_THAT(errors[0].help, HasSubstr("wgmma::fence"));
  EXPECT_EQ(errors[1].where.line, 31u) << "no line given: the first product";
  EXPECT_THAT(errors[1].message, HasSubstr("serialized"));
  EXPECT_THAT(errors[1].help, HasSubstr("wait_group 0"));
  EXPECT_TRUE(performance_errors(kernel, log, {.serialization = true}).empty());
}

TEST(AssemblerLog, ToleranceFromTheEnvironment) {
  setenv("IMBREX_ALLOW", "spills", 1);
  EXPECT_TRUE(AssemblerTolerance::from_environment().spills);
  EXPECT_FALSE(AssemblerTolerance::from_environment().serialization);
  setenv("IMBREX_ALLOW", "spils", 1);
  try {
    AssemblerTolerance::from_environment();
    ADD_FAILURE();
  } catch (const LaunchError& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean 'spills'"));
  }
  unsetenv("IMBREX_ALLOW");
}

class Ptxas : public testing::Test {
 protected:
  void SetUp() override {
    ptxas = find_ptxas();
    if (ptxas == nullptr) IMBREX_SKIP(ptxas);
  }
  const Assembler* ptxas = nullptr;
  TemporaryFolder folder;
  Cache cache{folder.path(), 1 << 20};
};

TEST_F(Ptxas, MakesMachineCodeOnceAndThenItIsInTheCache) {
  EXPECT_THAT(ptxas->name(), testing::MatchesRegex("ptxas [0-9.]+"));
  EXPECT_GE(ptxas->cuda_version(), 11000);
  const codegen::CompiledKernel kernel = kernel_of("{ ret; }\n");
  const Cubin made = assemble_cached(*ptxas, kernel, "sm_80", cache, {});
  EXPECT_EQ(made.bytes.substr(0, 4),
            "\x7f"
            "ELF");
  EXPECT_FALSE(made.from_cache);
  EXPECT_GT(made.log().registers, 0);
  const Cubin kept = assemble_cached(*ptxas, kernel, "sm_80", cache, {});
  EXPECT_TRUE(kept.from_cache);
  EXPECT_EQ(kept.bytes, made.bytes);
  EXPECT_EQ(kept.log_text, made.log_text);
  EXPECT_FALSE(assemble_cached(*ptxas, kernel, "sm_86", cache, {}).from_cache);
  EXPECT_FALSE(assemble_cached(*ptxas, kernel_of("{ ret; } // other\n"), "sm_80", cache, {}).from_cache);
}

TEST_F(Ptxas, ErrorsStandAtTheKernelsLines) {
  const codegen::CompiledKernel kernel =
      kernel_of("{ .reg .b32 %r<3>;\n .loc 1 77 0\n add.s32 %r0, %r1, %nothing;\n ret; }\n");
  try {
    assemble_cached(*ptxas, kernel, "sm_80", cache, {});
    ADD_FAILURE();
  } catch (const CompileError& error) {
    EXPECT_EQ(dynamic_cast<const PerformanceError*>(&error), nullptr) << "it does not assemble at all";
    EXPECT_EQ(error.diagnostics()[0].where.line, 77u);
    EXPECT_THAT(error.what(), HasSubstr("%nothing"));
  }
}

TEST_F(Ptxas, SpillsAreErrorsWhetherAssembledOrCached) {
  std::string body = ".maxnreg 24\n{ .reg .b64 %p; .reg .f32 %f<64>; ld.param.u64 %p, [p];\n";
  for (int i = 0; i < 64; ++i)
    body += "ld.volatile.global.f32 %f" + std::to_string(i) + ", [%p+" + std::to_string(4 * i) + "];\n";
  for (int i = 0; i < 64; ++i) body += "st.volatile.global.f32 [%p], %f" + std::to_string(63 - i) + ";\n";
  const codegen::CompiledKernel kernel = kernel_of(body + "ret; }\n");
  for (int attempt = 0; attempt < 2; ++attempt) {
    try {
      assemble_cached(*ptxas, kernel, "sm_80", cache, {});
      ADD_FAILURE();
    } catch (const PerformanceError& error) {
      EXPECT_GT(error.log().spill_store_bytes, 0);
      EXPECT_GT(error.log().registers, 0);
    }
  }
  const Cubin cubin = assemble_cached(*ptxas, kernel, "sm_80", cache, {.spills = true});
  EXPECT_TRUE(cubin.from_cache);
  EXPECT_GT(cubin.log().spill_store_bytes, 0);
}

TEST_F(Ptxas, DamagedMachineCodeIsMadeAgain) {
  const codegen::CompiledKernel kernel = kernel_of("{ ret; }\n");
  const Cubin made = assemble_cached(*ptxas, kernel, "sm_80", cache, {});
  ASSERT_TRUE(
      cache.store(cubin_key(kernel.name, sha256(kernel.ptx), "sm_80", ptxas->name()), "not what was stored"));
  const Cubin again = assemble_cached(*ptxas, kernel, "sm_80", cache, {});
  EXPECT_FALSE(again.from_cache);
  EXPECT_EQ(again.bytes.substr(0, 4), made.bytes.substr(0, 4));
}

}  // namespace
}  // namespace imbrex::runtime
