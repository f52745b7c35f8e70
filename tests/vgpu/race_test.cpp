// SPDX-License-Identifier: Apache-2.0
// Races on shared memory: found where nothing orders two warps, silent where something does.
#include <fmt/format.h>

#include "vgpu_testing.h"

namespace imbrex::vgpu {
namespace {

/// Two warps; %t is the thread, %own the address of its word, %other that of the same lane of the other warp.
Report run(const std::string& body, uint64_t seed = 0) {
  const std::string text = fmt::format(R"(.version 8.6
.target sm_90a
.address_size 64
.file 1 "race.cu"
.shared .align 16 .b8 tile[256];
.shared .align 8 .b64 bar;
.global .align 16 .b8 buffer[256];
.visible .entry k()
{{
  .reg .pred %p, %q;
  .reg .b32 %t, %x, %y, %own, %other, %bar, %lane;
  .reg .b64 %s, %d;
  mov.u32 %t, %tid.x;
  mov.u32 %lane, %laneid;
  mov.u32 %own, tile;
  mov.u32 %bar, bar;
  mad.lo.u32 %own, %t, 4, %own;
  xor.b32 %x, %t, 32;
  mov.u32 %other, tile;
  mad.lo.u32 %other, %x, 4, %other;
  setp.lt.u32 %p, %t, 32;
  setp.eq.u32 %q, %t, 0;
{}
  ret;
}}
)",
                                       body);
  Options options{.target = "sm_90a", .seed = seed};
  VirtualGpu gpu(options);
  return gpu.launch(gpu.load_module(text, "race.ptx").function("k"), {.block = {64}});
}

TEST(Race, AMissingBarrierIsFoundWhateverTheOrder) {
  for (const uint64_t seed : {0, 1, 2, 3, 4, 5}) {
    const Report report = run(R"(
  .loc 1 7 0
  st.shared.u32 [%own], %t;
  bar.sync 0;
  .loc 1 9 0
  @%p st.shared.u32 [%own], 5;
  .loc 1 10 0
  @!%p ld.shared.u32 %y, [%other];)",
                              seed);
    ASSERT_EQ(report.findings.size(), 1u) << report.format();
    const Finding& f = report.findings[0];
    EXPECT_EQ(f.kind, FindingKind::kRace);
    EXPECT_EQ(f.place.line + f.other_place.line, 19) << f.format();
    EXPECT_EQ(f.actor.warp + f.other_actor.warp, 1);
    EXPECT_EQ(f.count, 8) << "once for every 16 bytes";
  }
}

TEST(Race, ABarrierOrders) {
  const Report report = run(R"(
  st.shared.u32 [%own], %t;
  bar.sync 0;
  ld.shared.u32 %y, [%other];
  bar.sync 0;
  st.shared.u32 [%other], %y;)");
  EXPECT_TRUE(report.clean()) << report.format();
}

TEST(Race, ArrivingWithoutWaitingOrdersOneWayOnly) {
  // Warp 0 arrives and goes on: warp 1 may read what it wrote before, warp 0 may not read what warp 1 wrote.
  const std::string one_way = R"(
  @%p bra FIRST;
  bar.sync 1, 64;
  ld.shared.u32 %y, [%other];
  ret;
FIRST:
  st.shared.u32 [%own], %t;
  bar.arrive 1, 64;)";
  EXPECT_TRUE(run(one_way).clean()) << run(one_way).format();
  const Report report = run(R"(
  @%p bra FIRST;
  st.shared.u32 [%own], %t;
  bar.sync 1, 64;
  ret;
FIRST:
  bar.arrive 1, 64;
  st.shared.u32 [%other], %t;)");
  ASSERT_EQ(report.findings.size(), 1u) << report.format();
  EXPECT_EQ(report.findings[0].kind, FindingKind::kRace);
}

TEST(Race, AnMbarrierOrdersThoseWhoWait) {
  const std::string start = R"(
  @%q mbarrier.init.shared.b64 [%bar], 32;
  bar.sync 0;
  @!%p bra CONSUMER;
  st.shared.u32 [%own], %t;
  mbarrier.arrive.shared.b64 _, [%bar];
  ret;
CONSUMER:
)";
  const std::string wait = R"(
