// SPDX-License-Identifier: Apache-2.0
// What CTAs of a cluster do to each other: remote arrives, async stores, multicast copies, the cluster
// barrier, launch control.
#include "register_kernel.h"

namespace imbrex::vgpu {
namespace {

constexpr int kWords = 64;  // of each CTA's tile

struct ClusterKernel {
  int size = 2;
  int64_t grid = 2;
  std::string target = "sm_90a";
  std::string body;  // %r1 tid, %r2 rank, %r10 tile, %r11 barrier (count 1), %rd1 input, %p1: not thread 0
  int num_sms = 0;
  uint64_t seed = 0;

  std::string text() const {
    return fmt::format(R"(
.version 9.0
.target {}
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 input, .param .u64 output)
.reqnctapercluster {}, 1, 1
{{
  .reg .pred %p<8>;
  .reg .b16 %h<4>;
  .reg .b32 %r<64>;
  .reg .b64 %rd<32>;
  .reg .b128 %q<2>;
  .shared .align 1024 .b8 tile[{}];
  .shared .align 8 .b64 barrier;
  ld.param.u64 %rd1, [input];
  ld.param.u64 %rd2, [output];
  mov.b64 %rd3, map;
  cvta.param.u64 %rd3, %rd3;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %cluster_ctarank;
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r10, tile;
  mov.u32 %r11, barrier;
  setp.ne.u32 %p1, %r1, 0;
  shl.b32 %r4, %r1, 2;
  add.u32 %r5, %r10, %r4;
  mov.u32 %r6, 0;
  st.shared.b32 [%r5], %r6;
  st.shared.b32 [%r5+128], %r6;
  @!%p1 mbarrier.init.shared::cta.b64 [%r11], 1;
  fence.mbarrier_init.release.cluster;
  fence.proxy.async;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
{}
  barrier.cluster.arrive.release.aligned;
  barrier.cluster.wait.acquire.aligned;
  ld.shared.b32 %r6, [%r5];
  ld.shared.b32 %r7, [%r5+128];
  mad.wide.u32 %rd4, %r3, 256, %rd2;
  mul.wide.u32 %rd5, %r1, 4;
  add.u64 %rd4, %rd4, %rd5;
  st.global.b32 [%rd4], %r6;
  st.global.b32 [%rd4+128], %r7;
  ret;
}}
)",
                       target, size, kWords * 4, body);
  }

  struct Result {
    Report report;
    std::vector<uint32_t> words;  // of all CTAs of the grid
    uint32_t at(int64_t cta, int word) const { return words[static_cast<size_t>(cta * kWords + word)]; }
  };
  Result run(const std::vector<uint32_t>& input = std::vector<uint32_t>(1024)) const {
    VirtualGpu gpu({.target = target, .num_sms = num_sms, .seed = seed});
    DeviceAddress in = to_device(gpu, input), out = gpu.allocate(grid * kWords * 4);
    gpu.fill32(out, 0xFFFFFFFF, grid * kWords);
    const uint64_t dims[] = {16, 64}, strides[] = {64};
    const uint32_t box[] = {16, 2};
    TensorMap map = encode_tensor_map(
        {.type = TensorMapType::kUInt32, .address = in, .dims = dims, .strides_bytes = strides, .box = box});
    void* arguments[] = {&map, &in, &out};
    Result result;
    result.report = gpu.launch(gpu.load_module(text(), "cluster.ptx").function("k"),
                               {.grid = {grid}, .block = {32}, .arguments = arguments});
    result.words = from_device<uint32_t>(gpu, out, static_cast<size_t>(grid * kWords));
    return result;
  }
};

const std::string kWait =
    "wait:\n  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r11], 0;\n  @!%p3 bra wait;\n";

std::vector<uint32_t> ramp() {
  std::vector<uint32_t> values(1024);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint32_t>(i * 3 + 1);
  return values;
}

std::string first(const Report& report) {
  return report.findings.empty()
             ? "clean"
             : std::string(name(report.findings[0].kind)) + ": " + report.findings[0].message;
}

