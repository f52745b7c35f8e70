// SPDX-License-Identifier: Apache-2.0
// Attention with masks and score modifications at sizes that blocks do not divide, with every checker on.
#include <gmock/gmock.h>

#include "../full.h"
#include "../ptxas.h"
#include "codegen/codegen.h"
#include "imbrex/core/error.h"
#include "imbrex/runtime/registry.h"
#include "ir/ir.h"
#include "passes/pipeline.h"

namespace imbrex {
namespace {

using Sizes = std::map<std::string, int64_t>;

void expect_verified(Sizes sizes, const std::string& configuration = "", uint64_t seeds = 2,
                     const std::string& name = "attention") {
  const RegisteredKernel& kernel = registered_kernel(name);
  for (const SizeOption& size : kernel.description.sizes) sizes.emplace(size.name, size.otherwise);
  for (uint64_t seed = 0; seed < seeds; ++seed) {
    const Device device = Device::virtual_gpu(
        {.target = kernel.target, .host_threads = 1, .seed = seed, .checks = vgpu::CheckSet::all()});
    Case c(Case::Mode::kRun, device, sizes, seed);
    kernel.run(c, device,
               configuration.empty() ? kernel.space.configuration(0) : kernel.space.parse(configuration));
    for (const Comparison& comparison : c.comparisons)
      EXPECT_TRUE(comparison.passed) << "seed " << seed << ": " << comparison.format();
    EXPECT_TRUE(c.report.clean()) << "seed " << seed << "\n" << c.report.virtual_report.format();
  }
}

const std::string kPersistent = "ctas=2";  // so that a CTA takes several tiles

TEST(AttentionForward, TilesOneAfterTheOther) {
  expect_verified({{"heads", 3}, {"q", 201}, {"kv", 333}, {"bf16", 1}}, kPersistent, 4);
}
TEST(AttentionForward, OfOneElement) { expect_verified({{"heads", 1}, {"q", 1}, {"kv", 1}, {"d", 16}}); }
TEST(AttentionForward, Causal) {
  expect_verified({{"heads", 2}, {"q", 300}, {"kv", 300}, {"causal", 1}}, kPersistent);
  expect_verified({{"heads", 1}, {"q", 5}, {"kv", 700}, {"causal", 1}});
  expect_verified({{"heads", 2}, {"q", 300}, {"kv", 77}, {"causal", 1}},
                  kPersistent);  // rows that see nothing are 0
}
TEST(AttentionForward, HeadSizes) {
  for (const int64_t d : {64, 80, 96})
    expect_verified({{"heads", 1}, {"q", 70}, {"kv", 150}, {"d", d}}, "", 1);
  expect_verified({{"heads", 1}, {"q", 140}, {"kv", 200}, {"d", 192}, {"dv", 128}}, "block_kv=96 ctas=1", 1);
  expect_verified({{"heads", 2}, {"q", 140}, {"kv", 200}, {"d", 256}}, "block_kv=80 ctas=1", 1);
}
TEST(AttentionForward, ThreeConsumers) {
  expect_verified({{"heads", 2}, {"q", 250}, {"kv", 300}, {"d", 64}, {"causal", 1}}, "consumers=3 ctas=2");
}
TEST(AttentionForward, SlidingWindow) {
  expect_verified({{"heads", 2}, {"q", 300}, {"kv", 500}, {"d", 64}, {"window", 37}},
                  "block_kv=64 stages=2 ctas=2");
}
TEST(AttentionForward, Prefix) {
  expect_verified({{"heads", 1}, {"q", 200}, {"kv", 200}, {"d", 64}, {"prefix", 90}}, "block_kv=64 stages=2");
}
TEST(AttentionForward, ThreeConsumersWithoutMasks) {
  expect_verified({{"heads", 2}, {"q", 300}, {"kv", 333}, {"d", 64}}, "consumers=3", 1);
  expect_verified({{"q", 300}, {"kv", 333}, {"d", 64}}, "block_kv=96 stages=3 consumers=3", 1,
                  "attention_float8");
}
TEST(AttentionForward, ScoreModifications) {
  expect_verified({{"heads", 2}, {"q", 100}, {"kv", 130}, {"d", 64}, {"cap", 2}, {"causal", 1}});
  expect_verified({{"heads", 4}, {"q", 100}, {"kv", 130}, {"d", 64}, {"alibi", 1}, {"group", 2}});
  expect_verified({{"heads", 3}, {"q", 100}, {"kv", 130}, {"d", 64}, {"sink", 1}, {"causal", 1}});
}

TEST(AttentionLadder, StepsAreRight) {
  for (const char* name : {"attention_a0", "attention_a1", "attention_a2", "attention_a3", "attention_a4"}) {
    SCOPED_TRACE(name);
    expect_verified({{"q", 130}, {"kv", 270}, {"d", 64}}, "", 2, name);
    expect_verified({{"heads", 1}, {"q", 1}, {"kv", 1}, {"d", 16}, {"bf16", 1}}, "", 1, name);
    expect_verified({{"heads", 1}, {"q", 64}, {"kv", 129}}, "", 1, name);
  }
}

/// Small problems of every form of attention under 200 schedules.
struct Scheduled {
  std::string kernel;
  Sizes sizes;
  std::string configuration = "";
  friend std::ostream& operator<<(std::ostream& to, const Scheduled& s) { return to << s.kernel; }
};
class SchedulesAtLength : public testing::TestWithParam<Scheduled> {};
TEST_P(SchedulesAtLength, AttentionIsRightUnderTwoHundredSchedules) {
  IMBREX_AT_LENGTH();
  const auto& [name, sizes, configuration] = GetParam();
  expect_verified(sizes, configuration, 200, name);
}
INSTANTIATE_TEST_SUITE_P(
    Forms, SchedulesAtLength,
    testing::ValuesIn(std::vector<Scheduled>{
        {"attention", {{"heads", 2}, {"q", 130}, {"kv", 200}, {"d", 32}, {"causal", 1}}},
        {"attention",
         {{"heads", 3}, {"q", 260}, {"kv", 260}, {"d", 32}, {"causal", 1}},
         "block_kv=64 stages=2 q_stages=2 ctas=2"},
        {"attention",
         {{"heads", 3}, {"q", 260}, {"kv", 150}, {"d", 32}},
         "block_kv=64 stages=2 consumers=3 ctas=2"},
        {"attention", {{"q", 130}, {"kv", 200}, {"d", 32}, {"window", 37}, {"cap", 3}, {"sink", 1}}},
        {"attention_float8", {{"q", 260}, {"kv", 150}, {"d", 32}}, "block_kv=96 stages=3 consumers=3 ctas=2"},
        {"attention_float8",
         {{"q", 200}, {"kv", 300}, {"d", 32}, {"by_rows", 1}},
         "block_kv=64 stages=4 ctas=2"},
        {"attention_packed", {{"q", 150}, {"kv", 200}, {"d", 32}, {"causal", 1}}},
        {"attention_float8", {{"q", 70}, {"kv", 150}, {"d", 32}, {"causal", 1}}},
        {"attention_decode", {{"kv", 200}, {"d", 32}, {"parts", 2}, {"ragged", 1}}},
        {"attention_decode", {{"kv", 200}, {"d", 32}, {"parts", 2}, {"page", 1}, {"ragged", 1}}},
        {"attention_decode", {{"kv", 200}, {"d", 32}, {"parts", 2}, {"float8", 1}}},
        {"attention_decode",
         {{"kv", 300}, {"d", 32}, {"parts", 3}, {"page", 16}, {"ragged", 1}, {"q", 3}, {"causal", 1}}},
        {"attention_decode", {{"kv", 200}, {"d", 32}, {"parts", 3}, {"launch", 1}, {"ragged", 1}}},
        {"attention_decode_float8", {{"kv", 300}, {"d", 32}, {"parts", 2}, {"ragged", 1}, {"batch", 3}}},
        {"attention_decode_float8", {{"kv", 150}, {"d", 32}, {"parts", 2}, {"page", 1}}},
        {"attention_latent_decode",
         {{"kv", 300}, {"d", 192}, {"dv", 128}, {"parts", 1}, {"heads", 9}, {"batch", 1}}},
        {"attention_latent_decode",
         {{"kv", 300}, {"d", 192}, {"dv", 128}, {"parts", 2}, {"heads", 9}, {"ragged", 1}},
         "helps_early=1"},
        {"attention_latent_decode_float8",
         {{"kv", 300}, {"d", 192}, {"dv", 128}, {"parts", 2}, {"heads", 9}, {"ragged", 1}}},
        {"attention_backward_kv", {{"heads", 2}, {"q", 130}, {"kv", 140}, {"d", 32}, {"causal", 1}}},
        {"attention_backward_kv",
         {{"heads", 2}, {"q", 300}, {"kv", 200}, {"d", 32}, {"causal", 1}},
         "block_q=64 stages=4 consumers=3"},
        {"attention_backward_q",
         {{"heads", 2}, {"q", 200}, {"kv", 300}, {"d", 32}, {"causal", 1}},
         "block_kv=64 stages=4 consumers=3"},
        {"attention_backward_q", {{"heads", 2}, {"q", 130}, {"kv", 140}, {"d", 32}, {"causal", 1}}},
        {"attention_backward_q",
         {{"heads", 2}, {"q", 130}, {"kv", 200}, {"d", 32}, {"causal", 1}},
         "block_kv=32 stages=2 one_value=1"},
        {"attention_backward_kv_large",
         {{"heads", 4}, {"group", 2}, {"q", 200}, {"kv", 140}, {"d", 48}, {"dv", 32}, {"causal", 1}}},
        {"attention_backward_kv_large",
         {{"heads", 2}, {"q", 300}, {"kv", 100}, {"d", 32}, {"cap", 3}},
         "block_q=64 stages=2"},
        {"attention_backward_kv", {{"q", 130}, {"kv", 140}, {"d", 32}, {"causal", 1}, {"sequences", 3}}},
        {"attention_backward_q", {{"q", 130}, {"kv", 140}, {"d", 32}, {"causal", 1}, {"sequences", 3}}},
        {"attention_backward_all", {{"heads", 2}, {"q", 140}, {"kv", 200}, {"d", 32}, {"causal", 1}}},
        {"attention_backward_all",
         {{"heads", 2}, {"group", 2}, {"q", 200}, {"kv", 200}, {"d", 64}},
         "slopes_shared=0"},
        {"blackwell_attention", {{"q", 140}, {"kv", 200}, {"d", 64}, {"alibi", 1}, {"cap", 3}, {"sink", 1}}},
        {"blackwell_attention", {{"q", 140}, {"kv", 200}, {"d", 64}, {"causal", 1}}},
        {"blackwell_attention_decode", {{"kv", 200}, {"d", 32}, {"parts", 2}, {"ragged", 1}, {"batch", 3}}},
        {"blackwell_attention_decode", {{"kv", 200}, {"d", 32}, {"parts", 1}, {"page", 1}}},
        {"attention_a0", {{"q", 70}, {"kv", 140}, {"d", 32}}},
        {"attention_a1", {{"q", 70}, {"kv", 140}, {"d", 32}}},
        {"attention_a2", {{"q", 130}, {"kv", 300}, {"d", 32}}},
        {"attention_a3", {{"q", 130}, {"kv", 300}, {"d", 32}}},
        {"attention_a4", {{"q", 130}, {"kv", 300}, {"d", 32}}}}),
    [](const auto& info) { return fmt::format("{}_{}", info.param.kernel, info.index); });

TEST(AttentionForms, AssembleWithoutSpills) {  // which a GPU's device refuses
  IMBREX_NEEDS_PTXAS();
  struct Form {
    std::string kernel;
    Sizes sizes;
    std::string configuration = "";
  };
  for (const Form& form : std::vector<Form>{
           {"attention", {{"causal", 1}}},
           {"attention", {{"window", 50}, {"cap", 9}, {"sink", 1}}},
           {"attention", {{"alibi", 1}}, "block_kv=64 stages=4"},
           {"attention", {{"d", 256}, {"causal", 1}}, "block_kv=80"},
           {"attention_float8", {}, "block_kv=96 stages=3 consumers=3"},
           {"attention_float8", {{"by_rows", 1}}, "block_kv=128"},
           {"attention_float8", {{"by_rows", 1}, {"causal", 1}}, "block_kv=128"},
           {"blackwell_attention", {{"causal", 1}}},
           {"blackwell_attention_decode", {{"page", 16}, {"causal", 1}}},
           {"attention_backward_kv", {{"causal", 1}}},
           {"attention_backward_q", {{"causal", 1}}},
           {"attention_backward_all", {{"causal", 1}}},
           {"attention_backward_all", {{"group", 4}}},
           {"attention_backward_all", {{"d", 64}, {"group", 4}}, "slopes_shared=0"},
           {"attention_backward_all", {{"d", 64}, {"causal", 1}}, "slopes_shared=0"},
           {"attention_a0", {}},
           {"attention_a1", {}},
           {"attention_a2", {}},
           {"attention_a3", {}},
           {"attention_a4", {}},
           {"attention_decode", {{"page", 16}, {"causal", 1}}},
           {"attention_decode", {{"page", 1}}},
           {"attention_latent_decode", {{"page", 64}, {"causal", 1}}},
           {"attention_latent_decode", {{"page", 16}, {"causal", 1}}},
           {"attention_latent_decode", {{"page", 32}}},
           {"attention_latent_decode", {{"page", 8}}},
           {"attention_latent_decode", {{"page", 8}}, "helps_early=1"},
           {"attention_latent_decode_float8", {{"causal", 1}}},
           {"attention_latent_decode_float8", {{"page", 8}, {"causal", 1}}},
           {"attention_latent_decode_float8", {{"page", 8}}, "helps_early=1"},
           {"attention_decode", {{"float8", 1}, {"causal", 1}}},
           {"attention_decode", {{"float8", 1}, {"page", 1}}},
           {"attention_decode_float8", {{"causal", 1}}},
           {"attention_decode_float8", {{"page", 16}, {"d", 256}}, "consumers=4 warp_rows=16 stages=2"},
           {"attention_decode_float8", {{"page", 1}}}}) {
    const RegisteredKernel& kernel = registered_kernel(form.kernel);
    Sizes sizes = form.sizes;
    for (const SizeOption& size : kernel.description.sizes) sizes.emplace(size.name, size.otherwise);
    Case c(Case::Mode::kTrace, std::nullopt, sizes, 0);
    kernel.run(
        c, std::nullopt,
        form.configuration.empty() ? kernel.space.configuration(0) : kernel.space.parse(form.configuration));
    passes::run_pipeline(*c.function, {});
    EXPECT_EQ(ptxas_says(codegen::generate(*c.function, {}).ptx, "--warn-on-spills -arch=" + kernel.target),
              "")
        << form.kernel << " " << form.configuration;
  }
}

}  // namespace
}  // namespace imbrex
