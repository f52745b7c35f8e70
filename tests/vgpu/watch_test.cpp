// SPDX-License-Identifier: Apache-2.0
// Launches that take long or never end: told of, ended by the host, and recognised.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "imbrex/vgpu/watch.h"
#include "vgpu_testing.h"

namespace imbrex::vgpu {
namespace {

struct Loop {
  std::string body;
  int64_t ctas = 1, threads = 64;
  std::shared_ptr<Watch> watch = nullptr;
  uint64_t seed = 0;
  int host_threads = 1;
  CheckSet checks = {};
  Options options = {};  // the rest of them

  Report run() const {
    const std::string text = fmt::format(R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry spin(.param .u64 buffer)
{{
  .reg .pred %p, %q, %first;
  .reg .b32 %t, %c, %x, %y, %s;
  .reg .b64 %out;
  .shared .align 8 .b8 tile[512];
  ld.param.u64 %out, [buffer];
  mov.u32 %t, %tid.x;
  mov.u32 %c, %ctaid.x;
  mov.u32 %s, tile;
  setp.eq.u32 %first, %t, 0;
  setp.lt.u32 %q, %t, 32;
{}
  ret;
}}
)",
                                         body);
    Options all = options;
    all.target = "sm_90a";
    all.host_threads = host_threads;
    all.seed = seed;
    all.checks = checks;
    all.watch = watch;
    VirtualGpu gpu(all);
    DeviceAddress out = gpu.allocate(64);
    gpu.fill(out, 0, 64);
    void* arguments[] = {&out};
    return gpu.launch(gpu.load_module(text, "spin.ptx").function("spin"),
                      {.grid = {ctas}, .block = {threads}, .arguments = arguments});
  }
};

void expect_endless(const Loop& loop) {
  const Report report = loop.run();
  EXPECT_FALSE(report.completed);
  ASSERT_EQ(report.findings.size(), 1u) << report.format();
  EXPECT_EQ(report.findings[0].kind, FindingKind::kEndlessRun) << report.format();
  EXPECT_NE(report.findings[0].message.find("nothing can change"), std::string::npos) << report.format();
  EXPECT_LT(report.statistics.instructions, 2'000'000) << "as long as that took to find out";
}

const std::string kSharedFlag = R"(
  @%first st.shared.u32 [%s], 0;
  bar.sync 0;
SPIN:
  ld.volatile.shared.u32 %x, [%s];
  setp.eq.u32 %p, %x, 0;
  @%p bra SPIN;)";
const std::string kGlobalFlag = R"(
SPIN:
  ld.acquire.gpu.global.u32 %x, [%out];
  setp.eq.u32 %p, %x, 0;
  @%p bra SPIN;)";

TEST(EndlessLoop, IsRecognisedWithinAMillionInstructions) {
  expect_endless({.body = "SPIN:\n  bra SPIN;"});
  for (const uint64_t seed : {0, 1}) {
    expect_endless({.body = kSharedFlag, .seed = seed});
    expect_endless({.body = kGlobalFlag, .seed = seed});
    // Half of the lanes only; the other warp waits at the barrier.
    expect_endless({.body = "  and.b32 %x, %t, 1;\n  setp.eq.u32 %q, %x, 0;\n  setp.lt.u32 %p, %t, 32;\n"
                            "  and.pred %q, %q, %p;\nSPIN:\n  @%q bra SPIN;\n  bar.sync 0;",
                    .seed = seed});
  }
  // Looked at in the middle of a long way round, seldom at the same place.
  std::string more;
  for (int i = 0; i < 60; ++i) more += "  xor.b32 %y, %y, %x;\n";
  expect_endless({.body = "  mov.b32 %y, 0;\n" + kSharedFlag.substr(0, kSharedFlag.find("  setp")) + more +
                          kSharedFlag.substr(kSharedFlag.find("  setp"))});
  expect_endless({.body = kGlobalFlag, .ctas = 4});
  expect_endless({.body = kGlobalFlag, .ctas = 4, .host_threads = 3});
  expect_endless({.body = kSharedFlag, .checks = CheckSet::none()});
  // What goes round in its own memory does so whatever the others do, who need not be run so far.
  for (const uint64_t seed : {0, 1}) expect_endless({.body = kSharedFlag, .ctas = 100, .seed = seed});
}

