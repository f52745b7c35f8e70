// SPDX-License-Identifier: Apache-2.0
// Attention of packed sequences of several lengths, and of float8, against float64, with every checker on.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "../ptxas.h"
#include "attention/score_arguments.h"
#include "attention_device.h"
#include "codegen/codegen.h"
#include "imbrex/core/error.h"
#include "imbrex/kernels/attention.h"
#include "imbrex/kernels/attention/custom_attention.h"
#include "imbrex/runtime/compare.h"
#include "imbrex/runtime/registry.h"
#include "ir/ir.h"
#include "passes/pipeline.h"

namespace imbrex::testing {
namespace {

using ::testing::HasSubstr;
using Lengths = std::vector<int64_t>;
using Values = std::vector<double>;

std::vector<int64_t> begins_of(const Lengths& lengths) {
  std::vector<int64_t> begins{0};
  for (int64_t length : lengths) begins.push_back(begins.back() + length);
  return begins;
}
DeviceTensor on_device(const Device& device, const std::vector<int64_t>& numbers) {
  HostTensor host(int32, {static_cast<int64_t>(numbers.size())});
  for (size_t i = 0; i < numbers.size(); ++i)
    host.set(static_cast<int64_t>(i), static_cast<double>(numbers[i]));
  return DeviceTensor::from_host(device, host);
}

struct Problem {
  int64_t heads, heads_kv, d;
  Lengths q, kv;
  bool causal = false;
  int64_t window_left = -1;
  bool scales_rows = false;  // of float8: a scale for each 128 rows of a sequence
};

/// Scales of packed sequences' blocks of 128 rows; those that no block has are no numbers.
Values block_scales(int64_t heads, int64_t rows, const std::vector<int64_t>& begins, double first) {
  const int64_t sequences = static_cast<int64_t>(begins.size()) - 1, blocks = rows / 128 + sequences;
  Values scales(static_cast<size_t>(heads * blocks), std::numeric_limits<double>::quiet_NaN());
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t s = 0; s < sequences; ++s)
      for (int64_t b = 0; b * 128 < begins[s + 1] - begins[s]; ++b)
        scales[h * blocks + begins[s] / 128 + s + b] =
            first + 0.25 * static_cast<double>((h + 2 * s + b) % 5);
  return scales;
}
/// What elements [heads, rows, d] of packed sequences stand for.
Values scaled_by_blocks(Values elements, const Values& scales, int64_t rows, int64_t d,
                        const std::vector<int64_t>& begins) {
  const int64_t sequences = static_cast<int64_t>(begins.size()) - 1, blocks = rows / 128 + sequences;
  for (size_t i = 0; i < elements.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / d, h = row / rows, at = row % rows;
    if (at >= begins.back()) continue;
    const int64_t s = std::upper_bound(begins.begin(), begins.end(), at) - begins.begin() - 1;
    elements[i] *= scales[h * blocks + begins[s] / 128 + s + (at - begins[s]) / 128];
  }
  return elements;
}

/// One row of attention in float64: the result, and the logarithm of the sum of weights.
struct ExactRow {
  Values o;
  double log_sum = -std::numeric_limits<double>::infinity();
  Values magnitudes;  // the sums of |weight * value|

