// SPDX-License-Identifier: Apache-2.0
// Arrivals at the barrier of another CTA before anybody there has seen the end of the phase before: a note where they are
// certain to count for the next phase, a finding where they may as well count for that one.
#include <fmt/format.h>

#include "bent_kernel.h"

namespace imbrex::vgpu {
namespace {

/// Two CTAs meet at barriers, one in each, to which both arrive; `count` is what the barriers wait for.
std::string gates(int count, bool own_first = true) {
  const std::string own = "  @%first mbarrier.arrive.shared::cta.b64 _, [%bar];\n",
                    peer = "  @%first mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%y];\n";
  return fmt::format(R"(
  @%first mbarrier.init.shared::cta.b64 [%bar], {};
  fence.mbarrier_init.release.cluster;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  mov.u32 %x, %cluster_ctarank;
  xor.b32 %x, %x, 1;
  mapa.shared::cluster.u32 %y, %bar, %x;
  mov.u32 %z, 0;
ROUND:
{}{}
WAIT:
  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p, [%bar], %z;
  @!%p bra WAIT;
  add.u32 %z, %z, 1;
  setp.lt.u32 %p, %z, 8;
  @%p bra ROUND;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;)",
                     count, own_first ? own : peer, own_first ? peer : own);
}

TEST(ArrivalAhead, OfACtaAtItsPeersGate) {
  int bent = 0;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    const Bent kernel{.body = gates(2), .grid = {2}, .cluster = {2}, .seed = seed};
    for (const Finding& f : kernel.run(Strictness::kStrict).findings) {
      EXPECT_EQ(f.rule, BentRule::kArrivalAhead) << f.format();
      ++bent;
    }
    const Report practical = kernel.run(Strictness::kPractical);
    EXPECT_TRUE(practical.clean()) << practical.format();
  }
  EXPECT_GT(bent, 0) << "no seed let a CTA run ahead";
}

bool is_found_with_some_seed(const std::string& body) {
  for (uint64_t seed = 0; seed < 24; ++seed)
    if (!Bent{.body = body, .grid = {2}, .cluster = {2}, .seed = seed}.run(Strictness::kPractical).clean())
      return true;
  return false;
}

TEST(ArrivalAhead, ThatEndsThePhaseIsFound) {
  // With a count of 1 each CTA ends its peer's phases by itself.
  EXPECT_TRUE(is_found_with_some_seed(gates(1)));
  // A CTA that lets its peer go on before it has arrived itself: the peer's next arrival is taken for its own.
  EXPECT_TRUE(is_found_with_some_seed(gates(2, false)));
}

/// One lane of each of four warps of CTA 0 arrives at a barrier of CTA 1, of which `count` are waited for. `behind`: what comes next.
Bent arrivals(int count, const std::string& behind, const std::string& order = ".release.cluster") {
  return {.body = fmt::format(R"(
  @%first mbarrier.init.shared::cta.b64 [%bar], {};
  fence.mbarrier_init.release.cluster;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  mov.u32 %x, %cluster_ctarank;
  mov.u32 %z, 1;
  mapa.shared::cluster.u32 %y, %bar, %z;
  and.b32 %z, %t, 31;
  setp.eq.u32 %q, %z, 0;
  setp.eq.u32 %p, %x, 1;
  @%p bra WAITER;
  @%q mbarrier.arrive{}.shared::cluster.b64 _, [%y];
  {}
  bra END;
WAITER:
  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %q, [%bar], 0;
  @!%q bra WAITER;
END:
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;)",
                              count, order, behind),
          .grid = {2},
          .block = {128},
          .cluster = {2}};
}
/// Whether a seed has findings, and whether one has notes.
std::pair<bool, bool> outcome(Bent kernel) {
  bool found = false, noted = false;
  for (kernel.seed = 0; kernel.seed < 24; ++kernel.seed) {
    const Report report = kernel.run(Strictness::kPractical);
    found |= !report.clean();
    noted |= !report.notes.empty();
  }
  return {found, noted};
}

TEST(ArrivalAhead, OfOneTooManyIsFound) {
  EXPECT_EQ(outcome(arrivals(4, "")), std::pair(false, false));
  // Which of the four comes after the phase nobody can say.
  EXPECT_TRUE(outcome(arrivals(3, "")).first);
  EXPECT_TRUE(outcome(arrivals(2, "")).first);
  // The arrivals of a second round come after all of the first, those that stay open wait there.
  EXPECT_EQ(outcome(arrivals(
                4, "bar.sync 0;\n  @%first mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%y];")),
            std::pair(false, true));
  // With nothing in between it may be taken for one of the first.
  EXPECT_TRUE(
      outcome(arrivals(4, "@%first mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%y];")).first);
  // Of relaxed arrivals nothing is known but that they come.
  const std::string again = "@%first mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%y];";
  EXPECT_EQ(outcome(arrivals(4, "bar.sync 0;\n  " + again, ".relaxed.cluster")), std::pair(false, true));
}

}  // namespace
}  // namespace imbrex::vgpu
