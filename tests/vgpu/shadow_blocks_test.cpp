// SPDX-License-Identifier: Apache-2.0
// The shadow of global memory: the short way for blocks that only one warp has touched does what the long one does.
#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "vgpu/checks/shadow_blocks.h"

namespace imbrex::vgpu {
namespace {

/// Lanes know what they have done themselves, and of others what chance says.
struct ChanceJudge {
  uint32_t chance;
  bool ordered_for_all(Access earlier, Access now) const {
    if (earlier.agent() == now.agent() && earlier.has_lanes_of(now)) return true;
    return ((earlier.insn() ^ earlier.agent() ^ chance) & 1) != 0;
  }
  bool in_order_says_nothing(Access, Access) const { return true; }
  bool may_meet(Access earlier, Access now) const { return earlier.is_strong() && now.is_strong(); }
};

using Words = std::array<uint64_t, sizeof(ShadowCell) / sizeof(uint64_t)>;
Words words_of(const ShadowCell& block) { return std::bit_cast<Words>(block); }

Access random_access(std::mt19937& random, uint32_t agents) {
  Access now(1 + static_cast<Clock>(random() % 3), static_cast<AgentId>(random() % agents));
  now.set_insn(static_cast<uint32_t>(random() % 8));
  // Mostly one access's lanes side by side, or in steps of 16 bytes with the first four of each.
  now.set_lanes(random() % 8 == 0 ? 8 : 0, random() % 8 == 0 ? 4 : 2);
  now.set_bytes(random() % 8 == 0 ? 0x000F : 0xFFFF);
  now.set(Access::kWrite, random() % 3 == 0);
  now.set(Access::kStrong, random() % 8 == 0);
  return now;
}

TEST(ShadowBlocks, OfOneWarpAreRecordedAsOthersAre) {
  int own = 0, with_others = 0;
  for (uint32_t seed = 0; seed < 4000; ++seed) {
    std::mt19937 random(seed);
    const uint32_t agents = 1 + seed % 3;
    ShadowCell block{};
    for (int i = 0; i < 12; ++i) {
      const Access now = random_access(random, agents);
      const ChanceJudge judge{static_cast<uint32_t>(random())};
      ShadowCell shortly = block, at_length = block;
      const bool is_silent = record_block(at_length, now, judge);
      if (record_own_block(shortly, now)) {
        ++own;
        ASSERT_TRUE(is_silent) << "seed " << seed << ", access " << i;
        ASSERT_EQ(words_of(shortly), words_of(at_length)) << "seed " << seed << ", access " << i;
      } else {
        ++with_others;
        ASSERT_EQ(words_of(shortly), words_of(block)) << "seed " << seed << ", access " << i;
      }
      if (is_silent) block = at_length;
    }
  }
  EXPECT_GT(own, 5000);
  EXPECT_GT(with_others, 5000);
}

TEST(ShadowBlocks, OfARunHaveLanesOfTheirOwn) {
  struct Shadow {
    std::array<ShadowCell, 4> blocks{};
    ShadowCell& block(uint64_t at) { return blocks[at / kBlockBytes]; }
  };
  Access now(1, 0);
  now.set_bytes(0x000F);
  now.set_lanes(0, 4);
  Shadow shadow;
  ASSERT_EQ(record_own_blocks(shadow, now, 0, 0, 512), 512u);
  for (int b = 0; b < 4; ++b) EXPECT_EQ(shadow.blocks[static_cast<size_t>(b)].slots[3].lane(), 8 * b);
  // Another warp's block ends it.
  Access other(1, 1);
  other.set_bytes(0x000F);
  other.set_lanes(16, 4);
  wipe(shadow.blocks[2]);
  ASSERT_TRUE(record_own_block(shadow.blocks[2], other));
  EXPECT_EQ(record_own_blocks(shadow, now, 0, 0, 512), 256u);
  mark_split(shadow.blocks[1]);
  EXPECT_EQ(record_own_blocks(shadow, now, 0, 0, 512), 128u);
  EXPECT_TRUE(is_split(shadow.blocks[1]));
}

}  // namespace
}  // namespace imbrex::vgpu