WAIT:
  mbarrier.try_wait.parity.shared.b64 %q, [%bar], 0;
  @!%q bra WAIT;
)";
  const std::string read = "  ld.shared.u32 %y, [%other];\n";
  const Report good = run(start + wait + read);
  EXPECT_TRUE(good.clean()) << good.format();
  // Without the wait it is a race, or, when the producer is late, also a read of what nobody has written.
  const Report bad = run(start + read, 3);
  bool found = false;
  for (const Finding& f : bad.findings) found |= f.kind == FindingKind::kRace;
  EXPECT_TRUE(found) << bad.format();
}

TEST(Race, FlagsByStrongAccessesOrder) {
  const Report report = run(R"(
  @%q st.shared.u64 [%bar], 0;
  bar.sync 0;
  @!%p bra READER;
  st.shared.u32 [%own], %t;
  bar.warp.sync -1;
  @%q st.release.cta.shared.u32 [%bar], 1;
  ret;
READER:
  ld.acquire.cta.shared.u32 %y, [%bar];
  setp.eq.u32 %q, %y, 0;
  @%q bra READER;
  ld.shared.u32 %y, [%other];)");
  EXPECT_TRUE(report.clean()) << report.format();
}

TEST(Race, AtomicsDoNotRaceWithEachOtherButWithPlainWrites) {
  const std::string clear = "  @%q st.shared.u64 [%bar], 0;\n  bar.sync 0;\n";
  EXPECT_TRUE(run(clear + "  atom.shared.add.u32 %y, [%bar], 1;").clean());
  const Report report =
      run(clear + "  @%p atom.shared.add.u32 %y, [%bar], 1;\n  @!%p st.shared.u32 [%bar], %t;");
  ASSERT_GE(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].kind, FindingKind::kRace);
}

// ---- lanes
// ---------------------------------------------------------------------------------------------------

bool has(const Report& report, FindingKind kind, int line, int other, const std::string& words = "") {
  for (const Finding& f : report.findings)
    if (f.kind == kind && f.place.line == line && f.other_place.line == other &&
        (f.message + f.hint).find(words) != std::string::npos)
      return true;
  return false;
}

TEST(Lanes, TalkThroughSharedMemoryWithABarrierOfTheWarp) {
  const auto kernel = [](const std::string& sync) {
    return "  xor.b32 %x, %t, 1;\n  mov.u32 %other, tile;\n  mad.lo.u32 %other, %x, 4, %other;\n"
           "  .loc 1 5 0\n  st.shared.u32 [%own], %t;\n" +
           sync + "  .loc 1 7 0\n  ld.shared.u32 %y, [%other];";
  };
  const Report good = run(kernel("  bar.warp.sync -1;\n"));
  EXPECT_TRUE(good.clean()) << good.format();
  const Report bad = run(kernel(""));
  EXPECT_TRUE(has(bad, FindingKind::kRace, 7, 5, "bar.warp.sync")) << bad.format();
  EXPECT_NE(bad.findings[0].message.find("lane 0 of warp"), std::string::npos) << bad.format();
}

TEST(Lanes, ThatMeetAreNamedAndNotTheFirstOfTheirWarp) {
  const Report bad = run(
      "  mov.u32 %x, tile;\n  st.shared.u32 [%own], %t;\n  bar.sync 0;\n  setp.eq.u32 %p, %t, 0;\n"
      "  .loc 1 5 0\n  @%p ld.shared.v2.u32 {%y, %other}, [%x+8];\n  .loc 1 7 0\n  st.shared.u32 [%own], 7;");
  EXPECT_TRUE(has(bad, FindingKind::kRace, 7, 5,
                  "lane 2 of warp 0 writes shared memory at 0x408, which lane 0 of the same warp read"))
      << bad.format();
}

TEST(Lanes, WriteDifferentValuesToOnePlace) {
  const std::string tile = "  mov.u32 %x, tile;\n  @!%p bra END;\n  .loc 1 5 0\n";
  EXPECT_TRUE(run(tile + "  st.shared.u32 [%x], 7;\nEND:").clean());
  const Report bad = run(tile + "  st.shared.u32 [%x], %t;\nEND:");
  ASSERT_EQ(bad.findings.size(), 1u) << bad.format();
  EXPECT_EQ(bad.findings[0].kind, FindingKind::kRace);
  EXPECT_NE(bad.findings[0].message.find("write different values to the same shared memory"),
            std::string::npos)
      << bad.format();
  EXPECT_EQ(bad.findings[0].place.line, 5);
}