TEST(Cluster, RemoteArrivesReleaseAWaiter) {
  // Every CTA writes its rank into the next one's tile and arrives there.
  for (uint64_t seed : {0, 1, 2}) {
    ClusterKernel kernel{.size = 4, .grid = 8, .seed = seed};
    kernel.body =
        "  add.u32 %r20, %r2, 1;\n  and.b32 %r20, %r20, 3;\n  mapa.shared::cluster.u32 %r21, %r10, %r20;\n"
        "  mapa.shared::cluster.u32 %r22, %r11, %r20;\n  add.u32 %r23, %r2, 100;\n"
        "  @!%p1 st.shared::cluster.u32 [%r21], %r23;\n"
        "  @!%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r22];\n" +
        kWait;
    const ClusterKernel::Result r = kernel.run();
    ASSERT_TRUE(r.report.clean()) << r.report.format();
    for (int64_t cta = 0; cta < 8; ++cta)
      EXPECT_EQ(r.at(cta, 0), 100u + static_cast<uint32_t>((cta + 3) % 4));
  }
}

TEST(Cluster, WhatACtaWroteIsKnownOnlyAtTheScopeOfTheCluster) {
  const auto run = [](const std::string& arrive, const std::string& wait) {
    ClusterKernel kernel;
    kernel.body = fmt::format(
        "  xor.b32 %r20, %r2, 1;\n  mapa.shared::cluster.u32 %r21, %r10, %r20;\n"
        "  mapa.shared::cluster.u32 %r22, %r11, %r20;\n  @!%p1 st.shared::cluster.u32 [%r21], %r2;\n"
        "  @!%p1 mbarrier.arrive{}.shared::cluster.b64 _, [%r22];\n"
        "wait:\n  mbarrier.try_wait.parity{}.shared::cta.b64 %p2, [%r11], 0;\n  @!%p2 bra wait;\n"
        "  ld.shared.b32 %r23, [%r10];\n",
        arrive, wait);
    return first(kernel.run().report);
  };
  EXPECT_EQ(run(".release.cluster", ".acquire.cluster"), "clean");
  EXPECT_NE(run(".release.cluster", "").find("race"), std::string::npos);
  EXPECT_NE(run("", ".acquire.cluster").find("race"), std::string::npos);
  EXPECT_NE(run(".relaxed.cluster", ".acquire.cluster").find("race"), std::string::npos);
  EXPECT_NE(run(".release.cluster", ".relaxed.cluster").find("race"), std::string::npos);
}

TEST(Cluster, AFenceOfTheCtaDoesNotReachAnother) {
  const auto run = [](const std::string& release_fence, const std::string& acquire_fence) {
    ClusterKernel kernel;
    kernel.body = fmt::format(
        "  xor.b32 %r20, %r2, 1;\n  mapa.shared::cluster.u32 %r21, %r10, %r20;\n"
        "  mapa.shared::cluster.u32 %r22, %r11, %r20;\n  @!%p1 st.shared::cluster.u32 [%r21], %r2;\n  {};\n"
        "  @!%p1 mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r22];\n"
        "wait:\n  mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 %p2, [%r11], 0;\n  @!%p2 bra "
        "wait;\n"
        "  {};\n  ld.shared.b32 %r23, [%r10];\n",
        release_fence, acquire_fence);
    return kernel.run().report;
  };
  const std::string wide = "fence.acq_rel.cluster", narrow = "fence.acq_rel.cta";
  EXPECT_EQ(first(run(wide, wide)), "clean");
  EXPECT_EQ(first(run("fence.acq_rel.gpu", "fence.sc.sys")), "clean");
  for (const Report& report : {run(narrow, wide), run(wide, narrow)}) {
    EXPECT_NE(first(report).find("race"), std::string::npos);
    EXPECT_NE(report.format().find("fence.acq_rel.cta"), std::string::npos) << report.format();
    EXPECT_NE(report.format().find("is of CTA scope"), std::string::npos) << report.format();
    EXPECT_NE(report.format().find(".cluster"), std::string::npos) << report.format();
  }
}

