// SPDX-License-Identifier: Apache-2.0
// Gradients of attention of packed sequences, each against float64 on its own, with every checker on.
#include <gmock/gmock.h>

#include <cmath>

#include "attention_exact.h"
#include "imbrex/core/error.h"
#include "imbrex/runtime/registry.h"

namespace imbrex::testing {
namespace {

using Lengths = std::vector<int64_t>;

struct PackedSizes {
  int64_t heads, heads_kv, d, d_v;
  Lengths q, kv;
};

Lengths begins_of(const Lengths& lengths) {
  Lengths begins{0};
  for (const int64_t length : lengths) begins.push_back(begins.back() + length);
  return begins;
}
DeviceTensor on_device(const Device& device, const Lengths& numbers) {
  HostTensor host(int32, {static_cast<int64_t>(numbers.size())});
  for (size_t i = 0; i < numbers.size(); ++i)
    host.set(static_cast<int64_t>(i), static_cast<double>(numbers[i]));
  return DeviceTensor::from_host(device, host);
}

/// Rows first ... first + count - 1 of every head.
Values rows_of(const Values& all, int64_t heads, int64_t first, int64_t count, int64_t d) {
  const int64_t rows = static_cast<int64_t>(all.size()) / heads / d;
  Values part;
  for (int64_t h = 0; h < heads; ++h)
    part.insert(part.end(), all.begin() + (h * rows + first) * d,
                all.begin() + (h * rows + first + count) * d);
  return part;
}

/// Rows behind the last sequence hold NaN, and so do all of sequence `poisoned`, if there is one.
void expect_packed_gradients(const PackedSizes& s, AttentionOptions options = {}, int poisoned = -1,
                             DataType dtype = bfloat16, uint64_t seed = 2) {
  const Device device =
      Device::virtual_gpu({.target = "sm_90a", .seed = seed, .checks = vgpu::CheckSet::all()});
  const Lengths q_begins = begins_of(s.q), kv_begins = begins_of(s.kv);
  const int64_t rows = q_begins.back() + 5, columns = kv_begins.back() + 9;  // more than sequences take
  uint64_t stream = 10 * seed;
  const auto random = [&](int64_t heads, int64_t n, int64_t d, const Lengths& begins) {
    HostTensor host = HostTensor::random(dtype, {heads, n, d}, ++stream);
    const auto poison = [&](int64_t first, int64_t end) {
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t e = first * d; e < end * d; ++e)
          host.set(h * n * d + e, std::numeric_limits<double>::quiet_NaN());
    };
    poison(begins.back(), n);
    if (poisoned >= 0) poison(begins[poisoned], begins[poisoned + 1]);
    return DeviceTensor::from_host(device, host);
  };
  const auto empty = [&](const DeviceTensor& like) {
    DeviceTensor t = DeviceTensor::empty(device, like.dtype(), like.shape());
    t.poison();
    return t;
  };
  const DeviceTensor q = random(s.heads, rows, s.d, q_begins),
                     k = random(s.heads_kv, columns, s.d, kv_begins),
                     v = random(s.heads_kv, columns, s.d_v, kv_begins),
                     d_o = random(s.heads, rows, s.d_v, q_begins);
  const DeviceTensor o = empty(d_o), dq = empty(q), dk = empty(k), dv = empty(v);
  options.log_sum_exp = DeviceTensor::empty(device, float32, {s.heads, rows});
  options.q_begins = on_device(device, q_begins), options.kv_begins = on_device(device, kv_begins);
  attention(q, k, v, o, options).expect_clean();
  attention_backward(q, k, v, o, d_o, dq, dk, dv, options).expect_clean();

