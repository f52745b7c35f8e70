// SPDX-License-Identifier: Apache-2.0
// Barriers, deadlocks, spinning, determinism.
#include <numeric>
#include <set>

#include "control_kernel.h"
#include "imbrex/core/error.h"

namespace imbrex::vgpu {
namespace {

// Libraries are large modules: what one kernel needs must not keep the others from being run.
TEST(Modules, AnEntryThatCannotRunRefusesWhenItIsLaunched) {
  for (const std::string body :
       {"  frobnicate.b32 %x, %y;\n", "  call.uni helper;\n", "  call.uni unmodelled;\n"}) {
    std::string text =
        kernel("  st.global.u32 [%out], 5;\n  ret;",
               ".extern .func elsewhere();\n.func unmodelled()\n{\n  call.uni elsewhere;\n  ret;\n}\n"
               ".func helper()\n{\n  frobnicate;\n  ret;\n}");
    text += ".visible .entry other()\n{\n  .reg .b32 %x, %y;\n" + body + "  ret;\n}\n";
    VirtualGpu gpu({.target = "sm_90a"});
    const Module module = gpu.load_module(text, "two.ptx");
    DeviceAddress out = gpu.allocate(128);
    void* arguments[] = {&out};
    EXPECT_TRUE(gpu.launch(module.function("k"), {.block = {32}, .arguments = arguments}).clean());
    EXPECT_EQ(from_device<uint32_t>(gpu, out, 1)[0], 5u);
    const Function other = module.function("other");
    EXPECT_EQ(other.name(), "other");
    EXPECT_THROW(gpu.launch(other, {.block = {32}}), Error) << body;
  }
}

TEST(Barriers, NamedBarriersOfHalfTheBlock) {
  // Warps 0 and 1 meet at barrier 3, warps 2 and 3 at barrier 4; each pair exchanges values through shared
  // memory.
  const Outcome r = run(kernel(R"(
  mul.lo.u32 %x, %t, 4;
  mov.u32 %y, buffer;
  add.u32 %y, %y, %x;
  st.shared.u32 [%y], %t;
  shr.u32 %z, %t, 6;
  add.u32 %z, %z, 3;
  barrier.sync %z, 64;
  xor.b32 %x, %x, 128;
  mov.u32 %y, buffer;
  add.u32 %y, %y, %x;
  ld.shared.u32 %z, [%y];
  st.global.u32 [%out], %z;
  ret;)",
                               ".shared .align 4 .b8 buffer[512];"),
                        1, 128);
  ASSERT_TRUE(r.report.clean()) << r.report.format();
  for (uint32_t i = 0; i < 128; ++i) EXPECT_EQ(r.out[i], i ^ 32) << i;
}

TEST(Barriers, Reductions) {
  const Outcome r = run(kernel(R"(
  setp.lt.u32 %p, %t, 37;
  bar.red.popc.u32 %x, 0, %p;
  bar.red.and.pred %q, 1, %p;
  bar.red.or.pred %r, 2, %p;
  selp.u32 %y, 1000, 0, %q;
  selp.u32 %z, 100000, 0, %r;
  add.u32 %x, %x, %y;
  add.u32 %x, %x, %z;
  st.global.u32 [%out], %x;
  ret;)"),
                        1, 96);
  ASSERT_TRUE(r.report.clean()) << r.report.format();
  for (uint32_t i = 0; i < 96; ++i) EXPECT_EQ(r.out[i], 100037u) << i;
}

TEST(Barriers, AllThreadsMayBeCountedOrNot) {
  for (const uint64_t seed : {0, 1, 2, 3}) {
    const Outcome r = run(kernel(R"(
  setp.lt.u32 %p, %t, 32;
  @%p bar.sync 0;
  @!%p bar.sync 0, 64;
  st.global.u32 [%out], %t;
  ret;)"),
                          1, 64, {.seed = seed});
    EXPECT_TRUE(r.report.clean()) << r.report.format();
  }
  const Outcome other =
      run(kernel("  setp.lt.u32 %p, %t, 32;\n  @%p bar.sync 0;\n  @!%p bar.arrive 0, 96;\n  ret;"), 1, 64);
  EXPECT_FALSE(other.report.clean());
}

TEST(Barriers, ThreadsThatHaveExitedNeedNotCome) {
  const Outcome r = run(kernel(R"(
  setp.lt.u32 %p, %t, 32;
  @%p exit;
  bar.sync 0;
  st.global.u32 [%out], %t;
  ret;)"),
                        1, 96);
  EXPECT_TRUE(r.report.clean()) << r.report.format();
  EXPECT_EQ(r.out[95], 95u);
}

// ---- what goes wrong
// -------------------------------------------------------------------------------------------

const char* const kHalfTheWarpsWait = R"(
  .loc 1 10 0
  setp.ge.u32 %p, %t, 32;
  @%p bra SKIP;
  .loc 1 12 0
  bar.sync 0, 64;
SKIP:
  .loc 1 14 0
  bar.sync 1, 64;
  ret;)";

