// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/mbarrier.h"

#include <fmt/format.h>

#include <algorithm>

#include "imbrex/core/source_text.h"

namespace imbrex::vgpu {
namespace {

// Fields of the state word: phase parity in bit 63, negated pending count in 62:43 (as the hardware has
// them), and in the low word, where the hardware leaves the operand, the whole phase, so that stale states
// show.
constexpr int kPendingShift = 43;
constexpr uint64_t kPendingMask = 0xFFFFF;

bool is_count(int64_t count) { return count >= 1 && count <= Mbarrier::kMaxCount; }

}  // namespace

bool Mbarrier::try_complete() {
  if (pending_ != 0 || tx_ != 0) return false;
  ++phase_;
  pending_ = expected_;
  is_end_seen_ = false;
  unseen_bytes_ += bytes_in_phase_;
  bytes_in_phase_ = 0;
  return true;
}

MbarrierOutcome Mbarrier::change_tx(int64_t delta) {
  if (delta == 0) return {};
  if (tx_ + delta > kMaxTx || tx_ + delta < -kMaxTx) return {MbarrierFault::kTxRange};
  tx_ += delta;
  return {MbarrierFault::kNone, try_complete()};
}

MbarrierOutcome Mbarrier::expect_tx(int64_t bytes) { return change_tx(bytes); }
MbarrierOutcome Mbarrier::complete_tx(int64_t bytes) {
  bytes_in_phase_ += bytes;
  return change_tx(-bytes);
}

MbarrierOutcome Mbarrier::arrive(int64_t count) {
  if (!is_count(count)) return {MbarrierFault::kCountRange};
  if (count > pending_) return {MbarrierFault::kTooManyArrivals};
  pending_ -= count;
  const bool overtook = !is_end_seen_;
  return {MbarrierFault::kNone, try_complete(), overtook};
}

MbarrierOutcome Mbarrier::arrive_expect_tx(int64_t bytes) {
  if (pending_ < 1) return {MbarrierFault::kTooManyArrivals};
  if (tx_ + bytes > kMaxTx) return {MbarrierFault::kTxRange};
  tx_ += bytes;
  return arrive(1);
}

MbarrierOutcome Mbarrier::arrive_no_complete(int64_t count) {
  if (is_count(count) && count == pending_ && tx_ == 0) return {MbarrierFault::kNoCompleteCompletes};
  return arrive(count);
}

MbarrierOutcome Mbarrier::add_pending() {
  if (pending_ == kMaxCount) return {MbarrierFault::kCountRange};
  ++pending_;
  return {};
}

MbarrierOutcome Mbarrier::drop(int64_t count) {
  if (!is_count(count)) return {MbarrierFault::kCountRange};
  if (count > expected_ || count > pending_) return {MbarrierFault::kTooManyArrivals};
  expected_ -= count;
  return {};
}

uint64_t Mbarrier::state() const {
  const uint64_t negated = (kPendingMask + 1 - static_cast<uint64_t>(pending_)) & kPendingMask;
  return static_cast<uint64_t>(phase_ & 1) << 63 | negated << kPendingShift | static_cast<uint32_t>(phase_);
}

uint32_t Mbarrier::pending_count(uint64_t state) {
  return static_cast<uint32_t>((kPendingMask + 1 - (state >> kPendingShift & kPendingMask)) & kPendingMask);
}

bool Mbarrier::is_stale_state(uint64_t state) const {
  return static_cast<uint32_t>(phase_) - static_cast<uint32_t>(state) > 1;
}

std::string Mbarrier::describe() const {
  std::string text = fmt::format("pending {} of {} arrivals", pending_, expected_);
  if (tx_ > 0) text += fmt::format(", {} bytes missing", tx_);
  if (tx_ < 0) text += fmt::format(", {} bytes delivered and not yet announced", -tx_);
  return text;
}

std::string explain(MbarrierFault fault, const Mbarrier& object) {
  switch (fault) {
    case MbarrierFault::kNone:
      return "";
    case MbarrierFault::kCountRange:
      return fmt::format("a count must lie in 1 ... {}", Mbarrier::kMaxCount);
    case MbarrierFault::kTooManyArrivals:
      return fmt::format("more arrivals than the phase has left: {}, phase {}", object.describe(),
                         object.phase());
    case MbarrierFault::kTxRange:
      return fmt::format("a phase can track at most {} bytes: {}", Mbarrier::kMaxTx, object.describe());
    case MbarrierFault::kNoCompleteCompletes:
      return fmt::format("a .noComplete arrive would complete the phase: {}", object.describe());
    case MbarrierFault::kStaleState:
      return fmt::format("waits on a state more than one phase old: the barrier is in phase {}",
                         object.phase());
    case MbarrierFault::kNotLive:
      return "no mbarrier was initialised at this address";
    case MbarrierFault::kAlreadyLive:
      return fmt::format("a live mbarrier is at this address (needs mbarrier.inval first): {}",
                         object.describe());
  }
  return "";
}

Mbarrier* MbarrierTable::find(uint32_t offset) {
  for (Entry& entry : entries_)
    if (entry.offset == offset) return &entry.object;
  return nullptr;
}

const MbarrierTable::Entry* MbarrierTable::overlapping(uint32_t offset, uint32_t size) const {
  for (const Entry& entry : entries_)
    if (offset < entry.offset + 8 && entry.offset < offset + size) return &entry;
  return nullptr;
}

MbarrierFault MbarrierTable::init(uint32_t offset, int64_t count) {
  if (!is_count(count)) return MbarrierFault::kCountRange;
  if (Mbarrier* live = find(offset)) {
    // Re-initialising is what the hardware does with it; the object starts anew so that the run can go on.
    *live = Mbarrier(count);
    return MbarrierFault::kAlreadyLive;
  }
  entries_.push_back({offset, Mbarrier(count)});
  return MbarrierFault::kNone;
}

std::string MbarrierTable::variable_of(uint32_t offset) const {
  const auto entry = std::ranges::find_if(entries_, [&](const Entry& e) { return e.offset == offset; });
  if (entry == entries_.end()) return "";
  const Mbarrier& it = entry->object;
  const std::string variable = *it.variable != '\0' ? it.variable : declared_variable(it.file, it.line);
  if (variable.empty()) return "";
  int before = 0, all = 0;  // of the same array
  for (const Entry& other : entries_) {
    if (other.object.line != it.line || std::string_view(other.object.file) != it.file ||
        std::string_view(other.object.variable) != it.variable)
      continue;
    ++all;
    before += other.offset < offset;
  }
  return all == 1 ? variable : fmt::format("{}[{}]", variable, before);
}

std::string MbarrierTable::name_of(uint32_t offset) const {
  const std::string variable = variable_of(offset);
  return fmt::format("the barrier {}{}at shared {:#x}", variable, variable.empty() ? "" : " ", offset);
}

MbarrierFault MbarrierTable::invalidate(uint32_t offset) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].offset != offset) continue;
    entries_.erase(entries_.begin() + static_cast<int64_t>(i));
    return MbarrierFault::kNone;
  }
  return MbarrierFault::kNotLive;
}

}  // namespace imbrex::vgpu
