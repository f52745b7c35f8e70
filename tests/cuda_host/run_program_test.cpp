// SPDX-License-Identifier: Apache-2.0
// imbrex run -- PROGRAM, with a program that needs no nvcc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "../skip.h"
#include "run_program_testing.h"

namespace imbrex {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

const std::string kProgram = IMBREX_BINARY_DIR "/cuda_ptx_program";

TEST(RunProgram, ACleanProgramIsClean) {
  const Ran ran = run(kImbrex + " run -- " + kProgram + " 3");
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("8\n"));
  EXPECT_THAT(ran.output, HasSubstr("nothing found; 3 launches, 3 of them checked"));
}

TEST(RunProgram, AFaultIsToldWithKernelAndPlaceAndTheProgramsCodeKept) {
  const Ran ran = run(kImbrex + " run -- " + kProgram + " 2 far");
  EXPECT_EQ(ran.exit_code, 3) << "the program's own code\n" << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("synchronisation: CUDA_ERROR_ILLEGAL_ADDRESS"));
  EXPECT_THAT(ran.output, HasSubstr("imbrex: in double_them"));
  EXPECT_THAT(ran.output, HasSubstr("out-of-bounds"));
  EXPECT_THAT(ran.output, HasSubstr("1 finding; 2 launches, 2 of them checked"));
}

TEST(RunProgram, ASignalThatEndsTheProgramIsNamed) {
  const Ran ran = run(kImbrex + " run -- sh -c 'kill -9 $$'");
  EXPECT_EQ(ran.exit_code, 128 + SIGKILL);
  EXPECT_THAT(ran.output, HasSubstr("the program was ended by signal 9 (Killed)"));
  EXPECT_THAT(ran.output, HasSubstr("not how many launches there were"));
  EXPECT_THAT(ran.output, Not(HasSubstr("no kernel was launched")));
  EXPECT_THAT(ran.output, HasSubstr("want of memory"));
}

TEST(RunProgram, WhatNoGpuNoticesIsToldAndTheProgramGoesOn) {
  const Ran ran = run(kImbrex + " run -- " + kProgram + " 2 past");
  EXPECT_EQ(ran.exit_code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("4\n"));
  EXPECT_THAT(ran.output, HasSubstr("0 bytes past the end of allocation 0"));
  // Compiled with -g.
  EXPECT_THAT(ran.output, ContainsRegex("launched in main \\(.*ptx_program.cpp:[0-9]+\\)"));
}

TEST(RunProgram, InPythonTheLaunchIsToldByTheProgramsFunction) {
  if (run("python3 --version").exit_code != 0) IMBREX_SKIP(python);
  const Ran ran = run(kImbrex + " run -- python3 " IMBREX_SOURCE_DIR "/tests/cuda_host/launch_place.py");
  EXPECT_EQ(ran.exit_code, 1) << ran.output;
  EXPECT_THAT(ran.output, ContainsRegex("launched in call \\(.*launch_place.py:15\\)"));
}

TEST(RunProgram, ADeviceAddressInHostCodeIsNamedWithItsAllocation) {
  const Ran ran = run(kImbrex + " run -- " + kProgram + " 1 touch");
  EXPECT_EQ(ran.exit_code, 128 + SIGSEGV) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("which is a device address: only kernels and cudaMemcpy may use it"));
  EXPECT_THAT(ran.output, HasSubstr("it is byte 40 of an allocation of 256 bytes at 0x"));
  EXPECT_THAT(ran.output, HasSubstr("help: copy with cudaMemcpy, or allocate with cudaMallocManaged"));
  EXPECT_THAT(ran.output, HasSubstr("imbrex: in the host program\nout-of-bounds: host code accesses 0x"));
  EXPECT_THAT(ran.output, HasSubstr("1 finding"));
  EXPECT_EQ(run(kImbrex + " run --stop-at-first -- " + kProgram + " 1 touch").exit_code, 1);
}

