// SPDX-License-Identifier: Apache-2.0
// Predicted times of what several GPUs launch together: what crosses the links, what that takes, and who waits for whom.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "imbrex/parallel.h"
#include "imbrex/runtime.h"
#include "imbrex/vgpu/timeline.h"

namespace imbrex::parallel {
namespace {

// As docs/timeline.md has them of an H200.
constexpr double kBytesPerMicrosecond = 386e3, kLatency = 0.5;

vgpu::Options options(int sms, uint64_t seed = 0, int64_t cta = -1) {
  vgpu::Options options{.target = "sm_90a", .num_sms = sms, .seed = seed};
  options.checks = vgpu::CheckSet::none();
  options.memory_bytes = int64_t{1} << 30;
  options.timeline = {.record = true, .cta = cta};
  return options;
}

using Timelines = std::vector<std::shared_ptr<const vgpu::Timeline>>;  // by rank

template <class Launch>
Timelines predict(int ranks, const vgpu::Options& machine, Launch&& launch) {
  Timelines timelines(static_cast<size_t>(ranks));
  run_ranks(Ranks::virtual_node(ranks, machine), [&](Communicator& communicator) {
    timelines[static_cast<size_t>(communicator.rank())] = launch(communicator).virtual_report.timeline;
  });
  return timelines;
}

LaunchReport gather(Communicator& ranks, int64_t n) {
  AllGather all_gather(ranks);
  const DeviceTensor x = DeviceTensor::empty(ranks.device(), bfloat16, {n});
  const SymmetricTensor y = ranks.symmetric(bfloat16, {ranks.size(), n});
  ranks.barrier();
  return all_gather(x, y);
}
LaunchReport add_up(Communicator& ranks, int64_t n, AllReduce::Kind kind) {
  AllReduce all_reduce(ranks);
  const SymmetricTensor x = ranks.symmetric(bfloat16, {n}), y = ranks.symmetric(bfloat16, {n});
  ranks.barrier();
  return all_reduce(x, y, kind);
}

TEST(NodeTimeline, AnAllGatherTakesWhatTheLinksTakeForItsBytes) {
  for (const int ranks : {2, 4}) {
    const int64_t n = 3 << 20;
    for (const auto& timeline : predict(ranks, options(132), [&](Communicator& c) { return gather(c, n); })) {
      ASSERT_NE(timeline, nullptr);
      EXPECT_TRUE(timeline->complete);
      const double bytes = static_cast<double>(2 * n * (ranks - 1)), least = bytes / kBytesPerMicrosecond;
      // Signals cross as well, each as a sector.
      EXPECT_GE(static_cast<double>(timeline->link_bytes_out), bytes);
      EXPECT_LT(static_cast<double>(timeline->link_bytes_out), bytes * 1.02);
      EXPECT_GE(static_cast<double>(timeline->link_bytes_in), bytes);
      EXPECT_GT(timeline->microseconds(), least);
      EXPECT_LT(timeline->microseconds(), least * 1.35 + 8);
      EXPECT_GT(timeline->use.links_out, 0.6);
      EXPECT_LE(timeline->use.links_out, 1);
    }
  }
}

TEST(NodeTimeline, AReductionReadsOverTheLinks) {
  const int64_t n = 1 << 20;
  for (const auto& timeline :
       predict(2, options(132), [&](Communicator& c) { return add_up(c, n, AllReduce::Kind::kOneShot); })) {
    EXPECT_GE(timeline->link_bytes_in, 2 * n);
    EXPECT_LT(timeline->link_bytes_in, 2 * n * 102 / 100);
    EXPECT_GT(timeline->microseconds(), static_cast<double>(2 * n) / kBytesPerMicrosecond);
  }
}

TEST(NodeTimeline, ASmallReductionTakesTheLatenciesOfItsMeetingsAndOfItsReading) {
  for (const auto& timeline :
       predict(2, options(132), [](Communicator& c) { return add_up(c, 64, AllReduce::Kind::kOneShot); })) {
    EXPECT_GT(timeline->microseconds(), 4 * kLatency);
    EXPECT_LT(timeline->microseconds(), 4 * kLatency + 5);
  }
}

TEST(NodeTimeline, DoesNotDependOnWhoRanFirst) {
  std::vector<double> times;
  for (const uint64_t seed : {0, 1, 2, 3})
    times.push_back(predict(4, options(8, seed),
                            [](Communicator& c) { return add_up(c, 100'003, AllReduce::Kind::kTwoShot); })[0]
                        ->microseconds());
  const auto [least, most] = std::minmax_element(times.begin(), times.end());
  EXPECT_LT(*most, *least * 1.03);
}

/// Rank 0 computes for a while, then signals rank 1.
struct LateSignal {
  static constexpr const char* target = "sm_80";
  void operator()(int64_t rank_stride_bytes, Int32 rank, Int32 turns, Ptr<float32> x_ptr,
                  Ptr<int32> signal_ptr) const {
    grid(1);
    warps(1);
    auto signals = symmetric_view(signal_ptr, int32, rank_stride_bytes, 2, {1});
    if (auto first = when(rank == 0)) {
      auto g_x = global_view(x_ptr, {32});
      for ([[maybe_unused]] Int32 turn : range(turns))
        store_global(g_x, load_global(g_x, {0}, {32}) + 1.0f, {0});
      signal::set(signals[1][0], 1);
    }
    if (auto second = otherwise()) signal::wait(signals[1][0], 1);
  }
};

TEST(NodeTimeline, WhoWaitsForASignalGoesOnWhenItHasArrived) {
  std::vector<double> times[2];
  for (const uint64_t seed : {1, 2, 5})
    for (const int turns : {10, 1000}) {
      const Timelines timelines = predict(2, options(1, seed), [&](Communicator& ranks) {
        const SymmetricTensor signals = ranks.signals(1);
        const DeviceTensor x = DeviceTensor::from_host(ranks.device(), HostTensor(float32, {32}));
        Kernel<LateSignal> kernel({}, ranks.device());
        return kernel(signals.rank_stride_bytes(), ranks.rank(), turns, x, signals.all().address());
      });
      // The end of rank 0 is that of its last store, its signal.
      EXPECT_GT(timelines[1]->microseconds(), timelines[0]->microseconds() - kLatency);
      times[turns == 1000].push_back(timelines[1]->microseconds());
    }
  for (size_t i = 0; i < times[0].size(); ++i) EXPECT_GT(times[1][i], 5 * times[0][i]);
  EXPECT_EQ(std::count(times[1].begin(), times[1].end(), times[1][0]), std::ssize(times[1]));
}

TEST(NodeTimeline, AFusedProductSendsEachRowOnceAndHidesIt) {
  const int64_t m = 1024, n = 256, k = 512;
  const Timelines timelines = predict(2, options(16, 0, 0), [&](Communicator& ranks) {
    AllGatherMatmul product(ranks, {.m = m, .k = k});
    const Device& device = ranks.device();
    const auto x = DeviceTensor::empty(device, bfloat16, {m / 2, k}),
               b = DeviceTensor::empty(device, bfloat16, {n, k}),
               c = DeviceTensor::empty(device, bfloat16, {m, n});
    ranks.barrier();
    return product(x, b, c);
  });
  for (const auto& timeline : timelines) {
    ASSERT_TRUE(timeline->complete);
    EXPECT_GE(timeline->link_bytes_out, m / 2 * k * 2);
    EXPECT_LT(timeline->link_bytes_out, m / 2 * k * 2 * 105 / 100);
    const auto is_link = [](const vgpu::TimelineLane& lane) { return lane.kind == vgpu::LaneKind::kLinks; };
    EXPECT_EQ(std::count_if(timeline->lanes.begin(), timeline->lanes.end(), is_link), 2);
    EXPECT_GT(timeline->lanes.size(), 4);
  }
}

}  // namespace
}  // namespace imbrex::parallel
