// SPDX-License-Identifier: Apache-2.0
// The library's kernels whose sizes, places or order are data: each of their configurations, at several sizes and under
// several schedules, twice in a row (what they leave in memory must serve the next launch), and through ptxas.
#include <gtest/gtest.h>

#include "../full.h"
#include "../param_name.h"
#include "../ptxas.h"
#include "codegen/codegen.h"
#include "imbrex/runtime/registry.h"
#include "ir/ir.h"
#include "passes/pipeline.h"

namespace imbrex {
namespace {

using Sizes = std::map<std::string, int64_t>;

struct Problem {
  const char* kernel;
  Sizes sizes;

  friend std::ostream& operator<<(std::ostream& out, const Problem& p) {
    out << p.kernel;
    for (const auto& [name, size] : p.sizes) out << " " << name << size;
    return out;
  }
};

Sizes grouped(int64_t m, int64_t n, int64_t k, int64_t groups, int64_t masked) {
  return {{"m", m}, {"n", n}, {"k", k}, {"groups", groups}, {"masked", masked}, {"even", 0}};
}
Sizes delta_rule(int64_t tokens, int64_t heads, int64_t value_heads, int64_t key, int64_t value,
                 int64_t bf16) {
  return {{"tokens", tokens}, {"heads", heads}, {"value_heads", value_heads},
          {"key", key},       {"value", value}, {"bf16", bf16}};
}
Sizes routed(int64_t m, int64_t width, int64_t limited, int64_t bf16) {
  return {{"m", m}, {"width", width}, {"choices", 30}, {"limited", limited}, {"bf16", bf16}};
}
Sizes rows(int64_t m, int64_t n, Sizes more = {}) {
  more.insert({{"m", m}, {"n", n}, {"bits", 16}, {"fp16", 0}});
  return more;
}

class DataDependent : public testing::TestWithParam<Problem> {
 protected:
  const RegisteredKernel& kernel() const { return registered_kernel(GetParam().kernel); }
  std::vector<Configuration> configurations() const {
    std::vector<Configuration> all = kernel().space.configurations();
    if (!is_full() && all.size() > 2) all = {all.front(), all.back()};
    return all;
  }
};

TEST_P(DataDependent, IsRightAndFindsNothing) {
  for (const Configuration& configuration : configurations())
    for (uint64_t seed = 0; seed < 2; ++seed) {
      const Device device = Device::virtual_gpu({.target = kernel().target,
                                                 .num_sms = seed == 0 ? 2 : 0,
                                                 .host_threads = 1,
                                                 .seed = seed,
                                                 .checks = vgpu::CheckSet::all()});
      for (int launch = 0; launch < 2; ++launch) {
        Case c(Case::Mode::kRun, device, GetParam().sizes, seed);
        kernel().run(c, device, configuration);
        EXPECT_TRUE(c.verified()) << kernel().space.to_string(configuration) << " seed " << seed << ": "
                                  << (c.comparisons.empty() ? "" : c.comparisons.front().format());
        EXPECT_TRUE(c.report.clean()) << c.report.virtual_report.format();
      }
    }
}

TEST_P(DataDependent, AssemblesWithoutWarnings) {
  IMBREX_NEEDS_PTXAS();
  for (const Configuration& configuration : configurations()) {
    Case c(Case::Mode::kTrace, std::nullopt, GetParam().sizes, 0);
    kernel().run(c, std::nullopt, configuration);
    passes::run_pipeline(*c.function, {});
    const codegen::CompiledKernel compiled = codegen::generate(*c.function, {});
    EXPECT_EQ(ptxas_says(compiled.ptx, "--warn-on-spills -arch=" + compiled.target), "");
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, DataDependent,
    testing::Values(
        Problem{"gather_rows", {{"n", 1}, {"table", 1}, {"width", 1}}},
        Problem{"gather_rows", {{"n", 130}, {"table", 77}, {"width", 320}}},
        Problem{"gather_rows", {{"n", 45}, {"table", 500}, {"width", 83}}},
        Problem{"scatter_add_rows", {{"n", 1}, {"table", 1}, {"width", 1}}},
        Problem{"scatter_add_rows", {{"n", 130}, {"table", 7}, {"width", 320}}},
        Problem{"scatter_add_rows", {{"n", 45}, {"table", 50}, {"width", 83}}},
        Problem{"hopper_scatter_add_rows", {{"n", 1}, {"table", 1}, {"width", 1}}},
        Problem{"hopper_scatter_add_rows", {{"n", 45}, {"table", 50}, {"width", 328}}},
        Problem{"add_grouped_rows", {{"n", 1}, {"table", 1}, {"width", 1}}},
        Problem{"add_grouped_rows", {{"n", 77}, {"table", 12}, {"width", 521}}},
        Problem{"gated_delta_rule", delta_rule(1, 1, 1, 16, 8, 0)},
        Problem{"gated_delta_rule", delta_rule(6, 2, 6, 128, 80, 1)},
        Problem{"routed_swiglu", routed(1, 128, 0, 1)}, Problem{"routed_swiglu", routed(40, 1152, 1, 0)},
        Problem{"cumsum_rows", {{"m", 1}, {"n", 1}}}, Problem{"cumsum_rows", {{"m", 3}, {"n", 8192}}},
        Problem{"cumsum_rows", {{"m", 5}, {"n", 5003}}}, Problem{"histogram", {{"n", 1}, {"bins", 1}}},
        Problem{"histogram", {{"n", 70001}, {"bins", 100}}},
        Problem{"histogram", {{"n", 20000}, {"bins", 3000}}},
        Problem{"split_k_matmul", {{"m", 1}, {"n", 8}, {"k", 8}, {"bf16", 0}}},
        Problem{"split_k_matmul", {{"m", 40}, {"n", 136}, {"k", 1000}, {"bf16", 1}}},
        Problem{"grouped_matmul", {{"m", 1}, {"n", 8}, {"k", 8}, {"groups", 1}}},
        Problem{"grouped_matmul", {{"m", 500}, {"n", 200}, {"k", 136}, {"groups", 9}}},
        Problem{"hopper_grouped_matmul", grouped(1, 8, 8, 1, 0)},
        Problem{"hopper_grouped_matmul", grouped(600, 328, 200, 9, 0)},
        Problem{"hopper_grouped_matmul", grouped(150, 264, 136, 3, 1)},
        Problem{"layer_norm_backward", rows(9, 4096, {{"ctas", 3}})},
        Problem{"rms_norm_backward", rows(3, 8192, {{"ctas", 2}})}, Problem{"layer_norm_rows", rows(3, 5120)},
        Problem{"hopper_layer_norm_backward", rows(11, 1023, {{"ctas", 2}})},
        Problem{"hopper_rms_norm_backward", rows(9, 520, {{"ctas", 2}})},
        Problem{"wide_layer_norm_backward", rows(3, 9001, {{"ctas", 2}})},
        Problem{"wide_rms_norm_backward", rows(2, 16384, {{"ctas", 2}})},
        Problem{"held_cross_entropy", rows(3, 16390)}, Problem{"held_cross_entropy", rows(2, 107001)},
        Problem{"softmax_rows", rows(2, 40001)}, Problem{"softmax_rows", rows(9, 1023)},
        Problem{"softmax_rows", rows(9, 4001)}, Problem{"softmax_backward", rows(9, 1023)},
        Problem{"softmax_backward", rows(9, 2047)}, Problem{"softmax_backward", rows(9, 3007)},
        Problem{"rms_norm", rows(9, 1023)}, Problem{"rms_norm", rows(9, 2001)},
        Problem{"layer_norm_rows", rows(9, 1023)}, Problem{"layer_norm_rows", rows(9, 2047)},
        Problem{"layer_norm_rows", rows(9, 4001)}, Problem{"cross_entropy", rows(9, 1023)},
        Problem{"quantise_float8", rows(17, 1023, {{"block", 0}, {"gate", 1}})},
        Problem{"quantise_float8", rows(17, 1023, {{"block", 128}, {"gate", 1}})},
        Problem{"quantise_float8", rows(17, 2047, {{"block", 0}, {"gate", 0}})},
        Problem{"cross_entropy", rows(5, 32768)}, Problem{"top_k", rows(9, 130, {{"k", 3}})},
        Problem{"top_k", rows(3, 5000, {{"k", 40}})},
        Problem{"top_k", rows(9, 500, {{"k", 8}, {"bits", 32}})},
        Problem{"top_k", rows(3, 1000, {{"k", 50}, {"bits", 32}})},
        Problem{"long_top_k", rows(2, 40001, {{"k", 40}})},
        Problem{"long_top_k", rows(3, 3000, {{"k", 64}, {"bits", 32}})},
        Problem{"quantise_float8", rows(9, 7168, {{"block", 128}, {"gate", 1}})}),
    ParamName());

}  // namespace
}  // namespace imbrex