TEST(Deadlock, TellsWhoWaitsForWhat) {
  const Outcome r = run(kernel(kHalfTheWarpsWait, ".file 1 \"wait.cu\""), 1, 64);
  EXPECT_FALSE(r.report.completed);
  ASSERT_EQ(r.report.findings.size(), 1u) << r.report.format();
  const Finding& f = r.report.findings[0];
  EXPECT_EQ(f.kind, FindingKind::kDeadlock);
  EXPECT_EQ(f.place.file, "wait.cu");
  EXPECT_EQ(f.place.line, 12);
  ASSERT_EQ(f.facts.size(), 2u);
  EXPECT_EQ(
      f.facts[0],
      "warp 0 lanes 0xffffffff at wait.cu:12 (PTX line 23: bar.sync 0, 64;) waits at barrier 0: 32 of 64 "
      "threads have arrived");
  EXPECT_EQ(
      f.facts[1],
      "warp 1 lanes 0xffffffff at wait.cu:14 (PTX line 26: bar.sync 1, 64;) waits at barrier 1: 32 of 64 "
      "threads have arrived");
}

// The barrier never completes: only its time-outs let the thread look at the flag that another CTA sets.
TEST(Deadlock, PollingBetweenTimeOutsIsNone) {
  for (const int host_threads : {1, 2}) {
    const Outcome r = run(kernel(R"(
  setp.ne.u32 %p, %cta, 0;
  @%p bra work;
  mov.u32 %x, bar;
  mbarrier.init.shared::cta.b64 [%x], 1;
poll:
  mbarrier.try_wait.parity.shared::cta.b64 %q, [%x], 0;
  ld.acquire.gpu.global.u32 %z, [flag];
  setp.eq.u32 %r, %z, 0;
  @%r bra poll;
  bra done;
work:
  mov.u32 %y, 0;
count:
  add.u32 %y, %y, 1;
  setp.lt.u32 %q, %y, 50000;
  @%q bra count;
  st.release.gpu.global.u32 [flag], 1;
done:
  st.global.u32 [%out], %t;
  ret;)",
                                 ".shared .align 8 .b64 bar;\n.global .align 4 .u32 flag;"),
                          2, 1, {.host_threads = host_threads});
    EXPECT_TRUE(r.report.clean()) << r.report.format();
  }
}

TEST(Deadlock, HalfAWarpAtAnAlignedBarrier) {
  const Outcome r = run(kernel(R"(
  setp.ge.u32 %p, %lane, 16;
  @%p bra OTHER;
  bar.sync 0;
  ret;
OTHER:
  bar.sync 1;
  ret;)"),
                        1, 32);
  ASSERT_EQ(r.report.findings.size(), 1u) << r.report.format();
  EXPECT_EQ(r.report.findings[0].kind, FindingKind::kDeadlock);
  EXPECT_NE(r.report.format().find("waits for lanes 0xffff0000 of its warp to execute the same instruction"),
            std::string::npos)
      << r.report.format();
}

TEST(Budget, StopsALongRun) {
  Options options;
  options.instruction_budget = 5000;
  const Outcome r = run(kernel("LOOP:\n  st.global.u32 [%out], %t;\n  bra LOOP;"), 1, 32, options);
  ASSERT_EQ(r.report.findings.size(), 1u);
  EXPECT_EQ(r.report.findings[0].kind, FindingKind::kEndlessRun);
  EXPECT_EQ(r.report.findings[0].hint,
            "raise Options::instruction_budget if the kernel really runs this long");
}

TEST(Barriers, MisuseIsReported) {
  const Outcome r = run(kernel(R"(
  bar.sync 17;
  bar.sync 0, 48;
  ret;)"),
                        1, 32);
  ASSERT_EQ(r.report.findings.size(), 2u) << r.report.format();
  EXPECT_EQ(r.report.findings[0].message, "there is no barrier 17, only 0 to 15");
  EXPECT_EQ(r.report.findings[1].message, "48 threads are expected, which is not a multiple of 32");
}

TEST(Trap, StopsTheLaunch) {
  const Outcome r = run(kernel("  setp.eq.u32 %p, %t, 40;\n  @%p trap;\n  ret;"), 1, 64);
  EXPECT_FALSE(r.report.completed);
  ASSERT_EQ(r.report.findings.size(), 1u);
  EXPECT_EQ(r.report.findings[0].kind, FindingKind::kTrap);
  EXPECT_EQ(r.report.findings[0].actor.warp, 1);
  EXPECT_EQ(r.report.findings[0].actor.lane, 8);
}

// ---- several CTAs
// ----------------------------------------------------------------------------------------------

