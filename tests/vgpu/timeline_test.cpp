// SPDX-License-Identifier: Apache-2.0
// Predicted times of small PTX kernels: what waits for what, what is shared, what does not depend on the
// schedule.
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "timeline_kit.h"
#include "vgpu/timeline/cost_model.h"
#include "vgpu/timeline/replay_machine.h"

namespace imbrex::vgpu {
namespace {

TEST(Timeline, IsThereOnlyWhenAskedFor) {
  VirtualGpu gpu({.target = "sm_90a"});
  DeviceAddress memory = to_device(gpu, std::vector<uint32_t>(64, 1u));
  void* arguments[] = {&memory};
  const Module module = gpu.load_module(module_of(""), "timeline.ptx");
  EXPECT_EQ(gpu.launch(module.function("k"), {.block = {32}, .arguments = arguments}).timeline, nullptr);
}

TEST(Timeline, DependentLoadsTakeTheirLatencyEach) {
  const CostModel model = cost_model(90);
  const int64_t one = predict(chase(1, 4096)).cycles, nine = predict(chase(9, 4096)).cycles;
  EXPECT_NEAR(static_cast<double>(nine - one), 8 * model.hbm_latency, 8 * 0.1 * model.hbm_latency);
  // The same line again is in L1.
  const int64_t near = predict(chase(9, 0)).cycles;
  EXPECT_NEAR(static_cast<double>(near - one), 8 * model.l1_latency, 8 * 0.3 * model.l1_latency);
}

TEST(Timeline, TakesTheRatesOfTheGpuAskedFor) {
  GpuModel slow = gpu_model("h100");
  slow.hbm_latency_cycles *= 4;
  slow.clock_ghz = 1;
  const Timeline usual = predict(chase(9, 4096));
  const Timeline slower = predict(chase(9, 4096), {.gpu = std::make_shared<const GpuModel>(slow)});
  EXPECT_EQ(usual.chip, "H200");
  EXPECT_EQ(slower.chip, "H100 (scaled)");  // no run on one stands behind it
  EXPECT_EQ(slower.clock_ghz, 1);
  const int64_t start = predict("").cycles;
  EXPECT_GT(slower.cycles - start, 3 * (usual.cycles - start));
}

TEST(Timeline, IndependentLoadsOverlap) {
  std::string body = "  mad.wide.u32 %b, %t, 4, %a;\n";
  for (int i = 0; i < 8; ++i) body += fmt::format("  ld.global.f32 %f{}, [%b+{}];\n", i, 4096 * i);
  for (int i = 0; i < 8; ++i) body += fmt::format("  st.global.f32 [%b+{}], %f{};\n", 65536 + 4096 * i, i);
  EXPECT_LT(predict(body).cycles, predict(chase(2, 4096)).cycles - 300);
}

TEST(Timeline, MemoryBandwidthIsShared) {
  // 512 CTAs of 256 threads, 16 bytes a thread: 2 MiB in, and nothing else to do.
  const std::string body = R"(
  mov.u32 %x, %ctaid.x;
  mad.lo.u32 %x, %x, 256, %t;
  mad.wide.u32 %b, %x, 16, %a;
  ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%b];
  @%q st.global.f32 [%b], %f0;)";
  const Timeline whole = predict(body, {.ctas = 512, .threads = 256});
  const Timeline part = predict(body, {.ctas = 512, .threads = 256, .sms = 33});
  EXPECT_GE(whole.hbm_bytes, 2 << 20);
  EXPECT_LE(whole.hbm_bytes, 3 << 20);
  EXPECT_EQ(whole.hbm_bytes, part.hbm_bytes);
  // A quarter of the SMs has a quarter of the bandwidth.
  const int64_t start = predict("").cycles;
  EXPECT_GT(part.use.hbm * static_cast<double>(part.cycles), 0.66 * static_cast<double>(part.cycles - start));
  EXPECT_GT(static_cast<double>(part.cycles - start), 1.9 * static_cast<double>(whole.cycles - start));
  EXPECT_EQ(whole.active_sms, 132);
  EXPECT_EQ(part.active_sms, 33);
  // A slower clock makes memory relatively faster.
  EXPECT_LT(predict(body, {.ctas = 512, .threads = 256, .sms = 33, .clock_ghz = 0.9}).cycles, part.cycles);
}