TEST(RunProgram, UncheckedLaunchesComputeTheSame) {
  const Ran ran = run(kImbrex + " run --launches first:2 -- " + kProgram + " 5");
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("5 launches, 2 of them checked"));
  EXPECT_THAT(run(kImbrex + " run --kernel 'other*' -- " + kProgram + " 5").output,
              HasSubstr("5 launches, 0 of them"));
  EXPECT_THAT(run(kImbrex + " run --kernel 'double*' -- " + kProgram + " 5").output,
              HasSubstr("5 launches, 5 of them"));
}

TEST(RunProgram, SeedsRunTheProgramAgain) {
  const Ran ran = run(kImbrex + " run --seeds 3 -- " + kProgram + " 1 far");
  EXPECT_THAT(ran.output, HasSubstr("with 3 of 3 seeds; again with --seed 0"));
  EXPECT_THAT(ran.output, HasSubstr("3 of 3 runs failed"));
}

TEST(RunProgram, ReportsAreWrittenInEachFormat) {
  const std::string json = temporary("report.json"), junit = temporary("report.junit.xml"),
                    sarif = temporary("report.sarif");
  const Ran ran = run(kImbrex + " run --report " + json + " --report " + junit + " --report " + sarif +
                      " -- " + kProgram + " 2 past");
  const auto report = nlohmann::json::parse(contents(json));
  EXPECT_EQ(report["launches"], 2);
  EXPECT_EQ(report["runs"][0]["exit_code"], 0);
  ASSERT_GE(report["findings"].size(), 1u);
  EXPECT_EQ(report["findings"][0]["kind"], "out-of-bounds");
  EXPECT_EQ(report["findings"][0]["kernel"], "double_them");
  const auto log = nlohmann::json::parse(contents(sarif));
  EXPECT_EQ(log["version"], "2.1.0");
  EXPECT_EQ(log["runs"][0]["results"][0]["ruleId"], "out-of-bounds");
  EXPECT_THAT(contents(junit), HasSubstr("<testsuite name=\"imbrex\" tests=\"1\" failures=\"1\">"));
  EXPECT_THAT(contents(junit), HasSubstr("<failure type=\"out-of-bounds\""));
}

TEST(RunProgram, AReportCanBeAPage) {
  const std::string page = temporary("page.html");
  const Ran ran = run(kImbrex + " run --seeds 2 --report " + page + " -- " + kProgram + " 2 far");
  std::ifstream file(page);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_THAT(text, HasSubstr("<p>1 finding; 4 launches, 4 of them checked")) << ran.output;
  EXPECT_THAT(text, HasSubstr("<div class=\"finding\">\n<h2>out-of-bounds: "));
  EXPECT_THAT(text, HasSubstr("in <code>double_them</code>"));
  EXPECT_THAT(text, HasSubstr("with seed 0, 1"));
}

TEST(RunProgram, ATimelineHasEveryLaunchWithItsPredictedTime) {
  const std::string file = temporary("timeline.json");
  const Ran ran = run(kImbrex + " run --timeline " + file + " -- " + kProgram + " 3");
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  std::ifstream in(file);
  const nlohmann::json trace = nlohmann::json::parse(in);
  int launches = 0;
  double end = 0;
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    ++launches;
    EXPECT_EQ(event.at("name"), "double_them");
    EXPECT_EQ(event.at("ts").get<double>(), end);
    EXPECT_GT(event.at("dur").get<double>(), 0);
    end += event.at("dur").get<double>();
  }
  EXPECT_EQ(launches, 3);
}

TEST(RunProgram, NotesAreToldWhereAskedForAndAreNoFindings) {
  const Ran quiet = run(kImbrex + " run -- " + kProgram + " 1 bend");
  EXPECT_EQ(quiet.exit_code, 0) << quiet.output;
  EXPECT_THAT(quiet.output, Not(HasSubstr("note: ")));
  const Ran ran = run(kImbrex + " run --notes -- " + kProgram + " 1 bend");
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("note: race: "));
  EXPECT_THAT(ran.output, HasSubstr("equal-values"));
  EXPECT_THAT(ran.output, HasSubstr("nothing found; 1 launches"));
}

