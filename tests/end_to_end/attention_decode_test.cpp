// SPDX-License-Identifier: Apache-2.0
// Attention of few query rows to long caches: divided, ragged, in pages; under several schedules with every checker on.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <utility>

#include "imbrex/core/error.h"
#include "imbrex/kernels/attention.h"
#include "imbrex/runtime/graph.h"
#include "imbrex/runtime/registry.h"

namespace imbrex {
namespace {

using Sizes = std::map<std::string, int64_t>;

void expect_decoded(Sizes sizes, const std::string& configuration = "", uint64_t seeds = 2,
                    const std::string& name = "attention_decode") {
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

TEST(AttentionDecode, OnePart) { expect_decoded({{"parts", 1}}); }
TEST(AttentionDecode, SeveralParts) { expect_decoded({{"parts", 3}, {"bf16", 1}}, "", 4); }
TEST(AttentionDecode, ALaunchMergesTheParts) {
  expect_decoded({{"parts", 3}, {"bf16", 1}, {"launch", 1}}, "", 2);
  expect_decoded({{"parts", 2}, {"launch", 1}}, "", 1, "attention_decode_float8");
}
TEST(AttentionDecode, TheLastMergesMoreRowsThanAtATime) {
  expect_decoded({{"parts", 9}, {"kv", 700}, {"group", 5}, {"q", 15}, {"d", 48}, {"causal", 1}});
}
TEST(AttentionDecode, MorePartsThanBlocks) { expect_decoded({{"kv", 100}, {"parts", 5}}); }
TEST(AttentionDecode, OneColumn) { expect_decoded({{"kv", 1}, {"d", 16}, {"group", 1}}); }
TEST(AttentionDecode, SequencesOfSeveralLengths) {
  expect_decoded({{"batch", 5}, {"kv", 333}, {"ragged", 1}, {"parts", 2}});
}
TEST(AttentionDecode, SeveralQueryRows) {
  expect_decoded(
      {{"q", 16}, {"group", 8}, {"causal", 1}, {"batch", 4}, {"ragged", 1}, {"kv", 200}, {"parts", 2}});
  expect_decoded({{"q", 7}, {"group", 1}, {"causal", 1}, {"kv", 129}});
}
TEST(AttentionDecode, PagesOfEverySize) {
  for (const int64_t page : {1, 3, 8, 16, 32, 64, 256})
    expect_decoded({{"page", page}, {"kv", 300}, {"ragged", 1}, {"batch", 3}, {"d", 64}, {"parts", 2}}, "",
                   1);
}
TEST(AttentionDecode, CachesOfFloat8) {
  expect_decoded({{"float8", 1}, {"kv", 200}, {"parts", 2}, {"bf16", 1}}, "", 4);
  for (const int64_t page : {1, 16, 64})
    expect_decoded(
        {{"float8", 1}, {"page", page}, {"kv", 300}, {"ragged", 1}, {"batch", 4}, {"d", 64}, {"parts", 2}},
        "", 1);
  expect_decoded({{"float8", 1}, {"q", 7}, {"causal", 1}, {"kv", 129}, {"d", 96}}, "block_kv=32 stages=4", 1);
}
TEST(AttentionDecode, CachesOfFloat8ByWarps) {
  const auto expect = [](const Sizes& sizes, const std::string& configuration = "", uint64_t seeds = 1) {
    expect_decoded(sizes, configuration, seeds, "attention_decode_float8");
  };
  expect({{"kv", 200}, {"parts", 2}, {"bf16", 1}}, "", 4);
  expect({{"kv", 1}, {"d", 32}, {"group", 1}});
  for (const int64_t page : {1, 8, 16, 64})
    expect({{"page", page}, {"kv", 300}, {"ragged", 1}, {"batch", 4}, {"d", 64}, {"parts", 2}});
  expect({{"q", 7}, {"causal", 1}, {"kv", 129}, {"d", 96}}, "consumers=2 warp_rows=32 stages=4");
  expect({{"group", 5}, {"q", 4}, {"causal", 1}, {"kv", 140}, {"d", 256}}, "stages=2");
}
/// What lies in a cache beyond a sequence's length makes no difference, not even if it is no number.
TEST(AttentionDecode, CachesEndInAnything) {
  const Device device = Device::virtual_gpu({.target = "sm_90a", .checks = vgpu::CheckSet::all()});
  constexpr int64_t kRoom = 200, kD = 64;
  const std::vector<int64_t> lengths{37, 0, 129};
  HostTensor length_host(int32, {3});
  for (int64_t b = 0; b < 3; ++b) length_host.set(b, static_cast<double>(lengths[b]));
  const DeviceTensor q = DeviceTensor::random(device, bfloat16, {3, 4, 1, kD}, 1);
  for (const DataType dtype : {bfloat16, float8_e4m3}) {
    SCOPED_TRACE(dtype.name());
    const auto decoded = [&](double beyond) {
      const auto cache = [&](uint64_t seed) {
        HostTensor host = HostTensor::random(dtype, {3, 1, kRoom, kD}, seed);
        for (int64_t b = 0; b < 3; ++b)
          for (int64_t e = lengths[b] * kD; e < kRoom * kD; ++e) host.set(b * kRoom * kD + e, beyond);
        return DeviceTensor::from_host(device, host);
      };
      const DeviceTensor o = DeviceTensor::empty(device, bfloat16, q.shape());
      attention_decode(q, cache(2), cache(3), o,
                       {.lengths = DeviceTensor::from_host(device, length_host), .parts = 2})
          .expect_clean();
      return o.to_host().to_doubles();
    };
    EXPECT_EQ(decoded(std::numeric_limits<double>::quiet_NaN()), decoded(0));
  }
}

/// A captured call serves other lengths at each replay, and leaves its tickets as it found them.
TEST(AttentionDecode, InAGraph) {
  const Device device = Device::virtual_gpu({.target = "sm_90a", .checks = vgpu::CheckSet::all()});
  const Stream stream = Stream::create(device);
  const auto random = [&](int64_t heads, int64_t rows, uint64_t seed) {
    return DeviceTensor::random(device, bfloat16, {2, heads, rows, 64}, seed);
  };
  const DeviceTensor q = random(4, 1, 1), k = random(1, 300, 2), v = random(1, 300, 3),
                     o = DeviceTensor::empty(device, bfloat16, q.shape()),
                     expected = DeviceTensor::empty(device, bfloat16, q.shape());
  DeviceTensor lengths = DeviceTensor::from_host(device, HostTensor(int32, {2}));
  const AttentionDecodeOptions options{.lengths = lengths, .parts = 3, .stream = stream};
  attention_decode(q, k, v, o, options).expect_clean();
  stream.synchronize();
  const Graph graph = Graph::capture(stream, [&] { attention_decode(q, k, v, o, options); });
  for (const auto& [a, b] : {std::pair{300, 1}, {17, 130}, {0, 299}}) {
    HostTensor host(int32, {2});
    host.set(0, a), host.set(1, b);
    lengths.copy_from(host);
    graph.launch(stream).expect_clean();
    stream.synchronize();
    attention_decode(q, k, v, expected, {.lengths = lengths, .parts = 3}).expect_clean();
    EXPECT_EQ(o.to_host().to_doubles(), expected.to_host().to_doubles()) << a;
  }
}
/// Attention of the last `q_rows` of a sequence to its `length` rows, in float64, with what the options add.
struct Reference {
  std::vector<double> q, k, v;
  int64_t heads, group, q_rows, room, d;
  bool sees(int64_t i, int64_t j, int64_t length, const AttentionDecodeOptions& o) const {
    const int64_t at = length - q_rows + i;
    return j < length && (!o.causal || j <= at) && (o.window_left < 0 || j >= at - o.window_left);
  }
  std::vector<double> row(int64_t b, int64_t head, int64_t i, int64_t length, const AttentionDecodeOptions& o,
                          double slope, const double* sink) const {
    const double* query = q.data() + ((b * heads + head) * q_rows + i) * d;
    const int64_t first = (b * (heads / group) + head / group) * room * d;
    std::vector<double> mean(static_cast<size_t>(d));
    double total = sink ? std::exp(*sink) : 0;
    for (int64_t j = 0; j < length; ++j) {
      if (!sees(i, j, length, o)) continue;
      double score = 0;
      for (int64_t e = 0; e < d; ++e) score += query[e] * k[first + j * d + e];
      score /= std::sqrt(static_cast<double>(d));
      if (o.soft_cap > 0) score = o.soft_cap * std::tanh(score / o.soft_cap);
      score += slope * static_cast<double>(j - (length - q_rows + i));
      const double weight = std::exp(score);
      total += weight;
      for (int64_t e = 0; e < d; ++e) mean[e] += weight * v[first + j * d + e];
    }
    for (double& x : mean) x = total > 0 ? x / total : 0;
    return mean;
  }
};
/// A window, a soft cap, slopes and sinks, of one part and of several; with float8 both kernels.
TEST(AttentionDecode, MasksAndModifications) {
  const Device device = Device::virtual_gpu({.target = "sm_90a", .checks = vgpu::CheckSet::all()});
  constexpr int64_t kRoom = 300, kD = 32, kHeads = 4, kGroup = 2, kBatches = 4;
  const std::vector<int64_t> lengths{300, 0, 3, 129};
  HostTensor length_host(int32, {kBatches});
  for (int64_t b = 0; b < kBatches; ++b) length_host.set(b, static_cast<double>(lengths[b]));
  const DeviceTensor of_each = DeviceTensor::from_host(device, length_host),
                     slopes = DeviceTensor::random(device, float32, {kHeads}, 8),
                     sinks = DeviceTensor::random(device, float32, {kHeads}, 9);
  const std::vector<double> slope = slopes.to_host().to_doubles(), sink = sinks.to_host().to_doubles();
  for (const DataType dtype : {bfloat16, float8_e4m3})
    for (const int64_t q_rows : {1, 3, 20})
      for (const int what : {1, 2, 4, 8, 15}) {
        SCOPED_TRACE(fmt::format("{}, {} rows, options {}", dtype.name(), q_rows, what));
        const DeviceTensor q = DeviceTensor::random(device, float16, {kBatches, kHeads, q_rows, kD}, 1),
                           o = DeviceTensor::empty(device, float16, q.shape());
        const auto cache = [&](uint64_t seed) {
          return DeviceTensor::random(device, dtype == bfloat16 ? float16 : dtype,
                                      {kBatches, kHeads / kGroup, kRoom, kD}, seed);
        };
        const DeviceTensor k = cache(2), v = cache(3);
        AttentionDecodeOptions options{.causal = q_rows > 1, .lengths = of_each, .parts = 1 + what % 4};
        if (what & 1) options.window_left = 70;
        if (what & 2) options.soft_cap = 2;
        if (what & 4) options.alibi_slopes = slopes;
        if (what & 8) options.sinks = sinks;
        attention_decode(q, k, v, o, options).expect_clean();
        const Reference reference{q.to_host().to_doubles(),
                                  k.to_host().to_doubles(),
                                  v.to_host().to_doubles(),
                                  kHeads,
                                  kGroup,
                                  q_rows,
                                  kRoom,
                                  kD};
        const std::vector<double> got = o.to_host().to_doubles();
        double worst = 0;
        for (int64_t b = 0; b < kBatches; ++b)
          for (int64_t head = 0; head < kHeads; ++head)
            for (int64_t i = 0; i < q_rows; ++i) {
              const std::vector<double> exact =
                  reference.row(b, head, i, lengths[b], options, what & 4 ? slope[head] : 0,
                                what & 8 ? &sink[head] : nullptr);
              for (int64_t e = 0; e < kD; ++e)
                worst =
                    std::max(worst, std::abs(got[((b * kHeads + head) * q_rows + i) * kD + e] - exact[e]));
            }
        EXPECT_LT(worst, 5e-3);
      }
}
TEST(AttentionDecode, EveryHeadSize) {
  for (const int64_t d : {16, 64, 80, 96, 192, 256})
    expect_decoded({{"d", d}, {"kv", 150}, {"parts", 2}}, "stages=2", 1);
}

}  // namespace
}  // namespace imbrex