constexpr const char* kHandOver = R"(
  @%q mbarrier.init.shared.b64 [%bar], 32;
  bar.sync 0;
  setp.lt.u32 %p, %t, 32;
  @!%p bra WAIT;
  mov.u32 %i, 0;
WORK:
  mad.lo.u32 %i, %i, 1, 1;
  setp.lt.u32 %p, %i, 1000;
  @%p bra WORK;
  mbarrier.arrive.shared.b64 %s, [%bar];
  bra DONE;
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p, [%bar], 0;
  @!%p bra WAIT;
DONE:)";

TEST(Timeline, AWaiterGoesOnWhenTheLastHasArrived) {
  const Timeline t = predict(kHandOver, {.threads = 64, .cta = 0});
  const TimelineLane *works = nullptr, *waits = nullptr, *barrier = nullptr;
  for (const TimelineLane& lane : t.lanes) {
    if (lane.kind == LaneKind::kWarp) (lane.index == 0 ? works : waits) = &lane;
    if (lane.kind == LaneKind::kBarrier) barrier = &lane;
  }
  ASSERT_NE(works, nullptr);
  ASSERT_NE(waits, nullptr);
  ASSERT_NE(barrier, nullptr);
  ASSERT_EQ(barrier->spans.size(), 1u);
  EXPECT_EQ(barrier->arrivals, std::vector<int>{0});
  EXPECT_EQ(barrier->waits, std::vector<int>{1});
  const TimelineSpan* longest = nullptr;
  for (const TimelineSpan& span : waits->spans)
    if (span.kind == SpanKind::kWait &&
        (longest == nullptr || span.end - span.begin > longest->end - longest->begin))
      longest = &span;
  ASSERT_NE(longest, nullptr);
  EXPECT_GT(longest->end - longest->begin, 4000);  // 1000 rounds of dependent instructions
  EXPECT_NEAR(static_cast<double>(longest->end - barrier->spans[0].end), cost_model(90).mbarrier_wake, 1.0);
  EXPECT_NE(t.places[static_cast<size_t>(longest->place)].ptx.find("try_wait"), std::string::npos);
}

TEST(Timeline, DoesNotDependOnTheSchedule) {
  const int64_t plain = predict(kHandOver, {.ctas = 5, .threads = 64, .sms = 2}).cycles;
  for (uint64_t seed = 1; seed < 8; ++seed)
    EXPECT_NEAR(
        static_cast<double>(
            predict(kHandOver, {.ctas = 5, .threads = 64, .seed = seed, .sms = 2, .host_threads = 2}).cycles),
        static_cast<double>(plain), 20.0)
        << seed;
}

TEST(Timeline, WarpsOfALaneNeverDoTwoThings) {
  const Timeline t = predict(kHandOver, {.ctas = 2, .threads = 64, .cta = 1});
  ASSERT_FALSE(t.lanes.empty());
  for (const TimelineLane& lane : t.lanes) {
    EXPECT_EQ(lane.cta, 1);
    int64_t end = 0;
    for (const TimelineSpan& span : lane.spans) {
      if (lane.kind == LaneKind::kWarp) {
        EXPECT_GE(span.begin, end) << lane.name;
      }
      EXPECT_LE(span.begin, span.end);
      EXPECT_LE(span.end, t.cycles);
      end = span.end;
    }
  }
}

