// SPDX-License-Identifier: Apache-2.0
// Attention at sizes that blocks do not divide, under several schedules with every checker on.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "../ptxas.h"
#include "codegen/codegen.h"
#include "imbrex/core/error.h"
#include "imbrex/kernels/attention.h"
#include "imbrex/runtime/registry.h"
#include "ir/ir.h"
#include "passes/pipeline.h"

namespace imbrex {
namespace {

using Sizes = std::map<std::string, int64_t>;

/// Every size that a test does not name is the kernel's default.
Sizes with_defaults(Sizes sizes) {
  for (const SizeOption& size : registered_kernel("attention").description.sizes)
    sizes.emplace(size.name, size.otherwise);
  return sizes;
}

void expect_verified(const Sizes& sizes, const std::string& configuration = "", uint64_t seeds = 2) {
  const RegisteredKernel& kernel = registered_kernel("attention");
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const Device device = Device::virtual_gpu(
        {.target = kernel.target, .host_threads = 1, .seed = seed, .checks = vgpu::CheckSet::all()});
    Case c(Case::Mode::kRun, device, with_defaults(sizes), seed);
    kernel.run(c, device,
               configuration.empty() ? kernel.space.configuration(0) : kernel.space.parse(configuration));
    EXPECT_TRUE(c.verified()) << "seed " << seed << ": " << c.comparisons.front().format();
    EXPECT_TRUE(c.report.clean()) << "seed " << seed << "\n" << c.report.virtual_report.format();
  }
}

TEST(Attention, OfWholeBlocks) { expect_verified({{"heads", 2}, {"q", 256}, {"kv", 384}}); }
TEST(Attention, OfPartsOfBlocks) {
  expect_verified({{"heads", 3}, {"q", 201}, {"kv", 333}, {"bf16", 1}}, "", 4);
}
TEST(Attention, OfOneElement) { expect_verified({{"heads", 1}, {"q", 1}, {"kv", 1}, {"d", 16}}); }

TEST(Attention, OfEveryHeadSize) {
  for (int64_t d = 16; d <= 128; d += 16)
    expect_verified({{"heads", 1}, {"q", 70}, {"kv", 150}, {"d", d}}, "", 1);
}

TEST(Attention, Causal) {
  expect_verified({{"heads", 2}, {"q", 300}, {"kv", 300}, {"causal", 1}});
  expect_verified({{"heads", 1}, {"q", 5}, {"kv", 700}, {"causal", 1}});
  expect_verified({{"heads", 1}, {"q", 300}, {"kv", 77}, {"causal", 1}});  // rows that see nothing are 0
}

TEST(Attention, HeadsOfQShareOneOfKAndV) {
  expect_verified({{"heads", 6}, {"q", 100}, {"kv", 200}, {"group", 3}, {"causal", 1}});
}

TEST(Attention, EveryConfiguration) {
  const TuningSpace& space = registered_kernel("attention").space;
  for (const Configuration& configuration : space.configurations())
    expect_verified({{"heads", 1}, {"q", 130}, {"kv", 600}, {"d", 64}}, space.to_string(configuration));
}

TEST(Attention, AssemblesWithoutSpills) {
  IMBREX_NEEDS_PTXAS();
  const RegisteredKernel& kernel = registered_kernel("attention");
  for (const int64_t causal : {0, 1}) {
    Case c(Case::Mode::kTrace, std::nullopt, with_defaults({{"causal", causal}}), 0);
    kernel.run(c, std::nullopt, kernel.space.configuration(0));
    passes::run_pipeline(*c.function, {});
    EXPECT_EQ(ptxas_says(codegen::generate(*c.function, {}).ptx, "--warn-on-spills -arch=sm_90a"), "");
  }
}

TEST(Attention, RefusesHeadsItCannotHold) {
  for (const int64_t d : {8, 136}) try {
      expect_verified({{"d", d}});
      ADD_FAILURE() << d;
    } catch (const CompileError& error) {
      EXPECT_THAT(error.what(), testing::HasSubstr("a multiple of 16, at most 256"));
    }
}

TEST(Attention, RefusesGroupsThatDoNotFit) {
  try {
    expect_verified({{"heads", 4}, {"group", 3}});
    ADD_FAILURE();
  } catch (const LaunchError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("4 heads in groups of 3"));
  }
}

TEST(Attention, RefusesNumbersOfWhichNoResultComes) {
  const Device device = Device::virtual_gpu({.target = "sm_90a"});
  const DeviceTensor t = DeviceTensor::random(device, float16, {2, 20, 64}, 1),
                     o = DeviceTensor::empty(device, float16, t.shape());
  const auto refused = [&](const AttentionOptions& options) {
    try {
      attention(t, t, t, o, options);
    } catch (const LaunchError& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  using testing::HasSubstr;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(refused({.scale = std::nanf("")}), HasSubstr("the scale of scores is nan"));
  EXPECT_THAT(refused({.scale = kInfinity}), HasSubstr("the scale of scores is inf"));
  EXPECT_THAT(refused({.scale = -1}), HasSubstr("the scale of scores is -1"));
  EXPECT_THAT(refused({.soft_cap = kInfinity}), HasSubstr("a soft_cap of inf"));
  EXPECT_THAT(refused({.soft_cap = -3}), HasSubstr("a soft_cap of -3"));
  EXPECT_THAT(refused({.prefix = -1}), HasSubstr("a prefix of -1 columns"));
}

}  // namespace
}  // namespace imbrex
