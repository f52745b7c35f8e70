// SPDX-License-Identifier: Apache-2.0
// Several virtual GPUs that run together: memory that all of them see, waiting for one another, and what the checkers
// find between them.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "imbrex/core/error.h"
#include "imbrex/vgpu/virtual_node.h"
#include "vgpu_testing.h"

namespace imbrex::vgpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A kernel of 32 threads on each of two ranks. %rank; %own and %peer are this thread's words of this rank's and of the
/// other rank's data, %flag and %theirs the flags of the two; %first holds for thread 0, %zero on rank 0.
std::string kernel(const std::string& body) {
  return R"(.version 9.0
.target sm_90a
.address_size 64
.file 1 "node.cu"
.visible .entry k(.param .u64 data, .param .u64 flags, .param .u64 stride, .param .u32 rank)
.reqntid 32
{
  .reg .pred %p, %first, %zero;
  .reg .b32 %t, %rank, %x, %y;
  .reg .b64 %own, %peer, %flag, %theirs, %stride, %mine, %other;
  ld.param.u64 %own, [data];
  ld.param.u64 %flag, [flags];
  ld.param.u64 %stride, [stride];
  ld.param.u32 %rank, [rank];
  mov.u32 %t, %tid.x;
  setp.eq.u32 %first, %t, 0;
  setp.eq.u32 %zero, %rank, 0;
  mad.wide.u32 %own, %t, 4, %own;
  cvt.u64.u32 %mine, %rank;
  xor.b64 %other, %mine, 1;
  mul.lo.u64 %mine, %mine, %stride;
  mul.lo.u64 %other, %other, %stride;
  add.u64 %peer, %own, %other;
  add.u64 %own, %own, %mine;
  add.u64 %theirs, %flag, %other;
  add.u64 %flag, %flag, %mine;
)" + body +
         "\n  ret;\n}\n";
}

class TwoRanks {
 public:
  explicit TwoRanks(uint64_t seed = 0)
      : node_(2, {.target = "sm_90a", .seed = seed, .memory_bytes = int64_t{1} << 24}),
        data_(node_.allocate_symmetric(256)),
        flags_(node_.allocate_symmetric(256)) {
    for (int rank = 0; rank < 2; ++rank)
      for (const DeviceAddress address : {data_, flags_})
        node_.gpu(rank).fill(address + static_cast<uint64_t>(rank * node_.rank_stride()), 0, 256);
  }
  std::vector<Report> run(const std::string& body) {
    uint64_t stride = static_cast<uint64_t>(node_.rank_stride());
    std::vector<VirtualNode::RankLaunch> launches;
    uint32_t ranks[2] = {0, 1};
    void* arguments[2][4];
    for (int rank = 0; rank < 2; ++rank) {
      void* of_rank[] = {&data_, &flags_, &stride, &ranks[rank]};
      std::copy(std::begin(of_rank), std::end(of_rank), arguments[rank]);
      launches.push_back({rank,
                          node_.gpu(rank).load_module(kernel(body), "node.ptx").function("k"),
                          {.grid = {1}, .block = {32}, .arguments = arguments[rank]}});
    }
    return node_.launch(launches);
  }
  uint32_t word(int rank, int index) {
    uint32_t value = 0;
    node_.gpu(rank).copy_from_device(
        &value, data_ + static_cast<uint64_t>(rank * node_.rank_stride() + 4 * index), 4);
    return value;
  }
  VirtualNode& node() { return node_; }

 private:
  VirtualNode node_;
  DeviceAddress data_, flags_;
};

std::string findings(const std::vector<Report>& reports) {
  std::string text;
  for (const Report& report : reports) text += report.format() + "\n";
  return text;
}
size_t count(const std::vector<Report>& reports) {
  size_t sum = 0;
  for (const Report& report : reports) sum += report.findings.size();
  return sum;
}