TEST(Timeline, BankConflictsCost) {
  const auto body = [](int stride) {
    std::string text = fmt::format("  mad.lo.u32 %x, %t, {}, %tile;\n", stride);
    for (int i = 0; i < 64; ++i) text += "  st.shared.u32 [%x], %t;\n";
    return text;
  };
  const int64_t free_of = predict(body(4)).cycles, conflicting = predict(body(128)).cycles;
  EXPECT_NEAR(static_cast<double>(conflicting - free_of), 64 * 31, 64 * 4);
}

/// Clocks of 64 loads by each of 32 warps, which keep shared memory busy and nothing else; `address` makes
/// %x.
int64_t clocks_of_loads(const std::string& address, const std::string& load) {
  std::string text =
      "  mad.lo.u32 %x, %t, 4, %tile;\n  st.shared.u32 [%x], %t;\n  bar.sync 0;\n  and.b32 %t, %t, 31;\n" +
      address;
  for (int i = 0; i < 64; ++i) text += load;
  return predict(text, {.threads = 1024}).cycles;
}

// The rule of pairs: lanes 2i and 2i + 1 that load the same 8 bytes are served like one.
TEST(Timeline, PairsOfLanesShareAWideLoad) {
  const std::string load = "  ld.shared.v2.f32 {%f0, %f1}, [%x];\n",
                    each = "  mad.lo.u32 %x, %t, 8, %tile;\n",
                    pairs = "  shr.u32 %t, %t, 1;\n  mad.lo.u32 %x, %t, 8, %tile;\n",
                    others = "  and.b32 %t, %t, 15;\n  mad.lo.u32 %x, %t, 8, %tile;\n";
  const int64_t two = clocks_of_loads(each, load);
  EXPECT_NEAR(static_cast<double>(two - clocks_of_loads(pairs, load)), 32 * 64 * 1, 64);
  EXPECT_NEAR(static_cast<double>(two - clocks_of_loads(others, load)), 0, 64);  // lanes i and i + 16
}

TEST(Timeline, MatricesMeetBankConflicts) {
  const auto rows = [](int pitch, int matrices) {
    const std::string registers[] = {"", "{%i}", "{%i, %y}", "", "{%i, %y, %t, %bar}"};
    return clocks_of_loads(fmt::format("  mad.lo.u32 %x, %t, {}, %tile;\n", pitch),
                           fmt::format("  ldmatrix.sync.aligned.m8n8.x{}.shared.b16 {}, [%x];\n", matrices,
                                       registers[matrices]));
  };
  EXPECT_NEAR(static_cast<double>(rows(128, 4) - rows(16, 4)), 32 * 64 * (32 - 4), 64);
  EXPECT_NEAR(static_cast<double>(rows(16, 4) - rows(16, 2)), 32 * 64 * (4 - 2), 64);
}

/// Each of `count` times the threads add 1 at the word of shared memory (or, with `is_global`, of `p`) that %x numbers.
std::string additions(const std::string& word, const std::string& what, bool is_global, int count = 200) {
  std::string body = "  mov.u32 %x, %tid.x;\n  mad.lo.u32 %i, %x, 4, %tile;\n";
  for (int i = 0; i < 32; ++i) body += fmt::format("  st.shared.u32 [%i+{}], %x;\n", 128 * i);
  body += "  bar.sync 0;\n" + word + "  shl.b32 %x, %x, 2;\n";
  body += is_global ? "  cvt.u64.u32 %b, %x;\n  add.s64 %b, %a, %b;\n" : "  add.s32 %x, %x, %tile;\n";
  for (int i = 0; i < count; ++i) body += fmt::format("  {};\n", what);
  return body;
}

