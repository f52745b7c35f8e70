// SPDX-License-Identifier: Apache-2.0
// Races on global memory, inside a CTA and between CTAs.
#include <fmt/format.h>

#include "vgpu/checks/happens_before.h"
#include "vgpu_testing.h"

namespace imbrex::vgpu {
namespace {

/// Two CTAs of 64 threads; %c is the CTA, %t the thread, %first holds for thread 0 of the CTA, %zero for CTA
/// 0. %data is the buffer, %own this thread's word of it (the same in both CTAs), %flag a word that is 0.
Report run(const std::string& body, uint64_t seed = 0, int ctas = 2) {
  const std::string text = R"(.version 9.0
.target sm_90a
.address_size 64
.file 1 "global.cu"
.visible .entry k(.param .u64 buffer, .param .u64 flags)
.reqntid 64
{
  .reg .pred %p, %first, %zero;
  .reg .b32 %t, %c, %x, %y, %s;
  .reg .b64 %data, %own, %flag, %at;
  .shared .align 16 .b8 tile[256];
  ld.param.u64 %data, [buffer];
  ld.param.u64 %flag, [flags];
  mov.u32 %t, %tid.x;
  mov.u32 %c, %ctaid.x;
  mov.u32 %s, tile;
  mad.wide.u32 %own, %t, 4, %data;
  setp.eq.u32 %first, %t, 0;
  setp.eq.u32 %zero, %c, 0;
)" + body + "\n  ret;\n}\n";
  VirtualGpu gpu({.target = "sm_90a", .seed = seed});
  DeviceAddress data = gpu.allocate(4096), flags = gpu.allocate(256);
  gpu.fill(data, 0, 4096);
  gpu.fill(flags, 0, 256);
  void* arguments[] = {&data, &flags};
  return gpu.launch(gpu.load_module(text, "global.ptx").function("k"),
                    {.grid = {ctas}, .block = {64}, .arguments = arguments});
}

::testing::AssertionResult races(const Report& report, int line, int other, const std::string& words = "") {
  for (const Finding& f : report.findings)
    if (f.kind == FindingKind::kRace &&
        ((f.place.line == line && f.other_place.line == other) ||
         (f.place.line == other && f.other_place.line == line)) &&
        (f.message + f.hint).find(words) != std::string::npos)
      return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << report.format();
}

TEST(GlobalRace, TwoCtasWriteTheSamePlace) {
  const Report report = run("  .loc 1 5 0\n  st.global.u32 [%own], %c;");
  ASSERT_EQ(report.findings.size(), 1u) << report.format();
  const Finding& f = report.findings[0];
  EXPECT_TRUE(races(report, 5, 5));
  EXPECT_EQ(f.actor.cta[0] + f.other_actor.cta[0], 1) << report.format();
  EXPECT_NE(f.message.find("of CTA ("), std::string::npos) << f.message;
  EXPECT_NE(f.hint.find("release"), std::string::npos) << f.hint;
}

TEST(GlobalRace, OneWritesWhatTheOtherReads) {
  EXPECT_TRUE(races(run("  .loc 1 5 0\n  @%zero st.global.u32 [%own], 1;\n"
                        "  .loc 1 6 0\n  @!%zero ld.global.u32 %x, [%own];"),
                    5, 6));
}

TEST(GlobalRace, ReadingTogetherAndNeighbouringBytesAreLawful) {
  EXPECT_TRUE(run("  ld.global.u32 %x, [%own];").clean());
  const Report bytes = run(R"(
  cvt.u64.u32 %at, %t;
  shl.b64 %at, %at, 1;
  add.u64 %at, %at, %data;
  cvt.u64.u32 %own, %c;
  add.u64 %at, %at, %own;
  st.global.u8 [%at], %c;)");
  EXPECT_TRUE(bytes.clean()) << bytes.format();
}

TEST(GlobalRace, AtomicsMeet) {
  EXPECT_TRUE(run("  red.global.add.u32 [%flag], 1;").clean());
  EXPECT_TRUE(races(run("  .loc 1 3 0\n  @%zero red.global.add.u32 [%flag], 1;\n"
                        "  .loc 1 4 0\n  @!%zero st.global.u32 [%flag], %t;"),
                    3, 4));
  // Of CTA scope they are atomic for their CTA only.
  EXPECT_TRUE(races(run("  .loc 1 3 0\n  red.relaxed.cta.global.add.u32 [%flag], 1;"), 3, 3, "use .gpu"));
}

// CTA 0 writes, CTA 1 reads once a flag is set.
std::string message(const std::string& sync, const std::string& set, const std::string& get,
                    const std::string& got = "") {
  return R"(
  @!%zero bra READER;
  .loc 1 10 0
  st.global.u32 [%own], %t;
)" + sync +
         "  @%first " + set + R"(
  ret;
READER:
)" + "  " +
         get +
         R"(
  setp.eq.u32 %p, %x, 0;
  @%p bra READER;
)" + got +
         "  .loc 1 20 0\n  ld.global.u32 %y, [%own];";
}