TEST(RunProgram, SomeCtasOfALargeGridAreRunAndTheReportSaysSo) {
  EXPECT_THAT(run(kImbrex + " run -- " + kProgram + " 1 mark").output, HasSubstr("64 CTAs ran"));
  const std::string json = temporary("sampled.json");
  const Ran ran = run(kImbrex + " run --ctas 5 --report " + json + " -- " + kProgram + " 1 mark");
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("5 CTAs ran"));
  EXPECT_THAT(ran.output, HasSubstr("1 launches left out 59 CTAs (--ctas): what those compute is missing"));
  EXPECT_EQ(nlohmann::json::parse(contents(json))["ctas_left_out"], 59);
  EXPECT_THAT(run("IMBREX_CTAS=2 LD_LIBRARY_PATH=" IMBREX_BINARY_DIR "/cuda " + kProgram + " 1 mark").output,
              HasSubstr("left out 62 CTAs"));
  EXPECT_THAT(run(kImbrex + " run --ctas 0 -- " + kProgram).output, HasSubstr("--ctas"));
}

TEST(RunProgram, AKernelMayComputeForLongBeforeItStores) {
  const Ran ran = run(kImbrex + " run --checks off -- " + kProgram + " 1 compute");
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("1 CTAs ran"));
  EXPECT_THAT(
      run("IMBREX_STALL_BUDGET=100000 " + kImbrex + " run -- " + kProgram + " 1 compute").output,
      AllOf(HasSubstr("executed 100000 instructions without a store"), HasSubstr("IMBREX_STALL_BUDGET")));
}

TEST(RunProgram, DestructorsOfStaticObjectsHaveTheContext) {
  const Ran ran = run(kImbrex + " run -- " + kProgram + " 1 late");
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("freed late: 0"));
}

TEST(RunProgram, WhoOpensCublasByItsPathGetsTheStandInWithBlas) {
  // Another library by that name, in a folder of its own.
  const std::string folder = temporary("cublas"), library = folder + "/libcublas.so.13";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(IMBREX_BINARY_DIR "/cuda/libnvJitLink.so.13", library,
                             std::filesystem::copy_options::overwrite_existing);
  const std::string program = " -- " IMBREX_BINARY_DIR "/cuda_library_path_program " + library;
  EXPECT_THAT(run(kImbrex + " run" + program).output, HasSubstr("nowhere\n"));
  EXPECT_THAT(run(kImbrex + " run --with-blas" + program).output,
              HasSubstr(IMBREX_BINARY_DIR "/cuda/blas/libcublas.so.13\n"));
}

TEST(RunProgram, ByTheLetterNotesAreFindings) {
  const Ran ran = run(kImbrex + " run --strict -- " + kProgram + " 1 bend");
  EXPECT_EQ(ran.exit_code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("equal-values"));
}

TEST(RunProgram, AKernelThatWaitsForWhatNeverComesIsEndedWithItsPlaces) {
  const Ran ran = run("timeout 300 " + kImbrex + " run -- " + kProgram + " 1 spin");
  EXPECT_EQ(ran.exit_code, 3) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("CUDA_ERROR_LAUNCH_TIMEOUT"));
  EXPECT_THAT(ran.output, HasSubstr("nothing can change any more"));
  EXPECT_THAT(ran.output,
              HasSubstr("a kernel that waits for what the host, or a later launch, writes waits for ever"));
}

TEST(RunProgram, CtrlCEndsALaunchWithThePlacesOfItsWarps) {
  // Once it says that the kernel runs. A shell starts what runs in its background deaf to Ctrl-C.
  const std::string said = temporary("said");
  const Ran ran = run("env --default-signal=INT timeout 300 " + kImbrex + " run -- " + kProgram +
                      " 1 count >" + said + " 2>&1 & while kill -0 $! && ! grep -q 'has been running' " +
                      said + "; do sleep 0.1; done; kill -INT $!; wait $!; cat " + said);
  EXPECT_THAT(ran.output, HasSubstr("interrupted: the launch was ended by its host"));
  EXPECT_THAT(ran.output, HasSubstr("CTA (0, 0, 0) warp"));
  EXPECT_THAT(ran.output, HasSubstr("1 finding; 1 launches"));
  EXPECT_THAT(ran.output, Not(HasSubstr("CTAs ran"))) << "the program goes on";
}

/// A pytest that runs: the variable's, or that of the machine's Python.
std::string pytest() {
  const char* given = std::getenv("IMBREX_PYTEST");
  const std::string command = given != nullptr ? given : "python3 -m pytest";
  return run(command + " --version").exit_code == 0 ? command : "";
}