// A GPU full of CTAs that poll: each is run no further than it takes to see that it goes round.
TEST(EndlessLoop, OfAGridThatPollsIsFoundEarly) {
  constexpr int64_t kCtas = 150;
  const std::string one_thread = R"(
  @!%first bra MEET;
  red.global.add.u32 [%out], 1;
SPIN:
  ld.acquire.gpu.global.u32 %x, [%out];
  setp.lt.u32 %p, %x, 151;
  @%p bra SPIN;
MEET:
  bar.sync 0;)";
  const std::string by_updates =
      "SPIN:\n  atom.global.cas.b32 %x, [%out], 1, 2;\n  setp.ne.u32 %p, %x, 1;\n  @%p bra SPIN;";
  for (const std::string& body : {kGlobalFlag, by_updates, one_thread}) {
    const Report report = Loop{.body = body, .ctas = kCtas}.run();
    ASSERT_EQ(report.findings.size(), 1u) << report.format();
    EXPECT_EQ(report.findings[0].kind, FindingKind::kEndlessRun) << report.format();
    EXPECT_NE(report.format().find("having last looked at byte 0 of allocation 0"), std::string::npos);
    EXPECT_LT(report.statistics.instructions, kCtas * 8192);
  }
}

// Its registers are never the same again.
TEST(EndlessLoop, ThatCountsIsFoundByWhatItDoesNotDo) {
  Options options;
  options.stall_budget = 100000;
  const Report report = Loop{.body = R"(
  mov.b32 %y, 0;
SPIN:
  add.u32 %y, %y, 1;
  ld.volatile.global.u32 %x, [%out];
  setp.eq.u32 %p, %x, 0;
  @%p bra SPIN;)",
                             .threads = 32,
                             .options = options}
                            .run();
  EXPECT_FALSE(report.completed);
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].kind, FindingKind::kEndlessRun);
  EXPECT_NE(report.findings[0].message.find("100000 instructions without a store"), std::string::npos);
}

// Warp 0 waits for a word that warp 1 sets, who may be late by much.
TEST(EndlessLoop, IsNotOneThatALateWarpEnds) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Report report = Loop{.body = R"(
  @%q bra SPIN;
  mov.u32 %x, 1;
  st.volatile.global.u32 [%out], %x;
  ret;
SPIN:
  ld.volatile.global.u32 %x, [%out];
  setp.eq.u32 %p, %x, 0;
  @%p bra SPIN;)",
                               .seed = seed}
                              .run();
    ASSERT_TRUE(report.completed) << "seed " << seed << "\n" << report.format();
  }
}

// Two CTAs, one of which polls once in a while and computes in between.
TEST(EndlessLoop, IsNotOneThatPollsSeldom) {
  for (const int delay : {100, 340, 1364, 2000}) {
    const Report report = Loop{.body = fmt::format(R"(
  setp.eq.u32 %p, %c, 0;
  @%p bra POLL;
  mov.u32 %y, 0;
COUNT:
  add.u32 %y, %y, 1;
  setp.lt.u32 %p, %y, 20000;
  @%p bra COUNT;
  @%first st.release.gpu.global.u32 [%out], 1;
  ret;
POLL:
  mov.u32 %y, 0;
DELAY:
  add.u32 %y, %y, 1;
  setp.lt.u32 %p, %y, {};
  @%p bra DELAY;
  ld.acquire.gpu.global.u32 %x, [%out];
  setp.eq.u32 %p, %x, 0;
  @%p bra POLL;)",
                                                   delay),
                               .ctas = 2,
                               .threads = 32}
                              .run();
    EXPECT_TRUE(report.clean()) << delay << ": " << report.format();
  }
}