TEST(Timeline, LanesThatUpdateOneBankFollowEachOther) {
  const std::string own = "", one_bank = "  shl.b32 %x, %x, 5;\n", same = "  mov.u32 %x, 5;\n";
  const std::string red = "red.shared.add.u32 [%x], 1", atom = "atom.shared.add.u32 %y, [%x], 1";
  const auto cycles = [](const std::string& word, const std::string& what) {
    return predict(additions(word, what, false)).cycles;
  };
  EXPECT_NEAR(static_cast<double>(cycles(one_bank, red) - cycles(own, red)), 200 * 30, 200 * 3);
  EXPECT_NEAR(static_cast<double>(cycles(same, red)), static_cast<double>(cycles(own, red)), 10)
      << "added up first";
  EXPECT_GT(cycles(same, atom), cycles(own, atom) + 200 * 25) << "each wants the old value";
  EXPECT_GT(cycles(own, "red.shared.add.f32 [%x], 0f3F800000"), cycles(own, red) + 200 * 40) << "a loop";
}

TEST(Timeline, UpdatesOfOneWordOfGlobalMemoryFollowEachOther) {
  const std::string own = "  and.b32 %x, %x, 31;\n", same = "  mov.u32 %x, 5;\n";
  const std::string red = "red.global.add.u32 [%b], 1";
  const auto cycles = [&](const std::string& word, int64_t ctas) {
    return predict(additions(word, red, true), {.ctas = ctas}).cycles;
  };
  // A warp's lanes pass 4 sectors once, or one 32 times; of all SMs together at the same line.
  EXPECT_GT(cycles(same, 1), 3 * cycles(own, 1));
  EXPECT_NEAR(static_cast<double>(cycles(same, 64)) / static_cast<double>(cycles(own, 64)), 8, 1);
}

/// Clocks of a hundred divisions by 3 in each warp. `numerators` sets %f0.
double divisions(const std::string& what, const std::string& numerators, const Asked& asked = {}) {
  std::string body = numerators + "  mov.f32 %f1, 0f40400000;\n";
  for (int i = 0; i < 100; ++i) body += fmt::format("  {} %f{}, %f0, %f1;\n", what, 2 + i % 6);
  body += "  mul.wide.u32 %b, %t, 4;\n  add.s64 %b, %a, %b;\n  st.global.f32 [%b], %f3;\n";
  return static_cast<double>(predict(body, asked).cycles);
}
const std::string kFromZero = "  cvt.rn.f32.u32 %f0, %t;\n",
                  kFromOne = kFromZero + "  add.f32 %f0, %f0, 0f3F800000;\n",
                  kDenormals = "  mov.f32 %f0, 0f000116C2;\n";

TEST(Timeline, ExactDivisionsOfAWarpDoNotOverlap) {
  EXPECT_NEAR(divisions("div.rn.f32", kFromOne) - divisions("div.full.f32", kFromOne), 100 * (57 - 8), 200);
}

TEST(Timeline, ExactDivisionsOfZeroAndOfDenormalsTakeLonger) {
  const auto slower = [](const std::string& what, const std::string& numerators, const Asked& asked = {}) {
    return divisions(what, numerators, asked) - divisions(what, kFromOne, asked);
  };
  // Measured, for each: 57.6, 285.7 where one lane divides 0, 535.8 where one divides a denormal number.
  EXPECT_NEAR(slower("div.rn.f32", kFromZero), 100 * (285.7 - 57.6), 300);
  EXPECT_NEAR(slower("div.rn.f32", kDenormals), 100 * (535.8 - 57.6), 300);
  // Sixteen warps on an SM: 71.1, 352.7 and 740.7.
  const std::string all_zero = "  mov.f32 %f0, 0f80000000;\n";
  EXPECT_NEAR(slower("div.rn.f32", all_zero, {.threads = 512}), 100 * (352.7 - 71.1), 1500);
  EXPECT_NEAR(slower("div.rn.f32", kDenormals, {.threads = 512}), 100 * (740.7 - 71.1), 3000);
  EXPECT_NEAR(slower("div.full.f32", kFromZero), 0, 10);
}

