// SPDX-License-Identifier: Apache-2.0
// Latent attention of few query rows: caches of 16 bits and of float8, divided, ragged, in pages; masks and modifications.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "imbrex/core/error.h"
#include "imbrex/kernels/attention.h"
#include "imbrex/kernels/attention/custom_latent_decode.h"
#include "imbrex/runtime/registry.h"

namespace imbrex {
namespace {

using Sizes = std::map<std::string, int64_t>;
using testing::HasSubstr;

void expect_latent(Sizes sizes, uint64_t seeds = 1, const std::string& configuration = "",
                   const std::string& name = "attention_latent_decode") {
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
void expect_float8(Sizes sizes, uint64_t seeds = 1, const std::string& configuration = "") {
  expect_latent(std::move(sizes), seeds, configuration, "attention_latent_decode_float8");
}

TEST(LatentDecode, OnePart) { expect_latent({{"parts", 1}, {"batch", 1}}, 3); }
TEST(LatentDecode, SeveralPartsOfRaggedSequences) {
  expect_latent({{"batch", 5}, {"ragged", 1}, {"kv", 200}, {"parts", 2}, {"bf16", 1}, {"heads", 20}}, 3);
}
TEST(LatentDecode, SmallerHeads) {
  expect_latent({{"d", 192}, {"dv", 128}, {"kv", 1}, {"heads", 1}, {"batch", 1}});
  expect_latent({{"d", 128}, {"dv", 128}, {"kv", 333}, {"heads", 7}, {"parts", 3}}, 2,
                "block_kv=32 stages=4");
}
TEST(LatentDecode, SeveralQueryRowsSeeWhatIsBeforeThem) {
  expect_latent({{"q", 3}, {"heads", 30}, {"causal", 1}, {"ragged", 1}, {"kv", 140}, {"d", 192}, {"dv", 128}},
                2);
}
TEST(LatentDecode, Pages) {
  for (const int64_t page : {8, 64, 128})
    expect_latent(
        {{"page", page}, {"ragged", 1}, {"batch", 3}, {"kv", 200}, {"d", 192}, {"dv", 128}, {"parts", 2}});
}

TEST(LatentDecodeOfFloat8, OnePart) { expect_float8({{"parts", 1}, {"batch", 1}, {"kv", 129}}, 2); }
TEST(LatentDecodeOfFloat8, SeveralPartsOfRaggedSequences) {
  expect_float8({{"batch", 5}, {"ragged", 1}, {"kv", 200}, {"parts", 2}, {"bf16", 1}, {"heads", 20}});
}
TEST(LatentDecodeOfFloat8, SmallerHeads) {
  expect_float8({{"d", 192}, {"dv", 128}, {"kv", 1}, {"heads", 1}, {"batch", 1}});
  expect_float8({{"d", 192}, {"dv", 128}, {"kv", 7}, {"heads", 3}, {"batch", 1}});
  expect_float8({{"d", 128}, {"dv", 128}, {"kv", 333}, {"heads", 7}, {"parts", 3}}, 2);  // nothing but values
  expect_float8({{"d", 320}, {"dv", 256}, {"kv", 3000}, {"heads", 2}, {"batch", 1}, {"parts", 4}}, 1,
                "block_kv=32 stages=3 float8_stages=2");
}
TEST(LatentDecodeOfFloat8, AProblemWhoseValuesAreNoPartOfItsKeysIsRefused) {
  for (const int64_t dv : {256, 100}) {
    const Sizes sizes{{"d", 192}, {"dv", dv}};
    EXPECT_THAT([&] { expect_float8(sizes); },
                testing::ThrowsMessage<LaunchError>(HasSubstr("give --dv as a multiple of 128")));
  }
}
TEST(LatentDecodeOfFloat8, SeveralQueryRowsSeeWhatIsBeforeThem) {
  expect_float8({{"q", 3}, {"heads", 30}, {"causal", 1}, {"ragged", 1}, {"kv", 140}, {"d", 192}, {"dv", 128}},
                2, "helps_early=1");
}
TEST(LatentDecodeOfFloat8, Pages) {
  for (const int64_t page : {8, 16, 32, 64})
    expect_float8(
        {{"page", page}, {"ragged", 1}, {"batch", 3}, {"kv", 200}, {"d", 192}, {"dv", 128}, {"parts", 2}});
}

/// Rows of a cache [batches, 1, room, ...] as the function takes it, and what they stand for. Behind `lengths` are numbers that
/// are none.
struct Cache {
  DeviceTensor tensor;
  std::vector<double> rows;

  Cache(const Device& device, bool is_float8, const std::vector<int64_t>& lengths, int64_t room, int64_t d,
        int64_t dv, uint64_t seed) {
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    const auto batches = static_cast<int64_t>(lengths.size());
    HostTensor plain = HostTensor::random(float16, {batches, 1, room, d}, seed);
    const HostTensor values = HostTensor::random(float8_e4m3, {batches, 1, room, dv}, seed + 1);
    const int64_t row_bytes = latent_float8_row_bytes(d, dv);
    HostTensor bytes(float8_e4m3, {batches, 1, room, row_bytes});
    for (int64_t r = 0; r < batches * room; ++r) {
      const bool is_there = r % room < lengths[static_cast<size_t>(r / room)];
      const auto place = [&](int64_t at, const void* from, int64_t size) {
        std::memcpy(bytes.bytes().data() + r * row_bytes + at, from, static_cast<size_t>(size));
      };
      for (int64_t b = 0; b < dv / 128; ++b) {
        const float factor = is_there ? 0.5F + 0.3F * static_cast<float>((r + b) % 4)
                                      : std::numeric_limits<float>::quiet_NaN();
        place(dv + 4 * b, &factor, 4);
        for (int64_t e = 128 * b; is_float8 && e < 128 * (b + 1); ++e)
          plain.set(r * d + e, static_cast<float>(values.get(r * dv + e)) * factor);
      }
      if (!is_there)
        for (int64_t e = 0; e < d; ++e) plain.set(r * d + e, kNan);
      place(0, values.bytes().data() + r * dv, dv);
      place(row_bytes - 2 * (d - dv), plain.bytes().data() + (r * d + dv) * 2, 2 * (d - dv));
    }
    tensor = DeviceTensor::from_host(device, is_float8 ? bytes : plain);
    rows = plain.to_doubles();
  }
};

/// A window, a soft cap, slopes and sinks, of one part and of several.
TEST(LatentDecode, MasksAndModifications) {
  const Device device = Device::virtual_gpu({.target = "sm_90a", .checks = vgpu::CheckSet::all()});
  constexpr int64_t kRoom = 300, kD = 192, kDv = 128, kHeads = 3, kBatches = 4;
  const std::vector<int64_t> lengths{300, 0, 3, 129};
  HostTensor length_host(int32, {kBatches});
  for (int64_t b = 0; b < kBatches; ++b) length_host.set(b, static_cast<double>(lengths[b]));
  const DeviceTensor of_each = DeviceTensor::from_host(device, length_host),
                     slopes = DeviceTensor::random(device, float32, {kHeads}, 8),
                     sinks = DeviceTensor::random(device, float32, {kHeads}, 9);
  const std::vector<double> slope = slopes.to_host().to_doubles(), sink = sinks.to_host().to_doubles();
  for (const bool is_float8 : {false, true}) {
    const Cache cache(device, is_float8, lengths, kRoom, kD, kDv, 3);
    for (const int64_t q_rows : {1, 3, 25})
      for (const int what : {1, 2, 4, 8, 15}) {
        SCOPED_TRACE(fmt::format("{}, {} rows, options {}", is_float8 ? "float8" : "float16", q_rows, what));
        const DeviceTensor q = DeviceTensor::random(device, float16, {kBatches, kHeads, q_rows, kD}, 1),
                           o = DeviceTensor::empty(device, float16, {kBatches, kHeads, q_rows, kDv}),
                           log_sum = DeviceTensor::empty(device, float32, {kBatches, kHeads, q_rows});
        AttentionDecodeOptions options{
            .causal = q_rows > 1, .lengths = of_each, .log_sum_exp = log_sum, .parts = 1 + what % 4};
        if (what & 1) options.window_left = 70;
        if (what & 2) options.soft_cap = 2;
        if (what & 4) options.alibi_slopes = slopes;
        if (what & 8) options.sinks = sinks;
        attention_latent_decode(q, cache.tensor, o, options).expect_clean();
        const std::vector<double> query = q.to_host().to_doubles(), got = o.to_host().to_doubles(),
                                  got_log = log_sum.to_host().to_doubles();
        double worst = 0;
        for (int64_t r = 0; r < kBatches * kHeads * q_rows; ++r) {
          const int64_t b = r / q_rows / kHeads, head = r / q_rows % kHeads, length = lengths[b],
                        at = length - q_rows + r % q_rows;
          std::vector<double> mean(kDv);
          double total = what & 8 ? std::exp(sink[head]) : 0;
          for (int64_t j = 0; j < length; ++j) {
            if ((options.causal && j > at) || ((what & 1) && j < at - 70) || ((what & 1) && j > at)) continue;
            const double* row = cache.rows.data() + (b * kRoom + j) * kD;
            double score = 0;
            for (int64_t e = 0; e < kD; ++e) score += query[r * kD + e] * row[e];
            score /= std::sqrt(static_cast<double>(kD));
            if (what & 2) score = 2 * std::tanh(score / 2);
            if (what & 4) score += slope[head] * static_cast<double>(j - at);
            const double weight = std::exp(score);
            total += weight;
            for (int64_t e = 0; e < kDv; ++e) mean[e] += weight * row[e];
          }
          for (int64_t e = 0; e < kDv; ++e)
            worst = std::max(worst, std::abs(got[r * kDv + e] - (total > 0 ? mean[e] / total : 0)));
          if (total > 0) {
            EXPECT_NEAR(got_log[r], std::log(total), 2e-3);
          }
        }
        EXPECT_LT(worst, is_float8 ? 1e-2 : 5e-3);
      }
  }
}

TEST(LatentDecode, WithStepsOfOnesOwn) {
  const Device device = Device::virtual_gpu({.target = "sm_90a", .checks = vgpu::CheckSet::all()});
  const DeviceTensor q = DeviceTensor::random(device, float16, {2, 3, 4, 192}, 1),
                     own = DeviceTensor::empty(device, float16, {2, 3, 4, 128}),
                     library = DeviceTensor::empty(device, float16, own.shape());
  for (const bool is_float8 : {false, true}) {
    const Cache cache(device, is_float8, {90, 90}, 90, 192, 128, 5);
    CustomLatentDecodeAttention<kernels::CausalMask, kernels::SoftCap> decode(device);
    decode(q, cache.tensor, own, {.parts = 2}, 3.f).expect_clean();
    attention_latent_decode(q, cache.tensor, library, {.causal = true, .soft_cap = 3, .parts = 2})
        .expect_clean();
    EXPECT_EQ(own.to_host().to_doubles(), library.to_host().to_doubles());
  }
}

TEST(LatentDecode, RefusesWhatDoesNotFit) {
  const Device device = Device::virtual_gpu({.target = "sm_90a"});
  const auto tensor = [&](std::vector<int64_t> shape, DataType type = float16) {
    return DeviceTensor::empty(device, type, std::move(shape));
  };
  const DeviceTensor q = tensor({1, 2, 1, 576}), o = tensor({1, 2, 1, 512});
  const auto refused = [&](const DeviceTensor& cache, const AttentionDecodeOptions& options = {}) {
    try {
      attention_latent_decode(q, cache, o, options);
    } catch (const LaunchError& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  EXPECT_THAT(refused(tensor({1, 1, 8, 512})), HasSubstr("rows of the cache have 512 elements, not 576"));
  const std::string bytes = refused(tensor({1, 1, 8, 576}, float8_e4m3));
  EXPECT_THAT(bytes, HasSubstr("rows of the cache have 576 bytes, not 656"));
  EXPECT_THAT(bytes, HasSubstr("512 float8_e4m3, 16 bytes of float32 factors and 64 float16"));
  EXPECT_THAT(refused(tensor({1, 1, 8, 576}, bfloat16)), HasSubstr("cache is bfloat16"));
  EXPECT_THAT(refused(tensor({2, 1, 8, 576})), HasSubstr("the cache is of 2 sequences, q of 1"));
  AttentionDecodeOptions scaled;
  scaled.k_scales = scaled.v_scales = tensor({1}, float32);
  EXPECT_THAT(refused(tensor({1, 1, 8, 656}, float8_e4m3), scaled), HasSubstr("factors of their own"));
  EXPECT_THAT(refused(tensor({1, 1, 8, 576}), {.window_left = -2}), HasSubstr("a window of -2 columns"));
  EXPECT_THAT(refused(tensor({1, 1, 8, 576}), {.sinks = tensor({3}, float32)}),
              HasSubstr("sinks is float32 [3]"));
}

}  // namespace
}  // namespace imbrex
