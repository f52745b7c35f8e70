// SPDX-License-Identifier: Apache-2.0
#include "passes/pipeline.h"

#include <cstdlib>

#include <gmock/gmock.h>

#include "pass_test.h"

namespace imbrex::passes {
namespace {

TEST(Pipeline, DumpsStopsAndSkipsByName) {
  std::vector<std::string> dumped;
  PipelineOptions options;
  options.dump_after = "all";
  options.skip = {"fold"};
  options.stop_after = "unroll";
  options.dump = [&](std::string_view pass, const ir::Function&) { dumped.emplace_back(pass); };
  const auto f = kernel("sync");
  const auto times = run_pipeline(*f, options);
  EXPECT_THAT(dumped, testing::ElementsAre("promote_constant_variables", "verify", "check_thread_groups",
                                           "check_variables", "check_clusters", "check_tensor_memory",
                                           "promote_variables", "unroll"));
  ASSERT_EQ(times.size(), 8u);
  EXPECT_EQ(times.back().name, "unroll");
}

TEST(Pipeline, ReadsTheEnvironment) {
  ::setenv("IMBREX_SKIP", "fold,unroll", 1);
  ::setenv("IMBREX_VERIFY", "1", 1);
  const PipelineOptions options = PipelineOptions::from_environment();
  EXPECT_THAT(options.skip, testing::ElementsAre("fold", "unroll"));
  EXPECT_TRUE(options.verify);
  ::setenv("IMBREX_SKIP", "unrol", 1);
  try {
    PipelineOptions::from_environment();
    FAIL() << "an unknown pass was accepted";
  } catch (const CompileError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("did you mean 'unroll'?"));
  }
  ::unsetenv("IMBREX_SKIP");
  ::unsetenv("IMBREX_VERIFY");
}

TEST(Pipeline, EveryPassSaysWhatItDoes) {
  for (const Pass& pass : pipeline()) EXPECT_FALSE(pass.what.empty()) << pass.name;
}

}  // namespace
}  // namespace imbrex::passes
