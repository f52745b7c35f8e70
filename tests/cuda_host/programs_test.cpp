// SPDX-License-Identifier: Apache-2.0
// The programs of programs/, compiled by nvcc and run unmodified, with the shared and with the static CUDA runtime.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "../skip.h"
#include "imbrex/core/find_tool.h"
#include "run_program_testing.h"

namespace imbrex {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

const std::string kSources = IMBREX_SOURCE_DIR "/tests/cuda_host/programs/";

/// The program, compiled unless it is newer than its source; "" where there is no nvcc. `more`: options and other sources.
/// Tests that run at the same time want the same program: it gets its name when it is whole.
std::string compiled(const std::string& name, const std::string& runtime, const std::string& more = "") {
  const std::string nvcc = find_cuda_tool("nvcc").path;
  if (nvcc.empty()) return "";
  const fs::path folder = IMBREX_BINARY_DIR "/cuda_programs";
  fs::create_directories(folder);
  const fs::path program = folder / (name + "-" + runtime), source = kSources + name + ".cu";
  if (fs::exists(program) && fs::last_write_time(program) > fs::last_write_time(source))
    return program.string();
  const std::string half_made = program.string() + "." + std::to_string(getpid());
  const Ran ran = run(nvcc + " -lineinfo -arch=sm_90a -cudart " + runtime + " " + source.string() + more +
                      " -o " + half_made);
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  if (ran.exit_code == 0) fs::rename(half_made, program);
  return program.string();
}

class CudaProgram : public testing::TestWithParam<std::tuple<const char*, const char*>> {};

TEST_P(CudaProgram, RunsUnmodified) {
  const auto& [name, runtime] = GetParam();
  const std::string program = compiled(name, runtime);
  if (program.empty()) IMBREX_SKIP(nvcc);
  const Ran ran = run(kImbrex + " run --gpus 2 -- " + program);
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("nothing found"));
}

INSTANTIATE_TEST_SUITE_P(
    All, CudaProgram,
    testing::Combine(testing::Values("vector_add", "reduction", "streams", "symbols", "host_memory", "graphs",
                                     "graph_nodes", "host_functions", "patterns", "clusters", "queries",
                                     "heap", "unwritten", "managed", "recursion", "async_copies"),
                     testing::Values("shared", "static")),
    [](const auto& info) { return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param); });

TEST(CudaPrograms, LaunchesAndCallsThatCannotBeAnswerAsAnH200Does) {
  for (const char* name : {"launch_limits", "error_codes", "batch_copies"})
    for (const char* runtime : {"shared", "static"}) {
      const std::string program = compiled(name, runtime);
      if (program.empty()) IMBREX_SKIP(nvcc);
      const Ran ran = run(kImbrex + " run -- " + program);
      EXPECT_THAT(ran.output, HasSubstr("ok\n"));
    }
}

TEST(CudaPrograms, WhatThreadsGiveTheirDefaultStreamsIsNotOrdered) {
  for (const char* runtime : {"shared", "static"}) {
    const std::string program = compiled("thread_streams", runtime, " -default-stream per-thread");
    if (program.empty()) IMBREX_SKIP(nvcc);
    const Ran ordered = run(kImbrex + " run -- " + program);
    EXPECT_EQ(ordered.exit_code, 0) << ordered.output;
    EXPECT_THAT(ordered.output, HasSubstr("nothing found"));
    const Ran unordered = run(kImbrex + " run -- " + program + " unordered");
    EXPECT_EQ(unordered.exit_code, 1) << unordered.output;
    EXPECT_THAT(unordered.output, HasSubstr("on the default stream of thread 2 reads 128 bytes"));
    EXPECT_THAT(unordered.output, HasSubstr("on the default stream of thread 1 writes"));
  }
}

TEST(CudaPrograms, ScratchMemoryThatNobodyHasWrittenIsFound) {
  const std::string program = compiled("unwritten", "static");
  if (program.empty()) IMBREX_SKIP(nvcc);
  const Ran good = run(kImbrex + " run -- " + program + " pool");
  EXPECT_EQ(good.exit_code, 0) << good.output;
  for (const char* where : {" unwritten", " unwritten pool"}) {
    const Ran ran = run(kImbrex + " run -- " + program + where);
    EXPECT_EQ(ran.exit_code, 1) << ran.output;
    EXPECT_THAT(ran.output, HasSubstr("in count(int const*, int, int*)"));
    EXPECT_THAT(ran.output, HasSubstr("uninitialized-read: reads 4 bytes of global memory"));
    EXPECT_THAT(ran.output, HasSubstr("unwritten.cu:16: uninitialized-read: reads memory of which not all"));
  }
}

