// SPDX-License-Identifier: Apache-2.0
// Shared memory that threads read, or wrote, is filled again by asynchronous copies: a proxy fence must lie between.
#include <fmt/format.h>

#include "bent_kernel.h"

namespace imbrex::vgpu {
namespace {

/// Warp 0 reads a stage that was copied in, and gives it back; a thread of warp 1 has it filled again.
Bent refill(const std::string& release, const std::string& acquire, int arrivals = 32, int bytes = 128,
            const std::string& fill = "") {
  const std::string copy =
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%s], [%out], 128, [%bar];";
  return {.body = fmt::format(R"(
  mov.u32 %z, empty;
  @%first mbarrier.init.shared::cta.b64 [%bar], 1;
  @%first mbarrier.init.shared::cta.b64 [%z], {0};
  fence.mbarrier_init.release.cluster;
  bar.sync 0;
  setp.eq.u32 %q, %t, 32;
  @%q mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 128;
  @%q {4}
  setp.ge.u32 %p, %t, 32;
  @%p bra PRODUCER;
FULL:
  mbarrier.try_wait.parity.shared::cta.b64 %q, [%bar], 0;
  @!%q bra FULL;
  .loc 1 20 0
  ld.shared.b32 %x, [%at];
{1}
  st.global.b32 [%own+512], %x;
  bra END;
PRODUCER:
{2}
  @!%q bra END;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {5};
  .loc 1 30 0
  {3}
DONE:
  mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar], 1;
  @!%p bra DONE;
END:)",
                              arrivals, release, acquire, fill.empty() ? copy : fill, copy, bytes),
          .variables = "  .shared .align 8 .b64 empty;\n",
          .block = {64}};
}
constexpr const char* kArrive = "  mbarrier.arrive.shared::cta.b64 _, [%z];\n";
constexpr const char* kArriveOne =
    "  bar.warp.sync -1;\n  @%first mbarrier.arrive.shared::cta.b64 _, [%z];\n";
constexpr const char* kWaitEmpty =
    "EMPTY:\n  mbarrier.try_wait.parity.shared::cta.b64 %p, [%z], 0;\n  @!%p bra EMPTY;\n";
constexpr const char* kFence = "  fence.proxy.async.shared::cta;\n";
constexpr const char* kUse = "  st.global.b32 [%own+256], %x;\n";
void expect_strictly(const Bent& kernel) {
  const Report strict = kernel.run(Strictness::kStrict), practical = kernel.run(Strictness::kPractical);
  ASSERT_EQ(strict.findings.size(), 1u) << strict.format();
  EXPECT_EQ(strict.findings[0].kind, FindingKind::kMissingProxyFence);
  EXPECT_TRUE(practical.clean()) << practical.format();
}
TEST(RefillFence, ReadsAreOrderedByAFenceOfTheReadersOrOfWhoFills) {
  const std::string fence = kFence, bar = "  bar.sync 1, 64;\n";
  for (const uint64_t seed : {0, 1, 2}) {
    const auto clean = [&](Bent kernel) {
      kernel.seed = seed;
      expect_clean(kernel);
    };
    const auto found = [&](Bent kernel) {
      expect_found((kernel.seed = seed, kernel), FindingKind::kMissingProxyFence);
    };
    found(refill(kArrive, kWaitEmpty));
    clean(refill(fence + kArrive, kWaitEmpty));
    clean(refill(kArrive, kWaitEmpty + fence));
    found(refill(kArriveOne, kWaitEmpty, 1));
    clean(refill(fence + kArriveOne, kWaitEmpty, 1));
    clean(refill(kArriveOne, kWaitEmpty + fence, 1));
    found(refill("  @%first fence.proxy.async.shared::cta;\n" + std::string(kArriveOne), kWaitEmpty, 1));
    found(refill(bar, bar));
    clean(refill(fence + bar, bar));
    clean(refill(bar, bar + fence));
    found(refill("  fence.proxy.async.global;\n" + bar, bar));
  }
  const Report report = refill(kArrive, kWaitEmpty).run(Strictness::kStrict);
  ASSERT_EQ(report.findings.size(), 1u) << report.format();
  EXPECT_EQ(report.findings[0].place.line, 30);
  EXPECT_EQ(report.findings[0].other_place.line, 20);
}

TEST(RefillFence, ValuesInUseBeforeTheArrivalHaveCome) {
  const std::string use = kUse, copy = "  mov.b32 %y, %x;\n", use_copy = "  st.global.b32 [%own+256], %y;\n";
  expect_strictly(refill(use + kArrive, kWaitEmpty));
  expect_strictly(refill(copy + use_copy + kArriveOne, kWaitEmpty, 1));
  // The last barrier before the copy is the one that gives the stage back.
  const std::string bar = "  bar.sync 1, 64;\n";
  expect_strictly(refill(use + bar, bar));
  expect_strictly(refill(bar + use + bar, bar + bar));
  expect_strictly(refill(bar + bar + use, bar + bar));
  // To copy it is not to use it: the assembler leaves the value where it is.
  expect_found(refill(copy + kArrive + use_copy, kWaitEmpty), FindingKind::kMissingProxyFence);
  expect_clean(refill(use + kFence + kArrive, kWaitEmpty));
}

TEST(RefillFence, StoresAreOrderedByAFenceToo) {
  const std::string store = "  st.shared.b32 [%at], %t;\n";
  expect_strictly(refill(store + kArrive, kWaitEmpty));
  expect_clean(refill(store + kFence + kArrive, kWaitEmpty));
}

TEST(RefillFence, AsynchronousStoresOfThreadsNeedOneToo) {
  // PTX does not say so; an H200 lets them overtake loads as it does bulk copies.
  const char* fill =
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%s], {%t, %t, %t, %t}, [%bar];";
  const auto stored = [&](const std::string& release, const std::string& acquire) {
    Bent kernel = refill(release, acquire, 32, 16, fill);
    kernel.explicit_cluster = true;
    return kernel;
  };
  expect_found(stored(kArrive, kWaitEmpty), FindingKind::kMissingProxyFence);
  expect_clean(stored(kArrive, std::string(kWaitEmpty) + kFence));
  expect_clean(stored(std::string(kUse) + kArrive, kWaitEmpty));
}

}  // namespace
}  // namespace imbrex::vgpu