  template <class See>
  ExactRow(const double* q, const double* k, const double* v, int64_t columns, int64_t d, double scale,
           const See& sees, double soft_cap = 0)
      : o(static_cast<size_t>(d)), magnitudes(static_cast<size_t>(d)) {
    Values weights(static_cast<size_t>(columns));
    double total = 0;
    for (int64_t j = 0; j < columns; ++j) {
      double score = 0;
      for (int64_t e = 0; e < d; ++e) score += q[e] * k[j * d + e];
      score *= scale;
      if (soft_cap > 0) score = soft_cap * std::tanh(score / soft_cap);
      total += weights[j] = sees(j) ? std::exp(score) : 0;
    }
    if (total == 0) return;
    log_sum = std::log(total);
    for (int64_t j = 0; j < columns; ++j)
      for (int64_t e = 0; e < d; ++e) {
        o[e] += weights[j] / total * v[j * d + e];
        magnitudes[e] += weights[j] / total * std::abs(v[j * d + e]);
      }
  }
};

/// Rows behind the last sequence hold NaN, and so do those of `poisoned`, an index of a sequence. Of float8, each weight is off
/// by at most 2^-4 of itself.
void expect_packed(const Problem& p, int poisoned = -1, uint64_t seed = 2, DataType dtype = bfloat16) {
  const bool is_float8 = dtype == float8_e4m3;
  const Device device = virtual_gpu(seed);
  const std::vector<int64_t> q_begins = begins_of(p.q), kv_begins = begins_of(p.kv);
  const int64_t rows = q_begins.back() + 5, columns = kv_begins.back() + 9;  // more than sequences take
  const auto random = [&](int64_t heads, int64_t n, const std::vector<int64_t>& begins, uint64_t stream) {
    HostTensor host = HostTensor::random(dtype, {heads, n, p.d}, 10 * seed + stream);
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < n; ++i)
        if (i >= begins.back() || (poisoned >= 0 && i >= begins[poisoned] && i < begins[poisoned + 1]))
          for (int64_t e = 0; e < p.d; ++e)
            host.set((h * n + i) * p.d + e, std::numeric_limits<double>::quiet_NaN());
    return DeviceTensor::from_host(device, host);
  };
  const DeviceTensor q = random(p.heads, rows, q_begins, 1), k = random(p.heads_kv, columns, kv_begins, 2),
                     v = random(p.heads_kv, columns, kv_begins, 3);
  DeviceTensor o = DeviceTensor::empty(device, bfloat16, {p.heads, rows, p.d}),
               log_sum = DeviceTensor::empty(device, float32, {p.heads, rows});
  o.poison(), log_sum.poison();
  const Values before = o.to_host().to_doubles();
  AttentionOptions options{.causal = p.causal, .window_left = p.window_left, .log_sum_exp = log_sum};
  options.q_begins = on_device(device, q_begins), options.kv_begins = on_device(device, kv_begins);
  Values x = q.to_host().to_doubles(), y = k.to_host().to_doubles(), z = v.to_host().to_doubles();
  if (p.scales_rows) {
    const auto scaled = [&](Values& elements, DeviceTensor& scales, int64_t heads, int64_t n,
                            const std::vector<int64_t>& begins, double first) {
      const Values of_blocks = block_scales(heads, n, begins, first);
      HostTensor host(float32, {heads, static_cast<int64_t>(of_blocks.size()) / heads});
      for (size_t i = 0; i < of_blocks.size(); ++i) host.set(static_cast<int64_t>(i), of_blocks[i]);
      scales = DeviceTensor::from_host(device, host);
      elements = scaled_by_blocks(std::move(elements), of_blocks, n, p.d, begins);
    };
    scaled(x, options.q_scales, p.heads, rows, q_begins, 0.5);
    scaled(y, options.k_scales, p.heads_kv, columns, kv_begins, 0.75);
    scaled(z, options.v_scales, p.heads_kv, columns, kv_begins, 3);
  }
  const LaunchReport report = attention(q, k, v, o, options);
  EXPECT_TRUE(report.clean()) << report.virtual_report.format();