// What a CTA waits for is added by a bulk reduction after the other has exited. What it does then looks like more of the same: it reads
// global memory and writes nothing for long.
TEST(EndlessLoop, IsNotOneThatAReductionEndsWhoseCtaHasExited) {
  const std::string body = R"(
  .reg .b32 %count, %sum;
  mov.u32 %count, 0;
  mov.u32 %sum, 0;
  setp.eq.u32 %p, %c, 0;
  @%p bra POLL;
COUNT:
  add.u32 %count, %count, 1;
  setp.lt.u32 %p, %count, 50000;
  @%p bra COUNT;
  @!%first bra OUT;
  st.shared.u32 [%s], 1;
  fence.proxy.async.shared::cta;
  cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%out], [%s], 16;
  cp.async.bulk.commit_group;
OUT:
  ret;
POLL:
  ld.relaxed.gpu.global.u32 %x, [%out];
  setp.eq.u32 %p, %x, 0;
  @%p bra POLL;
READ:
  ld.global.u32 %y, [%out+32];
  add.u32 %sum, %sum, %y;
  add.u32 %count, %count, 1;
  setp.lt.u32 %p, %count, 50000;
  @%p bra READ;
  st.global.u32 [%out+48], %sum;)";
  for (const int host_threads : {1, 2})
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const Loop loop{.body = body,
                      .ctas = 2,
                      .threads = 32,
                      .seed = seed,
                      .host_threads = host_threads,
                      .checks = CheckSet::none()};
      EXPECT_TRUE(loop.run().completed) << seed << ": " << loop.run().format();
    }
}

TEST(EndlessLoop, SaysWhichCtasHaveNotStarted) {
  // The last CTA would end it, but the others leave no room.
  const std::string body = R"(
  setp.eq.u32 %p, %c, 299;
  @!%p bra LOOK;
  @%first st.release.gpu.global.u32 [%out], 1;
  ret;
LOOK:
  @!%q bra MEET;)" + kGlobalFlag +
                           "\nMEET:\n  bar.sync 0;";
  const Report report = Loop{.body = body, .ctas = 300, .threads = 1024}.run();
  ASSERT_EQ(report.findings.size(), 1u) << report.format();
  EXPECT_EQ(report.findings[0].kind, FindingKind::kEndlessRun);
  EXPECT_NE(report.format().find(" of 300 CTAs have not started"), std::string::npos) << report.format();
  // All of these have room.
  EXPECT_EQ((Loop{.body = kGlobalFlag, .ctas = 4}.run().format().find("have not started")),
            std::string::npos);
}

// A thread of the program ends the loop, long after the loop has begun to repeat itself.
TEST(EndlessLoop, IsNotOneThatAThreadOfTheProgramEnds) {
  const std::string text = R"(.version 9.0
.target sm_90a
.address_size 64
.visible .entry spin(.param .u64 buffer)
{
  .reg .pred %p;
  .reg .b32 %x;
  .reg .b64 %out;
  ld.param.u64 %out, [buffer];
  st.release.sys.global.u32 [%out], 1;
SPIN:
  ld.acquire.sys.global.u32 %x, [%out+4];
  setp.eq.u32 %p, %x, 0;
  @%p bra SPIN;
  ret;
}
)";
  VirtualGpu gpu({.target = "sm_90a"});
  DeviceAddress words = gpu.allocate_host_visible(8);
  gpu.fill(words, 0, 8);
  auto* const seen = reinterpret_cast<uint32_t*>(words);
  std::thread program([&] {
    while (std::atomic_ref(seen[0]).load() == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    std::atomic_ref(seen[1]).store(1);
  });
  void* arguments[] = {&words};
  const Report report =
      gpu.launch(gpu.load_module(text, "spin.ptx").function("spin"), {.arguments = arguments});
  program.join();
  EXPECT_TRUE(report.clean()) << report.format();
}

