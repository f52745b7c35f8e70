// SPDX-License-Identifier: Apache-2.0
// Divergence, reconvergence and calls.
#include "control_kernel.h"
#include "imbrex/core/error.h"

namespace imbrex::vgpu {
namespace {

TEST(Divergence, IfElseReconverges) {
  // After the branch all lanes vote together, which needs them at the same place.
  const Outcome r = run(kernel(R"(
  and.b32 %x, %lane, 3;
  setp.eq.u32 %p, %x, 0;
  @%p bra THEN;
  mul.lo.u32 %y, %lane, 10;
  bra JOIN;
THEN:
  add.u32 %y, %lane, 1000;
JOIN:
  activemask.b32 %z;
  setp.eq.u32 %q, %z, 0xffffffff;
  @!%q mov.u32 %y, 0;
  st.global.u32 [%out], %y;
  ret;)"),
                        2, 64);
  ASSERT_TRUE(r.report.clean()) << r.report.format();
  for (uint32_t i = 0; i < 128; ++i) EXPECT_EQ(r.out[i], i % 4 == 0 ? i % 32 + 1000 : i % 32 * 10) << i;
}

TEST(Divergence, NestedBranchesInLoopsOfDifferentLength) {
  // Lane i runs i rounds; in each round odd and even ones take different sides.
  const Outcome r = run(kernel(R"(
  mov.u32 %x, 0;
  mov.u32 %y, 0;
LOOP:
  setp.ge.u32 %p, %x, %lane;
  @%p bra DONE;
  xor.b32 %z, %x, %lane;
  and.b32 %z, %z, 1;
  setp.eq.u32 %q, %z, 0;
  @%q bra EVEN;
  add.u32 %y, %y, 100;
  bra NEXT;
EVEN:
  add.u32 %y, %y, 1;
NEXT:
  add.u32 %x, %x, 1;
  bra LOOP;
DONE:
  activemask.b32 %z;
  setp.ne.u32 %q, %z, 0xffffffff;
  @%q mov.u32 %y, 77777;
  st.global.u32 [%out], %y;
  ret;)"),
                        1, 32);
  ASSERT_TRUE(r.report.clean()) << r.report.format();
  for (uint32_t i = 0; i < 32; ++i) {
    uint32_t want = 0;
    for (uint32_t x = 0; x < i; ++x) want += ((x ^ i) & 1) != 0 ? 100 : 1;
    EXPECT_EQ(r.out[i], want) << i;
  }
}

TEST(Divergence, EarlyReturnInsideABranch) {
  const Outcome r = run(kernel(R"(
  setp.gt.u32 %p, %lane, 20;
  @%p bra HIGH;
  setp.eq.u32 %q, %lane, 7;
  @%q exit;
  mov.u32 %y, 1;
  bra JOIN;
HIGH:
  mov.u32 %y, 2;
JOIN:
  activemask.b32 %z;
  mad.lo.u32 %y, %y, 1, %z;
  st.global.u32 [%out], %y;
  ret;)"),
                        1, 32);
  ASSERT_TRUE(r.report.clean()) << r.report.format();
  const uint32_t everybody_else = ~(1u << 7);
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(r.out[i], i == 7 ? 0 : everybody_else + (i > 20 ? 2 : 1)) << i;
}

TEST(Divergence, IndexedBranch) {
  const Outcome r = run(kernel(R"(
  and.b32 %x, %lane, 3;
targets: .branchtargets ZERO, ONE, TWO, ZERO;
  brx.idx %x, targets;
ZERO:
  mov.u32 %y, 5;
  bra JOIN;
ONE:
  mov.u32 %y, 6;
  bra JOIN;
TWO:
  mov.u32 %y, 7;
JOIN:
  activemask.b32 %z;
  setp.ne.u32 %q, %z, 0xffffffff;
  @%q mov.u32 %y, 0;
  st.global.u32 [%out], %y;
  ret;)"),
                        1, 32);
  ASSERT_TRUE(r.report.clean()) << r.report.format();
  const uint32_t want[] = {5, 6, 7, 5};
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(r.out[i], want[i % 4]) << i;
}

TEST(Divergence, SpinLockBetweenLanesOfAWarp) {
  // Deadlocks on a machine that waits for reconvergence at any price.
  const std::string text = kernel(R"(
LOOP:
  atom.shared.cas.b32 %x, [lock], 0, 1;
  setp.ne.u32 %p, %x, 0;
  @%p bra LOOP;
  ld.shared.u32 %y, [counter];
  add.u32 %y, %y, 1;
  st.shared.u32 [counter], %y;
  membar.cta;
  atom.shared.exch.b32 %x, [lock], 0;
  bar.sync 0;
  ld.shared.u32 %y, [counter];
  st.global.u32 [%out], %y;
  ret;)",
                                  ".shared .align 4 .u32 lock;\n.shared .align 4 .u32 counter;");
  // The two words start out undefined, so one thread clears them first.
  const std::string cleared = std::string(text).replace(text.find("LOOP:"), 5,
                                                        "setp.eq.u32 %q, %t, 0;\n"
                                                        "  @%q st.shared.u32 [lock], 0;\n"
                                                        "  @%q st.shared.u32 [counter], 0;\n"
                                                        "  bar.sync 0;\nLOOP:");
  for (const uint64_t seed : {0, 1, 2}) {
    Options options;
    options.seed = seed;
    const Outcome r = run(cleared, 1, 64, options);
    ASSERT_TRUE(r.report.clean()) << r.report.format();
    for (uint32_t i = 0; i < 64; ++i) EXPECT_EQ(r.out[i], 64u);
  }
}

TEST(Calls, ReturnFromDifferentPlacesAndMeetAgain) {
  const Outcome r = run(kernel(R"(
  {
  .param .b32 argument;
  .param .b32 value;
  st.param.b32 [argument], %lane;
  call.uni (value), pick, (argument);
  ld.param.b32 %y, [value];
  }
  activemask.b32 %z;
  setp.ne.u32 %q, %z, 0xffffffff;
  @%q mov.u32 %y, 0;
  st.global.u32 [%out], %y;
  ret;)",
                               R"(.func (.param .b32 value) pick(.param .b32 argument)
{
  .reg .pred %p;
  .reg .b32 %x;
  ld.param.b32 %x, [argument];
  setp.lt.u32 %p, %x, 9;
  @%p bra SMALL;
  mul.lo.u32 %x, %x, 3;
  st.param.b32 [value], %x;
  ret;
SMALL:
  add.u32 %x, %x, 500;
  st.param.b32 [value], %x;
  ret;
})"),
                        1, 32);
  ASSERT_TRUE(r.report.clean()) << r.report.format();
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(r.out[i], i < 9 ? i + 500 : i * 3) << i;
}

