// SPDX-License-Identifier: Apache-2.0
// Kernels that one resource holds up, each resource in turn: the explanation must name it.
#include <numeric>

#include "imbrex/inspect/gpu_model.h"
#include "timeline_kit.h"

namespace imbrex::vgpu {
namespace {

/// Explains a launch, and checks what is true of every explanation.
Timeline explain(const std::string& body, Asked asked = {}) {
  asked.explain = true;
  asked.cta = 0;
  const int64_t cycles = predict(body,
                                 [&] {
                                   Asked plain = asked;
                                   plain.explain = false;
                                   return plain;
                                 }())
                             .cycles;
  Timeline t = predict(body, asked);
  EXPECT_EQ(t.cycles, cycles) << "explaining changes the prediction";
  EXPECT_NE(t.why, nullptr);
  const auto& path = t.why->path;
  EXPECT_NEAR(std::accumulate(path.begin(), path.end(), 0.0), static_cast<double>(t.cycles), 1.0);
  double parts = 0, strip = 0;
  for (const TimelineExplanation::Part& part : t.why->parts) parts += part.cycles;
  for (const TimelineExplanation::Shares& step : t.why->strip)
    strip += std::accumulate(step.begin(), step.end(), 0.0);
  EXPECT_NEAR(parts, static_cast<double>(t.cycles), 1.0);
  EXPECT_NEAR(strip, static_cast<double>(t.cycles), 1.0);
  for (const TimelineExplanation::WhatIf& what_if : t.why->what_if)
    EXPECT_LE(what_if.cycles, 1.02 * t.cycles);
  return t;
}

/// What gains most when it is free, and what most of the critical path goes to.
void expect_limit(const Timeline& t, Resource resource) {
  ASSERT_FALSE(t.why->what_if.empty());
  const TimelineExplanation::WhatIf& first = t.why->what_if.front();
  EXPECT_STREQ(name(first.free), name(resource));
  EXPECT_LT(static_cast<double>(first.cycles), 0.75 * static_cast<double>(t.cycles));
  EXPECT_GT(t.why->path[static_cast<size_t>(resource)], 0.35 * static_cast<double>(t.cycles))
      << name(resource);
}

std::string repeated(int count, const std::string& line) {
  std::string text;
  for (int i = 0; i < count; ++i) text += line;
  return text;
}

TEST(TimelineWhy, IsThereOnlyWhenAskedFor) { EXPECT_EQ(predict(chase(1, 0)).why, nullptr); }

TEST(TimelineWhy, MemoryLatency) { expect_limit(explain(chase(24, 4096)), Resource::kMemoryLatency); }

TEST(TimelineWhy, L2Latency) {
  GpuModel gpu = gpu_model("h200");
  gpu.hbm_latency_cycles = gpu.l2_latency_cycles;
  expect_limit(explain(chase(24, 4096), {.gpu = std::make_shared<const GpuModel>(gpu)}),
               Resource::kL2Latency);
}

/// Every thread reads 16 bytes of its own; one per CTA writes.
constexpr const char* kStream = R"(
  mov.u32 %x, %ctaid.x;
  mad.lo.u32 %x, %x, 256, %t;
  mad.wide.u32 %b, %x, 16, %a;
  ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%b];
  @%q st.global.f32 [%b], %f0;)";

TEST(TimelineWhy, MemoryBandwidth) {
  GpuModel gpu = gpu_model("h200");
  gpu.l2_bytes_per_second *= 4;  // which what comes from memory passes twice
  expect_limit(
      explain(kStream,
              {.ctas = 768, .threads = 256, .sms = 33, .gpu = std::make_shared<const GpuModel>(gpu)}),
      Resource::kMemoryBandwidth);
}

TEST(TimelineWhy, L2Bandwidth) {
  GpuModel gpu = gpu_model("h200");
  gpu.l2_bytes_per_second /= 4;
  expect_limit(
      explain(kStream,
              {.ctas = 768, .threads = 256, .sms = 33, .gpu = std::make_shared<const GpuModel>(gpu)}),
      Resource::kL2Bandwidth);
}

TEST(TimelineWhy, TheEndOfALaunchWaitsForAStoreAndNamesIt) {
  const std::string body = "  mad.wide.u32 %b, %t, 2048, %a;\n" +
                           repeated(60, "  st.global.u32 [%b], %t;\n  add.s64 %b, %b, 32;\n");
  const Timeline t = explain(body, {.threads = 256});
  const TimelineExplanation::Part& longest = t.why->parts.front();
  EXPECT_EQ(longest.resource, Resource::kL2Bandwidth);
  ASSERT_GE(longest.place, 0);
  EXPECT_TRUE(t.places[static_cast<size_t>(longest.place)].ptx.starts_with("st.global"));
}