TEST(Lanes, OneArrivalSpeaksForTheOthersAfterABarrierOfTheWarp) {
  const auto kernel = [](const std::string& sync, const std::string& who, int count) {
    return fmt::format(R"(
  @%q mbarrier.init.shared.b64 [%bar], {};
  bar.sync 0;
  @!%p bra CONSUMER;
  .loc 1 10 0
  st.shared.u32 [%own], %t;
{}
  {} mbarrier.arrive.shared.b64 _, [%bar];
  ret;
CONSUMER:
WAIT:
  mbarrier.try_wait.parity.shared.b64 %q, [%bar], 0;
  @!%q bra WAIT;
  .loc 1 20 0
  ld.shared.u32 %y, [%other];
)",
                       count, sync, who);
  };
  for (const uint64_t seed : {0, 1, 2, 3}) {
    EXPECT_TRUE(run(kernel("", "", 32), seed).clean());
    const Report good = run(kernel("  bar.warp.sync -1;", "@%q", 1), seed);
    EXPECT_TRUE(good.clean()) << good.format();
    const Report bad = run(kernel("", "@%q", 1), seed);
    EXPECT_TRUE(has(bad, FindingKind::kRace, 20, 10, "bar.warp.sync before it")) << bad.format();
  }
}

TEST(Lanes, WhatOneLaneWaitedForTheOthersDoNotKnow) {
  const auto kernel = [](const std::string& who, const std::string& sync) {
    return fmt::format(R"(
  @%q mbarrier.init.shared.b64 [%bar], 32;
  bar.sync 0;
  @%p bra CONSUMER;
  .loc 1 10 0
  st.shared.u32 [%own], %t;
  mbarrier.arrive.shared.b64 _, [%bar];
  ret;
CONSUMER:
  {} bra READ;
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p, [%bar], 0;
  @!%p bra WAIT;
READ:
{}
  .loc 1 20 0
  ld.shared.u32 %y, [%other];
)",
                       who, sync);
  };
  for (const uint64_t seed : {0, 1, 2, 3}) {
    // Every lane waits; one waits and a barrier of the warp, or of the CTA's first warp, tells the others.
    EXPECT_TRUE(run(kernel("@!%p", ""), seed).clean());
    for (const char* sync : {"  bar.warp.sync -1;", "  bar.sync 1, 32;"}) {
      const Report good = run(kernel("@!%q", sync), seed);
      EXPECT_TRUE(good.clean()) << good.format();
    }
    const Report bad = run(kernel("@!%q", ""), seed);
    bool found = false;
    for (const Finding& f : bad.findings)
      found |= f.kind == FindingKind::kRace && f.place.line + f.other_place.line == 30;
    EXPECT_TRUE(found) << bad.format();
  }
}

TEST(Lanes, AFenceOfAllIsNotAnArrivalOfAll) {
  // Warp 0 reads the same word with every lane; then one lane says that it may be overwritten.
  const auto kernel = [](const std::string& sync, const std::string& who, int count) {
    return fmt::format(R"(
  @%q mbarrier.init.shared.b64 [%bar], {};
  st.shared.u32 [%own], %t;
  bar.sync 0;
  @!%p bra WRITER;
  mov.u32 %x, tile;
  .loc 1 10 0
  ld.shared.u32 %y, [%x];
  fence.proxy.async.shared::cta;
{}
  {} mbarrier.arrive.shared.b64 _, [%bar];
  ret;
WRITER:
WAIT:
  mbarrier.try_wait.parity.shared.b64 %q, [%bar], 0;
  @!%q bra WAIT;
  .loc 1 20 0
  st.shared.u32 [%other], %t;
)",
                       count, sync, who);
  };
  for (const uint64_t seed : {0, 1, 2, 3}) {
    EXPECT_TRUE(run(kernel("", "", 32), seed).clean());
    const Report good = run(kernel("  bar.warp.sync -1;", "@%q", 1), seed);
    EXPECT_TRUE(good.clean()) << good.format();
    EXPECT_TRUE(has(run(kernel("", "@%q", 1), seed), FindingKind::kRace, 20, 10));
  }
}

