// SPDX-License-Identifier: Apache-2.0
// Rules that libraries bend: a finding by the letter, a note in practice, and what resembles them is a finding
// in both.
#include <fmt/format.h>

#include <bit>

#include "bent_kernel.h"
#include "imbrex/core/error.h"

namespace imbrex::vgpu {
namespace {

// ---- relaxed reads

/// CTA 0 writes and sets a flag; in CTA 1 one thread sees it and all read, after a barrier.
Bent message(const std::string& look, const std::string& seen,
             const std::string& load = "ld.global.cg.b32 %y, [%own];") {
  return {.body = fmt::format(R"(
  add.u64 %u, %out, 512;
  setp.eq.u32 %p, %c, 1;
  @%p bra READER;
  st.global.b32 [%own], %t;
  bar.sync 0;
  @%first st.release.gpu.global.b32 [%u], 1;
  ret;
READER:
  @!%first bra SEEN;
AGAIN:
  {} %x, [%u];
  setp.ne.u32 %q, %x, 1;
  @%q bra AGAIN;
SEEN:
  {}
  {})",
                              look, seen, load),
          .grid = {2},
          .block = {64}};
}

TEST(RelaxedRead, OrdersByAFenceBehindIt) {
  for (const char* look :
       {"ld.relaxed.gpu.global.b32", "ld.volatile.global.b32", "ld.relaxed.sys.global.b32"}) {
    expect_bends(message(look, "bar.sync 0;"), FindingKind::kRace, BentRule::kRelaxedWait);
    for (const char* fence : {"fence.acq_rel.gpu;", "fence.sc.sys;", "membar.gl;"}) {
      expect_clean(message(look, fmt::format("{}\n  bar.sync 0;", fence)));
      expect_clean(message(look, fmt::format("bar.sync 0;\n  {}", fence)));
    }
    expect_bends(message(look, "fence.acq_rel.cta;\n  bar.sync 0;"), FindingKind::kRace,
                 BentRule::kRelaxedWait);
  }
  expect_clean(message("ld.acquire.gpu.global.b32", "bar.sync 0;"));
  // What nothing orders is as it may be: read past the L1 cache, or out of it.
  const std::string relaxed = "ld.relaxed.gpu.global.b32", seen = "bar.sync 0;";
  for (const char* past :
       {"ld.volatile.global.b32 %y, [%own];", "ld.relaxed.gpu.global.b32 %y, [%own];",
        "ld.global.cv.b32 %y, [%own];", "st.global.b32 [%own], %c;", "atom.global.add.u32 %y, [%own], 1;"})
    expect_bends(message(relaxed, seen, past), FindingKind::kRace, BentRule::kRelaxedWait);
  for (const char* out_of :
       {"ld.global.b32 %y, [%own];", "ld.global.ca.b32 %y, [%own];", "ld.global.nc.b32 %y, [%own];",
        "ld.global.L1::no_allocate.b32 %y, [%own];", "ld.relaxed.cta.global.b32 %y, [%own];",
        "cp.async.ca.shared.global [%at], [%own], 4;"}) {
    expect_found(message(relaxed, seen, out_of), FindingKind::kRace);
    const Report report = message(relaxed, seen, out_of).run(Strictness::kPractical);
    ASSERT_FALSE(report.findings.empty());
    EXPECT_NE(report.findings[0].hint.find("make it .acquire"), std::string::npos) << report.format();
    EXPECT_NE(report.format().find("by way of the L1 cache"), std::string::npos) << report.format();
  }
  // What is weak orders nothing at all.
  expect_found(message("ld.global.b32", "bar.sync 0;"), FindingKind::kRace);
}

/// CTA 0 reads and sets a flag, with no release; CTA 1 sees it and writes there.
Bent overwritten(const std::string& read, const std::string& set, const std::string& behind = "") {
  return {.body = fmt::format(R"(
  add.u64 %u, %out, 512;
  setp.eq.u32 %p, %c, 1;
  @%p bra WRITER;
  {}
  bar.sync 0;
  {}
  ret;
WRITER:
  @!%first bra SEEN;
AGAIN:
  ld.relaxed.gpu.global.b32 %x, [%u];
  setp.ne.u32 %q, %x, 1;
  @%q bra AGAIN;
  {}
SEEN:
  bar.sync 0;
  st.global.b32 [%own], %t;
  mov.b32 %y, %t;)",
                              read, set, behind),
          .grid = {2},
          .block = {64}};
}