/// What the loop's finding says of the word that is looked at.
void expect_awaited(const std::string& body, const std::string& text, int64_t ctas = 2) {
  const Report report = Loop{.body = body, .ctas = ctas}.run();
  ASSERT_EQ(report.findings.size(), 1u) << report.format();
  EXPECT_NE(report.format().find(text), std::string::npos) << report.format();
  EXPECT_NE(report.format().find(fmt::format("CTA ({}, 0, 0) warp", ctas - 1)), std::string::npos)
      << report.format();
}

TEST(EndlessLoop, SaysWhichValueIsWaitedFor) {
  const std::string word = "having last looked at byte 8 of allocation 0 (0x",
                    look = "  ld.acquire.gpu.u32 %x, [%out+8];\n";
  const std::string raised = "  @%first red.global.add.u32 [%out+8], 1;\n";  // by either CTA
  expect_awaited(raised + "SPIN:\n" + look + "  setp.ne.s32 %p, %x, 3;\n  @%p bra SPIN;", word);
  for (const auto& [comparison, awaited] : std::vector<std::pair<std::string, std::string>>{
           {"setp.ne.s32 %p, %x, 3;\n  @%p bra SPIN;", "which holds 2 and is waited for to be 3"},
           {"setp.lt.u32 %p, %x, 7;\n  @%p bra SPIN;", "which holds 2 and is waited for to be at least 7"},
           {"setp.ge.u32 %p, %x, 7;\n  @!%p bra SPIN;", "which holds 2 and is waited for to be at least 7"},
           {"mov.b32 %y, %x;\n  setp.gt.s32 %p, 5, %y;\n  @%p bra SPIN;",
            "and is waited for to be at least 5"},
           {"setp.eq.u32 %p, %x, 2;\n  @!%p bra OUT;\n  bra SPIN;\nOUT:",
            "and is waited for to be other than 2"},
       })
    expect_awaited(raised + "SPIN:\n" + look + "  " + comparison, awaited);
  // By updates that change nothing: they are looks as well.
  expect_awaited(
      raised + "SPIN:\n  atom.global.add.u32 %x, [%out+8], 0;\n  setp.ne.s32 %p, %x, 3;\n  @%p bra SPIN;",
      "which holds 2 and is waited for to be 3");
  expect_awaited(
      "  @%first st.shared.u32 [%s], 1;\n  bar.sync 0;\nSPIN:\n  atom.shared.exch.b32 %x, [%s], 1;\n"
      "  setp.ne.s32 %p, %x, 0;\n  @%p bra SPIN;",
      "of shared memory, which holds 1 and is waited for to be 0", 1);
}

