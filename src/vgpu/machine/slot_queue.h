// SPDX-License-Identifier: Apache-2.0
// Which of the slots that no host thread is running comes next. Looked at once for every cluster, so it must not cost
// time in proportion to the number of slots.
#pragma once

#include <cstdint>
#include <set>
#include <utility>

namespace imbrex::vgpu {

template <class Slot>
class SlotQueue {
 public:
  using Key = std::pair<uint64_t, int>;
  struct Keys {
    Key fair;     // the order while no slot needs a turn
    Key in_turn;  // the order of turns: epoch, slot
  };

  /// A slot whose cluster can go on, or that can start one.
  void add_runnable(Slot* slot, const Keys& keys) {
    by_fairness_.emplace(keys.fair, slot);
    runnable_.emplace(keys.in_turn, slot);
  }
  /// A slot whose cluster waits for its turn.
  void add_waiting(Slot* slot, const Keys& keys) { waiting_.emplace(keys.in_turn, slot); }
  /// Takes a slot out, by the keys that it was added with.
  void remove(Slot* slot, const Keys& keys) {
    by_fairness_.erase({keys.fair, slot});
    runnable_.erase({keys.in_turn, slot});
    waiting_.erase({keys.in_turn, slot});
  }

  bool some_wait() const { return !waiting_.empty(); }
  /// The next one, or null. `has_turn(slot)`: may the first of those that wait go on? Where it may not, none may.
  template <class HasTurn>
  Slot* first(HasTurn&& has_turn) const {
    if (waiting_.empty()) return by_fairness_.empty() ? nullptr : by_fairness_.begin()->second;
    // In turns the one furthest behind is wanted by all others.
    const auto& [waiting_key, waiting] = *waiting_.begin();
    const bool waiting_is_next = runnable_.empty() || waiting_key < runnable_.begin()->first;
    if (waiting_is_next && has_turn(waiting)) return waiting;
    return runnable_.empty() ? nullptr : runnable_.begin()->second;
  }

 private:
  using Order = std::set<std::pair<Key, Slot*>>;
  Order by_fairness_, runnable_, waiting_;
};

}  // namespace imbrex::vgpu
