// SPDX-License-Identifier: Apache-2.0
// The shadow of shared memory remembers of whole tiles what the cells by themselves would: random accesses both ways.
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <tuple>

#include "vgpu/checks/touched_cells.h"

namespace imbrex::vgpu {
namespace {

constexpr uint32_t kAgents = 6, kBytes = 2 * kTileBytes;
using Race = std::tuple<AgentId, uint32_t, int>;  // earlier: instruction, lane
using Remembered = std::multiset<std::tuple<AgentId, Clock, uint32_t, int, int, int, int, int>>;

/// What each agent has seen of the others; an agent's own lanes are ordered by themselves and by its synchronisation.
struct World {
  std::array<Clock, kAgents> clock{}, synced_before{};
  std::array<std::array<Known, kAgents>, kAgents> seen{};

  /// It learns all that all have done so far.
  void synchronise(AgentId who) {
    for (AgentId other = 0; other < kAgents; ++other) seen[who][other].join(Known(clock[other] + 1));
    for (Clock& c : clock) ++c;
    synced_before[who] = clock[who];
  }
};

struct TestJudge {
  const World& world;
  std::set<Race> races;

  bool ordered(Access earlier, Access now, int byte) const {
    if (earlier.agent() == now.agent() &&
        (earlier.clock() < world.synced_before[now.agent()] || earlier.lane_of(byte) == now.lane_of(byte) ||
         (earlier.insn() == now.insn() && earlier.clock() == now.clock())))
      return true;
    return world.seen[now.agent()][earlier.agent()].covers(earlier.clock(), earlier.lane_of(byte) & 31);
  }
  bool ordered_for_all(Access earlier, Access now) const {
    if (earlier.agent() == now.agent() &&
        (earlier.clock() < world.synced_before[now.agent()] || earlier.has_lanes_of(now) ||
         (earlier.insn() == now.insn() && earlier.clock() == now.clock())))
      return true;
    return world.seen[now.agent()][earlier.agent()].covers_all(earlier.clock());
  }
  bool in_order_says_nothing(Access, Access) const { return true; }
  bool may_meet(Access earlier, Access now) const { return earlier.is_strong() && now.is_strong(); }
  void race(Access earlier, Access now) {
    const int byte = std::countr_zero(earlier.common(now));
    races.insert({earlier.agent(), earlier.insn(), earlier.lane_of(byte)});
  }
  void in_order(Access, Access) {}
};

Remembered remembered(const ShadowCell& cell) {
  Remembered all;
  for (Access a : cell.slots)
    if (!a.is_none())
      all.insert(
          {a.agent(), a.clock(), a.insn(), a.bytes(), a.is_write(), a.is_strong(), a.lane(), a.lane_shift()});
  return all;
}

/// Of one random access: what units, ldmatrix, cp.async, whole warps and single lanes do.
/// `kinds`: so many of these.
std::vector<LaneTouch> random_touches(std::mt19937& random, uint32_t kinds) {
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random()) % n; };
  const uint32_t row = below(kBytes / 128 - 8), chunk = below(8);
  std::vector<LaneTouch> touches;
  const auto touch = [&](uint64_t address, uint32_t bytes, uint32_t lane, uint8_t shift = 7) {
    touches.push_back(
        {.address = address, .bytes = bytes, .lane = static_cast<int>(lane), .lane_shift = shift});
  };
  /// A swizzle of so many chunks.
  const auto swizzle_chunk = [](uint32_t c, uint32_t row_chunks) { return c ^ (c / 8 % row_chunks); };
  const auto swizzled = [](uint32_t r, uint32_t c) { return r * 128 + (c ^ r) % 8 * 16; };
  switch (below(kinds)) {
    case 0:  // a box
      touch(row / 8 * kTileBytes, kTileBytes, 0);
      break;
    case 1:  // an operand's slice of swizzled rows
      for (uint32_t r = row; r < row + 8; ++r) touch(swizzled(r, chunk) & ~31u, 32, 0);
      break;
    case 2: {  // a matrix of ldmatrix
      const uint32_t row_chunks = 8u >> below(4);
      for (uint32_t r = 0; r < 8; ++r)
        touch(swizzle_chunk(row * 8 + r * row_chunks + chunk % row_chunks, row_chunks) * 16, 16, 8 + r);
      break;
    }
    case 3: {  // cp.async in swizzled order, neighbours together
      const uint32_t row_chunks = 8u >> below(4);
      LaneTouches lanes(16);
      for (uint32_t i = 0; i < 32; ++i)
        lanes.add(static_cast<int>(i), swizzle_chunk(row * 8 + i, row_chunks) * 16, 16);
      touches.assign(lanes.all().begin(), lanes.all().end());
      break;
    }
    case 4:  // a warp's words side by side
      touch(row * 128 + chunk * 4, 128, 0, 2);
      break;
    case 5:  // a warp's vectors
      touch(row * 128 + chunk * 16, 512, 0, 4);
      break;
    case 6:  // rows of a box
      touch(row * 128, 128 * (1 + below(8)), 0);
      break;
    default:  // lanes anywhere
      for (uint32_t i = 0; i < 4; ++i) touch(below(kBytes / 16) * 16 + 4 * below(4), 4, below(32));
  }
  return touches;
}

