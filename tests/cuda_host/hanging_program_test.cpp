// SPDX-License-Identifier: Apache-2.0
// Programs that hang in their own code are told so within seconds, those that only take long are not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "../skip.h"
#include "run_program_testing.h"

namespace imbrex {
namespace {

using testing::HasSubstr;
using testing::Not;

/// Told after about 5 s, or later where the machine does something else besides; the limit is for what is never told.
Ran run_hanging(const std::string& how, const std::string& options = "--stop-at-first") {
  return run("timeout 300 " + kImbrex + " run " + options +
             " -- " IMBREX_BINARY_DIR "/cuda_hanging_program " + how);
}

class HangingProgram : public testing::Test {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists("/proc/self/task")) IMBREX_SKIP(proc);
  }
};

TEST_F(HangingProgram, ThreadsThatWaitForEachOtherAreToldWithTheirMutexes) {
  const Ran ran = run_hanging("mutexes");
  EXPECT_EQ(ran.exit_code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("deadlock: all 2 threads of the program wait with no time limit"));
  EXPECT_THAT(ran.output,
              testing::ContainsRegex("waits for a mutex that thread [0-9]+ holds, in .*take_in_order"));
  EXPECT_THAT(ran.output, HasSubstr("its last CUDA call was cuStreamCreate"));
  EXPECT_THAT(ran.output, HasSubstr("1 finding"));
}

TEST_F(HangingProgram, AMutexTakenTwiceIsTold) {
  const Ran ran = run_hanging("again");
  EXPECT_EQ(ran.exit_code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("the program's only thread waits with no time limit"));
  EXPECT_THAT(ran.output, HasSubstr("a mutex that it holds itself, in main"));
}

TEST_F(HangingProgram, ASpinOnManagedMemoryIsToldWithTheMemory) {
  const Ran ran = run_hanging("flag");
  EXPECT_EQ(ran.exit_code, 1) << ran.output;
  EXPECT_THAT(ran.output,
              HasSubstr("endless-run: a thread of the program looks at the same memory over and over"));
  EXPECT_THAT(ran.output, HasSubstr("spin_on"));
  EXPECT_THAT(ran.output, HasSubstr("it looks at byte 8 of managed memory, 256 bytes at 0x"));
}

TEST_F(HangingProgram, AskingForEverIsTold) {
  const Ran ran = run_hanging("ask");
  EXPECT_EQ(ran.exit_code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("the program has only asked for 3 s"));
  EXPECT_THAT(ran.output, HasSubstr("its last CUDA call was cuStreamQuery"));
}

/// What a program that goes on hanging has said by the time it is killed.
std::string said_until_help(const std::string& before, const std::string& how) {
  const std::string file = temporary("hanging-" + how);
  return run(before + " sh -c '" IMBREX_BINARY_DIR "/cuda_hanging_program " + how + " 2>" + file +
             " & for i in $(seq 3000); do grep -q help: " + file +
             " && break; sleep 0.1; done; kill $!; cat " + file + "; rm " + file + "'")
      .output;
}

TEST_F(HangingProgram, AHostFunctionThatWaitsForWhoWaitsForItsStreamIsTold) {
  const Ran ran = run_hanging("gate");
  EXPECT_EQ(ran.exit_code, 1) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("deadlock: all 2 threads of the program wait with no time limit"));
  EXPECT_THAT(ran.output, HasSubstr("Gate::wait"));
  EXPECT_THAT(ran.output, HasSubstr("in main ("));
  EXPECT_THAT(ran.output, HasSubstr("its last CUDA call was cuStreamSynchronize"));
  EXPECT_THAT(ran.output, HasSubstr("one of the threads runs the host functions of all streams"));
}

TEST_F(HangingProgram, AHostFunctionMayWaitForWhatItsSubmitterDoesThen) {
  const Ran ran = run_hanging("opened");
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
  EXPECT_THAT(ran.output, Not(HasSubstr("finding")));
}

TEST_F(HangingProgram, AHangIsToldAtOnceAndIsInTheReportOfAProgramThatIsKilled) {
  const std::string said = said_until_help(kImbrex + " run --", "again");
  EXPECT_THAT(said, HasSubstr("imbrex: in the host program:\ndeadlock: the program's only thread waits"));
  EXPECT_THAT(said, HasSubstr("1 finding"));
}

TEST_F(HangingProgram, AHostFunctionMayWaitForAThreadThatMakesCalls) {
  const Ran ran = run_hanging("callback");
  EXPECT_EQ(ran.exit_code, 0) << ran.output;
}

TEST_F(HangingProgram, ProgramsThatComputeOrSleepDoNotHang) {
  for (const char* how : {"busy", "late"}) {
    const Ran ran = run_hanging(how);
    EXPECT_EQ(ran.exit_code, 0) << ran.output;
    EXPECT_THAT(ran.output, Not(HasSubstr("finding"))) << how;
  }
}

}  // namespace
}  // namespace imbrex
