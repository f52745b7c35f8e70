// SPDX-License-Identifier: Apache-2.0
// The chip that a replay runs on: servers that take requests one after the other, the L2 cache, and the busy
// time of everything.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <deque>
#include <numeric>
#include <unordered_map>
#include <vector>

#include "vgpu/timeline/pipes.h"

namespace imbrex::vgpu {

/// Serves one request after the other.
class Server {
 public:
  /// Takes `clocks` of it from `now` on, or from when it is free; when that is done.
  double take(double now, double clocks) {
    free_ = std::max(now, free_) + clocks;
    busy_ += clocks;
    return free_;
  }
  /// The same for one of `others` + 1 that take turns in small steps: it is done when all are at the latest, and no
  /// later than if each of them had got as much meanwhile, `behind` clocks that do not take turns.
  double take_turns(double now, double clocks, int others, double behind = 0) {
    const double last = take(now, clocks);
    return std::min(last, now + behind + clocks * (others + 1));
  }
  double free() const { return free_; }
  double busy() const { return busy_; }

 private:
  double free_ = 0, busy_ = 0;
};

/// Which blocks of global memory a cache has: those used last, as many as it holds. Cold at first.
class CacheModel {
 public:
  explicit CacheModel(int64_t capacity) : capacity_(capacity) {}
  /// Uses a block; true when it was there, or on its way. `ready` receives the place of the clock at which its bytes
  /// are in the cache, for the caller to set when it was not, before the next use.
  bool use(uint64_t block, int64_t bytes, double** ready = nullptr) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    const uint64_t now = ++uses_;
    order_.push_back({block, now, bytes});
    size_t at = find(block);
    const bool is_new = slots_[at].last == 0;
    if (is_new) {
      slots_[at] = {block, 0, 0};
      ++count_;
      held_ += bytes;
    }
    slots_[at].last = now;
    if (held_ > capacity_) {
      make_room();
      at = find(block);  // what was forgotten may have made others move
    }
    if (ready != nullptr) *ready = &slots_[at].ready;
    return !is_new;
  }

