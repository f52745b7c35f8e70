// SPDX-License-Identifier: Apache-2.0
// What a sparse attention's indexer does first: for each token of a cache, how much a query wants it,
//
//     logits[b, l] = sum over heads h of max(q[b, h] . k[b, l], 0) * weights[b, h]
//
// and -infinity behind the sequence's end. Keys are float8_e4m3 with a float32 factor per token, in pages of 64
// tokens, which a table of each sequence names; the factors stand behind the keys of their page. One warp loads
// pages, wherever they lie, and a warp group multiplies them.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <vector>

#include "imbrex/imbrex.h"
#include "imbrex/kernels/parts/pipeline.h"

using namespace imbrex;

namespace {

constexpr int kTokens = 64, kHeads = 64, kColumns = 128;  // of a page, of a query, of a head
constexpr int kPageBytes = kTokens * (kColumns + 4);

struct IndexerLogits {
  static constexpr const char* target = "sm_90a";
  int stages = 6, parts = 4;  // CTAs that share a sequence
  static auto space() {
    return Space<IndexerLogits>().choose<&IndexerLogits::stages>({6, 4, 8}).choose<&IndexerLogits::parts>(
        {4, 1, 2, 8, 16});
  }

  void operator()(Int32 batch, Int32 pages, Int32 most_pages, Ptr<float8_e4m3> q_ptr,
                  Ptr<float8_e4m3> keys_ptr, Ptr<float32> factors_ptr, Ptr<float32> weights_ptr,
                  Ptr<int32> lengths_ptr, Ptr<int32> table_ptr, Ptr<float32> logits_ptr) const {
    grid(parts, batch);
    warps(5);
    Int32 sequence = block_idx.y;
    auto g_q = global_view(q_ptr, {batch, kHeads, kColumns});
    auto g_keys = global_view(keys_ptr, {pages, kTokens, kColumns}, {kPageBytes, kColumns, 1});
    auto g_factors = global_view(factors_ptr, {pages, kTokens}, {kPageBytes / 4, 1});
    auto g_weights = global_view(weights_ptr, {batch, kHeads});
    auto g_table = global_view(table_ptr, {batch, most_pages});
    auto g_logits = global_view(logits_ptr, {batch, most_pages * kTokens});
    auto s_q = shared_tensor(float8_e4m3, {kHeads, kColumns});
    auto s_keys = shared_tensor(float8_e4m3, {stages, kTokens, kColumns});
    auto s_factors = shared_tensor(float32, {stages, kTokens});
    auto q_arrived = mbarrier::alloc(1);
    kernels::Pipeline pipe(stages, 1, 4);
    sync_threads();
    Int32 length = global_view(lengths_ptr, {batch})[sequence];

    if (auto producer = single_warp(4)) {
      if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(q_arrived, s_q.nbytes());
      tma::global_to_shared(g_q, s_q, {sequence, 0, 0}, q_arrived);
      for (Int32 i : range(block_idx.x, cdiv(length, kTokens), parts)) {
        Int32 page = g_table[sequence][i];
        pipe.producer_acquire();
        auto keys = s_keys[pipe.producer_stage];
        auto factors = s_factors[pipe.producer_stage];
        if (auto thread = single_thread())
          mbarrier::arrive_and_expect_tx(pipe.producer_barrier(), keys.nbytes() + factors.nbytes());
        tma::global_to_shared(g_keys, keys, {page, 0, 0}, pipe.producer_barrier());
        tma::global_to_shared(g_factors, factors, {page, 0}, pipe.producer_barrier());
        pipe.producer_advance();
      }
    }
    if (auto consumers = warp_group(0, 4)) {
      auto weights = load_global(g_weights, {sequence, 0}, {1, kHeads});
      auto tokens = register_tensor(int32, {kTokens}, [](const Expr& i) { return i; });
      mbarrier::wait(q_arrived, 0);
      for (Int32 i : range(block_idx.x, most_pages, parts)) {
        Int32 first = i * kTokens;
        RegisterTensor logits = full(float32, {kTokens}, -std::numeric_limits<double>::infinity());
        if (auto has_tokens = when(first < length)) {
          pipe.consumer_acquire();
          auto scores = wgmma::accumulator(float32, {kTokens, kHeads});
          wgmma::fence();
          wgmma::mma(s_keys[pipe.consumer_stage], s_q.transpose(), scores, {.scale_d = false});
          wgmma::commit_group();
          wgmma::wait_group(0);
          auto wanted =
              sum(max(scores, 0.0f) * weights, {.axis = 1}) * load_shared(s_factors[pipe.consumer_stage]);
          logits = select(tokens + first < length, wanted, logits);
          fence::proxy_async();  // what was read may be overwritten by TMA
          kernels::arrive_each_warp(pipe.consumer_barrier(), 4);
          pipe.consumer_advance();
        }
        store_global(g_logits, logits.reshape({1, kTokens}), {sequence, first});
      }
    }
  }
};

}  // namespace

