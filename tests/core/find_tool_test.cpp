// SPDX-License-Identifier: Apache-2.0
#include "imbrex/core/find_tool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace imbrex {
namespace {

/// A folder with a program "ptxas" in its bin/, and the environment as it was when the test ends.
class FindTool : public testing::Test {
 protected:
  FindTool() {
    std::string pattern = (std::filesystem::temp_directory_path() / "imbrex_find_tool_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    std::filesystem::create_directory(folder_ + "/bin");
    std::ofstream(program()) << "#!/bin/sh\n";
    for (const char* name : {"PATH", "CUDA_HOME", "CUDA_PATH", "IMBREX_PTXAS", "IMBREX_NO_SUCH_TOOL"}) {
      const char* value = std::getenv(name);
      before_.emplace_back(name, value != nullptr ? std::optional<std::string>(value) : std::nullopt);
      unsetenv(name);
    }
  }
  ~FindTool() override {
    for (const auto& [name, value] : before_) value ? setenv(name, value->c_str(), 1) : unsetenv(name);
    std::filesystem::remove_all(folder_);
  }
  std::string program() const { return folder_ + "/bin/ptxas"; }
  void make_executable() { chmod(program().c_str(), 0755); }

  std::string folder_;

 private:
  std::vector<std::pair<const char*, std::optional<std::string>>> before_;
};

TEST_F(FindTool, ProgramsAreLookedForInPathAndThenInFolders) {
  setenv("PATH", "/usr/bin:/bin", 1);
  EXPECT_THAT(find_program("sh"), testing::EndsWith("/sh"));
  EXPECT_EQ(find_program("no-such-program"), "");
  EXPECT_EQ(find_program("ptxas", {folder_ + "/bin"}), "") << "it may not be executed";
  make_executable();
  EXPECT_EQ(find_program("ptxas", {folder_ + "/bin"}), program());
}

TEST_F(FindTool, TheVariableNamesTheFile) {
  setenv("IMBREX_PTXAS", "/nonexistent/ptxas", 1);
  const CudaTool tool = find_cuda_tool("ptxas");
  EXPECT_EQ(tool.path, "/nonexistent/ptxas");
  EXPECT_TRUE(tool.is_named);
}

TEST_F(FindTool, NoneHidesTheTool) {
  make_executable();
  setenv("PATH", (folder_ + "/bin").c_str(), 1);
  setenv("IMBREX_PTXAS", "none", 1);
  const CudaTool tool = find_cuda_tool("ptxas");
  EXPECT_EQ(tool.path, "");
  EXPECT_FALSE(tool.is_named);
  EXPECT_EQ(tool.why_not, "IMBREX_PTXAS=none hides ptxas");
}

TEST_F(FindTool, PathThenTheToolkitsFolder) {
  make_executable();
  setenv("CUDA_HOME", folder_.c_str(), 1);
  EXPECT_EQ(find_cuda_tool("ptxas").path, program());
  unsetenv("CUDA_HOME");
  setenv("CUDA_PATH", folder_.c_str(), 1);
  EXPECT_EQ(find_cuda_tool("ptxas").path, program());
  unsetenv("CUDA_PATH");
  setenv("PATH", (folder_ + "/bin").c_str(), 1);
  EXPECT_EQ(find_cuda_tool("ptxas").path, program());
  EXPECT_FALSE(find_cuda_tool("ptxas").is_named);
}

TEST_F(FindTool, SaysWhereItLooked) {
  EXPECT_EQ(find_cuda_tool("no_such_tool").why_not,
            "no_such_tool is not installed (looked in PATH, $CUDA_HOME/bin, /usr/local/cuda/bin; "
            "IMBREX_NO_SUCH_TOOL names it)");
}

}  // namespace
}  // namespace imbrex