TEST(TimelineWhy, SharedMemory) {
  const std::string body =
      "  mad.lo.u32 %x, %t, 128, %tile;\n" + repeated(100, "  st.shared.u32 [%x], %t;\n");
  expect_limit(explain(body), Resource::kSharedMemory);
}

TEST(TimelineWhy, Instructions) {
  const std::string body = "  mov.u32 %x, %t;\n" + repeated(800, "  mad.lo.u32 %x, %x, %x, %t;\n") +
                           "  mad.wide.u32 %b, %t, 4, %a;\n  st.global.u32 [%b], %x;\n";
  expect_limit(explain(body, {.threads = 512}), Resource::kInstructions);
}

TEST(TimelineWhy, TensorCore) {
  const std::string product =
      "  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%t, %t, %t, %t}, {%t, %t}, "
      "{%f4, %f5, %f6, %f7};\n";
  const std::string zeros =
      "  mov.f32 %f4, 0f00000000;\n  mov.f32 %f5, %f4;\n  mov.f32 %f6, %f4;\n  mov.f32 %f7, %f4;\n";
  expect_limit(explain(zeros + repeated(200, product), {.threads = 256}), Resource::kTensorCore);
}

TEST(TimelineWhy, Barriers) {
  const std::string body =
      "  mov.u32 %i, 0;\nL:\n  bar.sync 0;\n  add.u32 %i, %i, 1;\n  setp.lt.u32 %p, %i, 200;\n  @%p bra L;\n";
  expect_limit(explain(body, {.threads = 128}), Resource::kSynchronisation);
}

TEST(TimelineWhy, Tma) {
  // Copies of 16 bytes: the engine takes its clocks for each of them.
  const std::string body =
      "  @!%q bra END;\n  mbarrier.init.shared.b64 [%bar], 1;\n  fence.proxy.async;\n"
      "  mbarrier.arrive.expect_tx.shared.b64 %s, [%bar], 8192;\n" +
      repeated(512,
               "  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%a], 16, "
               "[%bar];\n") +
      "W:\n  mbarrier.try_wait.parity.shared.b64 %p, [%bar], 0;\n  @!%p bra W;\nEND:\n";
  Asked asked;
  asked.checks = false;  // all copies write the same bytes, which is a race
  expect_limit(explain(body, asked), Resource::kTma);
}

TEST(TimelineWhy, CtaStart) {
  expect_limit(explain("", {.ctas = 1024, .threads = 256, .sms = 2}), Resource::kStart);
}

TEST(TimelineWhy, TellsWhoWaitsForWhat) {
  // Warp 0 loads from memory one word after the other, warp 1 waits for it.
  const std::string body = R"(
  @%q mbarrier.init.shared.b64 [%bar], 32;
  bar.sync 0;
  setp.lt.u32 %p, %t, 32;
  @!%p bra WAIT;
)" + chase(16, 4096) + R"(
  mbarrier.arrive.shared.b64 %s, [%bar];
  bra DONE;
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p, [%bar], 0;
  @!%p bra WAIT;
DONE:)";
  const Timeline t = explain(body, {.threads = 64});
  const TimelineExplanation::Wait* of_waiter = nullptr;
  for (const TimelineExplanation::Wait& wait : t.why->waits)
    if (wait.warp == 1 && wait.what.starts_with("mbarrier")) of_waiter = &wait;
  ASSERT_NE(of_waiter, nullptr);
  EXPECT_GT(of_waiter->cycles, 0.8 * t.why->lived[1]);
  EXPECT_NEAR(std::accumulate(of_waiter->because.begin(), of_waiter->because.end(), 0.0), of_waiter->cycles,
              1.0);
  const double memory = of_waiter->because[static_cast<size_t>(Resource::kMemoryLatency)];
  EXPECT_GT(memory, 0.5 * of_waiter->cycles);
  EXPECT_NE(t.places[static_cast<size_t>(of_waiter->place)].ptx.find("try_wait"), std::string::npos);
}

TEST(TimelineWhy, EveryResourceHasAName) {
  for (int i = 0; i < kResources; ++i) EXPECT_STRNE(name(static_cast<Resource>(i)), "");
}

}  // namespace
}  // namespace imbrex::vgpu