  const Values got = o.to_host().to_doubles(), got_log = log_sum.to_host().to_doubles();
  for (int64_t h = 0; h < p.heads; ++h)
    for (size_t s = 0; s < p.q.size(); ++s) {
      if (static_cast<int>(s) == poisoned) continue;
      for (int64_t i = 0; i < p.q[s]; ++i) {
        const int64_t row = h * rows + q_begins[s] + i, at = i + p.kv[s] - p.q[s];
        const int64_t kv = (h / (p.heads / p.heads_kv) * columns + kv_begins[s]) * p.d;
        const ExactRow exact(x.data() + row * p.d, y.data() + kv, z.data() + kv, p.kv[s], p.d,
                             1 / std::sqrt(static_cast<double>(p.d)), [&](int64_t j) {
                               return (!p.causal || j <= at) &&
                                      (p.window_left < 0 || j >= at - p.window_left);
                             });
        for (int64_t e = 0; e < p.d; ++e)  // weights and results are rounded to bfloat16
          ASSERT_NEAR(got[row * p.d + e], exact.o[e],
                      exact.magnitudes[e] / (is_float8 ? 16 : 256) + std::abs(exact.o[e]) / 256 + 1e-6)
              << "sequence " << s << ", head " << h << ", row " << i;
        if (std::isinf(exact.log_sum))
          ASSERT_EQ(got_log[row], exact.log_sum);
        else
          ASSERT_NEAR(got_log[row], exact.log_sum, p.scales_rows ? 2e-3 : is_float8 ? 1e-3 : 1e-4);
      }
    }
  for (int64_t h = 0; h < p.heads; ++h)  // rows of no sequence are left alone
    for (int64_t i = (h * rows + q_begins.back()) * p.d; i < (h + 1) * rows * p.d; ++i)
      ASSERT_TRUE(std::isnan(got[i]) == std::isnan(before[i]) && (std::isnan(got[i]) || got[i] == before[i]));
}

TEST(PackedAttention, LengthsFromNothing) {
  expect_packed({2, 2, 64, {1, 0, 7, 129, 0, 64}, {1, 5, 7, 129, 0, 64}});
}
TEST(PackedAttention, CausalInEachSequence) {
  expect_packed({2, 1, 32, {130, 3, 61, 1, 128}, {130, 3, 61, 1, 128}, true});
}
TEST(PackedAttention, RowsThatSeeNothing) {  // no columns, and more rows than columns
  expect_packed({1, 1, 32, {70, 90, 5}, {0, 20, 33}, true});
}
TEST(PackedAttention, QueriesAtTheEndOfLongSequences) {
  expect_packed({4, 2, 64, {1, 5, 2}, {300, 129, 700}, true});
}
TEST(PackedAttention, SlidingWindow) { expect_packed({1, 1, 64, {200, 77}, {200, 77}, true, 30}); }
TEST(PackedAttention, SequencesDoNotReadEachOther) {
  expect_packed({2, 2, 64, {40, 70, 33}, {40, 70, 33}}, 1);
}
TEST(PackedAttention, MoreSequencesThanThreads) {
  Lengths lengths;
  for (int64_t s = 0; s < 150; ++s) lengths.push_back(s % 3);
  expect_packed({1, 1, 16, lengths, lengths, true});
}
TEST(PackedAttention, LargeHeads) { expect_packed({1, 1, 256, {65, 100}, {80, 100}, true}); }
TEST(PackedAttention, UnderSeveralSchedules) {
  for (uint64_t seed = 0; seed < 6; ++seed)
    expect_packed({2, 1, 32, {9, 0, 140, 64}, {20, 3, 140, 65}, true}, -1, seed);
}

TEST(PackedAttention, OfFloat8) {
  const auto expect = [](const Problem& p, int poisoned = -1, uint64_t seed = 2) {
    expect_packed(p, poisoned, seed, float8_e4m3);
  };
  expect({2, 2, 64, {1, 0, 7, 129, 0, 64}, {1, 5, 7, 129, 0, 64}});
  expect({2, 1, 32, {130, 3, 61, 1, 128}, {130, 3, 61, 1, 128}, true});
  expect({1, 1, 32, {70, 90, 5}, {0, 20, 33}, true});
  expect({2, 2, 64, {40, 70, 33}, {40, 70, 33}}, 1);
  expect({1, 1, 256, {65, 100}, {80, 100}, true});
  for (uint64_t seed = 0; seed < 6; ++seed)
    expect({2, 1, 32, {9, 0, 140, 64}, {20, 3, 140, 65}, true}, -1, seed);
}