TEST(CheckTests, ATestFailsByWhatItsLaunchesWereFoundToDo) {
  const std::string command = pytest();
  if (command.empty()) IMBREX_SKIP(pytest);
  const std::string folder = temporary("check");
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/test_some.py") << "import subprocess\nPROGRAM = '" << kProgram << R"('
def test_clean(): subprocess.run([PROGRAM, '2'], check=True)
def test_found(): subprocess.run([PROGRAM, '1', 'past'])
def test_found_again(): subprocess.run([PROGRAM, '1', 'past'])
def test_wrong(): assert subprocess.run([PROGRAM, '1', 'past']).returncode == 77
def test_bends(): subprocess.run([PROGRAM, '1', 'bend'], check=True)
)";
  const std::string junit = folder + "/out.junit.xml";
  const Ran ran = run("cd " + folder + " && " + kImbrex + " check test_some.py --report " + junit + " -- " +
                      command + " -p no:cacheprovider");
  EXPECT_EQ(ran.exit_code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("3 failed, 2 passed")) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("FAILED test_some.py::test_found_again"));
  EXPECT_THAT(ran.output, HasSubstr("imbrex: in double_them"));
  const std::string xml = contents(junit);
  EXPECT_THAT(xml, HasSubstr("name=\"test_clean\""));
  EXPECT_THAT(xml, HasSubstr("out-of-bounds"));
  const Ran strict =
      run("cd " + folder + " && " + kImbrex + " check --strict test_some.py::test_bends --report junit -- " +
          command + " -p no:cacheprovider");
  EXPECT_THAT(strict.output, HasSubstr("1 failed"));
  EXPECT_THAT(contents(folder + "/imbrex.junit.xml"), HasSubstr("equal-values"));
}

/// The same kernel, launched by the process of the tests itself.
TEST(CheckTests, AFindingOfAnEarlierTestFailsTheNextOneToo) {
  const std::string command = pytest();
  if (command.empty()) IMBREX_SKIP(pytest);
  const std::string folder = temporary("check-inside");
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/test_inside.py") << R"(import ctypes
PTX = b""".version 8.0
.target sm_80
.address_size 64
.visible .entry same() {
  .reg .b32 %r<4>; .shared .align 4 .b8 word[4];
  mov.u32 %r1, %tid.x; mov.u32 %r2, word; st.shared.u32 [%r2], %r1; ld.shared.u32 %r3, [%r2];
  ret;
}"""
cuda = ctypes.CDLL("libcuda.so.1")
def launch(threads):
    context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0 and cuda.cuModuleLoadData(ctypes.byref(module), PTX) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"same") == 0
    assert cuda.cuLaunchKernel(kernel, 1, 1, 1, threads, 1, 1, 0, None, None, None) == 0
def test_one(): launch(64)
def test_two(): launch(1)
def test_three(): launch(64)
)";
  const Ran ran =
      run("cd " + folder + " && " + kImbrex + " check test_inside.py -- " + command + " -p no:cacheprovider");
  EXPECT_THAT(ran.output, HasSubstr("2 failed, 1 passed")) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("FAILED test_inside.py::test_three"));
}

TEST(RunProgram, SuppressedFindingsAreCountedOnly) {
  const std::string file = temporary("suppressions");
  std::ofstream(file) << "# known\nout-of-bounds double_*\n";
  const Ran ran = run(kImbrex + " run --suppressions " + file + " -- " + kProgram + " 1 past");
  EXPECT_THAT(ran.output, HasSubstr("nothing found"));
  EXPECT_THAT(ran.output, HasSubstr("suppressed"));
  EXPECT_THAT(ran.output, Not(HasSubstr("imbrex: in")));
}

TEST(RunProgram, StopsAtTheFirstFinding) {
  const Ran ran = run(kImbrex + " run --stop-at-first -- " + kProgram + " 1 past");
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.output, HasSubstr("stopped at the first finding"));
  EXPECT_THAT(ran.output, Not(HasSubstr("synchronisation")));
}