TEST(Cluster, AWordOfTheCtasScopeDoesNotReachAnother) {
  // CTA 0 writes into CTA 1 and sets a word there, for which CTA 1 waits; or CTA 1 does so itself.
  const auto run = [](const std::string& set, const std::string& get, int writer) {
    ClusterKernel kernel;
    kernel.body = fmt::format(
        "  mov.u32 %r20, 1;\n  mapa.shared::cluster.u32 %r21, %r10, %r20;\n  setp.ne.u32 %p3, %r2, {};\n"
        "  or.pred %p3, %p3, %p1;\n  @!%p3 st.shared::cluster.u32 [%r21], %r2;\n"
        "  @!%p3 {}.shared::cluster.u32 [%r21+64], 1;\n"
        "  setp.ne.u32 %p2, %r2, 1;\n  setp.ne.u32 %p4, %r1, 7;\n  or.pred %p2, %p2, %p4;\n  @%p2 bra end;\n"
        "wait:\n  {}.shared::cta.u32 %r23, [%r10+64];\n  setp.ne.u32 %p2, %r23, 1;\n  @%p2 bra wait;\n"
        "  ld.shared.b32 %r23, [%r10];\nend:\n",
        writer, set, get);
    return kernel.run().report;
  };
  EXPECT_EQ(first(run("st.release.cluster", "ld.acquire.cluster", 0)), "clean");
  EXPECT_EQ(first(run("st.release.cta", "ld.acquire.cta", 1)), "clean");
  EXPECT_EQ(first(run("st.release.cluster", "ld.acquire.cta", 1)), "clean");
  for (const Report& report :
       {run("st.release.cta", "ld.acquire.cluster", 0), run("st.release.cluster", "ld.acquire.cta", 0)}) {
    EXPECT_NE(first(report).find("race"), std::string::npos) << report.format();
    EXPECT_NE(report.format().find("is of CTA scope"), std::string::npos) << report.format();
  }
  EXPECT_EQ(first(run("red.release.cluster.add", "ld.acquire.cluster", 0)), "clean");
  EXPECT_NE(first(run("red.release.cta.add", "ld.acquire.cluster", 0)).find("race"), std::string::npos);
}

TEST(Cluster, AsyncStoresSignalTheirDestination) {
  ClusterKernel kernel;
  kernel.body =
      "  xor.b32 %r20, %r2, 1;\n  mapa.shared::cluster.u32 %r21, %r5, %r20;\n  mapa.shared::cluster.u32 "
      "%r22, %r11, %r20;\n"
      "  mapa.shared::cluster.u32 %r24, %r10, %r20;\n"
      "  @!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], 272;\n  mad.lo.u32 %r23, %r2, 1000, "
      "%r1;\n"
      "  st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r21], %r23, [%r22];\n"
      "  red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r24+128], %r1, "
      "[%r22];\n"
      "  @!%p1 st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r24+192], {%r23, %r1, "
      "%r2, %r23}, [%r22];\n" +
      kWait;
  for (uint64_t seed : {0, 1, 2}) {
    kernel.seed = seed;
    const ClusterKernel::Result r = kernel.run();
    ASSERT_TRUE(r.report.clean()) << r.report.format();
    for (int64_t cta = 0; cta < 2; ++cta) {
      const auto other = static_cast<uint32_t>(1 - cta);
      for (int word = 0; word < 32; ++word)
        EXPECT_EQ(r.at(cta, word), other * 1000 + static_cast<uint32_t>(word));
      EXPECT_EQ(r.at(cta, 32), 31u * 32 / 2);
      EXPECT_EQ(r.at(cta, 48), other * 1000);
      EXPECT_EQ(r.at(cta, 50), other);
    }
  }
}

TEST(Cluster, BulkCopyToAnotherCta) {
  ClusterKernel kernel;
  kernel.body =
      "  add.u32 %r20, %r1, 7;\n  @!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], 64;\n  "
      "st.shared.b32 [%r5], %r20;\n"
      "  fence.proxy.async;\n  bar.warp.sync 0xFFFFFFFF;\n  xor.b32 %r20, %r2, 1;\n  add.u32 %r21, %r10, "
      "128;\n"
      "  mapa.shared::cluster.u32 %r21, %r21, %r20;\n  mapa.shared::cluster.u32 %r22, %r11, %r20;\n"
      "  @!%p1 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r21], [%r10], 64, "
      "[%r22];\n" +
      kWait;
  const ClusterKernel::Result r = kernel.run();
  ASSERT_TRUE(r.report.clean()) << r.report.format();
  for (int word = 0; word < 32; ++word)
    EXPECT_EQ(r.at(1, 32 + word), word < 16 ? static_cast<uint32_t>(word) + 7 : 0u);
}

