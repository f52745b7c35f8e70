// SPDX-License-Identifier: Apache-2.0
// Predicted timelines of the Blackwell ladder: serial where the kernel is serial, overlapped where it
// overlaps, and faster step by step.
#include <gtest/gtest.h>

#include <algorithm>

#include "imbrex/runtime/compile.h"
#include "imbrex/runtime/registry.h"
#include "imbrex/vgpu/timeline.h"

namespace imbrex {
namespace {

using vgpu::LaneKind;
using vgpu::SpanKind;

struct Asked {
  std::string configuration;
  int64_t m = 256, n = 256, k = 1024;
  int sms = 0;
  uint64_t seed = 0;
};

vgpu::Timeline predict(const std::string& step, const Asked& asked) {
  const RegisteredKernel& kernel = registered_kernel("blackwell_matmul_" + step);
  Configuration configuration = kernel.space.configuration(0);
  for (const Setting& given : kernel.space.parse(asked.configuration))
    for (Setting& setting : configuration)
      if (setting.name == given.name) setting.bits = given.bits;
  const Device device = Device::virtual_gpu({.target = kernel.target,
                                             .num_sms = asked.sms,
                                             .host_threads = 1,
                                             .seed = asked.seed,
                                             .checks = vgpu::CheckSet::none(),
                                             .tensor_math = vgpu::TensorMath::kFast,
                                             .timeline = {.record = true, .cta = 0}});
  Case c(Case::Mode::kRun, device, {{"m", asked.m}, {"n", asked.n}, {"k", asked.k}}, 1);
  kernel.run(c, device, configuration);
  EXPECT_TRUE(c.verified()) << step;
  EXPECT_NE(c.report.virtual_report.timeline, nullptr);
  EXPECT_TRUE(c.report.virtual_report.timeline->complete);
  return *c.report.virtual_report.timeline;
}

Asked tiles_of_128x256(const std::string& more) {
  return {.configuration = "block_m=128 block_n=256 e_block_n=16 block_k=64 " + more};
}
const Asked kV1 = tiles_of_128x256(""), kRing = tiles_of_128x256("stages=4");

/// Cycles of CTA 0 in which a load is in flight and the tensor core multiplies.
int64_t overlapping_cycles(const vgpu::Timeline& t) {
  const auto spans = [&](LaneKind lane_kind, SpanKind kind) {
    std::vector<vgpu::TimelineSpan> found;
    for (const vgpu::TimelineLane& lane : t.lanes)
      if (lane.kind == lane_kind && lane.rank == 0)
        for (const vgpu::TimelineSpan& span : lane.spans)
          if (span.kind == kind) found.push_back(span);
    return found;
  };
  const auto loads = spans(LaneKind::kTma, SpanKind::kLoad);
  const auto products = spans(LaneKind::kTensorCore, SpanKind::kMatrix);
  EXPECT_FALSE(loads.empty());
  EXPECT_FALSE(products.empty());
  int64_t common = 0;
  for (const vgpu::TimelineSpan& product : products) {
    int64_t covered = 0;  // by the load that covers most of it
    for (const vgpu::TimelineSpan& load : loads)
      covered = std::max(covered, std::min(load.end, product.end) - std::max(load.begin, product.begin));
    common += covered;
  }
  return common;
}

TEST(LadderTimeline, V1LoadsAndMultipliesInTurn) {
  const vgpu::Timeline t = predict("v1", kV1);
  EXPECT_EQ(t.overlap, 0);
  EXPECT_EQ(overlapping_cycles(t), 0);
}

TEST(LadderTimeline, V2LoadsWhileItMultiplies) {
  const vgpu::Timeline t = predict("v2", kRing);
  EXPECT_GT(t.overlap, 0.6);
  // 16 k-tiles of 512 cycles; all but the first and the last few are covered.
  EXPECT_GT(overlapping_cycles(t), 8 * 512);
}

TEST(LadderTimeline, EachOverlapMakesItFaster) {
  const int64_t v1 = predict("v1", kV1).cycles, v2 = predict("v2", kRing).cycles,
                v3 = predict("v3", kRing).cycles;
  const int64_t v0 = predict("v0", {.configuration = "block_m=128 block_n=256 block_k=64"}).cycles;
  EXPECT_LT(v2, v0);
  EXPECT_LT(static_cast<double>(v2), 0.75 * static_cast<double>(v1));
  EXPECT_LT(v3, v2);
}

TEST(LadderTimeline, PersistentCtasHideTheirEpilogues) {
  // Four tiles an SM.
  Asked ring = kRing;
  ring.m = ring.n = 512, ring.sms = 2;
  Asked persistent = tiles_of_128x256("tma_stages=4");
  persistent.m = persistent.n = 512, persistent.sms = 2;
  const vgpu::Timeline v4 = predict("v4", ring), v5 = predict("v5", persistent);
  EXPECT_LT(v5.cycles, v4.cycles);
  EXPECT_EQ(v4.ctas, 8);
  EXPECT_EQ(v5.ctas, 2);
}

TEST(LadderTimeline, APairOfCtasMultipliesOnBothTensorCores) {
  const vgpu::Timeline t = predict("v6", {.configuration = "tma_stages=5"});
  int lanes = 0;
  for (const vgpu::TimelineLane& lane : t.lanes) {
    if (lane.kind != LaneKind::kTensorCore) continue;
    ++lanes;
    int64_t busy = 0;
    for (const vgpu::TimelineSpan& span : lane.spans) busy += span.end - span.begin;
    EXPECT_EQ(busy, 1024 / 16 * 128) << "rank " << lane.rank;  // 256x256x16 takes 128 clocks of each
  }
  EXPECT_EQ(lanes, 2);
  EXPECT_EQ(t.active_sms, 2);
}

TEST(LadderTimeline, TheTensorCoreIsBusyAsLongAsTheProductTakes) {
  // 2 m n k FLOP at 8192 a clock, whatever the kernel.
  for (const auto& [step, asked] : {std::pair{"v1", kV1}, {"v4", kRing}}) {
    const vgpu::Timeline t = predict(step, asked);
    const double busy = t.use.tensor_core * static_cast<double>(t.cycles) * t.sms;
    EXPECT_NEAR(busy, 2.0 * 256 * 256 * 1024 / 8192, 1.0) << step;
  }
}

TEST(LadderTimeline, TheScheduleDoesNotMatter) {
  const auto plain = static_cast<double>(predict("v4", kRing).cycles);
  for (uint64_t seed : {1, 2, 3}) {
    Asked other = kRing;
    other.seed = seed;
    EXPECT_NEAR(static_cast<double>(predict("v4", other).cycles), plain, 0.02 * plain) << seed;
  }
}

TEST(ThreadGroups, AreTheOutermostOnes) {
  const RegisteredKernel& kernel = registered_kernel("blackwell_matmul_v5");
  Case traced(Case::Mode::kTrace, std::nullopt, {{"m", 256}, {"n", 256}, {"k", 256}}, 0);
  kernel.run(traced, std::nullopt, kernel.space.configuration(0));
  const std::vector<ThreadGroup> groups = thread_groups(*traced.function);
  ASSERT_EQ(groups.size(), 4u);
  EXPECT_EQ(groups[1].first_thread, 32);
  EXPECT_EQ(groups[1].threads, 32);
  EXPECT_EQ(groups[3].first_thread, 128);
  EXPECT_EQ(groups[3].threads, 128);
  EXPECT_TRUE(groups[3].where.is_known());
}

}  // namespace
}  // namespace imbrex
