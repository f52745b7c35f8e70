// SPDX-License-Identifier: Apache-2.0
// Races on tensor memory and missing tcgen05 fences: found by whatever is left out of a lawful kernel, silent
// on the lawful one.
#include <fmt/format.h>

#include "imbrex/vgpu/bent_rule.h"
#include "vgpu_testing.h"

namespace imbrex::vgpu {
namespace {

// Four warps, zeros in shared memory as operands, 32 columns. Two products one after the other, each loaded
// by all warps; what is "" is left out.
struct TensorKernel {
  std::string wait = R"(
WAIT0:
  .loc 1 13 0
  mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar], 0;
  @!%p bra WAIT0;
)";
  std::string after = "  .loc 1 14 0\n  tcgen05.fence::after_thread_sync;\n";
  std::string wait_ld = "  .loc 1 16 0\n  tcgen05.wait::ld.sync.aligned;\n";
  std::string before = "  .loc 1 17 0\n  tcgen05.fence::before_thread_sync;\n";
  std::string sync = "  .loc 1 18 0\n  bar.sync 0;\n";
  std::string second_after = "  tcgen05.fence::after_thread_sync;\n";
  std::string first_commit =
      "  .loc 1 11 0\n  @%first tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 "
      "[%bar];\n";
  std::string second_wait = R"(
WAIT1:
  mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar], 1;
  @!%p bra WAIT1;
)";

  static std::string mma(int line) {
    return fmt::format(
        "  .loc 1 {} 0\n"
        "  @%first tcgen05.mma.cta_group::1.kind::f16 [%tmem], %a, %b, %idesc, 0;\n",
        line);
  }
  static std::string load(int line) {
    return fmt::format(
        "  .loc 1 {} 0\n  tcgen05.ld.sync.aligned.32x32b.x16.b32 {{%x0, %x1, %x2, %x3, %x4, %x5, "
        "%x6, %x7, %x8, %x9, %x10, %x11, %x12, %x13, %x14, %x15}}, [%quarter];\n",
        line);
  }
  static std::string around(const std::string& body, const std::string& end) {
    return R"(.version 9.0
.target sm_100a
.address_size 64
.file 1 "tensor.cu"
.visible .entry k()
.reqntid 128
{
  .reg .pred %p, %first, %other;
  .reg .b32 %t, %warp, %at, %tile, %bar, %slot, %tmem, %quarter, %idesc, %x<16>;
  .reg .b64 %a, %b;
  .shared .align 1024 .b8 tile[5120];
  .shared .align 8 .b64 barrier;
  .shared .align 4 .b32 slot;
  mov.u32 %t, %tid.x;
  shr.u32 %warp, %t, 5;
  mov.u32 %tile, tile;
  mov.u32 %bar, barrier;
  mov.u32 %slot, slot;
  mov.u32 %x0, 0;
  mad.lo.u32 %at, %t, 4, %tile;
  setp.eq.u32 %first, %t, 0;
  setp.ne.u32 %other, %warp, 0;
FILL:
  st.shared.b32 [%at], %x0;
  add.u32 %at, %at, 512;
  add.u32 %x1, %tile, 5120;
  setp.lt.u32 %p, %at, %x1;
  @%p bra FILL;
  @%first mbarrier.init.shared::cta.b64 [%bar], 1;
  @%other bra ALLOCATED;
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%slot], 32;
ALLOCATED:
  fence.proxy.async;
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
  ld.shared.b32 %tmem, [%slot];
  shl.b32 %quarter, %warp, 21;
  add.u32 %quarter, %quarter, %tmem;
  mov.b32 %idesc, 0x08040010;
  shr.u32 %at, %tile, 4;
  cvt.u64.u32 %a, %at;
  or.b64 %a, %a, 0x0000400800080000;
  add.u64 %b, %a, 256;
)" + body + end +
           R"(
  @%other bra END;
  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, 32;
END:
  ret;
}
)";
  }
  std::string text() const {
    return around(
        mma(10) + first_commit + wait + after + load(15) + wait_ld + before + sync +
            (second_after.empty() ? "" : second_after) + mma(20) +
            "  @%first tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bar];\n" +
            second_wait + "  tcgen05.fence::after_thread_sync;\n" + load(25) +
            "  tcgen05.wait::ld.sync.aligned;\n",
        "  tcgen05.fence::before_thread_sync;\n  .loc 1 28 0\n  bar.sync 0;\n"
        "  tcgen05.fence::after_thread_sync;\n");
  }
  Report run(uint64_t seed = 0) const { return run_text(text(), seed); }
  static Report run_text(const std::string& text, uint64_t seed = 0,
                         Strictness strictness = Strictness::kStrict) {
    VirtualGpu gpu({.target = "sm_100a", .seed = seed, .strictness = strictness});
    return gpu.launch(gpu.load_module(text, "tensor.ptx").function("k"), {.block = {128}});
  }
};