/// Rank 0 stores to rank 1 and signals; rank 1 waits, and reads.
std::string message(const std::string& release, const std::string& acquire) {
  return fmt::format(R"(
  @!%zero bra receiver;
  .loc 1 10 0
  st.global.u32 [%peer], 7;
  bar.warp.sync -1;
  .loc 1 11 0
  @%first st.{}.global.u32 [%theirs], 1;
  ret;
receiver:
again:
  .loc 1 20 0
  @%first ld.{}.global.u32 %x, [%flag];
  @%first setp.eq.u32 %p, %x, 0;
  @!%first setp.ne.u32 %p, 0, 0;
  @%p bra again;
  bar.warp.sync -1;
  .loc 1 21 0
  ld.global.u32 %y, [%own];
  add.u32 %y, %y, 1;
  .loc 1 22 0
  st.global.u32 [%own], %y;)",
                     release, acquire);
}

TEST(VirtualNode, KernelsOfTwoRanksRunTogetherAndWaitForEachOther) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    TwoRanks ranks(seed);
    const std::vector<Report> reports = ranks.run(message("release.sys", "acquire.sys"));
    ASSERT_EQ(count(reports), 0u) << "seed " << seed << "\n" << findings(reports);
    EXPECT_TRUE(reports[0].completed && reports[1].completed);
    EXPECT_EQ(ranks.word(1, 31), 8u);
    EXPECT_EQ(ranks.word(0, 31), 0u);
  }
}

TEST(VirtualNode, SignalsOfGpuScopeOrderNothingBetweenRanks) {
  for (const auto& [release, acquire] :
       {std::pair{"release.gpu", "acquire.sys"}, {"release.sys", "acquire.gpu"}}) {
    TwoRanks ranks;
    const std::vector<Report> reports = ranks.run(message(release, acquire));
    const std::string text = findings(reports);
    ASSERT_GE(reports[1].findings.size(), 1u) << release << " " << acquire << text;
    bool found = false;
    for (const Finding& f : reports[1].findings)
      if (f.kind == FindingKind::kRace && f.place.line == 21 && f.other_place.line == 10) {
        found = true;
        EXPECT_EQ(f.actor.rank, 1);
        EXPECT_EQ(f.other_actor.rank, 0);
        EXPECT_THAT(f.hint, HasSubstr("but of .gpu scope, which orders nothing between GPUs"));
        EXPECT_THAT(f.format(),
                    AllOf(HasSubstr("by    rank 1, CTA (0, 0, 0)"), HasSubstr("by    rank 0, CTA (0, 0, 0)"),
                          HasSubstr("symmetric allocation of rank 1")));
      }
    EXPECT_TRUE(found) << text;
  }
}

TEST(VirtualNode, WithoutASignalItIsARace) {
  TwoRanks ranks;
  const std::vector<Report> reports = ranks.run(R"(
  .loc 1 5 0
  @%zero st.global.u32 [%peer], 7;
  .loc 1 6 0
  @!%zero ld.global.u32 %x, [%own];)");
  EXPECT_THAT(findings(reports), AllOf(HasSubstr("race: "), HasSubstr("a signal between GPUs")))
      << findings(reports);
}

TEST(VirtualNode, AtomicsOfTwoRanksNeedSystemScope) {
  TwoRanks system, gpu;
  EXPECT_EQ(findings(system.run("  @%zero red.relaxed.sys.global.add.u32 [%peer], 1;\n"
                                "  @!%zero red.relaxed.sys.global.add.u32 [%own], 1;")),
            "\n\n");
  EXPECT_EQ(system.word(1, 3), 2u);
  EXPECT_THAT(findings(gpu.run("  @%zero red.relaxed.gpu.global.add.u32 [%peer], 1;\n"
                               "  @!%zero red.relaxed.gpu.global.add.u32 [%own], 1;")),
              HasSubstr("use .sys"));
}

TEST(VirtualNode, ALaunchComesBehindThoseOfItsRankAndNoOther) {
  const std::string writes = "  .loc 1 5 0\n  @%zero st.global.u32 [%peer], 7;";
  const std::string reads = "  .loc 1 6 0\n  @!%zero ld.global.u32 %x, [%own];";
  TwoRanks ordered;
  EXPECT_EQ(count(ordered.run("  st.global.u32 [%own], %t;")), 0u);
  EXPECT_EQ(count(ordered.run("  ld.global.u32 %x, [%own];\n  st.global.u32 [%own], %x;")), 0u);
  TwoRanks skewed;
  EXPECT_EQ(count(skewed.run(writes)), 0u);
  EXPECT_THAT(findings(skewed.run(reads)), AllOf(HasSubstr("of rank 1 reads"), HasSubstr("node.cu:5")));
  TwoRanks met;
  EXPECT_EQ(count(met.run(writes)), 0u);
  met.node().barrier();
  EXPECT_EQ(count(met.run(reads)), 0u);
}