TEST(Cluster, MulticastReachesTheCtasOfTheMask) {
  for (const char* kind : {"bulk", "tensor"})
    for (uint32_t mask : {0b1111u, 0b0101u, 0b1000u}) {
      ClusterKernel kernel{.size = 4, .grid = 4};
      // CTAs in the mask expect the bytes; CTA 0 issues.
      kernel.body = fmt::format(
          "  mov.b16 %h1, {0};\n  shr.u32 %r20, {0}, %r2;\n  and.b32 %r20, %r20, 1;\n  setp.eq.u32 %p4, "
          "%r20, 0;\n"
          "  or.b32 %r21, %r1, %r2;\n  setp.ne.u32 %p5, %r21, 0;\n  @%p4 bra issue;\n"
          "  @!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], 128;\nissue:\n",
          mask);
      kernel.body += std::string(kind) == "bulk"
                         ? "  @!%p5 "
                           "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::"
                           "cluster [%r10], [%rd1], 128, [%r11], %h1;\n"
                         : "  @!%p5 "
                           "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes."
                           "multicast::cluster [%r10], [%rd3, {0, 3}], [%r11], %h1;\n";
      kernel.body += "  @%p4 bra skip;\n" + kWait + "skip:\n";
      const ClusterKernel::Result r = kernel.run(ramp());
      ASSERT_TRUE(r.report.clean()) << r.report.format();
      const uint32_t begin = std::string(kind) == "bulk" ? 0 : 48;  // row 3
      for (int64_t cta = 0; cta < 4; ++cta)
        for (int word = 0; word < 32; ++word)
          ASSERT_EQ(r.at(cta, word),
                    (mask >> cta & 1) != 0 ? (begin + static_cast<uint32_t>(word)) * 3 + 1 : 0u)
              << kind << " " << mask << " " << cta;
    }
}

TEST(Cluster, PairsMaySignalTheirPeersBarrier) {
  // Both CTAs load a row pair into their own tile and signal the even CTA's barrier; with multicast the
  // barrier of the same parity in each pair is signalled.
  ClusterKernel kernel{.size = 4, .grid = 4, .target = "sm_100a"};
  kernel.body =
      "  and.b32 %r20, %r2, 1;\n  setp.ne.u32 %p4, %r20, 0;\n  or.b32 %r21, %r20, %r1;\n  setp.ne.u32 %p5, "
      "%r21, 0;\n"
      "  @!%p5 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], 256;\n  and.b32 %r22, %r11, "
      "0xFEFFFFFF;\n  shl.b32 %r23, %r2, 1;\n"
      "  @!%p1 cp.async.bulk.tensor.2d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%r10], [%rd3, {0, %r23}], [%r22];\n"
      "  @%p4 bra skip;\n" +
      kWait + "skip:\n";
  const ClusterKernel::Result r = kernel.run(ramp());
  ASSERT_TRUE(r.report.clean()) << r.report.format();
  for (int64_t cta = 0; cta < 4; ++cta)
    for (int word = 0; word < 32; ++word)
      ASSERT_EQ(r.at(cta, word), static_cast<uint32_t>(cta * 32 + word) * 3 + 1);

  ClusterKernel multicast{.size = 4, .grid = 4, .target = "sm_100a"};
  multicast.body =
      "  and.b32 %r20, %r2, 1;\n  setp.eq.u32 %p4, %r20, 0;\n  or.b32 %r21, %r2, %r1;\n  setp.ne.u32 %p5, "
      "%r21, 0;\n  mov.b16 %h1, 15;\n"
      "  @%p4 bra issue;\n  @!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], 256;\nissue:\n"
      "  or.b32 %r22, %r11, 0x01000000;\n"  // a barrier in CTA 1: odd ones are signalled
      "  @!%p5 "
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.cta_"
      "group::2 [%r10], [%rd3, {0, 1}], [%r22], %h1;\n"
      "  @%p4 bra skip;\n" +
      kWait + "skip:\n";
  const ClusterKernel::Result m = multicast.run(ramp());
  ASSERT_TRUE(m.report.clean()) << m.report.format();
  for (int64_t cta = 0; cta < 4; ++cta) ASSERT_EQ(m.at(cta, 0), 49u);
}