TEST(RelaxedFlag, IsSetWhenWhatWasUsedBeforeHasBeenRead) {
  const std::string use = "ld.global.b32 %y, [%own];\n  add.u32 %y, %y, 1;",
                    set = "@%first st.relaxed.gpu.global.b32 [%u], 1;";
  expect_bends(overwritten(use, set), FindingKind::kRace, BentRule::kRelaxedWait);
  expect_bends(overwritten(use, "@%first st.volatile.global.b32 [%u], 1;"), FindingKind::kRace,
               BentRule::kRelaxedWait);
  expect_clean(overwritten(use, "@%first st.release.gpu.global.b32 [%u], 1;", "fence.acq_rel.gpu;"));
  const std::string late = "ld.global.b32 %y, [%own];\n  bar.sync 0;\n  add.u32 %y, %y, 1;";
  expect_bends(overwritten(late, set), FindingKind::kRace, BentRule::kRelaxedWait);
  expect_found(overwritten("ld.global.b32 %z, [%own];", set + "\n  add.u32 %y, %z, 1;"), FindingKind::kRace);
  // On its way when the flag is set, or set by somebody whom no barrier has told of it.
  expect_found(overwritten("ld.global.b32 %y, [%own];", set + "\n  add.u32 %y, %y, 1;"), FindingKind::kRace);
  expect_found(overwritten(set + "\n  " + use, ""), FindingKind::kRace);
  // Written, not read.
  expect_found(overwritten("st.global.b32 [%own], %c;", set), FindingKind::kRace);
  // A kernel that orders by fences, or by acquiring reads, has forgotten one.
  expect_found(overwritten(use, set, "fence.acq_rel.gpu;"), FindingKind::kRace);
}

// ---- equal values

constexpr const char* kTwoStores = R"(
  setp.lt.u32 %p, %t, 32;
  and.b32 %x, %t, 31;
  mad.lo.u32 %at, %x, 4, %s;
  @%p st.shared.b32 [%at], %x;
  @!%p st.shared.b32 [%at], {};)";

TEST(EqualValues, OfTwoInstructionsMayMeet) {
  expect_bends({.body = fmt::format(kTwoStores, "%x"), .block = {64}}, FindingKind::kRace,
               BentRule::kEqualValues);
  expect_found({.body = fmt::format(kTwoStores, "%t"), .block = {64}}, FindingKind::kRace);
}

TEST(EqualValues, OfOneInstructionOfSeveralWarpsOrCtasAreNothing) {
  expect_clean({.body = "  and.b32 %x, %t, 31;\n  mad.lo.u32 %at, %x, 16, %s;\n"
                        "  stmatrix.sync.aligned.m8n8.x4.shared.b16 [%at], {%x, %x, %x, %x};",
                .block = {64}});
  const Bent one_lane{.body = "  @%first st.global.b32 [%out], 7;", .grid = {4}};
  expect_clean(one_lane);
  EXPECT_EQ(one_lane.word(0), 7u);
  expect_found({.body = "  @%first st.global.b32 [%out], %c;", .grid = {4}}, FindingKind::kRace);
  expect_found({.body = "  and.b32 %x, %t, 31;\n  mad.lo.u32 %at, %x, 16, %s;\n"
                        "  stmatrix.sync.aligned.m8n8.x4.shared.b16 [%at], {%t, %t, %t, %t};",
                .block = {64}},
               FindingKind::kRace);
}

