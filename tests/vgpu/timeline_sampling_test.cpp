// SPDX-License-Identifier: Apache-2.0
// Times predicted from a part of a launch: they are those of the whole launch, and a launch in which nothing repeats is
// replayed whole.
#include <fmt/format.h>

#include "timeline_kit.h"

namespace imbrex::vgpu {
namespace {

// A CTA reads and writes 4 KiB of its own, 16 bytes per thread, and computes a little. 1024 CTAs have memory.
const std::string kCopyOwn = R"(
  mov.u32 %x, %ctaid.x;
  mad.lo.u32 %x, %x, 256, %t;
  and.b32 %x, %x, 262143;
  mad.wide.u32 %b, %x, 16, %a;
  ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%b];
  mul.f32 %f0, %f0, %f1;
  st.global.v4.f32 [%b], {%f0, %f1, %f2, %f3};)";

/// A warp that goes `rounds` times over: eight loads, some arithmetic, eight stores of `stored` lanes' words.
std::string rounds_of_work(int rounds, const std::string& between = "") {
  std::string body = fmt::format("  mad.wide.u32 %b, %t, 4, %a;\n  mov.u32 %i, {};\nROUND:\n", rounds);
  for (int i = 0; i < 8; ++i) body += fmt::format("  ld.global.f32 %f{}, [%b+{}];\n", i, 128 * i);
  for (int i = 0; i < 64; ++i) body += fmt::format("  fma.rn.f32 %f{0}, %f{0}, %f{0}, %f{0};\n", i % 8);
  body += between;
  for (int i = 0; i < 8; ++i) body += fmt::format("  st.global.f32 [%b+{}], %f{};\n", 128 * i, i);
  return body + "  sub.u32 %i, %i, 1;\n  setp.ne.u32 %p, %i, 0;\n  @%p bra ROUND;\n";
}

double relative(const Timeline& part, const Timeline& whole) {
  return static_cast<double>(part.cycles) / static_cast<double>(whole.cycles) - 1;
}

TEST(Sampling, WavesOfAGridAreExtrapolated) {
  // Four SMs with room for 32 CTAs each: thirty waves, and a last one that is not full. A CTA has 1 KiB.
  const size_t stride = kCopyOwn.find("256");
  const std::string body = std::string(kCopyOwn).replace(stride, 3, "64");
  Asked asked{.ctas = 128 * 30 + 5, .threads = 64, .sms = 4, .checks = false};
  const Timeline whole = predict(body, asked);
  asked.sample = true;
  const Report report = launch(body, asked);
  ASSERT_NE(report.timeline, nullptr);
  const Timeline& part = *report.timeline;
  EXPECT_LT(report.statistics.ctas, asked.ctas / 4) << "the others are not run";
  EXPECT_EQ(part.ctas, asked.ctas);
  EXPECT_LT(part.replayed, 0.3);
  EXPECT_NEAR(relative(part, whole), 0, 0.01);
  EXPECT_NEAR(static_cast<double>(part.hbm_bytes) / static_cast<double>(whole.hbm_bytes), 1, 0.03);
  EXPECT_LT(part.sampling_error, 0.05);
  EXPECT_EQ(whole.replayed, 1);
}

TEST(Sampling, RoundsOfAPersistentKernelAreExtrapolated) {
  const std::string body = rounds_of_work(6000);
  Asked asked{.ctas = 2, .sms = 2, .checks = false};
  const Timeline whole = predict(body, asked);
  asked.sample = true;
  const Timeline part = predict(body, asked);
  EXPECT_LT(part.replayed, 0.5);
  EXPECT_NEAR(relative(part, whole), 0, 0.01);
  EXPECT_EQ(whole.replayed, 1);
}

TEST(Sampling, LongRoundsAreRecordedUntilFourWereSeen) {
  // 8000 loads in a round, so that two rounds are more than is usually recorded.
  std::string body =
      "  mad.wide.u32 %b, %t, 4, %a;\n  mov.u32 %i, 16;\nROUND:\n  mov.u32 %y, 2000;\nLOADS:\n";
  for (int i = 0; i < 4; ++i) body += fmt::format("  ld.global.f32 %f{}, [%b+{}];\n", i, 128 * i);
  body += "  add.f32 %f0, %f0, %f1;\n  add.f32 %f2, %f2, %f3;\n";
  body += "  sub.u32 %y, %y, 1;\n  setp.ne.u32 %p, %y, 0;\n  @%p bra LOADS;\n";
  for (int i = 0; i < 4; ++i) body += fmt::format("  st.global.f32 [%b+{}], %f{};\n", 128 * i, i);
  body += "  sub.u32 %i, %i, 1;\n  setp.ne.u32 %p, %i, 0;\n  @%p bra ROUND;\n";
  Asked asked{.ctas = 2, .sms = 2, .checks = false};
  const Timeline whole = predict(body, asked);
  asked.sample = true;
  const Timeline part = predict(body, asked);
  EXPECT_LT(part.replayed, 0.5);
  EXPECT_NEAR(relative(part, whole), 0, 0.01);
}