  AttentionOptions of_one = options;
  of_one.q_begins = of_one.kv_begins = {};
  for (size_t i = 0; i < s.q.size(); ++i) {
    if (static_cast<int>(i) == poisoned) continue;
    SCOPED_TRACE("sequence " + std::to_string(i));
    const auto of_q = [&](const DeviceTensor& t, int64_t d) {
      return rows_of(t.to_host().to_doubles(), s.heads, q_begins[i], s.q[i], d);
    };
    const auto of_kv = [&](const DeviceTensor& t, int64_t d) {
      return rows_of(t.to_host().to_doubles(), s.heads_kv, kv_begins[i], s.kv[i], d);
    };
    const Exact exact({1, s.heads, s.heads_kv, s.q[i], s.kv[i], s.d, s.d_v}, of_one, of_q(q, s.d),
                      of_kv(k, s.d), of_kv(v, s.d_v), of_q(d_o, s.d_v));
    expect_within("dq", of_q(dq, s.d), dtype, exact.dq, exact.dq_squares);
    expect_within("dk", of_kv(dk, s.d), dtype, exact.dk, exact.dk_squares);
    expect_within("dv", of_kv(dv, s.d_v), dtype, exact.dv, exact.dv_squares);
  }
  const auto expect_untouched = [&](const char* name, const DeviceTensor& t, const Lengths& begins) {
    const Values before = empty(t).to_host().to_doubles(), after = t.to_host().to_doubles();
    const int64_t n = t.shape()[1], d = t.shape()[2];
    for (int64_t h = 0; h < t.shape()[0]; ++h)
      for (int64_t e = (h * n + begins.back()) * d; e < (h + 1) * n * d; ++e)
        ASSERT_TRUE(std::isnan(after[e]) == std::isnan(before[e]) &&
                    (std::isnan(after[e]) || after[e] == before[e]))
            << name << " behind the last sequence";
  };
  expect_untouched("dq", dq, q_begins), expect_untouched("dk", dk, kv_begins);
  expect_untouched("dv", dv, kv_begins);
}

TEST(PackedBackward, LengthsFromNothing) {
  expect_packed_gradients({2, 2, 32, 32, {1, 0, 7, 129, 0, 64}, {1, 5, 7, 129, 0, 64}});
}
TEST(PackedBackward, CausalInEachSequence) {
  expect_packed_gradients({4, 2, 32, 64, {130, 3, 61, 1, 128}, {130, 3, 61, 1, 128}}, {.causal = true}, -1,
                          float16);
}
TEST(PackedBackward, RowsThatSeeNothing) {  // no columns, and more rows than columns
  expect_packed_gradients({1, 1, 32, 32, {70, 90, 5}, {0, 20, 33}}, {.causal = true});
}
TEST(PackedBackward, SlidingWindow) {
  expect_packed_gradients({1, 1, 64, 64, {200, 77}, {200, 77}}, {.causal = true, .window_left = 30});
}
TEST(PackedBackward, SequencesDoNotReadEachOther) {
  expect_packed_gradients({2, 1, 64, 64, {40, 70, 33}, {50, 60, 33}}, {}, 1);
}
TEST(PackedBackward, LargeHeads) {
  expect_packed_gradients({1, 1, 192, 128, {65, 100}, {80, 100}}, {.causal = true});
  expect_packed_gradients({2, 1, 208, 208, {1, 0, 7, 129, 0, 64}, {1, 5, 7, 129, 0, 64}});
}
TEST(PackedBackward, LargestHeads) {
  expect_packed_gradients({2, 1, 256, 256, {301, 7, 1}, {129, 7, 301}}, {.causal = true}, -1, float16);
  expect_packed_gradients({1, 1, 128, 256, {33, 0, 70}, {40, 9, 0}}, {.window_left = 20, .soft_cap = 5});
}
TEST(PackedBackward, LargeHeadsDoNotReadEachOther) {
  for (uint64_t seed = 0; seed < 3; ++seed)
    expect_packed_gradients({2, 1, 144, 144, {40, 70, 33}, {50, 60, 33}}, {}, 1, bfloat16, seed);
}
TEST(PackedBackward, MoreSequencesThanThreads) {
  Lengths lengths;
  for (int64_t s = 0; s < 150; ++s) lengths.push_back(s % 3);
  expect_packed_gradients({1, 1, 16, 16, lengths, lengths}, {.causal = true});
}
TEST(PackedBackward, UnderSeveralSchedules) {
  for (uint64_t seed = 0; seed < 4; ++seed)
    expect_packed_gradients({2, 1, 32, 32, {9, 0, 140, 64}, {20, 3, 140, 65}}, {.causal = true}, -1, bfloat16,
                            seed);
}

TEST(PackedBackward, RefusesWhatDoesNotFit) {
  const Device device = Device::virtual_gpu({.target = "sm_90a"});
  const DeviceTensor t = DeviceTensor::empty(device, float16, {2, 90, 32});
  AttentionOptions options;
  options.log_sum_exp = DeviceTensor::empty(device, float32, {2, 90});
  options.q_begins = on_device(device, {0, 31, 90});
  try {
    attention_backward(t, t, t, t, t, t, t, t, options);
    FAIL() << "not refused";
  } catch (const LaunchError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("only one of q_begins and kv_begins"));
  }
}

using NamedSizes = std::map<std::string, int64_t>;

TEST(BackwardForms, WithOptions) {
  for (const std::string name :
       {"attention_backward_kv", "attention_backward_kv_large", "attention_backward_q"})
    for (NamedSizes sizes : {NamedSizes{{"window", 30}, {"cap", 3}},
                             {{"alibi", 1}, {"causal", 1}, {"dv", 32}},
                             {{"window", 20}, {"alibi", 1}, {"sequences", 3}}}) {
      sizes.insert({{"q", 140}, {"kv", 150}, {"d", 64}, {"heads", 2}});
      const RegisteredKernel& kernel = registered_kernel(name);
      for (const SizeOption& size : kernel.description.sizes) sizes.emplace(size.name, size.otherwise);
      const Device device = Device::virtual_gpu({.target = "sm_90a", .checks = vgpu::CheckSet::all()});
      Case c(Case::Mode::kRun, device, sizes, 1);
      kernel.run(c, device, kernel.space.configuration(0));
      EXPECT_TRUE(c.verified()) << name << " " << c.comparisons.front().format();
      EXPECT_TRUE(c.report.clean()) << c.report.virtual_report.format();
    }
}

}  // namespace
}  // namespace imbrex::testing