TEST(Cluster, TheBarrierOfACopyMustBeWhereTheDataGoes) {
  ClusterKernel kernel;
  kernel.body =
      "  or.b32 %r21, %r1, %r2;\n  setp.ne.u32 %p5, %r21, 0;\n  or.b32 %r22, %r11, 0x01000000;\n"
      "  @!%p5 cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%rd3, "
      "{0, 1}], [%r22];\n";
  EXPECT_EQ(
      first(kernel.run().report),
      "illegal-instruction: the copy goes to the CTA of rank 0 and its mbarrier is in the CTA of rank 1");
}

TEST(Cluster, WaitingOnAnotherCtasBarrierIsImpossible) {
  ClusterKernel kernel;
  kernel.body =
      "  mapa.shared::cluster.u32 %r21, %r11, 1;\n  cvt.u64.u32 %rd10, %r21;\n  cvta.shared::cluster.u64 "
      "%rd10, %rd10;\n  setp.ne.u32 %p2, %r2, 0;\n"
      "  @%p2 bra skip;\n  mbarrier.try_wait.parity.b64 %p3, [%rd10], 0;\nskip:\n";
  EXPECT_NE(first(kernel.run().report)
                .find("belongs to the CTA of rank 1; this operation takes one of the own CTA only"),
            std::string::npos);
}

TEST(Cluster, SignalsToACtaThatHasExitedAreFound) {
  // CTA 1 leaves at once; CTA 0 arrives at its barrier a little later.
  const std::string text = R"(
.version 9.0
.target sm_90a
.address_size 64
.visible .entry k()
.reqnctapercluster 2, 1, 1
{
  .reg .pred %p<4>;
  .reg .b32 %r<8>;
  .shared .align 8 .b64 barrier;
  mov.u32 %r1, barrier;
  mbarrier.init.shared::cta.b64 [%r1], 2;
  fence.mbarrier_init.release.cluster;
  barrier.cluster.arrive;
  barrier.cluster.wait;
  mov.u32 %r2, %cluster_ctarank;
  setp.ne.u32 %p1, %r2, 0;
  @%p1 exit;
  mov.u32 %r3, 0;
spin:
  add.u32 %r3, %r3, 1;
  setp.lt.u32 %p2, %r3, 100000;
  @%p2 bra spin;
  mapa.shared::cluster.u32 %r4, %r1, 1;
  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4];
  ret;
}
)";
  VirtualGpu gpu({.target = "sm_90a"});
  const Report report = gpu.launch(gpu.load_module(text).function("k"), {.grid = {2}, .block = {1}});
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].kind, FindingKind::kAsyncInFlight) << report.format();
}