constexpr const char* kBulkStore = R"(
  st.shared.b32 [%at], %t;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  {}
  cp.async.bulk.global.shared::cta.bulk_group [%own], [%s], 128;
  cp.async.bulk.commit_group;
  {})";

TEST(EqualValues, OfABulkStoreByAllLanes) {
  const std::string same = "mov.b64 %own, %out;";
  const Bent kernel{.body = fmt::format(kBulkStore, same, "cp.async.bulk.wait_group 0;")};
  expect_bends(kernel, FindingKind::kRace, BentRule::kEqualValues);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(kernel.word(i), i);
  // The lanes' destinations overlap, 16 bytes apart: other values.
  expect_found(
      {.body = fmt::format(kBulkStore, "mad.wide.u32 %own, %t, 16, %out;", "cp.async.bulk.wait_group 0;")},
      FindingKind::kRace);
}

TEST(EqualValues, OfBulkStoresByTwoWarpsAreASlip) {
  const Bent kernel{
      .body = fmt::format(
          kBulkStore, "and.b32 %x, %t, 31;\n  setp.eq.u32 %p, %x, 0;\n  mov.b64 %own, %out;\n  @!%p bra END;",
          "cp.async.bulk.wait_group 0;\nEND:"),
      .block = {64}};
  expect_found(kernel, FindingKind::kRace);
}

TEST(ExitBeforeRead, IsASlipWhereAnotherWarpWaits) {
  const std::string own = R"(
  and.b32 %x, %t, 31;
  setp.eq.u32 %p, %x, 0;
  @!%p bra END;
  add.u64 %own, %out, 512;
  setp.ne.u32 %q, %t, 0;
  @%q bra SECOND;
  mov.b64 %own, %out;)";
  const std::string second = R"({}
  bra END;
SECOND:
  cp.async.bulk.global.shared::cta.bulk_group [%own], [%s], 128;
  cp.async.bulk.commit_group;
  {}
END:)";
  const auto stores = [&](const std::string& of_first, const std::string& of_second) {
    return Bent{.body = fmt::format(kBulkStore, own, fmt::format(fmt::runtime(second), of_first, of_second)),
                .block = {64}};
  };
  const std::string wait = "cp.async.bulk.wait_group.read 0;";
  expect_clean(stores(wait, wait));
  expect_bends(stores("", ""), FindingKind::kAsyncInFlight, BentRule::kExitBeforeRead);
  expect_found(stores(wait, ""), FindingKind::kAsyncInFlight);
  expect_found(stores("", wait), FindingKind::kAsyncInFlight);
  expect_found(stores(wait, "cp.async.bulk.wait_group.read 1;"), FindingKind::kAsyncInFlight);
  // One wait of both, which the last store of one of them comes behind: both may stop so.
  const std::string loop = R"(
AGAIN:
  cp.async.bulk.wait_group.read 0;
  @%q bra END;
  add.u64 %own, %own, 128;
  cp.async.bulk.global.shared::cta.bulk_group [%own], [%s], 128;
  cp.async.bulk.commit_group;
END:)";
  expect_bends({.body = fmt::format(kBulkStore, R"(
  and.b32 %x, %t, 31;
  setp.eq.u32 %p, %x, 0;
  @!%p bra END;
  setp.ne.u32 %q, %t, 0;
  mov.b64 %own, %out;
  @!%q bra FIRST;
  add.u64 %own, %out, 512;
FIRST:)",
                                    loop),
                .block = {64}},
               FindingKind::kAsyncInFlight, BentRule::kExitBeforeRead);
}

TEST(ExitBeforeRead, IsRelied) {
  expect_bends({.body = fmt::format(kBulkStore, "@!%first bra END;\n  mov.b64 %own, %out;", "END:")},
               FindingKind::kAsyncInFlight, BentRule::kExitBeforeRead);
}

// ---- mbarriers

