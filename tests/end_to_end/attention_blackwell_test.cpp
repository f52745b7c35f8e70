// SPDX-License-Identifier: Apache-2.0
// Attention on Blackwell's tensor memory, under several schedules with every checker on.
#include <gmock/gmock.h>

#include "imbrex/core/error.h"
#include "imbrex/runtime/registry.h"

namespace imbrex {
namespace {

using Sizes = std::map<std::string, int64_t>;

void expect_verified(Sizes sizes, const std::string& configuration = "", uint64_t seeds = 2) {
  const RegisteredKernel& kernel = registered_kernel("blackwell_attention");
  for (const SizeOption& size : kernel.description.sizes) sizes.emplace(size.name, size.otherwise);
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const Device device = Device::virtual_gpu(
        {.target = kernel.target, .host_threads = 1, .seed = seed, .checks = vgpu::CheckSet::all()});
    Case c(Case::Mode::kRun, device, sizes, seed);
    kernel.run(c, device,
               configuration.empty() ? kernel.space.configuration(0) : kernel.space.parse(configuration));
    EXPECT_TRUE(c.verified()) << "seed " << seed << ": " << c.comparisons.front().format();
    EXPECT_TRUE(c.report.clean()) << "seed " << seed << "\n" << c.report.virtual_report.format();
  }
}

TEST(BlackwellAttention, OfPartsOfBlocks) { expect_verified({{"q", 201}, {"kv", 333}, {"bf16", 1}}, "", 4); }
TEST(BlackwellAttention, OfOneRow) { expect_verified({{"heads", 1}, {"q", 1}, {"kv", 1}, {"d", 64}}); }
TEST(BlackwellAttention, Causal) {
  expect_verified({{"q", 300}, {"kv", 300}, {"d", 64}, {"causal", 1}});
  expect_verified(
      {{"heads", 1}, {"q", 300}, {"kv", 77}, {"d", 64}, {"causal", 1}});  // rows that see nothing are 0
}
TEST(BlackwellAttention, EndsWhenItsBarriersAreDone) {  // under some schedules it did not
  expect_verified({{"q", 140}, {"kv", 200}, {"d", 64}, {"causal", 1}}, "", 30);
}
TEST(BlackwellAttention, HeadsOfQShareOneOfKAndV) {
  expect_verified({{"heads", 4}, {"q", 100}, {"kv", 129}, {"d", 32}, {"group", 2}}, "block_kv=32 stages=4");
}

}  // namespace
}  // namespace imbrex