TEST(GlobalRace, AFlagOrdersByReleaseAndAcquire) {
  const std::string sync = "  bar.sync 0;\n";
  const std::string release = "st.release.gpu.global.u32 [%flag], 1;",
                    acquire = "ld.acquire.gpu.global.u32 %x, [%flag];";
  const std::string relaxed = "st.relaxed.gpu.global.u32 [%flag], 1;",
                    look = "ld.relaxed.gpu.global.u32 %x, [%flag];";
  const std::string fence = "  fence.acq_rel.gpu;\n", narrow = "  fence.acq_rel.cta;\n";
  for (uint64_t seed = 0; seed < 4; ++seed) {
    for (const std::string& lawful :
         {message(sync, release, acquire), message(sync + fence, relaxed, look, fence),
          message(sync + "  membar.gl;\n", "red.global.add.u32 [%flag], 1;", acquire),
          message(sync + fence, "st.volatile.global.u32 [%flag], 1;", "ld.volatile.global.u32 %x, [%flag];",
                  fence)}) {
      const Report report = run(lawful, seed);
      EXPECT_TRUE(report.clean()) << lawful << report.format();
    }
    for (const std::string& wrong : {message(sync, relaxed, acquire),
                                     message(sync + narrow, relaxed, acquire), message("", release, acquire)})
      EXPECT_TRUE(races(run(wrong, seed), 10, 20)) << wrong;
  }
}

TEST(GlobalRace, TheLastBlockReadsWhatAllHaveWritten) {
  const auto kernel =
      [](const std::string& fence) {
        return R"(
  mad.wide.u32 %own, %c, 256, %own;
  .loc 1 10 0
  st.global.u32 [%own], %t;
)" + fence + R"(
  bar.sync 0;
  @%first atom.global.add.u32 %x, [%flag], 1;
  @%first st.shared.u32 [%s], %x;
  bar.sync 0;
  ld.shared.u32 %x, [%s];
  setp.ne.u32 %p, %x, 7;
  @%p ret;
)" + fence + R"(
  mad.wide.u32 %own, %t, 32, %data;
  .loc 1 20 0
  ld.global.v4.u32 {%x, %y, %t, %c}, [%own];
)";
      };
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const Report good = run(kernel("  membar.gl;\n"), seed, 8);
    EXPECT_TRUE(good.clean()) << good.format();
    EXPECT_TRUE(races(run(kernel(""), seed, 8), 10, 20));
  }
}

TEST(GlobalRace, AWriteAmongManyReaders) {
  // Whether the writer comes first, last or in between; it is one of the readers, or none.
  for (const int writer : {0, 7, 15})
    for (const std::string before : {"", "  ld.global.u32 %x, [%own];\n"})
      for (const uint64_t seed : {0, 1, 2, 3}) {
        const Report report = run(fmt::format(R"(
  setp.eq.u32 %p, %c, {};
  @%p bra WRITE;
  .loc 1 5 0
  ld.global.u32 %x, [%own];
  ret;
WRITE:
{}  .loc 1 6 0
  st.global.u32 [%own], 1;)",
                                              writer, before),
                                  seed, 16);
        EXPECT_TRUE(races(report, 5, 6)) << writer << seed;
      }
}