TEST(SharedShadow, RemembersWhatItsCellsWould) {
  constexpr int kRounds = 60, kAccesses = 300;
  constexpr std::array<uint32_t, 4> kUnsynchronised = {0, 2, 20, 1000};  // of 1000 accesses
  int in_tiles = 0, races = 0;
  for (uint32_t seed = 0; seed < kRounds; ++seed) {
    std::mt19937 random(seed);
    SharedShadow shadow;
    shadow.resize(kBytes);
    std::vector<ShadowCell> cells(kBytes / ShadowCell::kBytes);
    // Which of more than four accesses are forgotten may differ.
    std::vector<bool> was_full(cells.size());
    World world;
    world.clock.fill(1);
    for (int i = 0; i < kAccesses; ++i) {
      const std::vector<LaneTouch> touches = random_touches(random, 2 + 2 * (seed / 4 % 4));
      Access now(0, static_cast<AgentId>(random() % kAgents));
      now.set_bytes(0xFFFF);
      // Readers may come together.
      now.set(Access::kWrite, random() % 3 == 0);
      if (now.is_write() ? random() % 1000 >= kUnsynchronised[seed % 4] : random() % 4 == 0)
        world.synchronise(now.agent());
      now.set_clock(world.clock[now.agent()]);
      now.set_insn(static_cast<uint32_t>(random() % 16));
      now.set(Access::kStrong, random() % 10 == 0);
      TestJudge by_tiles{world, {}}, by_cells{world, {}};
      for (std::span<const LaneTouch> left = touches; !left.empty();) {
        const TouchedCells touched = cells_touched(left);
        ShadowTile& tile = shadow.tile(left[0].address);
        now.set_lane(touched.lane);
        now.set_lane_shift(touched.lane_shift & 0xF);
        if (touched.cells != 0 && !tile.is_split() && record_in_tile(tile, {now, touched.cells}, by_tiles)) {
          ++in_tiles;
        } else {
          for (const LaneTouch& touch : left.first(touched.touches)) {
            now.set_lanes(std::max(touch.lane, 0), touch.lane_shift);
            record_run(shadow, now, touch.address, touch.address, touch.address + touch.bytes, by_tiles);
          }
        }
        left = left.subspan(touched.touches);
      }
      bool is_exact = true;
      for (const LaneTouch& touch : touches) {
        for (uint64_t c = touch.address / 16; c <= (touch.address + touch.bytes - 1) / 16; ++c)
          is_exact = is_exact && !was_full[c];
        now.set_lanes(std::max(touch.lane, 0), touch.lane_shift);
        for (uint64_t at = touch.address, end = at + touch.bytes; at < end;) {
          const uint64_t stop = std::min(end, (at / kTileBytes + 1) * kTileBytes);
          record_cells(&cells[at / kTileBytes * kCellsInTile], kTileBytes,
                       in_block(now, touch.address, at, kTileBytes), at, stop, by_cells);
          at = stop;
        }
      }
      races += static_cast<int>(by_cells.races.size());
      if (is_exact) {
        ASSERT_EQ(by_tiles.races, by_cells.races) << "seed " << seed << ", access " << i;
      }
      for (uint64_t t = 0; t < kBytes; t += kTileBytes) {
        std::array<ShadowCell, kCellsInTile> split;
        if (shadow.tile(t).is_split())
          std::copy_n(shadow.cells(t), kCellsInTile, split.begin());
        else
          split_tile(shadow.tile(t), split.data());
        for (uint32_t c = 0; c < kCellsInTile; ++c) {
          const size_t at = t / ShadowCell::kBytes + c;
          const Remembered expected = remembered(cells[at]), found = remembered(split[c]);
          if (!was_full[at] && expected.size() < std::size(split[c].slots)) {
            ASSERT_EQ(found, expected) << "seed " << seed << ", access " << i << ", cell " << at;
          } else {
            was_full[at] = expected.size() != 1 || found != expected;
          }
        }
      }
      // Now and then somebody learns of others, all of it or what some lanes did, and goes on.
      if (random() % 1000 >= kUnsynchronised[seed % 4]) continue;
      const auto who = static_cast<AgentId>(random() % kAgents);
      const bool is_all = random() % 4 != 0;
      for (AgentId other = 0; other < kAgents; ++other)
        if (random() % 2 == 0)
          world.seen[who][other].join(
              is_all ? Known(world.clock[other] + 1)
                     : Known(0, world.clock[other], static_cast<Mask>(random() | random())));
      for (AgentId other = 0; other < kAgents; ++other) ++world.clock[other];
      if (random() % 2 == 0) world.synced_before[who] = world.clock[who];
    }
  }
  EXPECT_GT(in_tiles, 1000);
  EXPECT_GT(races, kRounds);
}

}  // namespace
}  // namespace imbrex::vgpu
