// SPDX-License-Identifier: Apache-2.0
#include "vgpu/machine/units.h"

#include <fmt/format.h>

#include <algorithm>

#include "vgpu/checks/operand_boxes.h"
#include "vgpu/machine/access.h"
#include "vgpu/machine/cluster.h"
#include "vgpu/machine/undefined.h"

namespace imbrex::vgpu {

PendingResult pending_result(Warp& warp, uint32_t number) {
  CtaUnits& units = warp.cta().units();
  const auto group = static_cast<size_t>(warp.index() / kWarpgroupWarps);
  if (group < units.warpgroups.size() && units.warpgroups[group] != nullptr &&
      wgmma_warp(*units.warpgroups[group], warp.index()).is_in_flight(number))
    return {"wgmma", "wgmma.wait_group"};
  if (units.tensor != nullptr) {
    const std::vector<uint32_t>& unwaited = units.tensor->transfers_of(warp.index()).unwaited;
    if (std::find(unwaited.begin(), unwaited.end(), number) != unwaited.end())
      return {"tcgen05.ld", "tcgen05.wait::ld"};
  }
  return {};
}

void note_read_early(Warp& warp, uint32_t number) {
  CtaUnits& units = warp.cta().units();
  const auto group = static_cast<size_t>(warp.index() / kWarpgroupWarps);
  if (group < units.warpgroups.size() && units.warpgroups[group] != nullptr)
    wgmma_warp(*units.warpgroups[group], warp.index()).read_early.insert(number);
  if (units.tensor != nullptr) std::erase(units.tensor->transfers_of(warp.index()).unwaited, number);
  warp.defined()[number] = kAllLanes;
  note_unwritten_cells(warp);
}

void note_unwritten_cells(Warp& warp) {
  if (warp.cta().units().tensor == nullptr) return;
  TensorUnit::Transfers& transfers = warp.cta().units().tensor->transfers_of(warp.index());
  std::erase_if(transfers.unwritten, [&](const TensorUnit::Transfers::Unwritten& cells) {
    if (std::find(transfers.unwaited.begin(), transfers.unwaited.end(), cells.number) !=
        transfers.unwaited.end())
      return false;
    note_loaded_unwritten(warp, *cells.insn, cells.lanes, cells.number, 0xF);
    return true;
  });
}

ComingCopy coming_copy(Cta& cta, uint32_t shared_offset) {
  const Program& program = cta.cluster().program();
  ComingCopy coming;
  cta.cluster().async().for_each([&](const AsyncOp& op) {
    if (!coming.fact.empty() || op.who.insn == nullptr || !op.fills(cta, shared_offset)) return;
    coming.fact = fmt::format("it is yet to be written by the {}, started at {}", op.describe(),
                              program.place_text(op.who.insn->index));
    coming.hint =
        op.completion().by == CompletedBy::kCopyGroup
            ? "wait for the copy before it: cp.async.wait_group by the threads that copy, then a barrier"
            : "wait before it for the phase of the mbarrier that the copy's bytes belong to, by its parity; "
              "and announce the bytes, or the phase completes without them: mbarrier.arrive.expect_tx, in "
              "Imbrex "
              "mbarrier::arrive_and_expect_tx()";
  });
  if (coming.fact.empty())
    coming.hint =
        "store there before, with a barrier in between where other threads store; or start the copy that "
        "fills it and "
        "wait for its end";
  return coming;
}

namespace {

/// The rule that a warp bends whose stores nobody has waited for when the CTA exits. Where another warp has waited for its own, by a
/// wait of its code alone, that is no habit of the kernel.
BentRule exit_rule(Cta& cta, size_t warp) {
  const std::vector<BulkGroups>& groups = cta.units().bulk_groups();
  const std::vector<const Instruction*>& waits = groups[warp].waits;
  const bool is_kept = std::ranges::any_of(groups, [&](const BulkGroups& other) {
    return other.has_stored && other.unwaited.empty() && !other.waits.empty() &&
           std::ranges::find(waits, other.waits.back()) == waits.end();
  });
  return is_kept && cta.cluster().log().is_practical() ? BentRule::kNone : BentRule::kExitBeforeRead;
}

void report_in_flight(Cta& cta) {
  cta.cluster().async().for_each([&](const AsyncOp& op) {
    if (op.who.cta != &cta || op.may_outlive_cta()) return;
    const bool is_store = op.completion().by == CompletedBy::kBulkGroup;
    const BentRule rule = is_store ? exit_rule(cta, static_cast<size_t>(op.who.warp)) : BentRule::kNone;
    if (Finding* f = cta.cluster().log().open(FindingKind::kAsyncInFlight, op.who, 0, nullptr, rule)) {
      f->message = fmt::format("the CTA exits while {} is in flight", op.describe());
      f->hint = "wait for it before the kernel ends";
    }
  });
}

/// What arrived in time under this schedule may be late under another.
void report_unseen_copies(Cta& cta) {
  for (const MbarrierTable::Entry& entry : cta.units().mbarriers.entries()) {
    if (entry.object.unseen_bytes() == 0) continue;
    const Who who{&cta, -1, -1, entry.object.last_copy, ""};
    if (Finding* f = cta.cluster().log().open(FindingKind::kAsyncInFlight, who, entry.offset)) {
      f->message = fmt::format(
          "the CTA exits without having waited for {} bytes that were copied to it under the {}: they may "
          "still be under way",
          entry.object.unseen_bytes(), barrier_text(who, cta, entry.offset));
      f->hint = "wait for the phase they belong to, or do not start copies that nobody waits for";
    }
  }
}

/// As before: what has been read in time under this schedule may be late under another.
void report_unwaited_stores(Cta& cta) {
  const std::vector<BulkGroups>& groups = cta.units().bulk_groups();
  for (size_t w = 0; w < groups.size(); ++w)
    for (const BulkGroups::Unwaited& store : groups[w].unwaited) {
      const Who who{&cta, static_cast<int>(w), store.lane, store.insn, ""};
      if (Finding* f =
              cta.cluster().log().open(FindingKind::kAsyncInFlight, who, 0, nullptr, exit_rule(cta, w))) {
        f->message =
            "the CTA exits, and the thread that started this store has not waited until its source was read: "
            "shared memory may be gone before";
        f->hint = "cp.async.bulk.commit_group, and cp.async.bulk.wait_group.read 0 before the kernel ends";
      }
    }
}

void report_tensor_memory(Cta& cta) {
  const CtaUnits& units = cta.units();
  if (units.tensor == nullptr) return;
  for (const TensorAllocator::Block& block : units.tensor->allocator.blocks_of(TensorUnit::kOwner)) {
    const Who who{&cta, -1, -1, block.allocated_by, ""};
    if (Finding* f = cta.cluster().log().open(FindingKind::kResourceLeak, who, block.column)) {
      f->message = fmt::format("the CTA exits with {} columns of tensor memory at column {} not deallocated",
                               block.columns, block.column);
      f->hint = "tcgen05.dealloc before the kernel ends";
    }
  }
}

/// The warps of a warpgroup ask for the same numbers of registers. (PTX asks for the same instruction;
/// Triton's roles of fewer than four warps execute each their own.)
void report_register_budgets(Cta& cta) {
  const std::vector<std::vector<const Instruction*>>& budgets = cta.units().register_budgets;
  for (size_t w = 0; w < budgets.size(); ++w) {
    const size_t first = w / kWarpgroupWarps * kWarpgroupWarps;
    const auto same = [](const Instruction* a, const Instruction* b) { return a->immediate == b->immediate; };
    if (std::equal(budgets[w].begin(), budgets[w].end(), budgets[first].begin(), budgets[first].end(), same))
      continue;
    const size_t more = budgets[w].size() > budgets[first].size() ? w : first, less = more == w ? first : w;
    const size_t at = static_cast<size_t>(
        std::mismatch(budgets[less].begin(), budgets[less].end(), budgets[more].begin(), same).first -
        budgets[less].begin());
    const Who who{&cta, static_cast<int>(more), -1, budgets[more][at], ""};
    if (Finding* f = cta.cluster().log().open(FindingKind::kDivergentCollective, who)) {
      f->message = fmt::format("warp {} executes a setmaxnreg that warp {} of the same warpgroup does not",
                               more, less);
      f->hint = "all four warps of a warpgroup execute the same setmaxnreg";
    }
  }
}

}  // namespace

void check_cta_exit(Cta& cta) {
  const CheckSet& checks = cta.cluster().launch().options.checks;
  if (checks.async_lifetime) {
    report_in_flight(cta);
    report_unseen_copies(cta);
    report_unwaited_stores(cta);
    cta.cluster().observe().cta_exited(cta);
  }
  if (checks.layouts) {
    cta.units().chunk_origins.finish();
    report_unread_boxes(cta.tiles());
  }
  if (checks.leaks) report_tensor_memory(cta);
  if (checks.collectives) report_register_budgets(cta);
}

}  // namespace imbrex::vgpu
