// SPDX-License-Identifier: Apache-2.0
// Every form of attention on problems that are drawn: head sizes, masks, odd lengths, configurations and schedules, with every
// checker on; on a Hopper GPU too. A few draws of each in quick tests, hundreds at length. A failure says what to give to
// `imbrex run`.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "../full.h"
#include "../skip.h"
#include "imbrex/core/error.h"
#include "imbrex/runtime/registry.h"

namespace imbrex {
namespace {

using Choices = std::map<std::string, std::vector<int64_t>>;

/// Problems of a kernel: a size has one of its values, those that are not listed their defaults.
struct Form {
  std::string name, kernel;
  Choices sizes;
  std::vector<std::string> configurations;
  friend std::ostream& operator<<(std::ostream& to, const Form& form) { return to << form.name; }
};

const std::vector<int64_t> kLengths{1, 7, 64, 129, 300}, kSwitch{0, 1};

Choices operator+(Choices some, const Choices& others) {
  for (const auto& [name, values] : others) some[name] = values;
  return some;
}
const Choices kRows{
    {"heads", {2, 4}}, {"group", {1, 2}}, {"q", kLengths}, {"kv", kLengths}, {"bf16", kSwitch}};
const Choices kMasks{{"causal", kSwitch},
                     {"window", {0, 0, 37}},
                     {"prefix", {0, 0, 20}},
                     {"cap", {0, 0, 3}},
                     {"sink", kSwitch}};
const Choices kGradients{{"causal", kSwitch}, {"window", {0, 0, 37}}};
const Choices kCaches{{"heads", {1, 2}},   {"batch", {1, 3}},       {"kv", kLengths},    {"ragged", kSwitch},
                      {"causal", kSwitch}, {"parts", {0, 1, 2, 5}}, {"launch", kSwitch}, {"bf16", kSwitch}};
const Choices kFewRows{{"group", {1, 3, 8}}, {"q", {1, 2, 7}}};
const std::vector<int64_t> kPages{0, 0, 1, 3, 16, 64};

std::vector<Form> forms() {
  const std::vector<int64_t> usual{16, 64, 80, 96, 128};
  return {
      {"Forward",
       "attention",
       kRows + kMasks + Choices{{"d", usual}},
       {"block_kv=64 stages=2 ctas=2", "block_kv=64 stages=4 ctas=1",
        "block_kv=64 stages=2 q_stages=2 ctas=2", "block_kv=64 stages=2 takes_turns=1 ctas=2",
        "block_kv=64 stages=2 q_stages=2 ctas=3", "block_kv=64 stages=2 consumers=3 ctas=2"}},
      {"ForwardOfBiases",
       "attention",
       kRows + Choices{{"d", usual}, {"causal", kSwitch}, {"alibi", {1}}},
       {"block_kv=64 stages=4 ctas=2", "block_kv=64 stages=2 q_stages=2 ctas=2"}},
      {"ForwardOfLargeHeads",
       "attention",
       kRows + kMasks + Choices{{"d", {192, 256}}, {"dv", {0, 128}}},
       {"block_kv=80 ctas=2", "block_kv=80 takes_turns=1 ctas=1"}},
      {"Packed",
       "attention_packed",
       kRows + Choices{{"d", {16, 64, 128}}, {"causal", kSwitch}, {"sequences", {1, 6, 20}}},
       {"ctas=2", "q_stages=2 ctas=2", "q_stages=2 ctas=3"}},
      {"Float8",
       "attention_float8",
       Choices{{"heads", {2}},
               {"q", {1, 7, 64, 129}},
               {"kv", kLengths},
               {"causal", kSwitch},
               {"d", {32, 64, 128}}},
       {"block_kv=160 ctas=2", "block_kv=96 stages=3 consumers=3 ctas=2", "block_kv=64 stages=4 ctas=1"}},
      {"Float8ByRows",
       "attention_float8",
       Choices{{"heads", {2, 4}},
               {"group", {1, 2}},
               {"q", kLengths},
               {"kv", kLengths},
               {"causal", kSwitch},
               {"d", {32, 64, 128}},
               {"by_rows", {1}}},
       {"block_kv=128 ctas=2", "block_kv=64 stages=4 ctas=1"}},
      {"Decode", "attention_decode", kCaches + kFewRows + Choices{{"d", usual}, {"page", kPages}}, {""}},
      {"DecodeFloat8InSharedMemory",
       "attention_decode",
       kCaches + kFewRows + Choices{{"d", {32, 64, 96, 128}}, {"page", kPages}, {"float8", {1}}},
       {""}},
      {"DecodeFloat8",
       "attention_decode_float8",
       kCaches + Choices{{"group", {1, 3, 8}}, {"q", {1, 2}}, {"d", {32, 64, 128}}, {"page", kPages}},
       {""}},
      {"Latent",
       "attention_latent_decode",
       Choices{{"heads", {1, 9, 70}},
               {"batch", {1, 3}},
               {"q", {1, 3}},
               {"kv", kLengths},
               {"d", {192, 576}},
               {"dv", {128}},
               {"page", {0, 8, 64}},
               {"ragged", kSwitch},
               {"causal", kSwitch},
               {"parts", {0, 1, 2}},
               {"bf16", kSwitch}},
       {"helps_early=0", "helps_early=1"}},
      {"LatentFloat8",
       "attention_latent_decode_float8",
       Choices{{"heads", {1, 9, 70}},
               {"batch", {1, 3}},
               {"q", {1, 3}},
               {"kv", kLengths},
               {"d", {256, 320}},
               {"dv", {128, 256}},
               {"page", {0, 8, 64}},
               {"ragged", kSwitch},
               {"causal", kSwitch},
               {"parts", {0, 1, 2}},
               {"bf16", kSwitch}},
       {"helps_early=0", "stages=3 float8_stages=2"}},
      {"GradientOfKAndV",
       "attention_backward_kv",
       kRows + kGradients + Choices{{"d", usual}},
       {"block_q=64 stages=3", "block_q=32 stages=3"}},
      {"GradientOfKAndVByThree",
       "attention_backward_kv",
       kRows + kGradients + Choices{{"d", {16, 48, 64}}},
       {"block_q=64 stages=3 consumers=3", "block_q=64 stages=4 consumers=3"}},
      {"GradientOfLargeKAndV",
       "attention_backward_kv_large",
       kRows + kGradients + Choices{{"d", {16, 144, 256}}},
       {"block_q=32 stages=4", "block_q=64 stages=2"}},
      {"GradientOfQInOneStageOfValues",
       "attention_backward_q",
       kRows + kGradients + Choices{{"d", {16, 144, 192}}},
       {"block_kv=64 stages=2 one_value=1", "block_kv=48 stages=2 one_value=1"}},
      {"GradientOfQ",
       "attention_backward_q",
       kRows + kGradients + Choices{{"d", usual}},
       {"block_kv=64 stages=2", "block_kv=32 stages=2"}},
      {"GradientOfQByThree",
       "attention_backward_q",
       kRows + kGradients + Choices{{"d", {16, 48, 64}}},
       {"block_kv=64 stages=4 consumers=3"}},
      {"GradientsOfPackedSequences",
       "attention_backward_kv",
       kRows + Choices{{"d", {16, 64}}, {"causal", kSwitch}, {"sequences", {1, 5}}},
       {"block_q=32 stages=3"}},
      {"GradientsOfPackedLargeHeads",
       "attention_backward_kv_large",
       kRows + Choices{{"d", {16, 144}}, {"causal", kSwitch}, {"sequences", {1, 5}}},
       {"block_q=32 stages=4", "block_q=64 stages=2"}},
      {"GradientOfQOfPackedSequences",
       "attention_backward_q",
       kRows + Choices{{"d", {16, 144}}, {"causal", kSwitch}, {"sequences", {1, 5}}},
       {"block_kv=64 stages=2", "block_kv=48 stages=2 one_value=1"}},
      {"AllGradients",
       "attention_backward_all",
       kRows + kGradients + Choices{{"d", {32, 64, 96}}},
       {"staggers=0", "staggers=1", "slopes_shared=0"}},
      {"Blackwell",
       "blackwell_attention",
       kRows + kMasks + Choices{{"d", {32, 64, 96, 128}}, {"alibi", {0, 0, 1}}},
       {"", "block_kv=32 stages=4"}},
      {"BlackwellDecode",
       "blackwell_attention_decode",
       kCaches + kFewRows + Choices{{"d", {32, 64, 128}}, {"page", kPages}},
       {""}},
  };
}

class AttentionAudit : public testing::TestWithParam<Form> {
 protected:
  /// Draws a problem by its number, and tries it: on `gpu`, or on a virtual GPU under a schedule of the same number.
  static void try_draw(const Form& form, uint64_t number, const std::optional<Device>& gpu = {}) {
    std::mt19937_64 random(number * 7919 + std::hash<std::string>{}(form.name));
    const auto one_of = [&](const auto& values) { return values[random() % values.size()]; };
    const RegisteredKernel& kernel = registered_kernel(form.kernel);
    std::map<std::string, int64_t> sizes;
    std::string command = "imbrex run " + form.kernel;
    for (const auto& [name, values] : form.sizes) sizes[name] = one_of(values);
    if (gpu && number % 2 == 1) sizes["kv"] *= 11;  // it has the time
    for (const auto& [name, value] : sizes) command += fmt::format(" --{} {}", name, value);
    const std::string configuration = one_of(form.configurations);
    if (!configuration.empty()) command += fmt::format(" --config '{}'", configuration);
    SCOPED_TRACE(fmt::format("{} --seed {}", command, number));
    for (const SizeOption& size : kernel.description.sizes) sizes.emplace(size.name, size.otherwise);
    const Device device = gpu ? *gpu
                              : Device::virtual_gpu({.target = kernel.target,
                                                     .host_threads = 1,
                                                     .seed = number,
                                                     .checks = vgpu::CheckSet::all()});
    Case c(Case::Mode::kRun, device, sizes, number);
    try {
      kernel.run(c, device,
                 configuration.empty() ? kernel.space.configuration(0) : kernel.space.parse(configuration));
    } catch (const CompileError& error) {
      // Not every configuration is one for every problem.
      if (!gpu || std::string_view(error.what()).find("registers are spilled") == std::string_view::npos)
        throw;
      return;
    }
    EXPECT_FALSE(c.comparisons.empty());
    for (const Comparison& comparison : c.comparisons) EXPECT_TRUE(comparison.passed) << comparison.format();
    EXPECT_TRUE(c.report.clean()) << c.report.virtual_report.format();
  }
};

TEST_P(AttentionAudit, DrawnProblems) {
  const uint64_t draws = is_full() ? 200 : 2;
  for (uint64_t number = 0; number < draws; ++number) try_draw(GetParam(), number);
}
INSTANTIATE_TEST_SUITE_P(Forms, AttentionAudit, testing::ValuesIn(forms()),
                         [](const auto& info) { return info.param.name; });

class AttentionAuditOnAGpu : public AttentionAudit {};
TEST_P(AttentionAuditOnAGpu, DrawnProblems) {
  if (!Device::has_cuda() || !Device::cuda().can_run("sm_90a")) IMBREX_SKIP(hopper);
  const uint64_t draws = is_full() ? 16 : 4;
  for (uint64_t number = 1000; number < 1000 + draws; ++number) try_draw(GetParam(), number, Device::cuda());
}
std::vector<Form> forms_for_hopper() {
  std::vector<Form> all = forms();
  std::erase_if(all, [](const Form& form) { return form.name.starts_with("Blackwell"); });
  return all;
}
INSTANTIATE_TEST_SUITE_P(Forms, AttentionAuditOnAGpu, testing::ValuesIn(forms_for_hopper()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace imbrex
