// SPDX-License-Identifier: Apache-2.0
// imbrex::attention with its options, its gradients and imbrex::attention_decode, against float64.
#include <gmock/gmock.h>

#include <array>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "../full.h"
#include "attention_device.h"
#include "attention_exact.h"
#include "imbrex/core/error.h"
#include "imbrex/kernels/attention.h"
#include "imbrex/runtime/compare.h"

namespace imbrex::testing {
namespace {

void expect_near(const char* name, const DeviceTensor& got, const Values& expected, double tolerance) {
  const Comparison comparison = compare(got.to_host(), expected, tolerance);
  EXPECT_TRUE(comparison.passed) << name << ": " << comparison.format();
}

/// Returns the gradient of Q.
DeviceTensor expect_gradients(const Sizes& s, AttentionOptions options = {}, DataType dtype = bfloat16,
                              uint64_t seed = 2, const std::optional<Device>& given_device = {}) {
  const Device device = given_device.value_or(virtual_gpu(seed));
  uint64_t stream = 10 * seed;
  const auto random = [&](int64_t heads, int64_t rows, int64_t d) {
    return DeviceTensor::random(device, dtype, {s.batch, heads, rows, d}, ++stream);
  };
  const auto empty = [&](const DeviceTensor& like) {
    DeviceTensor t = DeviceTensor::empty(device, like.dtype(), like.shape());
    t.poison();
    return t;
  };
  const DeviceTensor q = random(s.heads, s.rows, s.d), k = random(s.heads_kv, s.rows_kv, s.d),
                     v = random(s.heads_kv, s.rows_kv, s.d_v), d_o = random(s.heads, s.rows, s.d_v);
  const DeviceTensor o = empty(d_o), dq = empty(q), dk = empty(k), dv = empty(v);
  options.log_sum_exp = DeviceTensor::empty(device, float32, {s.batch, s.heads, s.rows});
  if (!options.alibi_slopes.is_null())
    options.alibi_slopes = DeviceTensor::random(device, float32, {s.heads}, 77);
  if (!options.sinks.is_null()) options.sinks = DeviceTensor::random(device, float32, {s.heads}, 78);
  attention(q, k, v, o, options).expect_clean();
  attention_backward(q, k, v, o, d_o, dq, dk, dv, options).expect_clean();
  const auto values = [](const DeviceTensor& t) { return t.to_host().to_doubles(); };
  const Exact exact(s, options, values(q), values(k), values(v), values(d_o));
  const double tolerance =
      3 * default_tolerance(dtype);  // weights and their gradients are rounded to dtype as well
  expect_near("o", o, exact.o, tolerance);
  expect_near("log_sum_exp", options.log_sum_exp, exact.log_sum, 1e-3);
  expect_within("dq", values(dq), dtype, exact.dq, exact.dq_squares);
  expect_within("dk", values(dk), dtype, exact.dk, exact.dk_squares);
  expect_within("dv", values(dv), dtype, exact.dv, exact.dv_squares);
  return dq;
}

/// On two multiprocessors, whose CTAs have several tiles each: rows of Q of the next come early, and where tiles become shorter the
/// CTAs take them both ways round.
TEST(AttentionForward, OfFewMultiprocessors) {
  for (const auto& [heads, rows, d] :
       {std::array<int64_t, 3>{3, 500, 96}, {5, 129, 128}, {3, 700, 64}, {7, 130, 16}}) {
    const Device device =
        Device::virtual_gpu({.target = "sm_90a", .num_sms = 2, .seed = 3, .checks = vgpu::CheckSet::all()});
    const Sizes s{.heads = heads, .heads_kv = heads, .rows = rows, .rows_kv = rows, .d = d, .d_v = d};
    const auto random = [&](uint64_t seed) {
      return DeviceTensor::random(device, bfloat16, {1, heads, rows, d}, seed);
    };
    const DeviceTensor q = random(1), k = random(2), v = random(3);
    for (const bool causal : {false, true}) {
      SCOPED_TRACE(rows);
      DeviceTensor o = DeviceTensor::empty(device, bfloat16, q.shape());
      o.poison();
      attention(q, k, v, o, {.causal = causal}).expect_clean();
      const auto values = [](const DeviceTensor& t) { return t.to_host().to_doubles(); };
      const Exact exact(s, {.causal = causal}, values(q), values(k), values(v), values(q));
      expect_near("o", o, exact.o, 3 * default_tolerance(bfloat16));
    }
  }
}
TEST(AttentionBackward, Full) { expect_gradients({}); }
TEST(AttentionBackward, OfSeveralBlocks) {
  expect_gradients({.rows = 300, .rows_kv = 333, .d = 64, .d_v = 64}, {}, float16);
}
TEST(AttentionBackward, Causal) {
  expect_gradients({.rows = 200, .rows_kv = 200}, {.causal = true});
  expect_gradients({.rows = 7, .rows_kv = 129}, {.causal = true});
  expect_gradients({.rows = 200, .rows_kv = 70}, {.causal = true});  // rows that see nothing
}
TEST(AttentionBackward, OneElement) {
  expect_gradients({.heads = 1, .heads_kv = 1, .rows = 1, .rows_kv = 1});
}
TEST(AttentionBackward, OddLengths) {
  for (const int64_t rows : {1, 7, 129})
    for (const int64_t columns : {1, 7, 129})
      expect_gradients({.heads = 2, .heads_kv = 1, .rows = rows, .rows_kv = columns}, {.causal = rows != 7});
}
TEST(AttentionAtLength, GradientsOfThreeThousandRows) {
  IMBREX_AT_LENGTH();
  expect_gradients({.heads = 1, .heads_kv = 1, .rows = 3000, .rows_kv = 3000, .d = 64, .d_v = 64});
  expect_gradients({.heads = 1, .heads_kv = 1, .rows = 3000, .rows_kv = 3000, .d = 16, .d_v = 16},
                   {.causal = true}, float16);
  expect_gradients({.heads = 1, .heads_kv = 1, .rows = 3000, .rows_kv = 3000, .d = 96, .d_v = 96},
                   {.deterministic = false}, float16);
}
TEST(AttentionBackward, HeadsThatShareKAndV) {
  expect_gradients({.batch = 2, .heads = 6, .heads_kv = 2, .rows = 129}, {.causal = true});
}
TEST(AttentionBackward, HeadSizes) {
  for (const int64_t d : {80, 96, 128}) expect_gradients({.heads = 1, .heads_kv = 1, .d = d, .d_v = d});
  expect_gradients({.heads = 1, .heads_kv = 1, .d = 192, .d_v = 128});
  expect_gradients({.heads = 1, .heads_kv = 1, .d = 256, .d_v = 256});
}
/// Of K and V by two warp groups that have one of the gradients each.
TEST(AttentionBackward, LargeHeads) {
  for (const int64_t rows : {1, 65, 200})
    for (const int64_t columns : {1, 64, 193})
      expect_gradients(
          {.batch = 2, .heads = 2, .heads_kv = 1, .rows = rows, .rows_kv = columns, .d = 144, .d_v = 160},
          {.causal = rows != 65}, columns == 64 ? float16 : bfloat16, static_cast<uint64_t>(rows + columns));
  const DeviceTensor some = DeviceTensor::random(virtual_gpu(), float32, {1}, 1);
  expect_gradients({.heads = 2, .rows = 100, .rows_kv = 150, .d = 192, .d_v = 128},
                   {.causal = true, .window_left = 40, .soft_cap = 3, .alibi_slopes = some});
  expect_gradients({.heads = 1, .heads_kv = 1, .rows = 140, .rows_kv = 140, .d = 32, .d_v = 256},
                   {.prefix = 70});
}
TEST(AttentionBackward, Masks) {
  expect_gradients({.rows = 150, .rows_kv = 200}, {.window_left = 30, .window_right = 5});
  expect_gradients({.rows = 150, .rows_kv = 200}, {.causal = true, .window_left = 30});
  expect_gradients({.rows = 150, .rows_kv = 150}, {.prefix = 70});
}
TEST(AttentionBackward, ScoreModifications) {
  const DeviceTensor some = DeviceTensor::random(virtual_gpu(), float32, {1}, 1);
  expect_gradients({}, {.soft_cap = 1.5f});
  expect_gradients({}, {.soft_cap = 3, .alibi_slopes = some});
  expect_gradients({.heads = 4}, {.causal = true, .sinks = some});
}
/// Sums of dQ in the order in which CTAs come; where the kernel for that does not fit, the deterministic ones.
TEST(AttentionBackward, InAnyOrder) {
  const auto expect = [](Sizes s, AttentionOptions options, uint64_t seed = 2) {
    options.deterministic = false;
    expect_gradients(s, options, seed % 2 == 0 ? bfloat16 : float16, seed);
  };
  for (uint64_t seed = 0; seed < 4; ++seed)
    expect({.heads = 4,
            .heads_kv = 2,
            .rows = 300,
            .rows_kv = 333,
            .d = seed > 1 ? 128 : 96,
            .d_v = seed > 1 ? 128 : 96},
           {.causal = seed > 1}, seed);
  expect({.heads = 2, .rows = 200, .rows_kv = 70, .d = 128, .d_v = 128}, {.causal = true});
  // blocks that the diagonal cuts in odd places
  for (const auto& [rows, columns] : {std::pair<int64_t, int64_t>{301, 333}, {203, 71}, {7, 257}})
    expect({.heads = 4, .heads_kv = 2, .rows = rows, .rows_kv = columns, .d = 96, .d_v = 96},
           {.causal = true}, rows % 4);
  for (const int64_t rows : {1, 7, 129})
    for (const int64_t columns : {1, 7, 129})
      expect({.batch = 2, .heads = 2, .heads_kv = 1, .rows = rows, .rows_kv = columns, .d = 96, .d_v = 96},
             {.causal = rows != 7});
  const DeviceTensor some = DeviceTensor::random(virtual_gpu(), float32, {1}, 1);
  expect({.heads = 4, .d = 128, .d_v = 128}, {.causal = true, .sinks = some});
  expect({.d = 16, .d_v = 16}, {});
  expect({.d = 64, .d_v = 64}, {});
  expect({.d = 96, .d_v = 96}, {.soft_cap = 1.5f});
}
/// Where the multiprocessors have many blocks each, the sums of dQ are added to in the order of the blocks of K and V: whatever the
/// schedule, which the device's seed draws, the bits are the same.
TEST(AttentionBackward, InOneOrderByTurns) {
  const auto device = [](uint64_t seed) {
    return Device::virtual_gpu(
        {.target = "sm_90a", .num_sms = 2, .seed = seed, .checks = vgpu::CheckSet::all()});
  };
  for (const Sizes& s :
       {Sizes{.batch = 2, .heads = 4, .heads_kv = 2, .rows = 333, .rows_kv = 300, .d = 128, .d_v = 128},
        Sizes{.heads = 6, .heads_kv = 6, .rows = 129, .rows_kv = 400, .d = 128, .d_v = 128},
        Sizes{.heads = 32, .heads_kv = 32, .rows = 65, .rows_kv = 1, .d = 128, .d_v = 128}}) {
    std::vector<double> first;
    for (const uint64_t seed : {1, 2, 3}) {
      const DeviceTensor dq = expect_gradients(s, {}, bfloat16, 2, device(seed));
      const std::vector<double> bits = dq.to_host().to_doubles();
      if (first.empty()) first = bits;
      EXPECT_EQ(bits, first) << "seed " << seed;
    }
  }
}
/// Small heads are worked on by three warp groups, in blocks of 192 rows; what is needed of each row is padded to 128.
TEST(AttentionBackward, BlocksOfThreeWarpGroups) {
  for (const int64_t rows : {191, 193, 386})
    for (const int64_t columns : {191, 193, 386})
      expect_gradients(
          {.batch = 2, .heads = 2, .heads_kv = 1, .rows = rows, .rows_kv = columns, .d = 64, .d_v = 64},
          {.causal = rows != 193}, columns == 193 ? float16 : bfloat16, static_cast<uint64_t>(rows));
  const DeviceTensor some = DeviceTensor::random(virtual_gpu(), float32, {1}, 1);
  expect_gradients({.heads = 4, .rows = 200, .rows_kv = 200, .d = 48, .d_v = 16},
                   {.causal = true, .sinks = some});
}
TEST(AttentionBackward, SeveralSchedules) {
  for (uint64_t seed = 0; seed < 4; ++seed)
    expect_gradients({.heads = 4, .rows = 140, .rows_kv = 140}, {.causal = true}, bfloat16, seed);
}

TEST(AttentionDecodeFunction, OfPagesAndLengths) {
  const Device device = virtual_gpu();
  const int64_t batch = 3, heads = 4, heads_kv = 2, d = 32, page = 16, each = 7, rows = 2;
  const std::vector<int64_t> lengths{112, 0, 37};
  HostTensor length_host(int32, {batch}), table_host(int32, {batch, each});
  for (int64_t b = 0; b < batch; ++b) length_host.set(b, static_cast<double>(lengths[b]));
  for (int64_t i = 0; i < batch * each; ++i)
    table_host.set(i, static_cast<double>((i * 8 + 3) % (batch * each)));
  const DeviceTensor q = DeviceTensor::random(device, bfloat16, {batch, heads, rows, d}, 1),
                     k = DeviceTensor::random(device, bfloat16, {batch * each, heads_kv, page, d}, 2),
                     v = DeviceTensor::random(device, bfloat16, {batch * each, heads_kv, page, d}, 3),
                     o = DeviceTensor::empty(device, bfloat16, q.shape());
  const AttentionDecodeOptions options{
      .causal = true,
      .lengths = DeviceTensor::from_host(device, length_host),
      .page_table = DeviceTensor::from_host(device, table_host),
      .log_sum_exp = DeviceTensor::empty(device, float32, {batch, heads, rows}),
      .parts = 3};
  attention_decode(q, k, v, o, options).expect_clean();
  const Values qs = q.to_host().to_doubles(), ks = k.to_host().to_doubles(), vs = v.to_host().to_doubles(),
               got = o.to_host().to_doubles(), log_sums = options.log_sum_exp.to_host().to_doubles();
  for (int64_t b = 0; b < batch; ++b) {
    // The sequence's rows, one after the other, as attention of a single batch.
    const int64_t n = lengths[b];
    if (n == 0) {
      for (int64_t e = 0; e < heads * rows * d; ++e) EXPECT_EQ(got[b * heads * rows * d + e], 0);
      EXPECT_EQ(log_sums[b * heads * rows], -std::numeric_limits<double>::infinity());
      continue;
    }
    Values own_k, own_v;
    for (int64_t h = 0; h < heads_kv; ++h)
      for (int64_t j = 0; j < n; ++j)
        for (int64_t e = 0; e < d; ++e) {
          const auto at = static_cast<int64_t>(table_host.get(b * each + j / page));
          own_k.push_back(ks[((at * heads_kv + h) * page + j % page) * d + e]);
          own_v.push_back(vs[((at * heads_kv + h) * page + j % page) * d + e]);
        }
    const auto part = [&](const Values& all, int64_t n) {
      return Values(all.begin() + b * n, all.begin() + (b + 1) * n);
    };
    const Exact exact({1, heads, heads_kv, rows, n, d, d}, {.causal = true}, part(qs, heads * rows * d),
                      own_k, own_v, Values(static_cast<size_t>(heads * rows * d)));
    const Values own = part(got, heads * rows * d), own_sums = part(log_sums, heads * rows);
    for (size_t i = 0; i < own.size(); ++i) EXPECT_NEAR(own[i], exact.o[i], 0.02) << b << " " << i;
    for (size_t i = 0; i < own_sums.size(); ++i) EXPECT_NEAR(own_sums[i], exact.log_sum[i], 1e-3);
  }
}

}  // namespace
}  // namespace imbrex::testing
