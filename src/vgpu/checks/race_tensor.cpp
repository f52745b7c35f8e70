// SPDX-License-Identifier: Apache-2.0
// Races on tensor memory. Loads and stores of warps are complete after tcgen05.wait, what the tensor core
// does after a commit; between threads both need the tcgen05 fences beside the synchronisation. What one
// thread has the tensor core do runs in the order of issue.
#include <fmt/format.h>

#include "vgpu/checks/race.h"

namespace imbrex::vgpu {

namespace {

constexpr uint32_t kGroupLanes = 16, kCellColumns = 16;
constexpr uint32_t kCellsInGroup = TensorMemory::kColumns / kCellColumns;
constexpr uint32_t kGroups = TensorMemory::kLanes / kGroupLanes;

}  // namespace

struct TensorJudge {
  RaceChecker& checker;
  const RaceChecker::View& view;
  const Who& who;
  TensorAccess kind;
  TensorAddress at;
  uint32_t columns;
  bool silent = true;

  bool is_core(AgentId agent) const {
    return checker.agents_[agent].flow == static_cast<int>(RaceChecker::Flow::kTensorCore);
  }
  bool ordered(Access earlier, Access now, int) const {
    const bool same = earlier.agent() == now.agent();
    // A result is read as an operand only when it is complete; everything else follows in the pipeline.
    if (is_core(now.agent()) && is_core(earlier.agent()) &&
        !(kind == TensorAccess::kOperand && earlier.is(Access::kSpecial))) {
      if (same) return true;
      const AgentId issue =
          checker.flow_agent(checker.agents_[earlier.agent()].warp, RaceChecker::Flow::kTensorIssue);
      return view.knowledge->seen.covers(issue, earlier.clock(), 0);
    }
    if (same && earlier.is_write() == now.is_write()) return true;
    return view.knowledge->ready.covers(earlier.agent(), earlier.clock(), 0);
  }
  void race(Access earlier, Access now) {
    silent = false;
    checker.report_tensor(who, at, columns, earlier, view, now.is_write());
  }
  bool may_meet(Access, Access) const { return false; }
  void in_order(Access, Access) {}
};

void RaceChecker::tensor_access(const Who& who, const CtaIdentity& owner, uint32_t lane, uint32_t lanes,
                                uint32_t column, uint32_t columns, TensorAccess kind) {
  if (who.origin == nullptr) return;
  std::vector<ShadowCell>& cells = tensor_[static_cast<size_t>(owner.rank())];
  if (cells.empty()) cells.resize(size_t{kGroups} * kCellsInGroup);
  const View v = view(who, false);
  Access now = access_of(who, v, kind == TensorAccess::kWrite || kind == TensorAccess::kAccumulate);
  now.set(Access::kSpecial, kind == TensorAccess::kAccumulate);
  now.set_lane(0);
  TensorJudge judge{*this, v, who, kind, {lane, column}, columns};
  CellMemo memo;
  const uint32_t end = column + columns;
  for (uint32_t group = lane / kGroupLanes; group * kGroupLanes < lane + lanes; ++group)
    for (uint32_t c = column; c < end;) {
      const uint32_t in_cell = c % kCellColumns, count = std::min(kCellColumns - in_cell, end - c);
      now.set_bytes(static_cast<uint16_t>(((1u << count) - 1) << in_cell));
      ShadowCell& cell = cells[group * kCellsInGroup + c / kCellColumns];
      c += count;
      if (count == kCellColumns && memo.apply(cell)) continue;
      memo.begin(cell);
      judge.silent = true;
      record(cell, now, judge);
      memo.end(cell, judge.silent && count == kCellColumns);
    }
}

void RaceChecker::tensor_release(const Who& who, const CtaIdentity& owner, uint32_t column,
                                 uint32_t columns) {
  std::vector<ShadowCell>& cells = tensor_[static_cast<size_t>(owner.rank())];
  if (cells.empty()) return;
  const Knowledge& known = *snapshot(state(who), lanes_of(who));
  for (uint32_t group = 0; group < kGroups; ++group)
    for (uint32_t c = column; c < column + columns; c += kCellColumns) {
      ShadowCell& cell = cells[group * kCellsInGroup + c / kCellColumns];
      for (Access& slot : cell.slots) {
        if (!slot.is_none() && !known.ready.covers(slot.agent(), slot.clock(), 0) &&
            !known.synced.covers(slot.agent(), slot.clock(), 0))
          report_tensor_release(who, {group * kGroupLanes, column}, columns, slot, known);
        slot.forget();
      }
    }
}

}  // namespace imbrex::vgpu
