// SPDX-License-Identifier: Apache-2.0
// Attention on Blackwell's tensor memory, under several schedules with every checker on.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "attention/kv_arguments.h"
#include "imbrex/core/error.h"
#include "imbrex/kernels/attention/blackwell_decode.h"
#include "imbrex/kernels/attention/blackwell_forward.h"
#include "imbrex/runtime/kernel.h"
#include "imbrex/runtime/registry.h"

namespace imbrex {
namespace {

using Sizes = std::map<std::string, int64_t>;

void expect_verified(Sizes sizes, const std::string& configuration = "", uint64_t seeds = 2,
                     const std::string& name = "blackwell_attention") {
  const RegisteredKernel& kernel = registered_kernel(name);
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
TEST(BlackwellAttention, MasksAndModifications) {
  for (const char* what : {"window", "prefix", "cap", "alibi", "sink"})
    expect_verified({{"q", 140}, {"kv", 200}, {"d", 64}, {"causal", 1}, {what, 3}}, "", 1);
}
TEST(BlackwellAttention, OddLengths) {
  for (const int64_t kv : {7, 129})
    for (const int64_t q : {7, 129})
      expect_verified({{"heads", 1}, {"q", q}, {"kv", kv}, {"d", 64}, {"causal", 1}}, "", 1);
}
/// Of inputs whose scores are spread so far that most rows' maxima grow from block to block by more than weights may, which
/// those of the registered kernels never do. q and o are [rows, d], k and v [columns, d]; the result in float64.
void expect_mean(const DeviceTensor& q, const DeviceTensor& k, const DeviceTensor& v, const DeviceTensor& o,
                 int64_t d, double scale) {
  const std::vector<double> qs = q.to_host().to_doubles(), ks = k.to_host().to_doubles(),
                            vs = v.to_host().to_doubles(), os = o.to_host().to_doubles();
  const int64_t rows = static_cast<int64_t>(qs.size()) / d, columns = static_cast<int64_t>(ks.size()) / d;
  int64_t grown = 0;
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<double> weights(ks.size() / d);
    double largest = -1e30, total = 0;
    for (int64_t c = 0; c < columns; ++c) {
      double score = 0;
      for (int64_t e = 0; e < d; ++e) score += scale * qs[r * d + e] * ks[c * d + e];
      if (c >= 32 && score > largest + 8) ++grown;
      largest = std::max(largest, weights[c] = score);
    }
    for (double& weight : weights) total += weight = std::exp(weight - largest);
    for (int64_t e = 0; e < d; ++e) {
      double mean = 0;
      for (int64_t c = 0; c < columns; ++c) mean += weights[c] / total * vs[c * d + e];
      ASSERT_NEAR(os[r * d + e], mean, 0.02) << "row " << r << " column " << e;
    }
  }
  EXPECT_GT(grown, rows / 8) << "times that a maximum grew in a later block";
}

TEST(BlackwellAttention, SumsAreRescaledWhereMaximaGrow) {
  constexpr int64_t kRows = 140, kColumns = 200, kD = 32;
  const Device device = Device::virtual_gpu({.target = "sm_100a", .checks = vgpu::CheckSet::all()});
  const auto make = [&](int64_t rows, uint64_t seed) {
    return DeviceTensor::random(device, float16, {1, rows, kD}, seed);
  };
  const DeviceTensor q = make(kRows, 1), k = make(kColumns, 2), v = make(kColumns, 3),
                     o = DeviceTensor::empty(device, float16, {1, kRows, kD});
  Kernel<kernels::BlackwellAttention<>> kernel({.block_kv = 32, .stages = 2}, device);
  const HeadArguments qs(q), ks(k), vs(v), os(o);
  kernel(1, 1, kRows, kColumns, static_cast<int>(kD), 1, 4.f, float16, qs, ks, vs, os, false, o.address())
      .expect_clean();
  expect_mean(q, k, v, o, kD, 4);
}
TEST(BlackwellDecode, SumsAreRescaledWhereMaximaGrow) {
  constexpr int64_t kRows = 70, kColumns = 200, kD = 32;  // rows: heads that share one of K and V
  const Device device = Device::virtual_gpu({.target = "sm_100a", .checks = vgpu::CheckSet::all()});
  const auto make = [&](int64_t heads, int64_t rows, uint64_t seed) {
    return DeviceTensor::random(device, float16, {1, heads, rows, kD}, seed);
  };
  const DeviceTensor q = make(kRows, 1, 1), k = make(1, kColumns, 2), v = make(1, kColumns, 3),
                     o = DeviceTensor::empty(device, float16, {1, kRows, 1, kD}),
                     log_sum = DeviceTensor::empty(device, float32, {kRows});
  Kernel<kernels::BlackwellDecodeAttention<>> kernel({.block_kv = 32, .stages = 2}, device);
  kernel(1, 1, kRows, 1, 1, static_cast<int>(kD), 4.f, float16, float16, HeadArguments(q),
         CacheArguments(k, v, {}, {}), CacheScaleArguments({}, {}, q.address()), HeadArguments(o),
         kernels::Division::kNone, false, log_sum, log_sum, log_sum.address(), log_sum)
      .expect_clean();
  expect_mean(q, k, v, o, kD, 4);
}

void expect_decoded(const Sizes& sizes, const std::string& configuration = "", uint64_t seeds = 1) {
  expect_verified(sizes, configuration, seeds, "blackwell_attention_decode");
}
TEST(BlackwellDecode, OnePart) { expect_decoded({{"parts", 1}, {"kv", 333}}, "", 3); }
TEST(BlackwellDecode, SeveralPartsOfRaggedSequences) {
  expect_decoded({{"batch", 5}, {"ragged", 1}, {"kv", 333}, {"parts", 2}, {"bf16", 1}}, "", 3);
  expect_decoded({{"kv", 100}, {"parts", 5}, {"d", 64}});  // more than there are blocks
}
TEST(BlackwellDecode, OddLengths) {
  for (const int64_t kv : {1, 7, 129, 3000})
    expect_decoded({{"kv", kv}, {"d", 48}, {"batch", 1}, {"group", 1}});
}
TEST(BlackwellDecode, SeveralQueryRows) {
  expect_decoded(
      {{"q", 16}, {"group", 9}, {"causal", 1}, {"batch", 4}, {"ragged", 1}, {"kv", 200}, {"d", 64}});
}
TEST(BlackwellDecode, PagesOfEverySize) {
  for (const int64_t page : {1, 3, 16, 64, 256})
    expect_decoded({{"page", page}, {"kv", 300}, {"ragged", 1}, {"batch", 3}, {"d", 64}, {"parts", 2}});
}
TEST(BlackwellDecode,
     PagesThatTakeTurnsInMemory) {  // a block's rows are two stretches of the cache, one in two
  expect_decoded({{"page", 1}, {"kv", 129}, {"batch", 3}, {"heads", 1}, {"d", 32}, {"parts", 2}});
}

}  // namespace
}  // namespace imbrex