TEST(RunProgram, WhatCannotBeIsRefused) {
  EXPECT_THAT(run(kImbrex + " run --").output, HasSubstr("no program is given"));
  EXPECT_THAT(run(kImbrex + " run --gpu rtx9 -- " + kProgram).output, HasSubstr("rtx9"));
  EXPECT_THAT(run(kImbrex + " run --report a.pdf -- " + kProgram).output,
              HasSubstr("end the name in .json, .junit.xml"));
  EXPECT_EQ(run(kImbrex + " run -- /no/such/program").exit_code, 127);
  EXPECT_THAT(run(kImbrex + " run --launches some -- " + kProgram).output,
              HasSubstr("IMBREX_LAUNCHES is 'some'"));
  EXPECT_THAT(run(kImbrex + " run -- true").output, HasSubstr("no kernel was launched"));
}

TEST(RunProgram, WithoutTheCommandTheLibrariesTellOnStderr) {
  const Ran ran = run("LD_LIBRARY_PATH=" IMBREX_BINARY_DIR "/cuda " + kProgram + " 1 past");
  EXPECT_EQ(ran.exit_code, 0) << "the program's own code";
  EXPECT_THAT(ran.output, HasSubstr("imbrex: in double_them"));
  EXPECT_THAT(ran.output, HasSubstr("1 findings in 1 launches of 1 kernels"));
  EXPECT_EQ(run("IMBREX_GPU=a100 LD_LIBRARY_PATH=" IMBREX_BINARY_DIR "/cuda " + kProgram + " 4").exit_code,
            0);
}

TEST(RunProgram, ThePtxasStandInKeepsThePtx) {
  const std::string ptx = temporary("kept.ptx"), out = temporary("kept.cubin");
  std::ofstream(ptx) << ".version 8.0\n";
  const Ran ran = run(IMBREX_BINARY_DIR "/cuda/ptxas -lineinfo -v --gpu-name=sm_90a " + ptx + " -o " + out);
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_EQ(contents(out), ".version 8.0\n");
  std::ofstream(ptx) << "mul.f32 %f1, %f2, %f3; @%p add.ftz.f32 %f4, %f1, %f5;\nsub.rz.f64 %fd1, %fd2, %fd3; "
                        "mul.lo.s32 %r1, %r2, %r3;\n";
  EXPECT_EQ(run(IMBREX_BINARY_DIR "/cuda/ptxas --fmad=false " + ptx + " -o " + out).exit_code, 0);
  EXPECT_EQ(contents(out),
            "mul.rn.f32 %f1, %f2, %f3; @%p add.rn.ftz.f32 %f4, %f1, %f5;\nsub.rz.f64 %fd1, %fd2, %fd3; "
            "mul.lo.s32 %r1, %r2, %r3;\n");
}

TEST(RunProgram, TheNvccStandInAsksTheRealOneForPtx) {
  const std::string folder = temporary("nvcc");
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/nvcc") << "#!/bin/sh\necho real \"$@\"\n";
  std::filesystem::permissions(folder + "/nvcc", std::filesystem::perms::owner_all);
  const std::string nvcc = "PATH=" IMBREX_BINARY_DIR "/cuda:" + folder + ":/usr/bin:/bin nvcc ";
  EXPECT_EQ(run(nvcc + "--cubin -arch sm_90 'my kernel.cu'").output,
            "real --ptx -arch sm_90 my kernel.cu -o my kernel.cubin\n");
  EXPECT_EQ(run(nvcc + "-cubin -gencode arch=compute_80,code=sm_80 -o k.o k.cu").output,
            "real --ptx -gencode arch=compute_80,code=compute_80 -o k.o k.cu\n");
  EXPECT_EQ(run(nvcc + "-gencode arch=compute_90a,code=sm_90a --shared k.cu").output,
            "real -gencode arch=compute_90a,code=sm_90a --shared k.cu -gencode "
            "arch=compute_90a,code=compute_90a\n");
  const Ran without = run("PATH=" IMBREX_BINARY_DIR "/cuda:/usr/bin:/bin nvcc k.cu");
  EXPECT_EQ(without.exit_code, 127);
  EXPECT_THAT(without.output, HasSubstr("install the CUDA toolkit"));
}

}  // namespace
}  // namespace imbrex
