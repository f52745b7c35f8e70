// SPDX-License-Identifier: Apache-2.0
// Experts on several ranks: dispatch and combine against a layer in float64, under many orders, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "../skip.h"
#include "ended_waits.h"
#include "gpu_counts.h"
#include "imbrex/core/error.h"
#include "imbrex/kernels/grouped/grouped_matmul.h"
#include "imbrex/parallel.h"
#include "imbrex/parallel/experts.h"
#include "imbrex/runtime.h"

namespace imbrex::parallel {
namespace {

using ::testing::HasSubstr;

Ranks node(int ranks, uint64_t seed) {
  vgpu::Options options{.target = "sm_90a", .num_sms = 4, .seed = seed};
  options.memory_bytes = int64_t{1} << 26;
  return Ranks::virtual_node(ranks, options);
}

/// result[row, :] = (g + 2) * row[row, :] for the rows of each local expert g: plain, and exact in bfloat16 for few experts.
struct ScaleByExpert {
  static constexpr const char* target = "sm_80";
  void operator()(int experts, int width, Int32 room, Int32 first_expert, DataType dtype, Ptr<> row_ptr,
                  Ptr<int32> first_row_ptr, Ptr<> result_ptr) const {
    grid(experts);
    warps(1);
    auto g_rows = global_view(row_ptr, dtype, {room, width});
    auto g_results = global_view(result_ptr, dtype, {room, width});
    auto g_first = global_view(first_row_ptr, {experts + 1});
    Int32 begin = g_first[block_idx.x].item(), end = g_first[block_idx.x + 1].item();
    for (Int32 row : range(begin, end)) {
      RegisterTensor x = load_global(g_rows, {row, 0}, {1, 256}).to(float32);
      store_global(g_results, (x * (first_expert + block_idx.x + 2).to(float32)).to(dtype), {row, 0});
    }
  }
};

/// What one rank's tokens choose: some experts are chosen often, some never, some choices are of none.
struct Choices {
  HostTensor x, chosen, weights;
  Choices(const ExpertSizes& s, int64_t tokens, uint64_t seed)
      : x(HostTensor::random(s.dtype, {tokens, s.width}, seed)),
        chosen(int32, {tokens, s.chosen}),
        weights(HostTensor::random(float32, {tokens, s.chosen}, seed + 1)) {
    std::mt19937_64 random(seed);
    for (int64_t token = 0; token < tokens; ++token)
      for (int64_t j = 0; j < s.chosen; ++j) {
        const auto first = static_cast<int64_t>(random() % static_cast<uint64_t>(s.experts));
        int64_t expert = random() % 3 == 0 ? 1 % s.experts : (first + j) % s.experts;
        if (random() % 8 == 0) expert = random() % 2 == 0 ? -1 : s.experts;
        chosen.set(token * s.chosen + j, static_cast<double>(expert));
      }
  }
};

/// Calls with other choices each, by ranks with different numbers of tokens; by a captured graph, if asked for.
void check_scaled(const Ranks& where, const ExpertSizes& sizes, uint64_t seed, bool by_graph = false) {
  SCOPED_TRACE(::testing::Message() << where.count() << " ranks, seed " << seed);
  run_ranks(where, [&](Communicator& ranks) {
    const Device& device = ranks.device();
    ExpertExchange exchange(ranks, sizes, 3);
    const int per_rank = sizes.experts / ranks.size();
    Kernel<ScaleByExpert> scale({}, device);
    const Stream stream = Stream::create(device);
    for (int call = 0; call < 2; ++call) {
      const int64_t tokens = std::max<int64_t>(sizes.tokens - (ranks.rank() + call) % 3, 1);
      const Choices choices(sizes, tokens, 1 + seed * 1000 + static_cast<uint64_t>(call * 32 + ranks.rank()));
      const DeviceTensor x = DeviceTensor::from_host(device, choices.x),
                         chosen = DeviceTensor::from_host(device, choices.chosen),
                         weights = DeviceTensor::from_host(device, choices.weights);
      DeviceTensor y = DeviceTensor::empty(device, sizes.dtype, {tokens, sizes.width});
      const auto with_scale = [&](const auto& body) {
        return body(per_rank, static_cast<int>(sizes.width), exchange.rows().shape()[0],
                    ranks.rank() * per_rank, sizes.dtype, exchange.rows(), exchange.first_row(),
                    exchange.results());
      };
      const auto layer = [&] {
        exchange.dispatch(x, chosen, stream).expect_clean();
        with_scale([&](const auto&... arguments) { scale.on(stream)(arguments...).expect_clean(); });
        exchange.combine(weights, y, stream).expect_clean();
      };
      y.fill(0xFF, stream);
      if (by_graph) {
        with_scale([&](const auto&... arguments) { scale.prepare(arguments...); });
        const Graph graph = Graph::capture(stream, layer);
        for (int replay = 0; replay < 2; ++replay) graph.launch(stream).expect_clean();
      } else {
        layer();
      }
      ranks.synchronize(stream);
      const HostTensor got = y.to_host();
      for (int64_t token = 0; token < tokens; ++token)
        for (int64_t column = 0; column < sizes.width; ++column) {
          double sum = 0, size = 0;
          for (int64_t j = 0; j < sizes.chosen; ++j) {
            const double expert = choices.chosen.get(token * sizes.chosen + j);
            if (expert < 0 || expert >= sizes.experts) continue;
            const double term = choices.weights.get(token * sizes.chosen + j) * (expert + 2) *
                                choices.x.get(token * sizes.width + column);
            sum += term, size += std::abs(term);
          }
          ASSERT_NEAR(got.get(token * sizes.width + column), sum, 1e-6 + size / 64)
              << "rank " << ranks.rank() << ", call " << call << ", token " << token << ", column " << column;
        }
    }
    ranks.synchronize();
  });
}

TEST(Experts, RowsComeToTheirExpertsAndBack) {
  for (const int ranks : {1, 2, 3, 4, 8})
    check_scaled(node(ranks, 1), {.tokens = 13, .width = 72, .experts = 2 * ranks, .chosen = 2}, 1);
  check_scaled(node(2, 2), {.tokens = 1, .width = 1, .experts = 2, .chosen = 1, .dtype = float32}, 2);
  check_scaled(node(2, 3), {.tokens = 37, .width = 200, .experts = 6, .chosen = 5, .dtype = float16}, 3);
}

TEST(Experts, AreCapturedIntoGraphsByTheirFirstCalls) {
  check_scaled(node(2, 4), {.tokens = 7, .width = 40, .experts = 4, .chosen = 2}, 4, true);
}

TEST(Experts, AreCleanUnderManySeeds) {
  for (uint64_t seed = 0; seed < 20; ++seed)
    check_scaled(node(seed % 2 == 0 ? 2 : 4, seed), {.tokens = 5, .width = 40, .experts = 8, .chosen = 3},
                 seed);
}

TEST(Experts, CountsOfARankThatDidNotComeMakeNoMoreRowsThanThereIsRoomFor) {
  const ExpertSizes sizes{.tokens = 13, .width = 40, .experts = 6, .chosen = 2};
  for (const uint8_t byte : {0x77, 0xC3, 0xFF})
    call_with_ended_waits({.target = "sm_90a", .seed = 4}, byte, [&](Communicator& ranks) {
      const Device& device = ranks.device();
      const Choices choices(sizes, sizes.tokens, 7);
      const auto exchange = std::make_shared<ExpertExchange>(ranks, sizes);
      return [=, x = DeviceTensor::from_host(device, choices.x),
              chosen = DeviceTensor::from_host(device, choices.chosen)] {
        exchange->dispatch(x, chosen).expect_clean();
        const HostTensor first_row = exchange->first_row().to_host();
        const auto room = static_cast<double>(exchange->rows().shape()[0]);
        double before = 0;
        for (int64_t i = 0; i < first_row.elements(); ++i) {
          EXPECT_GE(first_row.get(i), before) << "expert " << i;
          EXPECT_LE(first_row.get(i), room) << "expert " << i;
          before = first_row.get(i);
        }
      };
    });
}

/// The whole layer, y = the sum over j of weight[j] * w[expert j] x, with the grouped product.
void check_layer(const Ranks& where, int64_t tokens, int64_t width, uint64_t seed) {
  const ExpertSizes sizes{.tokens = tokens, .width = width, .experts = 3 * where.count(), .chosen = 2};
  std::vector<HostTensor> w;
  for (int expert = 0; expert < sizes.experts; ++expert)
    w.push_back(HostTensor::random(bfloat16, {width, width}, 500 + static_cast<uint64_t>(expert)));
  run_ranks(where, [&](Communicator& ranks) {
    const Device& device = ranks.device();
    const int per_rank = sizes.experts / ranks.size();
    HostTensor my_w(bfloat16, {per_rank, width, width});
    for (int64_t i = 0; i < my_w.elements(); ++i)
      my_w.set(
          i, w[static_cast<size_t>(ranks.rank() * per_rank + i / (width * width))].get(i % (width * width)));
    const Choices choices(sizes, tokens, seed + static_cast<uint64_t>(ranks.rank()));
    const DeviceTensor x = DeviceTensor::from_host(device, choices.x),
                       chosen = DeviceTensor::from_host(device, choices.chosen),
                       weights = DeviceTensor::from_host(device, choices.weights),
                       of_experts = DeviceTensor::from_host(device, my_w),
                       y = DeviceTensor::empty(device, bfloat16, {tokens, width});
    ExpertExchange exchange(ranks, sizes);
    exchange.dispatch(x, chosen).expect_clean();
    grouped_matmul(exchange.rows(), of_experts, exchange.results(), Groups::contiguous(exchange.first_row()))
        .expect_clean();
    exchange.combine(weights, y).expect_clean();
    ranks.synchronize();
    const HostTensor got = y.to_host();
    for (int64_t token = 0; token < tokens; ++token)
      for (int64_t n = 0; n < width; ++n) {
        double sum = 0, size = 0;
        for (int64_t j = 0; j < sizes.chosen; ++j) {
          const double expert = choices.chosen.get(token * sizes.chosen + j);
          if (expert < 0 || expert >= sizes.experts) continue;
          double product = 0;
          for (int64_t k = 0; k < width; ++k)
            product += choices.x.get(token * width + k) * w[static_cast<size_t>(expert)].get(n * width + k);
          sum += choices.weights.get(token * sizes.chosen + j) * product;
          size += std::abs(choices.weights.get(token * sizes.chosen + j) * product);
        }
        ASSERT_NEAR(got.get(token * width + n), sum, 1e-3 * std::sqrt(static_cast<double>(width)) + size / 64)
            << "rank " << ranks.rank() << ", token " << token << ", column " << n;
      }
  });
}

TEST(Experts, OfALayerAreTheGroupedProducts) { check_layer(node(2, 5), 20, 64, 3); }

TEST(Experts, RefuseWhatDoesNotFit) {
  run_ranks(node(2, 0), [](Communicator& ranks) {
    const auto error_of = [](const std::function<void()>& body) -> std::string {
      try {
        body();
      } catch (const LaunchError& error) {
        return error.what();
      }
      return "";
    };
    EXPECT_THAT(
        error_of([&] { ExpertExchange(ranks, {.tokens = 4, .width = 8, .experts = 3, .chosen = 1}); }),
        HasSubstr("the ranks divide the experts"));
    ExpertExchange exchange(ranks, {.tokens = 4, .width = 8, .experts = 2, .chosen = 1});
    const Device& device = ranks.device();
    const DeviceTensor x = DeviceTensor::empty(device, bfloat16, {5, 8}),
                       chosen = DeviceTensor::empty(device, int32, {5, 1});
    EXPECT_THAT(error_of([&] { exchange.combine(x, x); }), HasSubstr("behind dispatch()"));
    EXPECT_THAT(error_of([&] { exchange.dispatch(x, chosen); }), HasSubstr("more tokens than"));
    EXPECT_THAT(error_of([&] { exchange.dispatch(chosen, chosen); }), HasSubstr("x is [tokens, width]"));
    EXPECT_THAT(error_of([&] {
                  exchange.dispatch(DeviceTensor::empty(device, bfloat16, {2, 8}), chosen);
                }),
                HasSubstr("chosen is int32 [tokens, chosen]"));
  });
}

TEST(ExpertsOnTwoGpus, OfALayerAreTheGroupedProducts) {
  if (Ranks::cuda_devices() < 2) IMBREX_SKIP(two_gpus);
  if (!Device::cuda(0).can_run("sm_90a")) IMBREX_SKIP(hopper);
  for (const int ranks : gpu_counts()) check_layer(Ranks::cuda(ranks).patience(20), 500, 512, 3);
}

}  // namespace
}  // namespace imbrex::parallel