TEST(PackedAttention, OfFloat8WithScalesOfRows) {
  const auto expect = [](Problem p, int poisoned = -1, uint64_t seed = 2) {
    p.scales_rows = true;
    expect_packed(p, poisoned, seed, float8_e4m3);
  };
  expect({2, 2, 64, {1, 0, 7, 129, 0, 64}, {1, 5, 7, 129, 0, 64}});
  expect({2, 1, 32, {130, 3, 261, 1, 128}, {130, 3, 261, 1, 128}, true});
  expect({1, 1, 32, {70, 90, 5}, {0, 20, 333}, true});
  expect({2, 2, 64, {40, 70, 333}, {400, 70, 33}}, 1);
  expect({1, 1, 256, {65, 100}, {80, 300}, true});
  expect({4, 2, 64, {1, 5, 2}, {300, 129, 700}, true, 100});
  expect({1, 1, 32, {7, 1}, {1, 3000}});
  for (uint64_t seed = 0; seed < 4; ++seed)
    expect({2, 1, 32, {9, 0, 140, 64}, {20, 3, 140, 65}, true}, -1, seed);
}

TEST(PackedAttention, WithStepsOfOnesOwn) {
  const Device device = virtual_gpu();
  const DeviceTensor q = DeviceTensor::random(device, float16, {2, 90, 32}, 1),
                     k = DeviceTensor::random(device, float16, {2, 90, 32}, 2),
                     own = DeviceTensor::empty(device, float16, {2, 90, 32}),
                     library = DeviceTensor::empty(device, float16, {2, 90, 32}),
                     begins = on_device(device, {0, 31, 31, 90});
  CustomAttention<kernels::CausalMask> attend(device);
  attend(q, k, k, own, {.long_first = true, .q_begins = begins, .kv_begins = begins}).expect_clean();
  AttentionOptions options{.causal = true};
  options.q_begins = options.kv_begins = begins;
  attention(q, k, k, library, options).expect_clean();
  EXPECT_EQ(own.to_host().to_doubles(), library.to_host().to_doubles());
}

