// SPDX-License-Identifier: Apache-2.0
// A lane overwrites shared memory that others of its warp have used before a vote, a shuffle, a match or a reduction of the warp.
// By the letter those order nothing; the chips access shared memory in the order in which a warp issues its accesses.
#include "bent_kernel.h"

namespace imbrex::vgpu {
namespace {

constexpr const char* kVote = "vote.sync.ballot.b32 %z, %first, -1;";

/// All lanes read a word, lane 0 writes it.
Bent overwritten(const std::string& between, const std::string& read = "ld.shared.b32 %x, [%s];",
                 const std::string& write = "@%first st.shared.b32 [%s], 99;") {
  return {.body = fmt::format(R"(
  st.shared.b32 [%at], %t;
  bar.warp.sync -1;
  {}
  {}
  {}
  bar.warp.sync -1;
  ld.shared.b32 %y, [%s];
  mad.lo.u32 %y, %y, 1000, %x;
  st.global.b32 [%own], %y;)",
                              read, between, write)};
}

TEST(WarpCollective, StandsBetweenReadsAndAWrite) {
  for (const char* collective : {kVote, "shfl.sync.idx.b32 %z, %t, 0, 31, -1;",
                                 "match.any.sync.b32 %z, %t, -1;", "redux.sync.add.s32 %z, %t, -1;"}) {
    const Bent kernel = overwritten(collective);
    expect_bends(kernel, FindingKind::kRace, BentRule::kWarpCollective);
    for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(kernel.word(lane), 99000u);
  }
  expect_clean(overwritten("bar.warp.sync -1;"));
}

TEST(WarpCollective, ExcusesNothingElse) {
  expect_found(overwritten(""), FindingKind::kRace);
  // Before the reads; of half the warp; of what the others write and this lane reads; in global memory.
  expect_found(overwritten("", fmt::format("{}\n  ld.shared.b32 %x, [%s];", kVote)), FindingKind::kRace);
  expect_found(overwritten("setp.lt.u32 %p, %t, 16;\n  @%p shfl.sync.idx.b32 %z, %t, 0, 31, 0xffff;"),
               FindingKind::kRace);
  expect_found(overwritten(kVote, "@%first st.shared.b32 [%s], 99;", "ld.shared.b32 %x, [%s];"),
               FindingKind::kRace);
  expect_found(overwritten(kVote, "ld.global.b32 %x, [%out];", "@%first st.global.b32 [%out], 99;"),
               FindingKind::kRace);
}

/// Warp 1 writes a word and arrives; lane 0 of warp 0 waits, and all of its lanes read.
Bent told(const std::string& between, const std::string& wait = "mbarrier.try_wait.parity.shared::cta.b64") {
  return {.body = fmt::format(R"(
  @%first mbarrier.init.shared::cta.b64 [%bar], 1;
  bar.sync 0;
  setp.ge.u32 %p, %t, 32;
  @%p bra WRITER;
  @!%first bra TOLD;
WAIT:
  {} %q, [%bar], 0;
  @!%q bra WAIT;
TOLD:
  {}
  ld.shared.b32 %x, [%s];
  st.global.b32 [%own], %x;
  ret;
WRITER:
  setp.eq.u32 %p, %t, 32;
  @%p st.shared.b32 [%s], 7;
  @%p mbarrier.arrive.shared::cta.b64 _, [%bar];)",
                              wait, between),
          .block = {64}};
}

TEST(WarpCollective, StandsBetweenALanesWaitAndTheOthersReads) {
  const Bent kernel = told(kVote);
  expect_bends(kernel, FindingKind::kRace, BentRule::kWarpCollective);
  for (uint32_t lane = 0; lane < 32; ++lane) EXPECT_EQ(kernel.word(lane), 7u);
  expect_clean(told("bar.warp.sync -1;"));
  expect_found(told("elect.sync _|%p, -1;"), FindingKind::kRace);
  // A wait that does not acquire orders nothing for its own lane either.
  expect_found(told(kVote, "mbarrier.try_wait.parity.relaxed.cta.shared::cta.b64"), FindingKind::kRace);
}

TEST(WarpCollective, OfAnotherWarpExcusesNothing) {
  Bent kernel = overwritten(fmt::format("{}\n  setp.eq.u32 %first, %t, 32;", kVote));
  kernel.block = {64};
  expect_found(kernel, FindingKind::kRace);
}

}  // namespace
}  // namespace imbrex::vgpu
