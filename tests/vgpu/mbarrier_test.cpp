// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/mbarrier.h"

#include <gtest/gtest.h>

namespace imbrex::vgpu {
namespace {

constexpr int64_t kMax = (1 << 20) - 1;

TEST(Mbarrier, ParityOfAFreshObject) {
  Mbarrier b(1);
  EXPECT_FALSE(b.is_done_parity(0));
  EXPECT_TRUE(b.is_done_parity(1));
  EXPECT_TRUE(b.arrive(1).completed);
  EXPECT_TRUE(b.is_done_parity(0));
  EXPECT_FALSE(b.is_done_parity(1));
  EXPECT_TRUE(b.arrive(1).completed);
  EXPECT_FALSE(b.is_done_parity(0));
  EXPECT_TRUE(b.is_done_parity(1));
}

TEST(Mbarrier, CompletesWhenTheLastArrivalComes) {
  Mbarrier b(5);
  EXPECT_FALSE(b.arrive(2).completed);
  EXPECT_FALSE(b.arrive(2).completed);
  EXPECT_EQ(b.pending(), 1);
  EXPECT_TRUE(b.arrive(1).completed);
  EXPECT_EQ(b.phase(), 1);
  EXPECT_EQ(b.pending(), 5);
}

TEST(Mbarrier, WaitsForAnnouncedBytes) {
  Mbarrier b(1);
  EXPECT_FALSE(b.arrive_expect_tx(48).completed);
  EXPECT_EQ(b.describe(), "pending 0 of 1 arrivals, 48 bytes missing");
  EXPECT_FALSE(b.complete_tx(32).completed);
  EXPECT_TRUE(b.complete_tx(16).completed);
  EXPECT_EQ(b.tx_count(), 0);
}

TEST(Mbarrier, BytesMayLandBeforeTheyAreAnnounced) {
  Mbarrier b(1);
  EXPECT_FALSE(b.complete_tx(16).completed);
  EXPECT_EQ(b.tx_count(), -16);
  EXPECT_EQ(b.describe(), "pending 1 of 1 arrivals, 16 bytes delivered and not yet announced");
  EXPECT_TRUE(b.arrive_expect_tx(16).completed);
}

TEST(Mbarrier, AnAnnouncementMayComeLast) {  // recorded on an H200, with one and with two announcements
  Mbarrier b(1);
  b.complete_tx(16);
  EXPECT_FALSE(b.arrive(1).completed);
  EXPECT_TRUE(b.expect_tx(16).completed);
  EXPECT_EQ(b.phase(), 1);
  Mbarrier two(2);
  two.complete_tx(32);
  two.arrive(2);
  EXPECT_FALSE(two.expect_tx(16).completed);
  EXPECT_TRUE(two.expect_tx(16).completed);
}

TEST(Mbarrier, NoBytesDoNothing) {
  Mbarrier b(1);
  EXPECT_FALSE(b.expect_tx(0).completed);
  EXPECT_FALSE(b.complete_tx(0).completed);
  EXPECT_EQ(b.phase(), 0);
}

TEST(Mbarrier, DropLowersLaterPhases) {
  Mbarrier b(3);
  EXPECT_EQ(b.drop(1).fault, MbarrierFault::kNone);
  EXPECT_FALSE(b.arrive(1).completed);
  EXPECT_EQ(b.pending(), 2);
  EXPECT_TRUE(b.arrive(2).completed);
  EXPECT_EQ(b.pending(), 2);
}

TEST(Mbarrier, ArrivalAfterEverybodyDroppedIsAFault) {
  Mbarrier b(1);
  b.drop(1);
  EXPECT_TRUE(b.arrive(1).completed);
  EXPECT_EQ(b.arrive(1).fault, MbarrierFault::kTooManyArrivals);
}

TEST(Mbarrier, StateTellsThePhaseAndThePendingCount) {
  Mbarrier b(5);
  const uint64_t before = b.state();
  EXPECT_EQ(Mbarrier::pending_count(before), 5u);
  b.arrive_no_complete(2);
  EXPECT_EQ(Mbarrier::pending_count(b.state()), 3u);
  EXPECT_FALSE(b.is_done_state(before));
  b.arrive(3);
  EXPECT_TRUE(b.is_done_state(before));
  EXPECT_FALSE(b.is_done_state(b.state()));
  EXPECT_FALSE(b.is_stale_state(before));
  b.arrive(5);
  EXPECT_TRUE(b.is_stale_state(before));
}

TEST(Mbarrier,
     StateHasTheHardwaresUpperWord) {  // count 5, recorded after the first arrive: 0x7FFFD800........
  EXPECT_EQ(Mbarrier(5).state() >> 32, 0x7FFFD800u);
}

TEST(Mbarrier, CpAsyncArriveAddsAndTakesOne) {
  Mbarrier b(1);
  EXPECT_EQ(b.add_pending().fault, MbarrierFault::kNone);
  EXPECT_FALSE(b.arrive(1).completed);
  EXPECT_TRUE(b.arrive(1).completed);
  EXPECT_EQ(b.pending(), 1);
}

TEST(Mbarrier, MisuseIsNamed) {
  Mbarrier b(2);
  EXPECT_EQ(b.arrive(3).fault, MbarrierFault::kTooManyArrivals);
  EXPECT_EQ(b.arrive(0).fault, MbarrierFault::kCountRange);
  EXPECT_EQ(b.arrive_no_complete(2).fault, MbarrierFault::kNoCompleteCompletes);
  EXPECT_EQ(b.expect_tx(kMax).fault, MbarrierFault::kNone);
  EXPECT_EQ(b.expect_tx(1).fault, MbarrierFault::kTxRange);
  EXPECT_EQ(Mbarrier(2).complete_tx(kMax + 1).fault, MbarrierFault::kTxRange);
  EXPECT_EQ(b.pending(), 2) << "a refused operation changes nothing";
  Mbarrier waiting(1);
  waiting.arrive_expect_tx(8);
  EXPECT_EQ(waiting.arrive(1).fault, MbarrierFault::kTooManyArrivals);
  EXPECT_EQ(explain(MbarrierFault::kTooManyArrivals, waiting),
            "more arrivals than the phase has left: pending 0 of 1 arrivals, 8 bytes missing, phase 0");
}

// "For any phase, at least one wait must return true before an arrive-on operation of the next one."
TEST(Mbarrier, AnArrivalBeforeAnyWaitHasSeenThePhaseEndOvertakes) {
  Mbarrier b(1);
  EXPECT_FALSE(b.arrive(1).overtook);  // the first phase has none before it
  EXPECT_TRUE(b.arrive(1).overtook);
  b.note_wait();
  EXPECT_FALSE(b.arrive_expect_tx(16).overtook);
  b.complete_tx(16);
  EXPECT_TRUE(b.arrive_expect_tx(16).overtook);
}

TEST(Mbarrier, BytesAreUnseenUntilAWaitHasSeenTheirPhaseEnd) {
  Mbarrier b(1);
  b.complete_tx(16);
  EXPECT_EQ(b.unseen_bytes(), 16);
  b.arrive_expect_tx(16);
  EXPECT_EQ(b.unseen_bytes(), 16);
  b.note_wait();
  EXPECT_EQ(b.unseen_bytes(), 0);
  b.complete_tx(32);
  EXPECT_EQ(b.unseen_bytes(), 32);
}

TEST(MbarrierTable, ObjectsLiveFromInitToInval) {
  MbarrierTable table;
  EXPECT_EQ(table.find(0x400), nullptr);
  EXPECT_EQ(table.init(0x400, 1), MbarrierFault::kNone);
  EXPECT_EQ(table.init(0x408, 2), MbarrierFault::kNone);
  EXPECT_EQ(table.init(0x410, 0), MbarrierFault::kCountRange);
  EXPECT_EQ(table.init(0x410, kMax + 1), MbarrierFault::kCountRange);
  EXPECT_EQ(table.find(0x408)->expected(), 2);
  EXPECT_EQ(table.init(0x408, 7), MbarrierFault::kAlreadyLive);
  EXPECT_EQ(table.find(0x408)->expected(), 7) << "as the hardware does, the object starts anew";
  EXPECT_EQ(table.overlapping(0x40C, 4)->offset, 0x408u);
  EXPECT_EQ(table.overlapping(0x410, 16), nullptr);
  EXPECT_EQ(table.invalidate(0x400), MbarrierFault::kNone);
  EXPECT_EQ(table.invalidate(0x400), MbarrierFault::kNotLive);
  EXPECT_EQ(table.overlapping(0x3F8, 16), nullptr);
}

}  // namespace
}  // namespace imbrex::vgpu