// The lanes part, and each side calls the same function, in which all 32 exchange values twice.
TEST(Calls, LanesCalledFromTwoPlacesMeetInACollective) {
  const auto call = [](const char* to) {
    return std::string(
               "  {\n  .param .b32 argument;\n  .param .b32 value;\n  st.param.b32 [argument], %lane;\n"
               "  call.uni (value), swap, (argument);\n  ld.param.b32 ") +
           to + ", [value];\n  }\n";
  };
  const std::string text = kernel("  setp.lt.u32 %q, %lane, 5;\n  @%q bra FEW;\n" + call("%y") +
                                      "  add.u32 %y, %y, 1000;\n  bra.uni END;\nFEW:\n" + call("%y") + R"(END:
  activemask.b32 %z;
  setp.ne.u32 %q, %z, 0xffffffff;
  @%q mov.u32 %y, 0;
  st.global.u32 [%out], %y;
  ret;)",
                                  R"(.func (.param .b32 value) swap(.param .b32 argument)
{
  .reg .pred %p;
  .reg .b32 %x;
  ld.param.b32 %x, [argument];
  shfl.sync.bfly.b32 %x, %x, 1, 31, -1;
  setp.lt.u32 %p, %x, 2;
  @%p add.u32 %x, %x, 100;
  shfl.sync.bfly.b32 %x, %x, 1, 31, -1;
  bar.sync 0;
  @%p bra SMALL;
  shfl.sync.bfly.b32 %x, %x, 1, 31, 0xfffffffc;
  st.param.b32 [value], %x;
  ret;
SMALL:
  st.param.b32 [value], 7;
  ret;
})");
  const Outcome r = run(text, 1, 32);
  ASSERT_TRUE(r.report.clean()) << r.report.format();
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t value = i < 2 ? 7 : i ^ 1;
    EXPECT_EQ(r.out[i], i < 5 ? value : value + 1000) << i;
  }
}

// Two groups of lanes come to a barrier one after the other while a third waits at the end, where all would meet again: it exits,
// and the two meet.
TEST(Calls, LanesThatCameApartMeetOnceTheOthersHaveExited) {
  const std::string text = kernel(R"(  mov.u32 %y, 1;
  st.global.u32 [%out], %y;
  setp.ge.u32 %q, %lane, 20;
  @%q bra END;
  setp.lt.u32 %q, %lane, 1;
  @%q bra MEET;
  add.u32 %y, %y, 6;
  setp.lt.u32 %q, %lane, 5;
  @%q bra END;
MEET:
  call.uni meet;
  call.uni meet;
  add.u32 %y, %y, 100;
  st.global.u32 [%out], %y;
END:
  ret;)",
                                  ".func meet()\n{\n  bar.sync 0;\n  ret;\n}");
  const Outcome r = run(text, 1, 32);
  ASSERT_TRUE(r.report.clean()) << r.report.format();
  for (uint32_t i = 0; i < 32; ++i) EXPECT_EQ(r.out[i], i == 0 ? 101 : i < 5 || i >= 20 ? 1 : 107) << i;
}

}  // namespace
}  // namespace imbrex::vgpu