TEST(VirtualNode, WhatOneRankWasToldHoldsForItsLaterLaunches) {
  TwoRanks ranks;
  EXPECT_EQ(findings(ranks.run(message("release.sys", "acquire.sys"))), "\n\n");
  // Rank 1 knows that rank 0 has stored there; rank 0 does not know that rank 1 has read.
  EXPECT_EQ(findings(ranks.run("  @!%zero st.global.u32 [%own], 3;")), "\n\n");
  EXPECT_THAT(findings(ranks.run("  @%zero st.global.u32 [%peer], 3;")), HasSubstr("race: "));
}

TEST(VirtualNode, RanksThatWaitInVainAreNamed) {
  for (uint64_t seed = 0; seed < 3; ++seed) {
    TwoRanks ranks(seed);
    const std::vector<Report> reports = ranks.run(R"(
again:
  .loc 1 30 0
  ld.acquire.sys.global.u32 %x, [%flag];
  setp.eq.u32 %p, %x, 0;
  @%p bra again;)");
    EXPECT_FALSE(reports[0].completed || reports[1].completed);
    EXPECT_EQ(count(reports), 1u);
    const std::string text = findings(reports);
    EXPECT_THAT(text, AllOf(HasSubstr("endless-run: "), HasSubstr("node.cu:30"), HasSubstr("rank 0"),
                            HasSubstr("rank 1")))
        << text;
  }
  TwoRanks ranks;
  EXPECT_THAT(findings(ranks.run(R"(
  @%zero ret;
again:
  ld.acquire.sys.global.u32 %x, [%flag];
  setp.eq.u32 %p, %x, 0;
  @%p bra again;)")),
              HasSubstr("rank 0 has ended its kernel"));
}

TEST(VirtualNode, TheSeedAloneDecides) {
  const std::string body = R"(
  atom.relaxed.sys.global.add.u32 %x, [%own], 1;
  atom.relaxed.sys.global.add.u32 %y, [%peer], 1;
  atom.relaxed.sys.global.exch.b32 %y, [%peer], %rank;
  atom.relaxed.sys.global.exch.b32 %y, [%own], %rank;)";
  const auto words = [&](uint64_t seed) {
    TwoRanks ranks(seed);
    EXPECT_EQ(count(ranks.run(body)), 0u);
    std::vector<uint32_t> all;
    for (int rank = 0; rank < 2; ++rank)
      for (int i = 0; i < 32; ++i) all.push_back(ranks.word(rank, i));
    return all;
  };
  bool differs = false;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    EXPECT_EQ(words(seed), words(seed));
    differs |= words(seed) != words(0);
  }
  EXPECT_TRUE(differs);
}

TEST(VirtualNode, MemoryOfAPeerHasItsBounds) {
  TwoRanks ranks;
  EXPECT_THAT(findings(ranks.run("  @%zero st.global.u32 [%peer+256], 7;")),
              AllOf(HasSubstr("out-of-bounds"), HasSubstr("of rank 1")));
}

TEST(VirtualNode, SaysWhatCannotBe) {
  EXPECT_THROW(VirtualNode(0, {}), LaunchError);
  EXPECT_THROW(VirtualNode(17, {}), LaunchError);
  TwoRanks ranks;
  EXPECT_THROW(ranks.node().gpu(2), LaunchError);
  EXPECT_THROW(ranks.node().allocate_symmetric(int64_t{1} << 40), LaunchError);
  Function k = ranks.node().gpu(0).load_module(kernel(""), "node.ptx").function("k");
  std::vector<std::byte> parameters(64);
  const Launch launch{.grid = {1}, .block = {32}, .parameter_buffer = parameters};
  const std::vector<VirtualNode::RankLaunch> twice{{0, k, launch}, {0, k, launch}};
  EXPECT_THROW(ranks.node().launch(twice), LaunchError);
}

}  // namespace
}  // namespace imbrex::vgpu
