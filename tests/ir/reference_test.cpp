// SPDX-License-Identifier: Apache-2.0
#include "ir/reference.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace imbrex::ir {
namespace {

// IMBREX_BLESS=1 in the environment writes the page anew.
TEST(Reference, DocsOpsIsCurrent) {
  const std::string path = IMBREX_SOURCE_DIR "/docs/ops.md";
  if (std::getenv("IMBREX_BLESS")) std::ofstream(path) << ops_reference();
  std::ostringstream on_disk;
  on_disk << std::ifstream(path).rdbuf();
  EXPECT_EQ(on_disk.str(), ops_reference()) << "run test_ir with IMBREX_BLESS=1 and review the difference";
}

}  // namespace
}  // namespace imbrex::ir
