// SPDX-License-Identifier: Apache-2.0
#include "vgpu/machine/slot_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace imbrex::vgpu {
namespace {

struct Slot {
  enum class State { kRunning, kRunnable, kWaiting } state = State::kRunning;
  SlotQueue<Slot>::Keys keys;
};

/// What SlotQueue::first() says, by looking at every slot.
Slot* first_by_search(std::vector<Slot>& slots, uint64_t least_running) {
  const bool some_wait =
      std::any_of(slots.begin(), slots.end(), [](const Slot& s) { return s.state == Slot::State::kWaiting; });
  Slot* best = nullptr;
  for (Slot& slot : slots) {
    if (slot.state == Slot::State::kRunning) continue;
    if (slot.state == Slot::State::kWaiting) {
      bool has_turn = slot.keys.in_turn.first < least_running;
      for (const Slot& other : slots)
        has_turn = has_turn && (&other == &slot || other.state == Slot::State::kRunning ||
                                slot.keys.in_turn < other.keys.in_turn);
      if (!has_turn) continue;
    }
    const auto key = [&](const Slot& s) { return some_wait ? s.keys.in_turn : s.keys.fair; };
    if (best == nullptr || key(slot) < key(*best)) best = &slot;
  }
  return best;
}

TEST(SlotQueue, ChoosesWhatASearchOfAllSlotsWould) {
  std::mt19937 random(7);
  const auto below = [&](uint32_t end) { return random() % end; };
  std::vector<Slot> slots(9);
  SlotQueue<Slot> queue;
  int waited = 0, had_turn = 0;
  for (int step = 0; step < 20000; ++step) {
    const size_t i = below(static_cast<uint32_t>(slots.size()));
    Slot& slot = slots[i];
    if (slot.state != Slot::State::kRunning) {
      queue.remove(&slot, slot.keys);
      slot.state = Slot::State::kRunning;
    } else {
      slot.keys = {{below(3), static_cast<int>(i + 100 * below(2))}, {below(5), static_cast<int>(i)}};
      const bool waits = below(4) == 0;
      slot.state = waits ? Slot::State::kWaiting : Slot::State::kRunnable;
      if (waits)
        queue.add_waiting(&slot, slot.keys);
      else
        queue.add_runnable(&slot, slot.keys);
    }
    const uint64_t least_running = below(6);
    Slot* const found =
        queue.first([&](const Slot* waiting) { return waiting->keys.in_turn.first < least_running; });
    ASSERT_EQ(found, first_by_search(slots, least_running)) << "step " << step;
    waited += queue.some_wait() ? 1 : 0;
    had_turn += found != nullptr && found->state == Slot::State::kWaiting ? 1 : 0;
  }
  EXPECT_GT(waited, 1000);
  EXPECT_GT(had_turn, 100);
}

}  // namespace
}  // namespace imbrex::vgpu