TEST(CudaPrograms, OnesCompiledInPartsAreLinkedAsPtx) {
  for (const char* runtime : {"shared", "static"}) {
    const std::string program = compiled("parts", runtime, " -rdc=true " + kSources + "parts_device.cu");
    if (program.empty()) IMBREX_SKIP(nvcc);
    const Ran ran = run(kImbrex + " run -- " + program);
    EXPECT_EQ(ran.exit_code, 0) << ran.output;
    EXPECT_THAT(ran.output, HasSubstr("nothing found"));
  }
}

TEST(CudaPrograms, ProductsOfCublasAreAnsweredByTheHostWhereAskedFor) {
  const std::string program = compiled("blas", "shared", " -lcublas -lcublasLt");
  if (program.empty()) IMBREX_SKIP(nvcc);
  const Ran ran = run(kImbrex + " run --with-blas -- " + program);
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("1 calls of cublasSgemm_v2 were answered by the host"));
  EXPECT_THAT(ran.output, HasSubstr("3 calls of cublasLtMatmul were answered by the host"));
  const Ran without = run(kImbrex + " run -- " + program);
  EXPECT_EQ(without.exit_code, 1) << without.output;
  EXPECT_THAT(without.output, HasSubstr("libcublas"));
  EXPECT_THAT(without.output, HasSubstr("imbrex run --with-blas"));
  const Ran more = run(kImbrex + " run --with-blas -- " + program + " more");
  EXPECT_EQ(more.exit_code, 0) << more.output;
  EXPECT_THAT(more.output, HasSubstr("cublasSaxpy_v2: the stand-in for cuBLAS does not have this"));
}

TEST(CudaPrograms, RandomNumbersOfCurandAreAnsweredByTheHostWhereAskedFor) {
  const std::string program = compiled("random", "shared", " -lcurand");
  if (program.empty()) IMBREX_SKIP(nvcc);
  const Ran ran = run(kImbrex + " run --with-blas -- " + program);
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("4 calls of curandGenerateUniform were answered by the host"));
  EXPECT_THAT(ran.output, HasSubstr("the stand-in for cuRAND does not have this: quasirandom generators"));
  const Ran without = run(kImbrex + " run -- " + program);
  EXPECT_EQ(without.exit_code, 1) << without.output;
  EXPECT_THAT(without.output, HasSubstr("imbrex run --with-blas"));
}

TEST(CudaProgramFaults, ARaceIsToldAtItsLine) {
  const std::string program = compiled("faults", "static");
  if (program.empty()) IMBREX_SKIP(nvcc);
  const Ran ran = run(kImbrex + " run -- " + program + " race");
  EXPECT_EQ(ran.exit_code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("imbrex: in reverse(float*)"));
  EXPECT_THAT(ran.output, HasSubstr("programs/faults.cu:10: race"));
  EXPECT_THAT(ran.output, HasSubstr("launched in main (" + program + "+0x"));
}

TEST(CudaProgramFaults, FaultsAreTheProgramsErrorCodes) {
  const std::string program = compiled("faults", "static");
  if (program.empty()) IMBREX_SKIP(nvcc);
  const Ran past = run(kImbrex + " run -- " + program + " past");
  EXPECT_EQ(past.exit_code, 1) << past.output;
  EXPECT_THAT(past.output, HasSubstr("programs/faults.cu:12: out-of-bounds"));
  const Ran far = run(kImbrex + " run -- " + program + " far");
  EXPECT_EQ(far.exit_code, 1) << far.output;
  EXPECT_THAT(far.output, HasSubstr("programs/faults.cu:12: out-of-bounds"));
  const Ran trap = run(kImbrex + " run -- " + program + " trap");
  EXPECT_EQ(trap.exit_code, 1) << trap.output;
  EXPECT_THAT(trap.output, HasSubstr("value 4\n"));
}

TEST(CudaProgramFaults, OfTheKernelsHeapAreToldWithTheirPlaces) {
  const std::string program = compiled("heap", "static");
  if (program.empty()) IMBREX_SKIP(nvcc);
  const Ran twice = run(kImbrex + " run -- " + program + " twice");
  EXPECT_THAT(twice.output, HasSubstr("heap.cu:51: use-after-free: frees the 64 bytes at"));
  EXPECT_THAT(twice.output, HasSubstr("heap.cu:50"));
  const Ran freed = run(kImbrex + " run -- " + program + " freed");
  EXPECT_EQ(freed.exit_code, 1) << freed.output;
  EXPECT_THAT(freed.output, HasSubstr("heap.cu:57: use-after-free: reads 4 bytes"));
  EXPECT_THAT(freed.output, HasSubstr("of malloc, which have been freed"));
  const Ran assertion = run(kImbrex + " run -- " + program + " assert");
  EXPECT_EQ(assertion.exit_code, 1) << assertion.output;
  EXPECT_THAT(assertion.output, HasSubstr("assertion failed: value == 3"));
}