/// A finding of that kind with these two lines, whichever came first.
::testing::AssertionResult finds(const Report& report, FindingKind kind, int line, int other,
                                 const std::string& words) {
  for (const Finding& f : report.findings)
    if (f.kind == kind &&
        ((f.place.line == line && f.other_place.line == other) ||
         (f.place.line == other && f.other_place.line == line)) &&
        (f.message + f.hint).find(words) != std::string::npos)
      return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "not found: " << words << "\n" << report.format();
}

constexpr int kSeeds = 6;

TEST(TensorRace, TheLawfulKernelIsSilent) {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const Report report = TensorKernel{}.run(seed);
    ASSERT_TRUE(report.clean()) << seed << report.format();
  }
}

TEST(TensorRace, ALoadThatDoesNotWaitForTheCommit) {
  TensorKernel kernel;
  kernel.wait = kernel.second_wait = "";
  for (uint64_t seed = 0; seed < kSeeds; ++seed)
    EXPECT_TRUE(finds(kernel.run(seed), FindingKind::kRace, 15, 10, "tcgen05.commit"));
}

TEST(TensorRace, ACommitBeforeItsProductCoversNothing) {
  TensorKernel kernel;
  const std::string text = kernel.text();
  std::string swapped = text;
  const size_t product = swapped.find(TensorKernel::mma(10)), length = TensorKernel::mma(10).size();
  swapped.erase(product, length);
  swapped.insert(product + kernel.first_commit.size(), TensorKernel::mma(10));
  for (uint64_t seed = 0; seed < kSeeds; ++seed)
    EXPECT_TRUE(finds(TensorKernel::run_text(swapped, seed), FindingKind::kRace, 15, 10, "tcgen05.commit"));
}

TEST(TensorRace, AnAccumulatorOverwrittenBeforeWaitLd) {
  TensorKernel kernel;
  kernel.wait_ld = "";
  for (uint64_t seed = 0; seed < kSeeds; ++seed)
    EXPECT_TRUE(finds(kernel.run(seed), FindingKind::kRace, 15, 20, "tcgen05.wait::ld"));
}

TEST(TensorRace, AnAccumulatorOverwrittenWhileOthersLoad) {
  TensorKernel kernel;
  kernel.sync = "";
  int races = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Report report = kernel.run(seed);
    // A warp that is late enough misses the phase that it waits for.
    if (!report.findings.empty() && report.findings[0].kind == FindingKind::kDeadlock) continue;
    EXPECT_TRUE(finds(report, FindingKind::kRace, 15, 20, "with nothing that orders the two"));
    ++races;
  }
  EXPECT_GT(races, 0);
}

TEST(TensorRace, MissingFences) {
  TensorKernel no_after;
  no_after.after = "";
  TensorKernel no_second_after;
  no_second_after.second_after = "";
  TensorKernel no_before;
  no_before.before = "";
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    EXPECT_TRUE(finds(no_after.run(seed), FindingKind::kMissingTensorFence, 15, 10, "after_thread_sync"));
    EXPECT_TRUE(
        finds(no_second_after.run(seed), FindingKind::kMissingTensorFence, 20, 15, "after_thread_sync"));
    EXPECT_TRUE(finds(no_before.run(seed), FindingKind::kMissingTensorFence, 20, 15, "before_thread_sync"));
  }
}

