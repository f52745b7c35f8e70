// SPDX-License-Identifier: Apache-2.0
// The kernels without a fault: nothing is found, and the numbers are the same, whatever the schedule.
#include <gtest/gtest.h>

#include <mutex>

#include "../full.h"
#include "mutants/verdict.h"

namespace imbrex::mutants {
namespace {

TEST(Lawful, KernelsAreCleanUnderEverySeed) {
  const size_t seeds = is_full() ? 200 : 16;
  for (const Subject& subject : subjects()) {
    const std::vector<std::byte> right = run(subject, subject.kernel, 0).results;
    std::mutex mutex;
    in_parallel(seeds, [&](size_t seed) {
      const Outcome outcome = run(subject, subject.kernel, seed);
      std::lock_guard lock(mutex);
      EXPECT_EQ(outcome.refused, "");
      for (const vgpu::Finding& finding : outcome.findings)
        ADD_FAILURE() << subject.name << " under seed " << seed << ": " << finding.format();
      EXPECT_TRUE(outcome.results == right) << subject.name << " under seed " << seed;
    });
  }
}

}  // namespace
}  // namespace imbrex::mutants