TEST(PackedAttention, RefusesWhatDoesNotFit) {
  const Device device = virtual_gpu();
  const DeviceTensor q = DeviceTensor::empty(device, float16, {2, 90, 32}),
                     batches = DeviceTensor::empty(device, float16, {2, 2, 90, 32}),
                     begins = on_device(device, {0, 31, 90}), other = on_device(device, {0, 90});
  const auto refused = [](const DeviceTensor& t, const DeviceTensor& q_begins,
                          const DeviceTensor& kv_begins) {
    AttentionOptions options;
    options.q_begins = q_begins, options.kv_begins = kv_begins;
    try {
      attention(t, t, t, t, options);
    } catch (const LaunchError& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  EXPECT_THAT(refused(q, begins, {}), HasSubstr("only one of q_begins and kv_begins"));
  EXPECT_THAT(refused(q, begins, other), HasSubstr("kv_begins is int32 [2]"));
  EXPECT_THAT(refused(batches, begins, begins), HasSubstr("packed sequences in 2 batches"));
  EXPECT_THAT(refused(q, on_device(device, {0}), begins), HasSubstr("q_begins is [1]"));
}

/// Attention of float8 by the public function: each weight is off by at most 2^-4 of itself. `by_rows`: a scale for each 128 rows.
void expect_float8(int64_t heads, int64_t heads_kv, int64_t rows, int64_t columns, int64_t d, bool causal,
                   DataType o_type = bfloat16, uint64_t seed = 2, bool by_rows = false, float soft_cap = 0) {
  const Device device = virtual_gpu(seed);
  const DeviceTensor q = DeviceTensor::random(device, float8_e4m3, {heads, rows, d}, 10 * seed + 1),
                     k = DeviceTensor::random(device, float8_e4m3, {heads_kv, columns, d}, 10 * seed + 2),
                     v = DeviceTensor::random(device, float8_e4m3, {heads_kv, columns, d}, 10 * seed + 3);
  const auto scales = [&](int64_t n, int64_t rows_of_each, double first) {
    HostTensor host(float32,
                    by_rows ? std::vector<int64_t>{n, (rows_of_each + 127) / 128} : std::vector<int64_t>{n});
    for (int64_t i = 0; i < host.elements(); ++i) host.set(i, first + 0.25 * static_cast<double>(i % 4));
    return DeviceTensor::from_host(device, host);
  };
  // What elements stand for.
  const auto meant = [&](const DeviceTensor& t, const DeviceTensor& by) {
    Values all = t.to_host().to_doubles();
    const Values factors = by.to_host().to_doubles();
    const int64_t n = t.shape()[1], blocks = (n + 127) / 128;
    for (size_t i = 0; i < all.size(); ++i) {
      const int64_t row = static_cast<int64_t>(i) / d, head = row / n;
      all[i] *= factors[static_cast<size_t>(by_rows ? head * blocks + row % n / 128 : head)];
    }
    return all;
  };
  DeviceTensor o = DeviceTensor::empty(device, o_type, {heads, rows, d}),
               log_sum = DeviceTensor::empty(device, float32, {heads, rows});
  o.poison(), log_sum.poison();
  AttentionOptions options{.causal = causal, .soft_cap = soft_cap, .log_sum_exp = log_sum};
  options.q_scales = scales(heads, rows, 0.5), options.k_scales = scales(heads_kv, columns, 0.75);
  options.v_scales = scales(heads_kv, columns, 3);
  prepare_attention(q, k, v, o, options);
  const LaunchReport report = attention(q, k, v, o, options);
  EXPECT_TRUE(report.clean()) << report.virtual_report.format();
  const Values x = meant(q, options.q_scales), y = meant(k, options.k_scales), z = meant(v, options.v_scales),
               got = o.to_host().to_doubles(), got_log = log_sum.to_host().to_doubles();
  for (int64_t row = 0; row < heads * rows; ++row) {
    const int64_t h = row / rows, i = row % rows, kv = h / (heads / heads_kv) * columns * d;
    const ExactRow exact(
        x.data() + row * d, y.data() + kv, z.data() + kv, columns, d, 1 / std::sqrt(static_cast<double>(d)),
        [&](int64_t j) { return !causal || j <= i + columns - rows; }, soft_cap);
    for (int64_t e = 0; e < d; ++e)
      ASSERT_NEAR(got[row * d + e], exact.o[e], exact.magnitudes[e] / 16 + std::abs(exact.o[e]) / 256 + 1e-6)
          << "row " << row << " column " << e;
    if (std::isinf(exact.log_sum))
      ASSERT_EQ(got_log[row], exact.log_sum);
    else
      ASSERT_NEAR(got_log[row], exact.log_sum, soft_cap > 0 ? 1e-2 : 2e-3);
  }
}

TEST(Float8Attention, Full) { expect_float8(2, 1, 70, 150, 64, false); }
TEST(Float8Attention, Causal) { expect_float8(2, 2, 200, 200, 128, true, float16); }
TEST(Float8Attention, RowsThatSeeNothing) { expect_float8(1, 1, 90, 33, 32, true); }
TEST(Float8Attention, OfOneElement) { expect_float8(1, 1, 1, 1, 32, false); }
TEST(Float8Attention, LargeHeads) { expect_float8(1, 1, 129, 140, 256, true); }
TEST(Float8Attention, UnderSeveralSchedules) {
  for (uint64_t seed = 0; seed < 6; ++seed) expect_float8(2, 1, 130, 129, 64, true, bfloat16, seed);
}
TEST(Float8Attention, WithScalesOfRows) {
  expect_float8(2, 1, 300, 400, 64, false, bfloat16, 2, true);
  expect_float8(2, 2, 200, 270, 128, true, float16, 3, true);
  expect_float8(1, 1, 90, 33, 32, true, bfloat16, 4, true);  // rows that see nothing
  expect_float8(1, 1, 129, 140, 256, true, bfloat16, 5, true);
  expect_float8(2, 1, 140, 260, 64, false, bfloat16, 6, true, 4);
}
TEST(Float8Attention, RefusesWhatDoesNotFit) {
  const Device device = virtual_gpu();
  const auto tensor = [&](int64_t d, DataType type = float8_e4m3) {
    return DeviceTensor::empty(device, type, {2, 64, d});
  };
  const auto refused = [](const DeviceTensor& t, const DeviceTensor& o, const AttentionOptions& options) {
    try {
      attention(t, t, t, o, options);
    } catch (const LaunchError& error) {
      return std::string(error.what());
    }
    return std::string("not refused");
  };
  AttentionOptions one;
  one.q_scales = DeviceTensor::empty(device, float32, {2});
  AttentionOptions all = one;
  all.k_scales = all.v_scales = one.q_scales;
  EXPECT_THAT(refused(tensor(64), tensor(64), {}), HasSubstr("o is float8_e4m3; where q is float8 it is"));
  EXPECT_THAT(refused(tensor(48), tensor(48, float16), {}), HasSubstr("head size 48 of float8"));
  EXPECT_THAT(refused(tensor(64), tensor(64, float16), one), HasSubstr("some of q_scales"));
  EXPECT_THAT(refused(tensor(64, float16), tensor(64, float16), all),
              HasSubstr("scales of tensors that are not"));
  AttentionOptions of_rows;
  of_rows.q_scales = of_rows.k_scales = DeviceTensor::empty(device, float32, {2, 1});
  of_rows.v_scales = DeviceTensor::empty(device, float32, {2, 2});
  EXPECT_THAT(refused(tensor(64), tensor(64, float16), of_rows), HasSubstr("v_scales is float32 [2, 2]"));
  of_rows.v_scales = of_rows.q_scales;
  of_rows.q_begins = of_rows.kv_begins = on_device(device, {0, 30, 64});  // two blocks, one of each sequence
  EXPECT_THAT(refused(tensor(64), tensor(64, float16), of_rows), HasSubstr("q_scales is float32 [2, 1]"));
}

TEST(AttentionForms, PackedFloat8AssemblesWithoutSpills) {
  IMBREX_NEEDS_PTXAS();
  const auto t = [](DataType type) { return DeviceTensor::shape_only(type, {2, 512, 128}); };
  const DeviceTensor q = t(float8_e4m3), o = t(bfloat16), f = t(float32), n = t(int32);
  for (const bool causal : {false, true})
    for (const auto scale_of : {kernels::Float8ScaleOf::kHead, kernels::Float8ScaleOf::kRows}) {
      Kernel<kernels::WithScoreOptions<kernels::ForwardAttention>> kernel({.block_kv = 128}, std::nullopt);
      const auto function =
          kernel.trace(1, 2, 300, 300, 128, 128, 1, 0.1f, float8_e4m3, bfloat16, q, 0, 8, 8, q, 0, 8, 8, q, 0,
                       8, 8, o, 0, 16, 16, true, f, causal, 2, true, 3, n, n, scale_of, 2, f, f, f, causal,
                       false, 0, 0, false, 0, false, 0.f, false, f, 2, false, f, 2);
      passes::run_pipeline(*function, {});
      EXPECT_EQ(ptxas_says(codegen::generate(*function, {}).ptx, "--warn-on-spills -arch=sm_90a"), "");
    }
}

TEST(AttentionForms, PackedAndFloat8AssembleWithoutSpills) {
  IMBREX_NEEDS_PTXAS();
  for (const auto& [name, sizes] : std::vector<std::pair<std::string, std::map<std::string, int64_t>>>{
           {"attention_packed", {{"d", 128}, {"causal", 1}}},
           {"attention_float8", {{"causal", 1}}},
           {"attention_float8", {}}}) {
    const RegisteredKernel& kernel = registered_kernel(name);
    std::map<std::string, int64_t> all = sizes;
    for (const SizeOption& size : kernel.description.sizes) all.emplace(size.name, size.otherwise);
    Case c(Case::Mode::kTrace, std::nullopt, all, 0);
    kernel.run(c, std::nullopt, kernel.space.configuration(0));
    passes::run_pipeline(*c.function, {});
    EXPECT_EQ(ptxas_says(codegen::generate(*c.function, {}).ptx, "--warn-on-spills -arch=sm_90a"), "")
        << name;
  }
}

}  // namespace
}  // namespace imbrex::testing