int main() {
  const Device device = Device::open("auto", IndexerLogits::target);
  const int64_t batch = 3, pages = 24, most_pages = 9;
  const std::vector<int64_t> lengths{1, 300, 576};
  const HostTensor q = HostTensor::random(float8_e4m3, {batch, kHeads, kColumns}, 1),
                   keys = HostTensor::random(float8_e4m3, {pages, kTokens, kColumns}, 2),
                   factors = HostTensor::random(float32, {pages, kTokens}, 3),
                   weights = HostTensor::random(float32, {batch, kHeads}, 4);
  HostTensor cache(uint8, {pages, kPageBytes}), host_lengths(int32, {batch}),
      table(int32, {batch, most_pages});
  for (int64_t page = 0; page < pages; ++page) {
    std::byte* to = cache.bytes().data() + page * kPageBytes;
    const int64_t key_bytes = kTokens * kColumns, factor_bytes = kTokens * 4;
    std::copy_n(keys.bytes().data() + page * key_bytes, key_bytes, to);
    std::copy_n(factors.bytes().data() + page * factor_bytes, factor_bytes, to + key_bytes);
  }
  for (int64_t b = 0; b < batch; ++b) {
    host_lengths.set(b, static_cast<double>(lengths[static_cast<size_t>(b)]));
    for (int64_t i = 0; i < most_pages; ++i)  // scattered; -1 behind a sequence's end
      table.set(b * most_pages + i, i * kTokens < lengths[static_cast<size_t>(b)]
                                        ? static_cast<double>((7 * (b * most_pages + i) + 5) % pages)
                                        : -1);
  }
  const DeviceTensor d_cache = DeviceTensor::from_host(device, cache);
  DeviceTensor logits = DeviceTensor::empty(device, float32, {batch, most_pages * kTokens});
  logits.poison();
  Kernel<IndexerLogits> kernel({}, device);
  kernel(batch, pages, most_pages, DeviceTensor::from_host(device, q),
         DeviceTensor::view(device, d_cache.address(), float8_e4m3, {pages * kPageBytes}),
         DeviceTensor::view(device, d_cache.address() + kTokens * kColumns, float32,
                            {pages * kPageBytes / 4 - kTokens * kColumns / 4}),
         DeviceTensor::from_host(device, weights), DeviceTensor::from_host(device, host_lengths),
         DeviceTensor::from_host(device, table), logits)
      .expect_clean();

  const HostTensor got = logits.to_host();
  int wrong = 0;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t l = 0; l < most_pages * kTokens; ++l) {
      const double value = got.get(b * most_pages * kTokens + l);
      if (l >= lengths[static_cast<size_t>(b)]) {
        wrong += !(std::isinf(value) && value < 0);
        continue;
      }
      const auto page = static_cast<int64_t>(table.get(b * most_pages + l / kTokens));
      const int64_t token = page * kTokens + l % kTokens;
      double sum = 0, size = 0;
      for (int64_t h = 0; h < kHeads; ++h) {
        double product = 0, squares = 0;
        for (int64_t j = 0; j < kColumns; ++j) {
          const double term = q.get((b * kHeads + h) * kColumns + j) * keys.get(token * kColumns + j);
          product += term;
          squares += term * term;
        }
        sum += std::max(product, 0.0) * weights.get(b * kHeads + h);
        size += squares * weights.get(b * kHeads + h) * weights.get(b * kHeads + h);
      }
      // The tensor cores cut sums of float8 to 13 bits at each 32 columns.
      wrong += !(std::abs(value - sum * factors.get(token)) <=
                 std::sqrt(size) * std::abs(factors.get(token)) * 4 / 8192 + 1e-6);
    }
  std::printf("indexer_logits on %s: %d of %lld wrong\n", device.name().c_str(), wrong,
              static_cast<long long>(batch * most_pages * kTokens));
  return wrong != 0;
}
