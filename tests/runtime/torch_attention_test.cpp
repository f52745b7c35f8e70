// SPDX-License-Identifier: Apache-2.0
// The process that times cuDNN, with stand-ins for Python: what is asked, what is made of its answers.
#include "runtime/measure/torch_attention.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "../skip.h"
#include "imbrex/core/error.h"
#include "imbrex/core/find_tool.h"

namespace imbrex::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class TorchAttentionTest : public testing::Test {
 protected:
  TorchAttentionTest() {
    const DeviceTensor q = DeviceTensor::empty(device_, float16, {4, 30, 64}),
                       k = DeviceTensor::empty(device_, float16, {2, 50, 64});
    attention_ = {q, k, k, q, 0.125f, false};
  }
  ~TorchAttentionTest() override {
    unsetenv("IMBREX_PYTHON");
    std::filesystem::remove(script_);
  }
  /// A program that is started as Python is; it keeps the problem that it was asked in $0.asked.
  void stand_in(const std::string& body) {
    script_ = std::filesystem::temp_directory_path() / ("imbrex_python_" + std::to_string(getpid()));
    std::ofstream(script_) << "#!/bin/sh\nread problem\n" << body;
    std::filesystem::permissions(script_, std::filesystem::perms::owner_all);
    setenv("IMBREX_PYTHON", script_.c_str(), 1);
  }
  std::unique_ptr<TorchAttention> make() { return TorchAttention::make(attention_, &why_not_); }

  Device device_ = Device::virtual_gpu();
  StatedAttention attention_;
  std::string why_not_;
  std::filesystem::path script_;
};

TEST_F(TorchAttentionTest, IsAskedForTheProblemAndTheLaunches) {
  stand_in(
      "echo \"ready cuDNN 9 for $problem\"\nwhile read launches cold; do echo $launches.5 $cold; done\n");
  const auto torch = make();
  ASSERT_NE(torch, nullptr) << why_not_;
  for (const char* part : {R"("heads":4)", R"("kv_heads":2)", R"("rows":30)", R"("columns":50)", R"("d":64)",
                           R"("causal":false)", R"("dtype":"float16")", R"("scale":0.125)"})
    EXPECT_THAT(torch->name(), HasSubstr(part));
  EXPECT_THAT(torch->measure(2, true), ElementsAre(2.5, 1.0));
  EXPECT_THAT(torch->measure(2, false), ElementsAre(2.5, 0.0));
  EXPECT_THROW(torch->measure(3, false), DeviceError);  // answered by two times
}

TEST_F(TorchAttentionTest, SaysWhyThereIsNone) {
  stand_in("echo error cuDNN has no such head size\n");
  EXPECT_EQ(make(), nullptr);
  EXPECT_THAT(why_not_, HasSubstr("cuDNN has no such head size"));
  stand_in("exit 3\n");
  EXPECT_EQ(make(), nullptr);
  EXPECT_THAT(why_not_, HasSubstr("ended with exit code 3"));
  setenv("IMBREX_PYTHON", "none", 1);
  EXPECT_EQ(make(), nullptr);
  EXPECT_THAT(why_not_, HasSubstr("there is no python3"));
}

TEST_F(TorchAttentionTest, AProcessThatEndsIsAnError) {
  stand_in("echo ready cuDNN\nexit 4\n");
  const auto torch = make();
  ASSERT_NE(torch, nullptr) << why_not_;
  EXPECT_THROW(torch->measure(1, true), DeviceError);
}

/// The program itself, as far as it comes without a GPU.
TEST_F(TorchAttentionTest, TheProgramAnswersWithoutPyTorch) {
  if (find_program("python3").empty()) IMBREX_SKIP(python);
  if (Device::has_cuda()) return;  // it would work there: `imbrex bench attention` shows it
  EXPECT_EQ(make(), nullptr);
  EXPECT_THAT(why_not_, HasSubstr("no cuDNN to compare with: "));
  EXPECT_THAT(why_not_, testing::Not(HasSubstr("ended with")));
}

}  // namespace
}  // namespace imbrex::runtime