TEST(Race, RelaxedArrivalsOrderNothingWithoutAFence) {
  const auto kernel = [](const std::string& before, const std::string& arrive, const std::string& wait,
                         const std::string& after) {
    return fmt::format(R"(
  @%q mbarrier.init.shared.b64 [%bar], 32;
  bar.sync 0;
  @!%p bra CONSUMER;
  .loc 1 10 0
  st.shared.u32 [%own], %t;
{}  mbarrier.arrive{}.shared::cta.b64 _, [%bar];
  ret;
CONSUMER:
WAIT:
  mbarrier.try_wait.parity{}.shared::cta.b64 %q, [%bar], 0;
  @!%q bra WAIT;
{}  .loc 1 20 0
  ld.shared.u32 %y, [%other];
)",
                       before, arrive, wait, after);
  };
  const std::string relaxed = ".relaxed.cta", fence = "  fence.acq_rel.cta;\n";
  for (const uint64_t seed : {0, 1, 2, 3}) {
    EXPECT_TRUE(run(kernel("", "", "", ""), seed).clean());
    const Report fenced = run(kernel(fence, relaxed, relaxed, fence), seed);
    EXPECT_TRUE(fenced.clean()) << fenced.format();
    EXPECT_TRUE(has(run(kernel("", relaxed, "", ""), seed), FindingKind::kRace, 20, 10));
    EXPECT_TRUE(has(run(kernel("", "", relaxed, ""), seed), FindingKind::kRace, 20, 10));
  }
}

TEST(Race, AnMbarrierIsInitialisedBeforeItIsUsed) {
  const Report late = run(R"(
  bar.sync 0;
  .loc 1 10 0
  @%q mbarrier.init.shared.b64 [%bar], 32;
  bar.warp.sync -1;
  @%p bra END;
  nanosleep.u32 1000;
  .loc 1 20 0
  mbarrier.arrive.shared.b64 _, [%bar];
END:)");
  EXPECT_TRUE(has(late, FindingKind::kRace, 20, 10, "uses the mbarrier")) << late.format();
}

// ---- units
// ---------------------------------------------------------------------------------------------------

/// Warp 0 writes the tile, then one of its threads has the bulk copy unit read it.
std::string store_by_unit(const std::string& between) {
  return R"(
  .loc 1 20 0
  st.shared.u32 [%own], %t;
)" + between +
         R"(
  @!%q bra END;
  mov.u32 %x, tile;
  mov.u64 %s, buffer;
  .loc 1 30 0
  cp.async.bulk.global.shared::cta.bulk_group [%s], [%x], 256;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group.read 0;
END:
  bar.sync 0;
)";
}

TEST(Proxy, AFenceIsMissedBetweenAWriteAndTheCopyUnit) {
  const Report good = run(store_by_unit("  fence.proxy.async.shared::cta;\n  bar.sync 0;"));
  EXPECT_TRUE(good.clean()) << good.format();
  const Report bad = run(store_by_unit("  bar.sync 0;"));
  ASSERT_EQ(bad.findings.size(), 1u) << bad.format();
  const Finding& f = bad.findings[0];
  EXPECT_EQ(f.kind, FindingKind::kMissingProxyFence);
  EXPECT_EQ(f.place.line, 30);
  EXPECT_EQ(f.other_place.line, 20);
  EXPECT_EQ(f.actor.warp, 0);
  EXPECT_NE(f.actor.unit, "");
}

TEST(Proxy, OneLanesFenceDoesNotCoverTheOthers) {
  const Report bad = run(store_by_unit("  @%q fence.proxy.async.shared::cta;\n  bar.sync 0;"));
  ASSERT_EQ(bad.findings.size(), 1u) << bad.format();
  EXPECT_EQ(bad.findings[0].kind, FindingKind::kMissingProxyFence);
  // Behind the barrier one fence, of the thread that starts the copy, is enough.
  const Report good = run(store_by_unit("  bar.sync 0;\n  @%q fence.proxy.async.shared::cta;"));
  EXPECT_TRUE(good.clean()) << good.format();
}

