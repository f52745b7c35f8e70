// SPDX-License-Identifier: Apache-2.0
// triton/attention.py as Triton 3.6 compiled it for the tensor cores of three generations.
#include "foreign_testing.h"

namespace imbrex::vgpu {
namespace {

constexpr DeviceAddress kNoScratch = 0;
constexpr int kDepth = 64;

class TritonAttention : public ForeignSeeds {};
INSTANTIATE_TEST_SUITE_P(Seeds, TritonAttention, testing::Values(0, 1, 2));

struct Attended {
  std::vector<double> out, log_sums;
};

/// softmax(scale q k^T) v of every head in float64, and the base-2 logarithm of each row's sum.
Attended attend(const std::vector<Half>& q, const std::vector<Half>& k, const std::vector<Half>& v, int heads,
                int length, double scale, bool causal) {
  Attended result;
  for (int head = 0; head < heads; ++head) {
    const auto at = [&](const std::vector<Half>& x, int row, int d) {
      return value(x[static_cast<size_t>((head * length + row) * kDepth + d)]);
    };
    for (int row = 0; row < length; ++row) {
      const int seen = causal ? row + 1 : length;
      double total = 0;
      std::vector<double> sums(kDepth);
      for (int key = 0; key < seen; ++key) {
        double score = 0;
        for (int d = 0; d < kDepth; ++d) score += at(q, row, d) * at(k, key, d);
        const double weight = std::exp(score * scale);
        total += weight;
        for (int d = 0; d < kDepth; ++d) sums[static_cast<size_t>(d)] += weight * at(v, key, d);
      }
      for (const double sum : sums) result.out.push_back(sum / total);
      result.log_sums.push_back(std::log2(total));
    }
  }
  return result;
}

struct Run {
  std::vector<Half> out;
  std::vector<float> log_sums;
  Attended expected;
};

/// The kernel `attention` with causal masking on random inputs of two heads.
Run run_causal(Foreign& kernel, int length) {
  const int heads = 2, count = heads * length * kDepth;
  const auto draw = [&] { return kernel.uniform<Half>(count, -2, 2); };
  const auto q = draw(), k = draw(), v = draw();
  const DeviceAddress out = kernel.output(count * 2), sums = kernel.output(heads * length * 4);
  kernel.run({.grid = {(length + 127) / 128, heads}}, kernel.input(q), kernel.input(k), kernel.input(v), out,
             sums, length, 0.125f, kNoScratch, kNoScratch);
  return {kernel.read<Half>(out, count), kernel.read<float>(sums, heads * length),
          attend(q, k, v, heads, length, 0.125, true)};
}

// The weights are rounded to fp16 before the second product.
void check(const Run& run) {
  expect_close(run.out, run.expected.out, 0x1p-10, 2 * 0x1p-10);
  expect_close(run.log_sums, run.expected.log_sums, 1e-4, 1e-4);
}

TEST_P(TritonAttention, CausalByPointers) {
  for (const int length : {128, 1, 203}) {
    Foreign kernel("triton_attention.sm_80", seed());
    check(run_causal(kernel, length));
  }
}

// Triton 3.6 lets wgmma and tcgen05.mma read what cp.async wrote without the fence between the proxies that
// PTX asks for (those writes are of the generic proxy, the reads of the async one). That is all there is to
// find.
TEST_P(TritonAttention, ByPointersLacksAProxyFenceOnLaterTargets) {
  for (const std::string target : {"sm_90a", "sm_100a"}) {
    Options unfenced;
    unfenced.checks.proxy_fences = false;
    Foreign without_that_check("triton_attention." + target, seed(), unfenced);
    check(run_causal(without_that_check, 203));
    Foreign kernel("triton_attention." + target, seed());
    kernel.expect_only(FindingKind::kMissingProxyFence);
    check(run_causal(kernel, 203));
    for (const Finding& f : kernel.findings()) {
      EXPECT_NE(f.place.ptx.find(target == "sm_90a" ? "wgmma.mma_async" : "tcgen05.mma"), std::string::npos)
          << f.format();
      EXPECT_NE(f.other_place.ptx.find("cp.async"), std::string::npos) << f.format();
    }
  }
}

TEST_P(TritonAttention, ByTensorDescriptors) {
  for (const std::string target : {"sm_90a", "sm_100a"}) {
    Foreign kernel("triton_attention_descriptors." + target, seed());
    const int heads = 2, length = 256, rows = heads * length;
    const auto draw = [&] { return kernel.uniform<Half>(rows * kDepth, -2, 2); };
    const auto q = draw(), k = draw(), v = draw();
    const DeviceAddress dq = kernel.input(q), dk = kernel.input(k), dv = kernel.input(v),
                        out = kernel.output(rows * kDepth * 2);
    const int64_t stride = kDepth, one = 1;
    kernel.run({.grid = {length / 128, heads}}, matrix_map<Half>(dq, rows, kDepth, 128), rows, kDepth, stride,
               one, matrix_map<Half>(dk, rows, kDepth, 64), rows, kDepth, stride, one,
               matrix_map<Half>(dv, rows, kDepth, 64), rows, kDepth, stride, one,
               matrix_map<Half>(out, rows, kDepth, 128), rows, kDepth, stride, one, length, 0.125f,
               kNoScratch, kNoScratch);
    const Attended expected = attend(q, k, v, heads, length, 0.125, false);
    expect_close(kernel.read<Half>(out, rows * kDepth), expected.out, 0x1p-10, 2 * 0x1p-10);
  }
}

}  // namespace
}  // namespace imbrex::vgpu
