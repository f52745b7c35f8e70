// SPDX-License-Identifier: Apache-2.0
// What the writer prints must be PTX to ptxas too. Needs ptxas 13; skipped where there is none.
#include <gmock/gmock.h>

#include "../ptxas.h"
#include "ptx/builder.h"
#include "ptx/reader.h"
#include "ptx/writer.h"
#include "ptx_text.h"

namespace imbrex::ptx {
namespace {

class Assemble : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(Assemble, Printed) {
  IMBREX_NEEDS_PTXAS();
  Module m = read(file_text(GetParam()), GetParam().string());
  EXPECT_THAT(ptxas_says(write(m), "-O0 -arch=" + m.target), testing::Not(testing::StartsWith("failed")));
}

std::string test_name(const testing::TestParamInfo<std::filesystem::path>& info) {
  std::string name = info.param.stem().string();
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Data, Assemble, testing::ValuesIn(data_files()), test_name);

}  // namespace
}  // namespace imbrex::ptx
