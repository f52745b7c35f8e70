// SPDX-License-Identifier: Apache-2.0
// What an H200 ends a launch without a cluster attribute for (docs/measurements/2026-11-23-without-a-cluster.md).
#include <gmock/gmock.h>

#include "bent_kernel.h"

namespace imbrex::vgpu {
namespace {

using testing::HasSubstr;

/// A thread issues `operation`, which delivers `bytes` to %bar, and waits for them.
Bent kernel(const std::string& operation, int bytes) {
  return {.body = fmt::format(R"(
  @%first mbarrier.init.shared::cta.b64 [%bar], 1;
  st.shared.b32 [%at], 7;
  fence.mbarrier_init.release.cluster;
  fence.proxy.async;
  bar.sync 0;
  add.u32 %z, %s, 256;
  mapa.shared::cluster.u32 %y, %z, 0;
  mapa.shared::cluster.u32 %x, %bar, 0;
  @%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {1};
  @%first {0}
FULL:
  mbarrier.try_wait.parity.shared::cta.b64 %q, [%bar], 0;
  @!%q bra FULL;)",
                              operation, bytes)};
}

const struct {
  const char* text;
  int bytes;
  const char* named;
} kIllegal[] = {
    {"cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%z], [%s], 128, [%bar];", 128,
     "a bulk copy between shared memories"},
    {"cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%y], [%s], 128, [%x];", 128,
     "a bulk copy between shared memories"},
    {"cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.and.b32 [%s], [%s], 128, "
     "[%bar];",
     128, "a bulk copy between shared memories"},
    {"st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%y], %t, [%x];", 4, "st.async"},
    {"red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%s], %t, [%bar];", 4,
     "red.async"}};

TEST(ClusterLaunch, AsynchronousWritesToDistributedSharedMemoryNeedOne) {
  for (const auto& [text, bytes, named] : kIllegal) {
    const Report report = kernel(text, bytes).run(Strictness::kPractical);
    ASSERT_FALSE(report.findings.empty()) << text;
    EXPECT_EQ(report.findings[0].kind, FindingKind::kIllegalInstruction);
    EXPECT_THAT(report.findings[0].message,
                HasSubstr(std::string(named) + " in a launch without a cluster attribute"));
    EXPECT_THAT(report.findings[0].hint, HasSubstr("cudaLaunchAttributeClusterDimension"));
    EXPECT_FALSE(report.completed);
  }
}

TEST(ClusterLaunch, AnAttributeOfOneCtaIsEnough) {
  for (const auto& [text, bytes, named] : kIllegal) {
    Bent with_attribute = kernel(text, bytes);
    with_attribute.explicit_cluster = true;
    EXPECT_TRUE(with_attribute.run(Strictness::kPractical).clean())
        << with_attribute.run(Strictness::kPractical).format();
  }
}

TEST(ClusterLaunch, OtherInstructionsOfClustersDoWithout) {
  for (const char* text :
       {"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%y], [%out], 128, [%x];",
        "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%z], [%out], 128, [%bar];"})
    EXPECT_TRUE(kernel(text, 128).run(Strictness::kPractical).clean()) << text;
  Bent loads = kernel("mbarrier.complete_tx.shared::cluster.relaxed.cluster.b64 [%x], 16;", 16);
  loads.body +=
      "\n  ld.shared::cluster.u32 %y, [%at];\n  barrier.cluster.arrive.aligned;\n  "
      "barrier.cluster.wait.aligned;";
  EXPECT_TRUE(loads.run(Strictness::kPractical).clean()) << loads.run(Strictness::kPractical).format();
}

TEST(ClusterLaunch, BlackwellWasNotAsked) {
  Bent later = kernel(kIllegal[3].text, kIllegal[3].bytes);
  later.target = "sm_100a";
  EXPECT_TRUE(later.run(Strictness::kPractical).clean());
}

}  // namespace
}  // namespace imbrex::vgpu