TEST(Cluster, AnExitThatNothingMakesWaitForAPeerIsFound) {
  // CTA 0 arrives at CTA 1's barrier early, and CTA 1 happens to leave late.
  const auto run = [](const char* end, int count = 2, const char* order = "release") {
    const std::string text = fmt::format(R"(
.version 9.0
.target sm_90a
.address_size 64
.visible .entry k()
.reqnctapercluster 2, 1, 1
{{
  .reg .pred %p<4>;
  .reg .b32 %r<8>;
  .shared .align 8 .b64 barrier;
  mov.u32 %r1, barrier;
  mbarrier.init.shared::cta.b64 [%r1], {1};
  fence.mbarrier_init.release.cluster;
  barrier.cluster.arrive;
  barrier.cluster.wait;
  mov.u32 %r2, %cluster_ctarank;
  setp.ne.u32 %p1, %r2, 0;
  mapa.shared::cluster.u32 %r4, %r1, 1;
  @!%p1 mbarrier.arrive.{2}.cluster.shared::cluster.b64 _, [%r4];
  mov.u32 %r3, 0;
spin:
  add.u32 %r3, %r3, 1;
  setp.lt.u32 %p2, %r3, 1000;
  @%p2 bra spin;
{0}
  ret;
}}
)",
                                         end, count, order);
    VirtualGpu gpu({.target = "sm_90a"});
    return first(gpu.launch(gpu.load_module(text).function("k"), {.grid = {2}, .block = {1}}));
  };
  EXPECT_NE(run("").find("which may have exited by then"), std::string::npos);
  EXPECT_EQ(run("  barrier.cluster.arrive;\n  barrier.cluster.wait;\n"), "clean");
  // Whoever has waited for the phase knows that the arrival was made, a relaxed one too.
  const char* const awaited =
      "  @%p1 bra await;\n  ret;\nawait:\n  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, "
      "[%r1], 0;\n  @!%p3 "
      "bra await;\n";
  EXPECT_EQ(run(awaited, 1, "relaxed"), "clean");
  EXPECT_NE(run("", 1, "relaxed").find("which may have exited by then"), std::string::npos);
  const char* const stale =
      "  @%p1 bra await;\n  ret;\nawait:\n  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, "
      "[%r1], 1;\n";
  EXPECT_NE(run(stale, 2, "relaxed").find("which may have exited by then"), std::string::npos)
      << "another phase";
}

TEST(Cluster, SharedMemoryOfACtaThatMayNotHaveBegunIsFound) {
  // CTA 0 touches the tile of CTA 1, which looks at it behind the last barrier.
  const auto run = [](const std::string& before, const std::string& touch) {
    const std::string text = fmt::format(R"(
.version 9.0
.target sm_90a
.address_size 64
.file 1 "begin.cu"
.visible .entry k(.param .u64 flag)
.reqnctapercluster 2, 1, 1
{{
  .reg .pred %p<4>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  .shared .align 8 .b8 tile[16];
  ld.param.u64 %rd1, [flag];
  mov.u32 %r2, %cluster_ctarank;
  setp.ne.u32 %p1, %r2, 0;
  mov.u32 %r1, tile;
  mapa.shared::cluster.u32 %r3, %r1, 1;
  .loc 1 3 0
  {}
  @%p1 bra DONE;
  .loc 1 4 0
  {}
DONE:
  barrier.cluster.arrive;
  barrier.cluster.wait;
  @%p1 ld.shared.u32 %r5, [%r1];
  ret;
}}
)",
                                         before, touch);
    VirtualGpu gpu({.target = "sm_90a"});
    DeviceAddress flag = gpu.allocate(4);
    gpu.fill(flag, 0, 4);
    void* arguments[] = {&flag};
    return gpu.launch(gpu.load_module(text).function("k"),
                      {.grid = {2}, .block = {1}, .arguments = arguments});
  };
  const std::string store = "st.shared::cluster.u32 [%r3], 7;";
  for (const std::string& touch : {store, std::string("atom.shared::cluster.exch.b32 %r4, [%r3], 7;")}) {
    const Report report = run("", touch);
    const auto f = std::ranges::find(report.findings, FindingKind::kRace, &Finding::kind);
    ASSERT_NE(f, report.findings.end()) << touch << report.format();
    EXPECT_EQ(f->message,
              "the CTA of rank 0 uses shared memory of the CTA of rank 1, which may not have begun by then");
    EXPECT_EQ(f->place.line, 4);
  }
  // A barrier will do, and whatever else tells that the peer runs.
  for (const char* before :
       {"barrier.cluster.arrive;\n  barrier.cluster.wait;",
        "barrier.cluster.arrive.relaxed;\n  barrier.cluster.wait;",
        "@%p1 red.release.gpu.global.add.u32 [%rd1], 1;\n  @%p1 bra GO;\nWAIT:\n"
        "  ld.acquire.gpu.global.u32 %r4, [%rd1];\n  setp.eq.u32 %p2, %r4, 0;\n  @%p2 bra WAIT;\nGO:"}) {
    const Report report = run(before, store);
    EXPECT_TRUE(report.clean()) << before << report.format();
  }
}