constexpr const char* kAllInit = R"(
  setp.lt.u32 %p, %t, 32;
  @%p mbarrier.init.shared::cta.b64 [%bar], {};
  bar.sync 0;
  mbarrier.arrive.shared::cta.b64 _, [%bar];
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar], 0;
  @!%p bra WAIT;
  st.global.u32 [%own], %t;)";

TEST(RepeatedInit, ByTheLanesOfOneInstructionWithOneCount) {
  const Bent kernel{.body = fmt::format(kAllInit, "64"), .block = {64}};
  expect_bends(kernel, FindingKind::kInvalidBarrier, BentRule::kRepeatedInit);
  EXPECT_EQ(kernel.word(63), 63u);
  expect_found({.body = "  add.u32 %x, %t, 1;\n" + fmt::format(kAllInit, "%x"), .block = {64}},
               FindingKind::kInvalidBarrier);
  expect_found({.body = "  @%first mbarrier.init.shared::cta.b64 [%bar], 64;\n  bar.sync 0;\n" +
                        fmt::format(kAllInit, "64"),
                .block = {64}},
               FindingKind::kInvalidBarrier);
}

constexpr const char* kRemoteArrival = R"(
  @%first mbarrier.init.shared::cta.b64 [%bar], 1;
  @%first fence.mbarrier_init.release.cluster;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  setp.eq.u32 %q, %c, 0;
  @%q bra OWNER;
  @!%first bra END;
  mapa.shared::cluster.u32 %x, %bar, 0;
  mbarrier.arrive{}.shared::cluster.b64 _, [%x];
  bra END;
OWNER:
  mbarrier.try_wait.parity{}.shared::cta.b64 %p, [%bar], 0;
  @!%p bra OWNER;
END:)";

TEST(ArrivalScope, OfTheCtaAcrossACluster) {
  expect_clean({.body = fmt::format(kRemoteArrival, ".release.cluster", ".acquire.cluster"),
                .grid = {2},
                .cluster = {2}});
  for (const char* arrival : {"", ".release.cluster"})
    for (const char* wait : {"", ".acquire.cluster"}) {
      if (*arrival != 0 && *wait != 0) continue;
      expect_bends({.body = fmt::format(kRemoteArrival, arrival, wait), .grid = {2}, .cluster = {2}},
                   FindingKind::kAsyncInFlight, BentRule::kArrivalScope);
    }
  // What threads hand over so is stale on the chip.
  std::string data = fmt::format(kRemoteArrival, "", "");
  data.replace(data.find("  mbarrier.arrive"), 2,
               "  mapa.shared::cluster.u32 %y, %s, 0;\n  st.shared::cluster.u32 [%y], 5;\n  ");
  data.replace(data.find("END:"), 4, "  ld.shared.u32 %z, [%s];\n  st.global.u32 [%own], %z;\nEND:");
  expect_found({.body = data, .grid = {2}, .cluster = {2}}, FindingKind::kRace);
  // Nobody waits for it.
  std::string unseen = fmt::format(kRemoteArrival, "", "");
  unseen.replace(unseen.find("OWNER:\n"), 7, "OWNER:\n  bra END;\n");
  expect_found({.body = unseen, .grid = {2}, .cluster = {2}}, FindingKind::kAsyncInFlight);
}

/// 512 bytes are copied in; after the wait another unit, or the threads, read them.
std::string relaxed_wait(const std::string& wait, const std::string& use) {
  return fmt::format(R"(
  @%first mbarrier.init.shared::cta.b64 [%bar], 1;
  bar.sync 0;
  @!%first bra END;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 512;
  cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%s], [%out], 512, [%bar];
WAIT:
  .loc 1 20 0
  mbarrier.try_wait.parity{}.shared::cta.b64 %p, [%bar], 0;
  @!%p bra WAIT;
  .loc 1 30 0
  {}
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
END:)",
                     wait, use);
}