TEST(Proxy, OneLanesFenceDoesNotCoverTheOthersCopies) {
  // The same, the tile being written by cp.async of both warps.
  const auto kernel = [](const std::string& between) {
    std::string text = store_by_unit("  cp.async.wait_all;\n" + between);
    const std::string write = "  st.shared.u32 [%own], %t;\n";
    return text.replace(text.find(write), write.size(),
                        "  mov.u64 %s, buffer;\n  cvt.u64.u32 %d, %t;\n  mad.lo.u64 %s, %d, 4, %s;\n"
                        "  cp.async.ca.shared.global [%own], [%s], 4;\n");
  };
  const Report good = run(kernel("  fence.proxy.async;\n  bar.sync 0;"));
  EXPECT_TRUE(good.clean()) << good.format();
  const Report behind = run(kernel("  bar.sync 0;\n  @%q fence.proxy.async;"));
  EXPECT_TRUE(behind.clean()) << behind.format();
  const Report bad = run(kernel("  @%q fence.proxy.async;\n  bar.sync 0;"));
  EXPECT_TRUE(has(bad, FindingKind::kMissingProxyFence, 30, 20)) << bad.format();
}

TEST(Proxy, AFenceDoesNotReplaceTheBarrier) {
  const Report report = run(store_by_unit("  fence.proxy.async.shared::cta;"));
  bool found = false;
  for (const Finding& f : report.findings) found |= f.kind == FindingKind::kRace;
  EXPECT_TRUE(found) << report.format();
}

TEST(Proxy, TheBufferMayBeReusedOnlyAfterTheWait) {
  const std::string reuse = "  st.shared.u32 [%own], 7;\n";
  const std::string start = store_by_unit("  fence.proxy.async.shared::cta;\n  bar.sync 0;");
  EXPECT_TRUE(run(start + reuse).clean()) << run(start + reuse).format();
  std::string no_wait = start;
  no_wait.erase(no_wait.find("  cp.async.bulk.wait_group.read 0;\n"), 35);
  for (const uint64_t seed : {0, 1, 2, 3}) {
    const Report report = run(no_wait + reuse, seed);
    bool found = false;
    for (const Finding& f : report.findings) found |= f.kind == FindingKind::kRace;
    EXPECT_TRUE(found) << seed << report.format();
  }
}

TEST(Proxy, WhatAUnitLoadsIsReadAfterItsBarrier) {
  const std::string load = R"(
  @%q mbarrier.init.shared.b64 [%bar], 1;
  bar.sync 0;
  @!%q bra LOADED;
  mbarrier.arrive.expect_tx.shared.b64 _, [%bar], 256;
  mov.u32 %x, tile;
  mov.u64 %s, buffer;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%x], [%s], 256, [%bar];
LOADED:
)";
  const std::string wait = "WAIT:\n  mbarrier.try_wait.parity.shared.b64 %p, [%bar], 0;\n  @!%p bra WAIT;\n";
  const std::string read = "  ld.shared.u32 %y, [%own];\n";
  const std::string end =
      "  bar.sync 1;\n" + std::string(wait).replace(0, 4, "LAST").replace(wait.rfind("WAIT"), 4, "LAST");
  EXPECT_TRUE(run(load + wait + read).clean()) << run(load + wait + read).format();
  for (const uint64_t seed : {0, 1, 2, 3}) {
    const Report report = run(load + read + end, seed);
    bool found = false;
    for (const Finding& f : report.findings)
      found |= f.kind == FindingKind::kRace || f.kind == FindingKind::kUninitializedRead;
    EXPECT_TRUE(found) << seed << report.format();
  }
}

TEST(Race, AllMayStoreTheSameValueByOneInstruction) {
  const std::string everybody = "  mov.u32 %own, tile;\n  mov.u32 %x, 9;\n";
  const Report same =
      run(everybody + "  st.shared.u32 [%own], %x;\n  bar.sync 0;\n  ld.shared.u32 %y, [%own];");
  EXPECT_TRUE(same.clean()) << same.format();
  const Report differing = run(everybody + "  st.shared.u32 [%own], %t;");
  ASSERT_EQ(differing.findings.size(), 1u);
  EXPECT_EQ(differing.findings[0].kind, FindingKind::kRace);
  const Report elsewhere =
      run(everybody + "  @%p st.shared.u32 [%own], %x;\n  @!%p st.shared.u32 [%own], %x;");
  ASSERT_EQ(elsewhere.findings.size(), 1u);
  EXPECT_EQ(elsewhere.findings[0].kind, FindingKind::kRace);
}

TEST(Race, NeighbouringBytesDoNotMeet) {
  const Report report = run(R"(
  mov.u32 %x, tile;
  add.u32 %x, %x, %t;
  mov.u32 %y, 1;
  st.shared.u8 [%x], %y;)");
  EXPECT_TRUE(report.clean()) << report.format();
}

}  // namespace
}  // namespace imbrex::vgpu