TEST(Sampling, MostClustersOfAPersistentKernelEndWithTheirRecordings) {
  // Work is dealt out in turn: the first five CTAs of 24 go round once more than the others.
  const std::string rounds = rounds_of_work(0);
  const std::string body =
      "  mov.u32 %y, %ctaid.x;\n  mul.lo.u32 %y, %y, 4096;\n  cvt.u64.u32 %s, %y;\n  add.u64 %a, %a, %s;\n" +
      rounds.substr(0, rounds.find("ROUND:")) +
      "  mov.u32 %x, %ctaid.x;\n  setp.lt.u32 %p, %x, 5;\n  mov.u32 %i, 3000;\n  @%p mov.u32 %i, 3300;\n" +
      rounds.substr(rounds.find("ROUND:"));
  Asked asked{.ctas = 24, .sms = 24, .checks = false};
  const Report whole = launch(body, asked);
  asked.sample = true;
  const Report part = launch(body, asked);
  ASSERT_NE(part.timeline, nullptr);
  EXPECT_LT(part.timeline->replayed, 0.9);
  EXPECT_NEAR(relative(*part.timeline, *whole.timeline), 0, 0.01);
  EXPECT_LT(part.statistics.instructions, whole.statistics.instructions * 6 / 10);
  EXPECT_NEAR(static_cast<double>(part.timeline->l2_bytes) / static_cast<double>(whole.timeline->l2_bytes), 1,
              0.1);
}

TEST(Sampling, ShortGridsAreReplayedWhole) {
  Asked asked{.ctas = 16 * 5, .threads = 256, .sms = 2, .checks = false};
  const Timeline whole = predict(kCopyOwn, asked);
  asked.sample = true;
  const Timeline part = predict(kCopyOwn, asked);
  EXPECT_EQ(part.replayed, 1);
  EXPECT_EQ(part.cycles, whole.cycles);
}

TEST(Sampling, KernelsThatTakeTicketsAreReplayedWhole) {
  const std::string body = "  atom.global.add.u32 %x, [%a], 1;\n" + kCopyOwn;
  Asked asked{.ctas = 16 * 12, .threads = 256, .sms = 2, .checks = false};
  const Timeline whole = predict(body, asked);
  asked.sample = true;
  const Report report = launch(body, asked);
  EXPECT_EQ(report.statistics.ctas, asked.ctas);
  EXPECT_EQ(report.timeline->replayed, 1);
  EXPECT_NEAR(relative(*report.timeline, whole), 0, 0.02);
}

TEST(Sampling, LoopsThatStoreOnceAtTheEndAreReplayedWhole) {
  std::string body = "  mad.wide.u32 %b, %t, 4, %a;\n  mov.u32 %i, 24000;\nROUND:\n";
  body += "  ld.global.f32 %f0, [%b];\n  fma.rn.f32 %f1, %f0, %f0, %f1;\n";
  body += "  sub.u32 %i, %i, 1;\n  setp.ne.u32 %p, %i, 0;\n  @%p bra ROUND;\n  st.global.f32 [%b], %f1;\n";
  Asked asked{.ctas = 1, .sms = 2, .checks = false};
  const Timeline whole = predict(body, asked);
  asked.sample = true;
  const Timeline part = predict(body, asked);
  EXPECT_EQ(part.replayed, 1);
  EXPECT_EQ(part.cycles, whole.cycles);
}

TEST(Sampling, ProductsThatAreNotComputedTakeTheirTime) {
  std::string body;
  for (int i = 0; i < 8; ++i)
    body +=
        "  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f0, %f1, %f2, %f3}, {%x, %x, %x, %x}, {%y, "
        "%y}, "
        "{%f0, %f1, %f2, %f3};\n";
  const auto run = [&](TensorMath math) {
    Options options{.target = "sm_90a", .host_threads = 1, .tensor_math = math, .timeline = {.record = true}};
    options.checks = CheckSet::none();
    VirtualGpu gpu(options);
    const Module module = gpu.load_module(module_of(body), "timeline.ptx");
    DeviceAddress memory = to_device(gpu, std::vector<uint32_t>(64, 1u));
    void* arguments[] = {&memory};
    return gpu.launch(module.function("k"), {.block = {32}, .arguments = arguments});
  };
  const Report computed = run(TensorMath::kFast), left_out = run(TensorMath::kNone);
  EXPECT_EQ(left_out.timeline->cycles, computed.timeline->cycles);
  EXPECT_EQ(left_out.statistics.tensor_flops, computed.statistics.tensor_flops);
  EXPECT_GT(left_out.statistics.tensor_flops, 0);
}

}  // namespace
}  // namespace imbrex::vgpu