TEST(TensorRace, FencesThatAKernelHasNoneOfAreNotedInPractice) {
  const auto practical = [](const std::string& text) {
    return TensorKernel::run_text(text, 0, Strictness::kPractical);
  };
  TensorKernel kernel;
  EXPECT_TRUE(practical(kernel.text()).clean() && practical(kernel.text()).notes.empty());
  // One that is left out among others is a slip.
  kernel.after = "";
  EXPECT_FALSE(practical(kernel.text()).clean());
  kernel = {};
  kernel.before = "";
  EXPECT_FALSE(practical(kernel.text()).clean());
  // Behind waits for products alone libraries have none, and others elsewhere.
  TensorKernel no_after;
  no_after.after = "";
  std::string none_behind_waits = no_after.text();
  const std::string second = "  tcgen05.fence::after_thread_sync;\n" + TensorKernel::load(25);
  ASSERT_NE(none_behind_waits.find(second), std::string::npos);
  none_behind_waits.replace(none_behind_waits.find(second), second.size(), TensorKernel::load(25));
  // Of a side of which there is none, or of both, there are notes.
  const auto without = [](std::string text, const std::string& fence) {
    for (size_t at; (at = text.find(fence)) != std::string::npos;)
      text.erase(at, text.find(';', at) + 1 - at);
    return text;
  };
  const std::string no_before = without(kernel.text(), "tcgen05.fence::before"),
                    none = without(no_before, "tcgen05.fence::after");
  for (const std::string& text : {no_before, none, none_behind_waits}) {
    const Report report = practical(text);
    EXPECT_TRUE(report.clean()) << report.format();
    ASSERT_FALSE(report.notes.empty());
    EXPECT_EQ(report.notes[0].rule, BentRule::kTensorFence);
  }
}

TEST(TensorRace, AProductAddedToOneOfOtherRows) {
  const auto kernel = [](const std::string& between) {
    std::string second = TensorKernel::mma(12);
    second.replace(second.find(", 0;"), 4, ", 1;");
    return TensorKernel::around(TensorKernel::mma(10) + between + second + TensorKernel{}.first_commit +
                                    TensorKernel{}.wait + "  tcgen05.fence::after_thread_sync;\n" +
                                    TensorKernel::load(15) + "  tcgen05.wait::ld.sync.aligned;\n",
                                "  tcgen05.fence::before_thread_sync;\n  bar.sync 0;\n"
                                "  tcgen05.fence::after_thread_sync;\n");
  };
  const Report good = TensorKernel::run_text(kernel(""));
  EXPECT_TRUE(good.clean()) << good.format();
  const Report bad = TensorKernel::run_text(kernel("  xor.b32 %idesc, %idesc, 0x0c000000;\n"));
  EXPECT_TRUE(finds(bad, FindingKind::kOperandLayout, 12, 10, "64 rows onto one of 128 rows"));
}

TEST(TensorRace, ColumnsGivenBackInUse) {
  const std::string no_sync = TensorKernel::around(
      TensorKernel::mma(10) +
          "  @%first tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bar];\n" +
          TensorKernel{}.wait + "  tcgen05.fence::after_thread_sync;\n" + TensorKernel::load(15) +
          "  tcgen05.wait::ld.sync.aligned;\n",
      "  .loc 1 30 0\n");
  bool found = false;
  for (uint64_t seed = 0; seed < 20 && !found; ++seed) {
    const Report report = TensorKernel::run_text(no_sync, seed);
    for (const Finding& f : report.findings)
      found |= f.kind == FindingKind::kRace && f.message.find("gives back") != std::string::npos &&
               f.place.line == 30 && f.other_place.line == 15;
  }
  EXPECT_TRUE(found);
}

TEST(TensorRace, StoresAreReadAfterTheirWait) {
  const auto kernel = [](const std::string& wait) {
    return TensorKernel::around(
        "  .loc 1 40 0\n  tcgen05.st.sync.aligned.32x32b.x1.b32 [%quarter], {%x0};\n" + wait +
            "  .loc 1 42 0\n  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%x1}, [%quarter];\n"
            "  tcgen05.wait::ld.sync.aligned;\n  tcgen05.wait::st.sync.aligned;\n",
        "  tcgen05.fence::before_thread_sync;\n  bar.sync 0;\n  tcgen05.fence::after_thread_sync;\n");
  };
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const Report good = TensorKernel::run_text(kernel("  tcgen05.wait::st.sync.aligned;\n"), seed);
    EXPECT_TRUE(good.clean()) << good.format();
    EXPECT_TRUE(
        finds(TensorKernel::run_text(kernel(""), seed), FindingKind::kRace, 42, 40, "tcgen05.wait::st"));
  }
}

TEST(TensorRace, EveryLaneIssuesTheProduct) {
  TensorKernel kernel;
  std::string text = kernel.text();
  const std::string one = TensorKernel::mma(10);
  std::string all = one;
  all.replace(all.find("@%first"), 7, "@!%other");
  text.replace(text.find(one), one.size(), all);
  const Report report = TensorKernel::run_text(text);
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].kind, FindingKind::kRace);
  EXPECT_NE(report.findings[0].message.find("32 lanes of warp 0 each issue a tcgen05.mma"), std::string::npos)
      << report.format();
  EXPECT_EQ(report.findings[0].place.line, 10);
}

}  // namespace
}  // namespace imbrex::vgpu