TEST(GlobalRace, TheLastBlockOverwritesWhatAllHaveRead) {
  for (const uint64_t seed : {0, 1, 2, 3}) {
    const auto kernel = [](const std::string& fence) {
      return "  .loc 1 4 0\n  ld.global.u32 %x, [%own];\n" + fence + R"(
  bar.sync 0;
  @!%first bra COUNTED;
  atom.relaxed.gpu.global.add.u32 %y, [%flag], 1;
)" + fence + R"(
  st.shared.u32 [%s], %y;
COUNTED:
  bar.sync 0;
  ld.shared.u32 %y, [%s];
  setp.eq.u32 %p, %y, 15;
  .loc 1 9 0
  @%p st.global.u32 [%own], 5;)";
    };
    const Report good = run(kernel("  fence.acq_rel.gpu;\n"), seed, 16);
    EXPECT_TRUE(good.clean()) << good.format();
    EXPECT_TRUE(races(run(kernel(""), seed, 16), 4, 9));
  }
}

TEST(GlobalRace, InsideACta) {
  const std::string write = "  @!%zero ret;\n  .loc 1 10 0\n  st.global.u32 [%own], %t;\n";
  const std::string read = R"(
  xor.b32 %x, %t, 32;
  mad.wide.u32 %at, %x, 4, %data;
  .loc 1 20 0
  ld.global.u32 %y, [%at];)";
  EXPECT_TRUE(run(write + "  bar.sync 0;\n" + read).clean());
  EXPECT_TRUE(races(run(write + read), 10, 20, "a barrier between them"));
}

// Thread 0 has the tile stored by the copy unit.
std::string bulk_store(const std::string& who) {
  return "  @!%zero ret;\n  mad.lo.u32 %x, %t, 4, %s;\n  st.shared.u32 [%x], %t;\n  fence.proxy.async;\n"
         "  bar.sync 0;\n  .loc 1 10 0\n  " +
         who +
         " cp.async.bulk.global.shared::cta.bulk_group [%data], [%s], 256;\n"
         "  cp.async.bulk.commit_group;\n";
}

TEST(GlobalRace, WhatACopyUnitWritesIsThereAfterItsWait) {
  const std::string read =
      "  bar.sync 0;\n  .loc 1 20 0\n  ld.global.u32 %y, [%own];\n  cp.async.bulk.wait_group 0;\n";
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const Report good = run(bulk_store("@%first") + "  cp.async.bulk.wait_group 0;\n" + read, seed);
    EXPECT_TRUE(good.clean()) << good.format();
    EXPECT_TRUE(races(run(bulk_store("@%first") + "  cp.async.bulk.wait_group.read 0;\n" + read, seed), 10,
                      20, "without .read"));
  }
}

TEST(GlobalRace, TwoThreadsStoreTheSameTile) {
  const std::string end = "  cp.async.bulk.wait_group 0;\n";
  EXPECT_TRUE(run(bulk_store("@%first") + end).clean());
  EXPECT_TRUE(races(run("  setp.lt.u32 %p, %t, 2;\n" + bulk_store("@%p") + end), 10, 10));
}

/// One agent of one cluster, known up to a clock.
std::shared_ptr<const Foreign> known(uint32_t cluster, Clock clock) {
  VectorClock of;
  of.join(AgentId{3}, Known(clock));
  return std::make_shared<const Foreign>(Foreign{{cluster, std::make_shared<const VectorClock>(of)}});
}

TEST(GlobalRace, WhoPollsLearnsNothingNewAndSharesWhatIsKnown) {
  const auto early = known(1, 5), late = known(1, 6), both = join(late, known(2, 1));
  EXPECT_EQ(join(late, early), late);
  EXPECT_EQ(join(early, late), late);
  EXPECT_EQ(join(both, late), both);
  EXPECT_EQ(join(early, both), both);
  EXPECT_EQ(join(nullptr, both), both);
  ASSERT_EQ(both->size(), 2u);
  EXPECT_TRUE(both->at(1)->covers_all(3, 5));
  // Each knows what the other does not.
  const auto joined = join(join(known(1, 9), known(2, 2)), both);
  EXPECT_TRUE(joined->at(1)->covers_all(3, 8));
  EXPECT_TRUE(joined->at(2)->covers_all(3, 1));
  EXPECT_FALSE(joined->at(2)->covers_all(3, 2));
  const auto mixed = join(join(known(1, 9), known(2, 1)), join(known(1, 2), known(2, 7)));
  EXPECT_TRUE(mixed->at(1)->covers_all(3, 8));
  EXPECT_TRUE(mixed->at(2)->covers_all(3, 6));
}

}  // namespace
}  // namespace imbrex::vgpu
