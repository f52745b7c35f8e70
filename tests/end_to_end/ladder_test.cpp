// SPDX-License-Identifier: Apache-2.0
// A ladder of matmuls, candidate by candidate: verified on the virtual GPU under several schedules with every
// checker on, at sizes that the tiles divide and at ragged ones, and assembled by ptxas without a warning. A
// few candidates of each step, or all (scripts/test --long).
#include <gtest/gtest.h>

#include <algorithm>

#include "../full.h"
#include "../param_name.h"
#include "../ptxas.h"
#include "codegen/codegen.h"
#include "imbrex/runtime/registry.h"
#include "ir/ir.h"
#include "ladder.h"
#include "passes/pipeline.h"

namespace imbrex {
namespace {

uint64_t seeds_of_each() { return is_full() ? 3 : 2; }

using Sizes = std::map<std::string, int64_t>;

/// The sizes, and both choices of whatever else the kernel is given, in turn.
Sizes with_options(const RegisteredKernel& kernel, Sizes sizes, uint64_t seed) {
  for (const SizeOption& option : kernel.description.sizes)
    if (!sizes.count(option.name)) sizes[option.name] = static_cast<int64_t>(seed % 2);
  return sizes;
}

struct Candidate {
  const RegisteredKernel* kernel;
  Configuration configuration;
  int64_t bits = 0;  // of an element of the block-scaled matmul

  // One thread an element: all lanes' loads of every product, some 20 s at the others' sizes.
  bool is_slow() const { return kernel->description.name.starts_with("ampere_matmul_v0"); }

  Sizes whole() const {
    if (is_slow() && !is_full()) return {{"m", 64}, {"n", 128}, {"k", 64}};
    if (bits == 0) return {{"m", 256}, {"n", 512}, {"k", 256}};
    return {{"m", 256}, {"n", 512}, {"k", 512}, {"bits", bits}};
  }
  Sizes ragged() const {
    if (is_slow() && !is_full()) return {{"m", 52}, {"n", 104}, {"k", 40}};
    if (bits == 0) return {{"m", 200}, {"n", 328}, {"k", 72}};
    return {{"m", 300}, {"n", 328}, {"k", 608}, {"bits", bits}};
  }
  // Where the format is new, and its factors take another way, the schedules are many.
  uint64_t seeds() const { return is_full() && bits != 0 ? 20 : seeds_of_each(); }

  friend std::ostream& operator<<(std::ostream& out, const Candidate& c) {
    out << c.kernel->description.name << " " << c.kernel->space.to_string(c.configuration);
    return c.bits == 0 ? out : out << " bits=" << c.bits;
  }
};

/// Of kernels that take elements of several widths.
bool has_bits(const RegisteredKernel& kernel) {
  const std::vector<SizeOption>& sizes = kernel.description.sizes;
  return std::any_of(sizes.begin(), sizes.end(), [](const SizeOption& size) { return size.name == "bits"; });
}

std::vector<Candidate> candidates() {
  std::vector<Candidate> result;
  for (const auto& [name, kernel] : registered_kernels()) {
    if (!name.starts_with(kLadderPart.prefix)) continue;
    const std::vector<Configuration> all = kernel.space.configurations();
    // The first and the last are the extremes of every choice. Another element type changes little.
    const size_t few = name.ends_with("_bf16") ? all.size() : (all.size() - 1) / (kLadderPart.candidates - 1);
    const size_t step = is_full() ? 1 : std::max<size_t>(1, few);
    for (size_t i = 0; i < all.size(); i += step)
      for (int64_t bits : has_bits(kernel) ? std::vector<int64_t>{8, 4} : std::vector<int64_t>{0})
        result.push_back({&kernel, all[i], bits});
  }
  return result;
}

class Ladder : public testing::TestWithParam<Candidate> {
 protected:
  void expect_verified(const Sizes& sizes) {
    const auto& [kernel, configuration, bits] = GetParam();
    for (uint64_t seed = 0; seed < GetParam().seeds(); ++seed) {
      // On two multiprocessors CTAs wait to be launched, for persistent kernels to take over.
      const Device device = Device::virtual_gpu({.target = kernel->target,
                                                 .num_sms = seed % 2 == 0 ? 2 : 0,
                                                 .host_threads = 1,
                                                 .seed = seed,
                                                 .checks = vgpu::CheckSet::all()});
      Case c(Case::Mode::kRun, device, with_options(*kernel, sizes, seed), seed);
      kernel->run(c, device, configuration);
      EXPECT_TRUE(c.verified()) << "seed " << seed << ": "
                                << (c.comparisons.empty() ? "" : c.comparisons.front().format());
      EXPECT_TRUE(c.report.clean()) << "seed " << seed << "\n" << c.report.virtual_report.format();
    }
  }
};

TEST_P(Ladder, IsRightAtWholeTiles) { expect_verified(GetParam().whole()); }
TEST_P(Ladder, IsRightAtRaggedSizes) { expect_verified(GetParam().ragged()); }

TEST_P(Ladder, AssemblesWithoutWarnings) {
  IMBREX_NEEDS_PTXAS();
  const auto& [kernel, configuration, bits] = GetParam();
  Case c(Case::Mode::kTrace, std::nullopt, with_options(*kernel, GetParam().ragged(), 0), 0);
  kernel->run(c, std::nullopt, configuration);
  passes::run_pipeline(*c.function, {});
  const codegen::CompiledKernel compiled = codegen::generate(*c.function, {});
  EXPECT_EQ(ptxas_says(compiled.ptx, "--warn-on-spills -arch=" + compiled.target), "");
}

INSTANTIATE_TEST_SUITE_P(Candidates, Ladder, testing::ValuesIn(candidates()), ParamName());

}  // namespace
}  // namespace imbrex