TEST(CudaProgramFaults, HostCodeThatFollowsADevicePointerIsTold) {
  const std::string program = compiled("faults", "static");
  if (program.empty()) IMBREX_SKIP(nvcc);
  const Ran ran = run(kImbrex + " run -- " + program + " follow");
  EXPECT_EQ(ran.exit_code, 128 + 11);
  EXPECT_THAT(ran.output, HasSubstr("which is a device address: only kernels and cudaMemcpy may use it"));
}

TEST(CudaProgramFaults, OfPointersAndMemoryAreNamedWithARemedy) {
  for (const char* runtime : {"shared", "static"}) {
    const std::string program = compiled("faults", runtime);
    if (program.empty()) IMBREX_SKIP(nvcc);
    const Ran twice = run(kImbrex + " run -- " + program + " twice");
    EXPECT_EQ(twice.exit_code, 1) << twice.output;
    EXPECT_THAT(twice.output, HasSubstr("imbrex: in the host program\nuse-after-free: 0x"));
    EXPECT_THAT(twice.output, HasSubstr("was freed before (512 bytes): a double free\n  in main ("));
    EXPECT_THAT(twice.output, HasSubstr("help: free it once"));
    const Ran much = run(kImbrex + " run -- " + program + " much");
    EXPECT_THAT(much.output,
                HasSubstr("bytes of device memory are asked for, 512 of 141000000000 are in use"));
    EXPECT_THAT(
        much.output,
        HasSubstr("help: free what is not used any more, or let the GPU be a larger one: imbrex run --gpu"));
    EXPECT_THAT(much.output, HasSubstr("1 call of cuMemAlloc (CUDA_ERROR_OUT_OF_MEMORY) failed"));
    const Ran stopped = run(kImbrex + " run --stop-at-first -- " + program + " much");
    EXPECT_EQ(stopped.exit_code, 1) << stopped.output;
    EXPECT_THAT(stopped.output, HasSubstr("stopped at the first call that failed"));
    const Ran host = run(kImbrex + " run -- " + program + " host");
    EXPECT_EQ(host.exit_code, 1) << host.output;
    EXPECT_THAT(host.output, HasSubstr("this is an address of the host"));
    EXPECT_THAT(host.output, HasSubstr("help: copy to memory of cudaMalloc"));
    EXPECT_THAT(run(kImbrex + " run -- " + program + " null").output, HasSubstr("this is a null pointer"));
  }
}

TEST(CudaProgramFaults, AWaitForAValueThatNeverComesIsToldWithTheValue) {
  const std::string program = compiled("faults", "static");
  if (program.empty()) IMBREX_SKIP(nvcc);
  const Ran ran = run("timeout 300 " + kImbrex + " run -- " + program + " semaphore");
  EXPECT_EQ(ran.exit_code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("endless-run"));
  EXPECT_THAT(ran.output, HasSubstr("CTA (0, 0, 0) warp 0 "));
  EXPECT_THAT(ran.output, HasSubstr("having last looked at byte 8 of allocation 0"));
  EXPECT_THAT(ran.output, HasSubstr("which holds 3 and is waited for to be 4"));
}

TEST(CudaProgramFaults, MachineCodeAloneIsNamedAndNotTakenForSuccess) {
  const std::string nvcc = find_cuda_tool("nvcc").path;
  if (nvcc.empty()) IMBREX_SKIP(nvcc);
  const std::string program = IMBREX_BINARY_DIR "/cuda_programs/faults-machine-code";
  fs::create_directories(IMBREX_BINARY_DIR "/cuda_programs");
  const Ran built =
      run(nvcc + " -gencode arch=compute_90a,code=sm_90a " + kSources + "faults.cu -o " + program);
  ASSERT_EQ(built.exit_code, 0) << built.output;
  const Ran ran = run(kImbrex + " run -- " + program + " race || echo code $?");
  EXPECT_THAT(ran.output, HasSubstr("its kernels are there as machine code for sm_90 only"));
  EXPECT_THAT(ran.output, HasSubstr("help: build the program again with NVCC_APPEND_FLAGS="));
  EXPECT_THAT(ran.output, HasSubstr("(CUDA_ERROR_NO_BINARY_FOR_GPU) failed"));
  EXPECT_THAT(ran.output, HasSubstr("no kernel was launched, so that nothing was checked"));
  EXPECT_THAT(ran.output, HasSubstr("code 1"));
}

