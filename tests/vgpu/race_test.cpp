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
.visible .entry k()
{{
  .reg .pred %p, %q;
  .reg .b32 %t, %x, %y, %own, %other, %bar, %lane;
  .reg .b64 %s;
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
    EXPECT_EQ(f.count, 32);
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