TEST(Timeline, NumbersThatFollowFromProductsLeftOutDoNotSlowDivisionsDown) {
  const std::string product = R"(
  mov.u32 %x, 0;
  mov.f32 %f0, 0f00000000;
  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f2,%f3,%f4,%f5}, {%x,%x,%x,%x}, {%x,%x}, {%f0,%f0,%f0,%f0};
  mov.f32 %f0, %f2;
)";
  EXPECT_GT(divisions("div.rn.f32", product), 28000);
  EXPECT_LT(divisions("div.rn.f32", product, {.math = TensorMath::kNone}), 8000);
  EXPECT_GT(divisions("div.rn.f32", kFromZero, {.math = TensorMath::kNone}), 28000);  // no product, no doubt
}

TEST(Timeline, NothingIsPredictedOfALaunchThatDoesNotEnd) {
  EXPECT_EQ(launch(R"(
  @%q mbarrier.init.shared.b64 [%bar], 2;
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p, [%bar], 0;
  @!%p bra WAIT;)")
                .timeline,
            nullptr);
}

TEST(CostModel, ProductsTakeWhatTheSheetsSay) {
  EXPECT_EQ(wgmma_clocks(256, false), 128);
  EXPECT_EQ(wgmma_clocks(64, false), 32);
  EXPECT_EQ(wgmma_clocks(32, false), 24);
  EXPECT_EQ(wgmma_clocks(8, false), 18);
  EXPECT_EQ(wgmma_clocks(64, true), 36);
  EXPECT_EQ(tcgen05_clocks(256, false, false), 128);
  EXPECT_EQ(tcgen05_clocks(64, false, false), 48);  // bound by reading A and B
  EXPECT_EQ(tcgen05_clocks(64, false, true), 32);
  EXPECT_EQ(tcgen05_clocks(256, true, false), 128);
}

TEST(CacheModel, KeepsWhatWasUsedLast) {
  CacheModel cache(300);
  EXPECT_FALSE(cache.use(1, 100));
  EXPECT_FALSE(cache.use(2, 100));
  EXPECT_FALSE(cache.use(3, 100));
  EXPECT_TRUE(cache.use(1, 100));
  EXPECT_FALSE(cache.use(4, 100));  // 2 has to go
  EXPECT_TRUE(cache.use(1, 100));
  EXPECT_TRUE(cache.use(3, 100));
  EXPECT_FALSE(cache.use(2, 100));
}

/// Neighbours, which lie beside each other in its table, and numbers far apart, against a list in the order of their last uses.
TEST(CacheModel, KeepsWhatAListKeeps) {
  std::mt19937_64 random(7);
  for (const uint64_t apart : {uint64_t{1}, uint64_t{0x9E37'79B9'7F4A'7C15}})
    for (const size_t room : {size_t{1}, size_t{90}, size_t{1500}}) {
      CacheModel cache(static_cast<int64_t>(64 * room));
      std::vector<std::pair<uint64_t, double>> kept;  // the one used last at the end
      for (int i = 0; i < 20000; ++i) {
        const uint64_t block = random() % (2 * room) * apart;
        const auto at =
            std::find_if(kept.begin(), kept.end(), [&](const auto& k) { return k.first == block; });
        const bool is_there = at != kept.end();
        double* ready = nullptr;
        ASSERT_EQ(cache.use(block, 64, &ready), is_there) << i;
        if (!is_there) *ready = i;
        const double since = is_there ? at->second : i;
        ASSERT_EQ(*ready, since);
        if (is_there) kept.erase(at);
        kept.emplace_back(block, since);
        if (kept.size() > room) kept.erase(kept.begin());
      }
    }
}

TEST(Intervals, CommonTime) {
  Intervals a, b;
  a.add(0, 10);
  a.add(5, 20);
  a.add(30, 40);
  b.add(15, 35);
  EXPECT_EQ(a.length(), 30);
  EXPECT_EQ(a.common(b), 10);
  EXPECT_EQ(b.common(a), 10);
}

}  // namespace
}  // namespace imbrex::vgpu