TEST(CudaProgramFaults, StreamsThatNothingOrdersRace) {
  const std::string program = compiled("streams", "shared");
  if (program.empty()) IMBREX_SKIP(nvcc);
  const Ran ran = run(kImbrex + " run -- " + program + " race");
  EXPECT_EQ(ran.exit_code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("with nothing that orders the two"));
}

TEST(CudaProgramFaults, TexturesAreNotSupportedAndSaySo) {
  for (const char* runtime : {"shared", "static"}) {
    const std::string program = compiled("texture", runtime);
    if (program.empty()) IMBREX_SKIP(nvcc);
    const Ran ran = run(kImbrex + " run -- " + program);
    EXPECT_EQ(ran.exit_code, 0) << ran.output;
    EXPECT_THAT(ran.output, HasSubstr("the virtual GPU does not have this: textures, surfaces and arrays"));
    EXPECT_THAT(ran.output, HasSubstr("this is of textures, which the virtual GPU does not have"));
  }
}

TEST(CudaProgramFaults, LaunchesFromKernelsAreNotSupportedAndSaySo) {
  for (const char* runtime : {"shared", "static"}) {
    const std::string program = compiled("kernel_launches", runtime, " -rdc=true");
    if (program.empty()) IMBREX_SKIP(nvcc);
    const Ran ran = run(kImbrex + " run -- " + program);
    EXPECT_EQ(ran.exit_code, 0) << ran.output;
    EXPECT_THAT(ran.output, HasSubstr("it launches kernels from a kernel"));
  }
}

TEST(CudaProgramFaults, ARecursionThatOverflowsTheStackIsToldWithItsCalls) {
  for (const char* runtime : {"shared", "static"}) {
    const std::string program = compiled("recursion", runtime);
    if (program.empty()) IMBREX_SKIP(nvcc);
    const Ran ran = run(kImbrex + " run -- " + program + " deep");
    EXPECT_EQ(ran.exit_code, 1) << ran.output;
    EXPECT_THAT(ran.output, HasSubstr("in dive(int, int*)"));
    EXPECT_THAT(ran.output,
                HasSubstr("recursion.cu:35: out-of-bounds: stack overflow: calls chain(int, int*)"));
    EXPECT_THAT(ran.output, HasSubstr("cudaLimitStackSize"));
    const Ran raised = run(kImbrex + " run -- " + program + " deep raised");
    EXPECT_EQ(raised.exit_code, 0) << raised.output;
  }
}

TEST(CudaProgramFaults, CublasLinkedIntoTheProgramIsNamed) {
  const std::string nvcc = find_cuda_tool("nvcc").path;
  if (nvcc.empty()) IMBREX_SKIP(nvcc);
  // In place of a library of half a gigabyte: what tells that it is there.
  const std::string program = temporary("static-blas"), trace = program + ".cpp";
  std::ofstream(trace)
      << "extern const char cublas_reads[]; const char cublas_reads[] = \"CUBLASLT_LOG_LEVEL\";\n";
  const Ran built = run(nvcc + " -gencode arch=compute_90a,code=sm_90a " + kSources + "symbols.cu " + trace +
                        " -o " + program);
  ASSERT_EQ(built.exit_code, 0) << built.output;
  const Ran ran = run(kImbrex + " run --with-blas -- " + program);
  EXPECT_NE(ran.exit_code, 0);
  EXPECT_THAT(ran.output, HasSubstr("cuBLAS is linked into the program"));
  EXPECT_THAT(ran.output, HasSubstr("link it as a shared library (-lcublas -lcublasLt"));
}

TEST(CudaProgramFaults, MachineCodeWithoutPtxSaysHowToAddIt) {
  const std::string nvcc = find_cuda_tool("nvcc").path;
  if (nvcc.empty()) IMBREX_SKIP(nvcc);
  const std::string program = temporary("machine-code-only");
  const Ran built =
      run(nvcc + " -gencode arch=compute_90a,code=sm_90a " + kSources + "symbols.cu -o " + program);
  ASSERT_EQ(built.exit_code, 0) << built.output;
  const Ran ran = run(kImbrex + " run -- " + program);
  EXPECT_NE(ran.exit_code, 0);
  EXPECT_THAT(ran.output, HasSubstr("NVCC_APPEND_FLAGS=\"-gencode arch=compute_90a,code=compute_90a\""));
}

}  // namespace
}  // namespace imbrex
