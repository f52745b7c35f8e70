// SPDX-License-Identifier: Apache-2.0
// What the writer prints must be PTX to ptxas too. Needs ptxas 13; skipped where there is none.
#include <gtest/gtest.h>

#include <cstdlib>

#include "ptx/builder.h"
#include "ptx/reader.h"
#include "ptx/writer.h"
#include "ptx_text.h"

namespace imbrex::ptx {
namespace {

std::string find_ptxas() {
  for (const char* path : {"/usr/local/cuda/bin/ptxas", "/usr/bin/ptxas"})
    if (std::filesystem::exists(path)) return path;
  return std::system("ptxas --version > /dev/null 2>&1") == 0 ? "ptxas" : "";
}

void expect_assembles(const std::string& text, const std::string& target, const std::string& name) {
  std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "imbrex_ptx_assemble";
  std::filesystem::create_directories(folder);
  std::filesystem::path file = folder / (name + ".ptx");
  std::filesystem::path log = folder / (name + ".log");
  std::ofstream(file) << text;
  std::string command = find_ptxas() + " -O0 -arch=" + target + " -o /dev/null '" + file.string() + "' > '" +
                        log.string() + "' 2>&1";
  EXPECT_EQ(std::system(command.c_str()), 0) << name << ":\n" << file_text(log);
}

class Assemble : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(Assemble, Printed) {
  if (find_ptxas().empty()) GTEST_SKIP() << "NO PTXAS FOUND: nothing checks that what we print assembles";
  Module m = read(file_text(GetParam()), GetParam().string());
  expect_assembles(write(m), m.target, GetParam().stem().string());
}

std::string test_name(const testing::TestParamInfo<std::filesystem::path>& info) {
  std::string name = info.param.stem().string();
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Data, Assemble, testing::ValuesIn(data_files()), test_name);

}  // namespace
}  // namespace imbrex::ptx