TEST(RelaxedWait, SufficesForUnitsInPractice) {
  const std::string unit =
      "add.u64 %own, %out, 512;\n  cp.async.bulk.global.shared::cta.bulk_group [%own], [%s], 512;";
  expect_clean({.body = relaxed_wait("", unit)});
  const Bent kernel{.body = relaxed_wait(".relaxed.cta", unit)};
  expect_bends(kernel, FindingKind::kRace, BentRule::kRelaxedWait);
  const Report strict = kernel.run(Strictness::kStrict);
  ASSERT_EQ(strict.findings.size(), 1u) << strict.format();
  EXPECT_NE(strict.findings[0].format().find("the wait at bent.cu:20"), std::string::npos) << strict.format();
  EXPECT_EQ(strict.findings[0].place.line, 30);
}

TEST(RelaxedWait, DoesNotSufficeForThreads) {
  const std::string thread = "ld.shared.u32 %x, [%s];\n  st.global.u32 [%own], %x;";
  expect_clean({.body = relaxed_wait("", thread)});
  const Bent kernel{.body = relaxed_wait(".relaxed.cta", thread)};
  expect_found(kernel, FindingKind::kRace);
  const Report practical = kernel.run(Strictness::kPractical);
  EXPECT_NE(practical.format().find("the wait at bent.cu:20"), std::string::npos) << practical.format();
}

/// Never executed, but a part of the kernel: how it waits, or arrives, elsewhere.
std::string elsewhere(const std::string& instruction) {
  return "  setp.gt.u32 %p, %t, 4096;\n  @!%p bra ON;\n" + instruction + "ON:\n";
}

TEST(RelaxedWait, AmongAcquiringOnesIsASlip) {
  const std::string unit =
      "add.u64 %own, %out, 512;\n  cp.async.bulk.global.shared::cta.bulk_group [%own], [%s], 512;";
  const std::string relaxed = relaxed_wait(".relaxed.cta", unit);
  const auto wait = [](const char* how) {
    return fmt::format("  mbarrier.try_wait.parity{}.shared::cta.b64 %p, [%bar], 0;\n", how);
  };
  expect_found({.body = elsewhere(wait("")) + relaxed}, FindingKind::kRace);
  expect_bends({.body = elsewhere(wait("") + wait(".relaxed.cta")) + relaxed}, FindingKind::kRace,
               BentRule::kRelaxedWait);
}

TEST(RelaxedWait, DoesNotSufficeForCopiesByThreads) {
  expect_found({.body = relaxed_wait(".relaxed.cta",
                                     "cp.async.ca.shared.global [%s], [%out], 16;\n  cp.async.wait_all;")},
               FindingKind::kRace);
}

TEST(ArrivalScope, AmongThoseOfTheClusterIsASlip) {
  const Bent kernel{.body = elsewhere("  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%bar];\n") +
                            fmt::format(kRemoteArrival, "", ".acquire.cluster"),
                    .grid = {2},
                    .cluster = {2}};
  expect_found(kernel, FindingKind::kAsyncInFlight);
  Bent waits = kernel;
  waits.body = elsewhere("  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p, [%bar], 0;\n") +
               fmt::format(kRemoteArrival, ".release.cluster", "");
  expect_found(waits, FindingKind::kAsyncInFlight);
}

// ---- compare and swap

std::string cas_loop(const std::string& space, const std::string& at, const std::string& first_read) {
  return fmt::format(R"(
  {2}
LOOP:
  add.u32 %y, %x, 1;
  atom.{0}.cas.b32 %z, [{1}], %x, %y;
  setp.ne.u32 %p, %z, %x;
  mov.u32 %x, %z;
  @%p bra LOOP;)",
                     space, at, first_read);
}