/// Every CTA draws a ticket and writes its number at the ticket's place: the order of the atomic operations.
const char* const kTickets = R"(
  setp.ne.u32 %p, %lane, 0;
  @%p exit;
  mov.u32 %x, 0;
LOOP:
  atom.global.add.u32 %y, [%base], 1;
  mul.wide.u32 %A, %y, 4;
  add.u64 %A, %base, %A;
  st.global.u32 [%A+4], %cta;
  add.u32 %x, %x, 1;
  setp.lt.u32 %p, %x, 5;
  @%p bra LOOP;
  ret;)";

TEST(Determinism, AtomicsHappenInTheSameOrderOnAnyNumberOfThreads) {
  std::set<std::vector<uint32_t>> orders;
  for (const uint64_t seed : {0, 1, 2, 3}) {
    std::vector<uint32_t> first;
    for (const int threads : {1, 2, 5}) {
      Options options;
      options.seed = seed;
      options.host_threads = threads;
      options.num_sms = 6;
      const Outcome r = run(kernel(kTickets), 40, 32, options, 256);
      ASSERT_TRUE(r.report.clean()) << r.report.format();
      EXPECT_EQ(r.out[0], 200u);
      std::vector<int> count(40);
      for (size_t i = 1; i <= 200; ++i) ++count[r.out[i]];
      for (int c : count) EXPECT_EQ(c, 5);
      if (first.empty()) first = r.out;
      EXPECT_EQ(r.out, first) << "seed " << seed << ", " << threads << " threads";
    }
    orders.insert(first);
  }
  EXPECT_GT(orders.size(), 1u) << "the seed changes nothing";
}

TEST(Determinism, SpinningOnAnotherCtaMakesProgress) {
  // CTA i waits until CTA i+1 has passed its flag on, so the last one must run although the first ones spin.
  const std::string text = kernel(R"(
  setp.ne.u32 %p, %lane, 0;
  @%p exit;
  mul.wide.u32 %A, %cta, 4;
  add.u64 %A, %base, %A;
  setp.eq.u32 %p, %cta, 15;
  @%p bra PASS;
SPIN:
  ld.acquire.gpu.global.u32 %x, [%A+4];
  setp.eq.u32 %q, %x, 0;
  @%q bra SPIN;
PASS:
  add.u32 %y, %x, 1;
  @%p mov.u32 %y, 1;
  st.release.gpu.global.u32 [%A], %y;
  ret;)");
  for (const int threads : {1, 3}) {
    Options options;
    options.host_threads = threads;
    options.checks.uninitialized = false;  // %x is not written by the last CTA, nor used
    const Outcome r = run(text, 16, 32, options, 17);
    ASSERT_TRUE(r.report.clean()) << r.report.format();
    for (uint32_t i = 0; i < 16; ++i) EXPECT_EQ(r.out[i], 16 - i);
  }
}

TEST(Determinism, ACtaMayBeginLate) {
  // CTA 0 stores first of all, CTA 1 looks after some 24,000 instructions.
  const std::string text = kernel(R"(
  setp.ne.u32 %p, %lane, 0;
  @%p exit;
  setp.eq.u32 %p, %cta, 0;
  @%p bra STORE;
  mov.u32 %x, 0;
COUNT:
  add.u32 %x, %x, 1;
  setp.lt.u32 %q, %x, 8000;
  @%q bra COUNT;
  ld.acquire.gpu.global.u32 %y, [%base];
  st.global.u32 [%base+4], %y;
  ret;
STORE:
  mov.u32 %y, 7;
  st.release.gpu.global.u32 [%base], %y;
  ret;)");
  std::set<uint32_t> seen;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    Options options;
    options.seed = seed;
    const Outcome r = run(text, 2, 32, options, 2);
    ASSERT_TRUE(r.report.clean()) << r.report.format();
    EXPECT_EQ(r.out[0], 7u);
    seen.insert(r.out[1]);
    if (seed == 0) {
      EXPECT_EQ(r.out[1], 7u);
    }
  }
  EXPECT_EQ(seen, (std::set<uint32_t>{0, 7}));
}

TEST(Determinism, FindingsDoNotDependOnTheNumberOfThreads) {
  std::string first;
  for (const int threads : {1, 2, 4}) {
    Options options;
    options.host_threads = threads;
    const Outcome r = run(kernel("  setp.gt.u32 %p, %cta, 4;\n  @%p ld.global.u32 %x, [%out];\n  ret;"), 20,
                          32, options, 64);
    ASSERT_EQ(r.report.findings.size(), 1u);
    EXPECT_EQ(r.report.findings[0].count, 15 * 32);
    if (first.empty()) first = r.report.format();
    EXPECT_EQ(r.report.format(), first);
  }
}

}  // namespace
}  // namespace imbrex::vgpu
