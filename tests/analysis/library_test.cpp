// SPDX-License-Identifier: Apache-2.0
// What is counted from the IR against what the virtual GPU counts while it runs: for every kernel of the
// library, every byte of every level and every bank conflict, by source line.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "../full.h"
#include "imbrex/inspect/traffic.h"
#include "imbrex/runtime/registry.h"

namespace imbrex {
namespace {

struct LineBanks {
  int64_t accesses = 0, wavefronts = 0, ideal = 0;
  int degree = 1;
  friend bool operator==(const LineBanks&, const LineBanks&) = default;
};
void PrintTo(const LineBanks& b, std::ostream* out) {
  *out << fmt::format("{} accesses, {} wavefronts of {}, degree {}", b.accesses, b.wavefronts, b.ideal,
                      b.degree);
}
using Banks = std::map<std::string, LineBanks>;

template <class Use>
void add(Banks& banks, const std::string& file, int64_t line, bool writes, const Use& use) {
  LineBanks& b = banks[fmt::format("{}:{} {}", file, line, writes ? "write" : "read")];
  b.accesses += use.accesses;
  b.wavefronts += use.wavefronts;
  b.ideal += use.ideal;
  b.degree = std::max(b.degree, use.degree);
}

void expect_agreement(const RegisteredKernel& kernel, const std::map<std::string, int64_t>& given,
                      const Configuration& configuration) {
  std::map<std::string, int64_t> sizes;
  std::string text = kernel.space.to_string(configuration);
  for (const SizeOption& size : kernel.description.sizes) {
    const auto found = given.find(size.name);
    sizes[size.name] = found == given.end() ? size.otherwise : found->second;
    text += fmt::format(" {}={}", size.name, sizes[size.name]);
  }
  SCOPED_TRACE(kernel.description.name + " " + text);

  vgpu::Options machine;
  machine.target = kernel.target;
  machine.checks = vgpu::CheckSet::none();
  machine.tensor_math = vgpu::TensorMath::kFast;
  machine.count_banks = true;
  const Device device = Device::virtual_gpu(machine);
  Case run(Case::Mode::kRun, device, sizes, 1);
  kernel.run(run, device, configuration);
  ASSERT_TRUE(run.verified()) << run.report.virtual_report.format();
  const vgpu::Report& report = run.report.virtual_report;
  const vgpu::Statistics& s = report.statistics;

  Case traced(Case::Mode::kTrace, std::nullopt, sizes, 1);
  kernel.run(traced, std::nullopt, configuration);
  const KernelTraffic counted =
      kernel_traffic(*traced.function, run_time_integers(kernel.entry->parameters, traced.shape));
  // Where places or waits are data, as they are at least by default, or threads scan, the count says so, and differs.
  static const std::set<std::string> kOnData = {"add_grouped_rows",
                                                "attention_decode",
                                                "attention_decode_float8",
                                                "attention_latent_decode",
                                                "attention_latent_decode_float8",
                                                "attention_packed",
                                                "blackwell_attention",
                                                "blackwell_attention_decode",
                                                "cross_entropy",
                                                "cumsum_rows",
                                                "gated_delta_rule",
                                                "gather_rows",
                                                "grouped_matmul",
                                                "held_cross_entropy",
                                                "histogram",
                                                "hopper_grouped_matmul",
                                                "hopper_grouped_matmul_fp8",
                                                "hopper_scatter_add_rows",
                                                "hopper_weight_gradient",
                                                "long_top_k",
                                                "low_precision_ampere",
                                                "low_precision_decode",
                                                "low_precision_direct",
                                                "rope",
                                                "routed_swiglu",
                                                "scatter_add_rows",
                                                "split_k_matmul",
                                                "top_k"};
  if (kOnData.contains(kernel.description.name) && (given.empty() || !counted.unknown.empty())) {
    EXPECT_NE(counted.unknown, "");
    return;
  }
  // Its CTAs take blocks by tickets, and wait for turns.
  if (text.find(" in_order=1") != std::string::npos) {
    EXPECT_NE(counted.unknown, "");
    return;
  }
  EXPECT_EQ(counted.unknown, "");
  const TrafficCounts& c = counted.counts;
  EXPECT_EQ(c.global_bytes_read, s.global_bytes_read);
  EXPECT_EQ(c.global_bytes_written, s.global_bytes_written);
  EXPECT_EQ(c.shared_bytes_read, s.shared_bytes_read);
  EXPECT_EQ(c.shared_bytes_written, s.shared_bytes_written);
  EXPECT_EQ(c.cp_async_bytes, s.cp_async_bytes);
  EXPECT_EQ(c.tma_bytes_loaded, s.tma_bytes_loaded);
  EXPECT_EQ(c.tma_bytes_repeated, s.tma_bytes_repeated);
  EXPECT_EQ(c.tma_bytes_stored, s.tma_bytes_stored);
  EXPECT_EQ(c.tensor_memory_bytes, s.tensor_memory_bytes);
  EXPECT_EQ(c.operand_bytes, s.operand_bytes);
  EXPECT_EQ(c.tensor_flops, s.tensor_flops);
  // A workspace with room for every configuration is more than one of them touches; one group has no list of rows.
  static const std::set<std::string> kMore = {"attention_backward_all", "hopper_gated_matmul",
                                              "hopper_matmul_stream_k", "hopper_quantised_matmul"};
  if (kMore.contains(kernel.description.name))
    EXPECT_LT(counted.compulsory, static_cast<double>(run.tensor_bytes()));
  else
    EXPECT_EQ(counted.compulsory, static_cast<double>(run.tensor_bytes()));

  Banks predicted, real;
  for (const BankPrediction& b : counted.banks) add(predicted, b.where.file, b.where.line, b.writes, b);
  for (const vgpu::BankUse& b : report.banks) add(real, b.place.file, b.place.line, b.writes, b);
  EXPECT_EQ(predicted, real);
}

class Library : public testing::TestWithParam<std::string> {};

TEST_P(Library, CountsFromTheIrAreThoseOfTheRun) {
  const RegisteredKernel& kernel = registered_kernel(GetParam());
  expect_agreement(kernel, {}, kernel.space.configuration(0));
}

TEST_P(Library, AlsoAtTheEdges) {
  const RegisteredKernel& kernel = registered_kernel(GetParam());
  expect_agreement(kernel, {{"m", 77}}, kernel.space.configuration(kernel.space.size() - 1));
}

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const auto& [name, kernel] : registered_kernels()) names.push_back(name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Kernels, Library, testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

/// Every configuration of every space.
TEST(LibraryAtLength, EveryConfiguration) {
  IMBREX_AT_LENGTH();
  for (const auto& [name, kernel] : registered_kernels())
    for (const Configuration& configuration : kernel.space.configurations())
      expect_agreement(kernel, {{"m", 300}}, configuration);
}

}  // namespace
}  // namespace imbrex