TEST(ReadBeforeCas, IsTheGuidesIdiom) {
  const Bent global{
      .body = cas_loop("global", "%out", "ld.global.u32 %x, [%out];"), .grid = {4}, .block = {64}};
  expect_bends(global, FindingKind::kRace, BentRule::kReadBeforeCas);
  EXPECT_EQ(global.word(0), 256u);
  const std::string clear = "@%first st.shared.u32 [%s], 0;\n  bar.sync 0;\n";
  expect_bends({.body = clear + cas_loop("shared", "%s", "ld.shared.u32 %x, [%s];"), .block = {64}},
               FindingKind::kRace, BentRule::kReadBeforeCas);
  expect_clean({.body = cas_loop("global", "%out", "ld.relaxed.gpu.global.u32 %x, [%out];"), .grid = {4}});
  // A read that the loop does not verify, and a plain write, stay races.
  expect_found(
      {.body = "ld.global.u32 %y, [%out];\n" + cas_loop("global", "%out", "mov.u32 %x, 0;"), .grid = {4}},
      FindingKind::kRace);
}

TEST(AtomicPastEnd, OfTheWordThatHoldsTheLastTwoBytes) {
  const std::string halves = cas_loop("global", "%out", "ld.relaxed.gpu.global.u32 %x, [%out];");
  const Bent kernel{.body = halves, .out_bytes = 2};
  const Report strict = kernel.run(Strictness::kStrict);
  ASSERT_FALSE(strict.findings.empty());
  EXPECT_EQ(strict.findings[0].kind, FindingKind::kOutOfBounds);
  const Report practical = kernel.run(Strictness::kPractical);
  EXPECT_TRUE(practical.clean()) << practical.format();
  ASSERT_EQ(practical.notes.size(), 2u) << practical.format();  // the read and the swap
  EXPECT_EQ(practical.notes[0].rule, BentRule::kAtomicPastEnd);
  // Past the whole of it, and by an addition, it is not.
  Bent behind = kernel;
  behind.body = "  add.u64 %out, %out, 4;\n" + halves;
  expect_found(behind, FindingKind::kOutOfBounds);
  expect_found({.body = "atom.global.add.u32 %x, [%out], 1;", .out_bytes = 2}, FindingKind::kOutOfBounds);
}

// ---- registers in flight

TEST(RegisterWait, IsInjected) {
  const Bent kernel{.body = R"(
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%s], 32;
  tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
  bar.sync 0;
  ld.shared.u32 %z, [%s];
  tcgen05.st.sync.aligned.32x32b.x1.b32 [%z], {%t};
  tcgen05.wait::st.sync.aligned;
  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%x}, [%z];
  mov.b32 %y, %x;
  tcgen05.wait::ld.sync.aligned;
  st.global.u32 [%own], %y;
  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %z, 32;)",
                    .target = "sm_100a"};
  expect_bends(kernel, FindingKind::kAsyncInFlight, BentRule::kRegisterWait);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(kernel.word(i), i);
}

/// Products of 1 by 1 with A in registers, which `after` overwrites.
std::string product_of_registers(const std::string& between, const std::string& after) {
  const std::string product =
      "  wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%d0, %d1, %d2, %d3}, {%a0, %a1, %a2, %a3}, %u, "
      "1, 1, 1, 0;\n";
  return R"(
  mul.lo.u32 %at, %t, 4;
  add.u32 %at, %at, %s;
  mov.b32 %x, 0x3C003C00;
  st.shared.b32 [%at], %x;
  fence.proxy.async;
  bar.sync 0;
  shr.u32 %y, %s, 4;
  cvt.u64.u32 %u, %y;
  or.b64 %u, %u, 0x1000080000;
  mov.b32 %a0, %x; mov.b32 %a1, %x; mov.b32 %a2, %x; mov.b32 %a3, %x;
  mov.b32 %d0, 0; mov.b32 %d1, 0; mov.b32 %d2, 0; mov.b32 %d3, 0;
  wgmma.fence.sync.aligned;
)" + product +
         between + product + "  wgmma.commit_group.sync.aligned;\n" + after +
         R"(  wgmma.wait_group.sync.aligned 0;
  st.global.b32 [%own], %d0;)";
}
constexpr const char* kProductRegisters = "  .reg .b32 %d<4>, %a<4>;";
/// Products of whose accumulators `use` makes something before the wait.
Bent product_used_early(const std::string& use, uint64_t seed) {
  return {
      .body = product_of_registers("", use), .variables = kProductRegisters, .block = {128}, .seed = seed};
}
constexpr const char* kZeros = "  mov.b32 %a0, 0;\n  mov.b32 %a1, 0;\n  mov.b32 %a2, 0;\n  mov.b32 %a3, 0;\n";

