// SPDX-License-Identifier: Apache-2.0
// Passes keep what a kernel does: random kernels print the same before and after each pass, and after all.
#include <gtest/gtest.h>

#include "../ir/random_ir.h"
#include "imbrex/core/error.h"
#include "interpreter.h"
#include "passes/pipeline.h"

namespace imbrex::passes {
namespace {

constexpr int64_t kManyOps = 1'000'000;

std::string behaviour(const ir::Function& f, int64_t max_ops) {
  std::string out;
  for (const int64_t thread : {int64_t{0}, int64_t{64}})
    for (const auto& params : std::vector<std::vector<int32_t>>{{0, 0}, {5, -3}, {100, 7}})
      out += interpret(f, params, thread, max_ops);
  return out;
}

/// Kernels that finish within a few thousand ops; passes may change how many ops a run takes, but not that
/// much.
bool finishes(const std::string& behaviour) { return behaviour.find("...") == std::string::npos; }

/// Random kernels set variables in some threads of those that read them.
constexpr std::string_view kRefusing = "check_variables";

TEST(Equivalence, EachPassKeepsWhatAKernelPrints) {
  int compared = 0;
  for (uint64_t seed = 0; seed < 250; ++seed) {
    const std::string expected = behaviour(*ir::random_function(seed, 60), 5000);
    if (!finishes(expected)) continue;
    ++compared;
    for (const Pass& pass : pipeline()) {
      if (pass.name == kRefusing) continue;
      const auto f = ir::random_function(seed, 60);
      pass.run(*f);
      ASSERT_NO_THROW(ir::verify(*f)) << "seed " << seed << " after " << pass.name << "\n" << ir::print(*f);
      ASSERT_EQ(behaviour(*f, kManyOps), expected)
          << "seed " << seed << " after " << pass.name << "\n"
          << ir::print(*ir::random_function(seed, 60)) << ir::print(*f);
    }
  }
  EXPECT_GT(compared, 100);
}

TEST(Equivalence, AllPassesTogetherKeepWhatAKernelPrints) {
  for (uint64_t seed = 1000; seed < 1400; ++seed) {
    const auto f = ir::random_function(seed, 80);
    const std::string expected = behaviour(*f, 5000);
    if (!finishes(expected)) continue;
    PipelineOptions options;
    options.verify = true;
    options.skip = {std::string(kRefusing)};
    ASSERT_NO_THROW(run_pipeline(*f, options)) << "seed " << seed;
    ASSERT_EQ(behaviour(*f, kManyOps), expected)
        << "seed " << seed << "\n"
        << ir::print(*ir::random_function(seed, 80)) << ir::print(*f);
  }
}

}  // namespace
}  // namespace imbrex::passes