TEST(ClusterBarrier, MisuseIsNamed) {
  ClusterKernel kernel;
  kernel.body = "  barrier.cluster.wait.aligned;\n";
  EXPECT_EQ(first(kernel.run().report),
            "invalid-barrier: waits at the cluster barrier without having arrived");
  kernel.body =
      "  setp.eq.u32 %p2, %r2, 1;\n  @%p2 bra skip;\n  barrier.cluster.arrive.relaxed.aligned;\n  "
      "barrier.cluster.arrive.aligned;\nskip:\n";
  EXPECT_EQ(first(kernel.run().report), "invalid-barrier: arrives at the cluster barrier twice in one phase");
}

TEST(ClusterBarrier, ExitedThreadsCountAsArrived) {
  ClusterKernel kernel;
  kernel.body = "  setp.eq.u32 %p2, %r2, 1;\n  @%p2 exit;\n";
  const ClusterKernel::Result r = kernel.run();
  EXPECT_TRUE(r.report.clean()) << r.report.format();
  EXPECT_EQ(r.at(0, 0), 0u);
  EXPECT_EQ(r.at(1, 0), 0xFFFFFFFFu);
}

// ---- launch control
// -----------------------------------------------------------------------------------------------

// Every CTA marks its own tile and those it is handed; a loop until nothing is left.
std::string steal_loop(const std::string& after_failure = "") {
  return "  mov.u32 %r30, %r3;\n  mov.u32 %r31, 0;\nagain:\n  mad.wide.u32 %rd10, %r30, 256, %rd2;\n"
         "  @!%p1 st.global.u32 [%rd10+252], %r3;\n"
         "  @!%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], 16;\n  bar.warp.sync 0xFFFFFFFF;\n"
         "  @!%p1 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 "
         "[%r10], [%r11];\n"
         "answer:\n  mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r11], %r31;\n  @!%p3 bra answer;\n  "
         "xor.b32 %r31, %r31, 1;\n"
         "  ld.shared.b128 %q0, [%r10];\n  clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p4, "
         "%q0;\n"
         "  @%p4 clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r30, %q0;\n  "
         "fence.proxy.async;\n  bar.warp.sync 0xFFFFFFFF;\n"
         "  @%p4 bra again;\n" +
         after_failure + "  add.u32 %r5, %r10, 0;\n  exit;\n";
}

TEST(LaunchControl, EveryClusterIsLaunchedOrHandedOutOnce) {
  for (uint64_t seed : {0, 1, 2}) {
    ClusterKernel kernel{.size = 1, .grid = 400, .target = "sm_100a", .num_sms = 3, .seed = seed};
    kernel.body = steal_loop();
    const ClusterKernel::Result r = kernel.run();
    ASSERT_TRUE(r.report.clean()) << r.report.format();
    EXPECT_LT(r.report.statistics.ctas, 400);
    int64_t own = 0;
    for (int64_t cta = 0; cta < 400; ++cta) {
      ASSERT_LT(r.at(cta, 63), 400u) << "nobody did tile " << cta;
      own += r.at(cta, 63) == cta;
    }
    EXPECT_EQ(own, r.report.statistics.ctas);
  }
}

TEST(LaunchControl, AskingAgainAfterAFailureIsFound) {
  ClusterKernel kernel{.size = 1, .grid = 4, .target = "sm_100a", .num_sms = 1};
  kernel.body = steal_loop(
      "  @!%p1 clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r10], "
      "[%r11];\n");
  EXPECT_EQ(first(kernel.run().report),
            "illegal-instruction: asks to cancel another cluster after a failed request has been seen");
}

TEST(LaunchControl, TheIndexOfAFailedAnswerIsUndefined) {
  ClusterKernel kernel{.size = 1, .grid = 4, .target = "sm_100a", .num_sms = 1};
  kernel.body = steal_loop("  clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %r30, %q0;\n");
  EXPECT_EQ(first(kernel.run().report),
            "illegal-instruction: get_first_ctaid of a response that cancelled nothing");
}

}  // namespace
}  // namespace imbrex::vgpu