TEST(RegisterWait, IsBentByCopiesOfAccumulatorsAlone) {
  for (uint64_t seed : {0, 1, 2, 3}) {
    const Bent copied = product_used_early("  mov.b32 %y, %d1;\n", seed);
    expect_bends(copied, FindingKind::kAsyncInFlight, BentRule::kRegisterWait);
    EXPECT_EQ(copied.word(77), std::bit_cast<uint32_t>(32.0f));
    for (const char* use : {"  add.f32 %y, %d1, %d1;\n", "  st.global.b32 [%own], %d1;\n"}) {
      const Bent computed = product_used_early(use, seed);
      expect_found(computed, FindingKind::kAsyncInFlight);
      EXPECT_EQ(computed.run(Strictness::kStrict).findings[0].rule, BentRule::kRegisterWait);
    }
  }
}

TEST(RegisterWait, IsInjectedBeforeARegisterOfAIsOverwritten) {
  const auto kernel = [](const std::string& between, const std::string& after, uint64_t seed) {
    return Bent{.body = product_of_registers(between, after),
                .variables = kProductRegisters,
                .block = {128},
                .seed = seed};
  };
  for (uint64_t seed : {0, 1, 2, 3}) {
    const Bent plain = kernel("", "", seed);
    expect_clean(plain);
    EXPECT_EQ(plain.word(77), std::bit_cast<uint32_t>(32.0f));
    const Bent after = kernel("", kZeros, seed);
    expect_bends(after, FindingKind::kAsyncInFlight, BentRule::kRegisterWait);
    EXPECT_EQ(after.word(77), std::bit_cast<uint32_t>(32.0f));
    // The second product reads the zeros.
    const Bent between = kernel(kZeros, "", seed);
    expect_bends(between, FindingKind::kAsyncInFlight, BentRule::kRegisterWait);
    EXPECT_EQ(between.word(77), std::bit_cast<uint32_t>(16.0f));
    // Of the accumulators nothing is known.
    expect_found(kernel("  mov.b32 %d0, 0;\n", "", seed), FindingKind::kAsyncInFlight);
  }
}

// ---- reports

TEST(Notes, StopNothingAndCountApart) {
  const Bent kernel{.body = fmt::format(kTwoStores, "%x"), .block = {64}};
  Report report = kernel.run(Strictness::kPractical);
  ASSERT_EQ(report.notes.size(), 1u);
  EXPECT_TRUE(report.findings.empty());
  EXPECT_NO_THROW(report.expect_clean());
  EXPECT_NE(report.format().find("note: race: "), std::string::npos) << report.format();
  EXPECT_EQ(name(Severity::kNote), "note");
  report = kernel.run(Strictness::kStrict);
  EXPECT_THROW(report.expect_clean(), DeviceError);
  EXPECT_EQ(report.format().find("note: "), std::string::npos) << report.format();
}

TEST(Notes, EveryRuleHasItsNameAndReason) {
  for (int i = 1; i < static_cast<int>(BentRule::kCount); ++i) {
    const auto rule = static_cast<BentRule>(i);
    EXPECT_FALSE(name(rule).empty());
    EXPECT_GT(explain(rule).size(), 40u) << name(rule);
    std::ifstream page(IMBREX_SOURCE_DIR "/docs/checkers.md");
    std::ostringstream text;
    text << page.rdbuf();
    EXPECT_NE(text.str().find(fmt::format("| `{}` |", name(rule))), std::string::npos)
        << "docs/checkers.md has no row for " << name(rule);
  }
}

}  // namespace
}  // namespace imbrex::vgpu