 private:
  struct Use {
    uint64_t block, at;
    int64_t bytes;
  };
  struct Slot {
    uint64_t block, last;  // last: the number of its last use; 0: nothing is here
    double ready;
  };
  static constexpr uint64_t kNeighbours =
      8;  // blocks whose numbers differ in the last bits only lie beside each other
  size_t home_of(uint64_t block) const {
    return ((block / kNeighbours * 0x9E37'79B9'7F4A'7C15) >> shift_) * kNeighbours + block % kNeighbours;
  }
  /// Where the block is, or would be.
  size_t find(uint64_t block) const {
    size_t at = home_of(block);
    while (slots_[at].last != 0 && slots_[at].block != block) at = (at + 1) & (slots_.size() - 1);
    return at;
  }
  void grow() {
    constexpr int kFirstBits = 7, kBits = 64;
    std::vector<Slot> before(size_t{1} << (slots_.empty() ? kFirstBits : kFirstBits + ++doublings_));
    before.swap(slots_);
    shift_ = kBits - kFirstBits - doublings_ + std::countr_zero(kNeighbours);
    for (const Slot& slot : before)
      if (slot.last != 0) slots_[find(slot.block)] = slot;
  }
  void make_room() {
    while (held_ > capacity_ && !order_.empty()) {
      const Use oldest = order_.front();
      order_.pop_front();
      const size_t at = find(oldest.block);
      if (slots_[at].last != oldest.at) continue;  // used again since
      forget(at);
      held_ -= oldest.bytes;
    }
  }
  /// Empties a slot; those behind it that it had kept from their places move up.
  void forget(size_t at) {
    const size_t mask = slots_.size() - 1;
    for (size_t next = (at + 1) & mask; slots_[next].last != 0; next = (next + 1) & mask)
      if (((next - home_of(slots_[next].block)) & mask) >= ((next - at) & mask)) {
        slots_[at] = slots_[next];
        at = next;
      }
    slots_[at].last = 0;
    --count_;
  }

  int64_t capacity_, held_ = 0;
  uint64_t uses_ = 0;
  size_t count_ = 0;
  int doublings_ = 0, shift_ = 0;
  std::vector<Slot> slots_;
  std::deque<Use> order_;
};

/// Which lines of a kernel's machine code an SM holds: those used last. A further one takes its time on the way there, and all who run it
/// meanwhile wait for it.
class CodeCache {
 public:
  /// When all these lines are there.
  double fetch(double now, const uint16_t* lines, size_t count, double most, double clocks) {
    double there = now;
    for (size_t i = 0; i < count; ++i) {
      if (lines[i] >= lines_.size()) lines_.resize(size_t{lines[i]} + 1);
      Line& line = lines_[lines[i]];
      if (line.fetched == 0 || static_cast<double>(fetches_ - line.fetched) >= most) {
        line.ready = way_.take(now, clocks);
        ++fetches_;
      }
      line.fetched = fetches_;
      there = std::max(there, line.ready);
    }
    return there;
  }

 private:
  struct Line {
    double ready = 0;
    uint64_t fetched = 0;  // how many lines had been when it was used last; 0: never
  };
  std::vector<Line> lines_;
  uint64_t fetches_ = 0;
  Server way_;
};

/// Requests under way, by what they ask for and who asks: a further one for the same is answered with them.
class PendingRequests {
 public:
  /// When the answer to a request of this key arrives; 0 when there is none under way.
  double arrival(uint64_t key, double now) const {
    const auto at = until_.find(key);
    return at == until_.end() || at->second <= now ? 0 : at->second;
  }
  void add(uint64_t key, double now, double until) {
    if (until_.size() >= limit_) {
      std::erase_if(until_, [&](const auto& entry) { return entry.second <= now; });
      limit_ = std::max(kLeast, 2 * until_.size());
    }
    until_[key] = until;
  }

 private:
  static constexpr size_t kLeast = 1 << 15;
  size_t limit_ = kLeast;
  std::unordered_map<uint64_t, double> until_;
};

/// Stretches of time, added by begin.
class Intervals {
 public:
  void add(double begin, double end) {
    if (!parts_.empty() && begin <= parts_.back().second)
      parts_.back().second = std::max(parts_.back().second, end);
    else if (end > begin)
      parts_.emplace_back(begin, end);
  }
  const std::vector<std::pair<double, double>>& parts() const { return parts_; }
  double length() const {
    double sum = 0;
    for (const auto& [begin, end] : parts_) sum += end - begin;
    return sum;
  }
  /// Time that lies in both.
  double common(const Intervals& other) const {
    double sum = 0;
    for (size_t i = 0, j = 0; i < parts_.size() && j < other.parts_.size();) {
      const auto &a = parts_[i], &b = other.parts_[j];
      sum += std::max(0.0, std::min(a.second, b.second) - std::max(a.first, b.first));
      (a.second < b.second ? i : j) += 1;
    }
    return sum;
  }

 private:
  std::vector<std::pair<double, double>> parts_;
};

struct SmModel {
  static constexpr size_t kParts = 4;
  std::array<Server, kParts> issue, mma_sync, tensor_memory;
  std::array<std::array<Server, kPipes>, kParts> pipes;
  std::array<int, kParts> running = {};  // warps that execute instructions now
  /// What they take of the port that issues and of each unit, as a part of their time.
  using Load = std::array<float, 1 + kPipes>;
  std::array<Load, kParts> load = {};
  float shared_load = 0;              // the same of shared memory, by all of them
  std::array<int, kParts> held = {};  // warps that are there
  Server copies;  // the part of `shared` that copies by threads take, which accesses wait for as well
  Server shared, tma, l2_port, l2_store, tensor, starts;
  CacheModel l1{0};
  CodeCache code;
  static constexpr uint64_t kMaxGroups = 16;
  int group = 0;     // of SMs (GPC), whose requests for the same bytes are served together
  double slots = 0;  // instructions issued
  int64_t resident = 0;
  int64_t columns_free = 0;
  int32_t permit_of =
      -1;  // cluster whose CTA may allocate tensor memory; others wait until it relinquishes or ends
  bool was_used = false;

  int all_running() const { return std::accumulate(running.begin(), running.end(), 0); }
  /// Where the first of a CTA's warps goes, the others following in turn: the sub-partition that has the fewest.
  size_t take_warps(int count) {
    const auto first = static_cast<size_t>(std::min_element(held.begin(), held.end()) - held.begin());
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) ++held[(first + i) % kParts];
    return first;
  }
  void give_back_warps(size_t first, int count) {
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) --held[(first + i) % kParts];
  }
};

}  // namespace imbrex::vgpu