TEST(EndlessLoop, OfOneWarpWhileAnotherWaitsByTryWait) {
  expect_endless({.body = R"(
  @%first mbarrier.init.shared::cta.b64 [%s], 2;
  bar.sync 0;
  @%q bra SPIN;
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p, [%s], 0;
  @!%p bra WAIT;
  ret;
SPIN:
  mbarrier.test_wait.parity.shared::cta.b64 %p, [%s], 0;
  @!%p bra SPIN;)"});
}

TEST(EndlessLoop, SaysWhichBarrierIsAskedFor) {
  const std::string start = "  @%first mbarrier.init.shared::cta.b64 [%s], 2;\n  bar.sync 0;\n",
                    ask = "  mbarrier.test_wait.parity.shared::cta.b64 %p, [%s], ";
  const auto told = [&](const std::string& body) { return Loop{.body = start + body}.run().format(); };
  const std::string awaited = "asking for parity 0 of the barrier at shared 0x400 (pending 2 of 2 arrivals)";
  EXPECT_NE(told("SPIN:\n" + ask + "0;\n  @!%p bra SPIN;").find(awaited), std::string::npos)
      << told("SPIN:\n" + ask + "0;\n  @!%p bra SPIN;");
  // An answer that came is not waited for.
  EXPECT_EQ(told(ask + "1;\nSPIN:\n  bra SPIN;").find("asking for"), std::string::npos);
}

TEST(EndlessLoop, IsNotALongOne) {
  const std::string count = R"(
  mov.u32 %y, 0;
COUNT:
  add.u32 %y, %y, 1;
  setp.lt.u32 %p, %y, 50000;
  @%p bra COUNT;)";
  for (const uint64_t seed : {0, 1}) {
    const Report counted = Loop{.body = count, .seed = seed}.run();
    EXPECT_TRUE(counted.clean()) << counted.format();
    // One CTA waits until another has counted.
    const Report waited =
        Loop{.body = "  setp.eq.u32 %p, %c, 0;\n  @%p bra SPIN;\n" + count +
                     "\n  @%first st.release.gpu.global.u32 [%out], 1;\n  ret;\n" + kGlobalFlag,
             .ctas = 2,
             .seed = seed}
            .run();
    EXPECT_TRUE(waited.clean()) << waited.format();
  }
  // A try_wait that returns counts, and leads out of the loop.
  const Report tries = Loop{.body = R"(
  @%first mbarrier.init.shared::cta.b64 [%s], 2;
  @%first st.shared.u32 [%s+8], 0;
  bar.sync 0;
  @%q bra SPIN;
  mbarrier.try_wait.parity.shared::cta.b64 %p, [%s], 0;
  @%first st.volatile.shared.u32 [%s+8], 1;
  setp.eq.u32 %p, %t, 32;
  @%p st.volatile.shared.u32 [%s+8], 1;
  ret;
SPIN:
  ld.volatile.shared.u32 %x, [%s+8];
  setp.eq.u32 %p, %x, 0;
  @%p bra SPIN;)"}
                           .run();
  EXPECT_TRUE(tries.clean()) << tries.format();
}

// Stores all the time, so nobody can tell that it will not end.
const std::string kBusy = R"(
  mov.u32 %y, 0;
  mad.lo.u32 %s, %t, 4, %s;
BUSY:
  add.u32 %y, %y, 1;
  st.shared.u32 [%s], %y;
  @%first bra BUSY;
  bar.sync 0;)";

TEST(Watch, TellsWhereTheWarpsAreAndEndsTheLaunch) {
  for (const int host_threads : {1, 3}) {
    auto watch = std::make_shared<Watch>();
    watch->first_after = 0.05;
    watch->every = 0.01;
    std::vector<Progress> told;
    watch->tell = [&](const Progress& progress) {
      told.push_back(progress);
      if (told.size() == 3) watch->stop = true;
    };
    const Report report = Loop{.body = kBusy, .ctas = 3, .watch = watch, .host_threads = host_threads}.run();
    ASSERT_GE(told.size(), 3u);
    EXPECT_EQ(told[2].kernel, "spin");
    EXPECT_EQ(told[2].ctas, 3);
    EXPECT_EQ(told[2].ctas_done, 0);
    EXPECT_GE(told[2].seconds, 0.05);
    EXPECT_FALSE(report.completed);
    ASSERT_EQ(report.findings.size(), 1u) << report.format();
    const Finding& f = report.findings[0];
    EXPECT_EQ(f.kind, FindingKind::kInterrupted);
    EXPECT_EQ(f.severity, Severity::kFinding);
    const std::string text = f.format();
    EXPECT_NE(text.find("CTA (0, 0, 0) warp 0 "), std::string::npos) << text;
    EXPECT_NE(text.find("PTX line"), std::string::npos) << text;
    EXPECT_NE(text.find("warp 1 waiting at"), std::string::npos) << text;
  }
}

TEST(Watch, OfALaunchThatEndsInTimeHearsNothing) {
  auto watch = std::make_shared<Watch>();
  watch->tell = [](const Progress&) { FAIL(); };
  EXPECT_TRUE((Loop{.body = "", .watch = watch}.run().clean()));
  watch->stop = true;
  const Report report = Loop{.body = "", .watch = watch}.run();
  EXPECT_FALSE(report.completed) << "stopped before it began";
  EXPECT_EQ(report.findings.size(), 1u);
}

}  // namespace
}  // namespace imbrex::vgpu
