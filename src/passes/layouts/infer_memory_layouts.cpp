// SPDX-License-Identifier: Apache-2.0
// Layouts of shared and tensor-memory allocations: candidates against the demands on them and their views.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "core/target.h"
#include "imbrex/core/error.h"
#include "layout/descriptors.h"
#include "passes/describe.h"
#include "passes/layouts/layout_inference.h"

namespace imbrex::passes {
namespace {

using ir::Opcode;
using ir::TypeKind;
using layout::Layout;

/// A plain access whose registers' layout is known, or is made for the memory.
struct Access {
  const ir::Op* op;
  const ir::Value* memory;
  const ir::Value* registers;  // null: cp.async, which distributes its vectors itself
};

class AllocationLayout {
 public:
  AllocationLayout(ir::Value& root, const ir::Function& function, const Uses& uses,
                   const ThreadCounts& threads)
      : root_(root), uses_(uses), threads_(threads) {
    const Target* target = find_target(function.target);
    has_stmatrix_ = target && target->sm >= 90;
    has_wide_atoms_ = target && target->sm >= 100;
    views_.push_back(&root);
    for (size_t i = 0; i < views_.size(); ++i) visit(*views_[i]);
  }

  void choose() {
    const bool for_matrices = std::any_of(demands_.begin(), demands_.end(),
                                          [](const MemoryDemand& demand) { return demand.of_matrix_unit; });
    std::vector<Layout> candidates = memory_candidates(root_, for_matrices);
    // An annotation of the allocation itself may be any layout.
    for (const MemoryDemand& demand : demands_)
      if (demand.op->code == Opcode::kAnnotateLayout && demand.view == &root_) {
        const Layout& wanted = std::get<Layout>(*demand.op->attr("layout"));
        candidates.insert(candidates.begin(),
                          wanted.element_bits() ? wanted : wanted.with_element_bits(root_.type.dtype.bits()));
      }
    std::optional<Placement> best;
    std::pair<int64_t, int64_t> best_cost{kMost, kMost};  // of accesses by threads; TMA copies
    std::vector<std::vector<std::string>> refusals;       // by candidate and demand
    for (const Layout& candidate : candidates) {
      Placement placement = place(candidate);
      refusals.push_back(refusals_of(placement));
      bool suits = true;
      for (const std::string& refusal : refusals.back()) suits = suits && refusal.empty();
      if (!suits) continue;
      std::pair<int64_t, int64_t> cost{0, 0};
      if (root_.type.kind == TypeKind::kShared && !accesses_.empty())
        cost = {cost_of(placement), tma_copies_of(placement)};
      if (cost < best_cost) {
        best_cost = cost;
        best = std::move(placement);
      }
      if (best_cost == std::pair<int64_t, int64_t>{0, 0}) break;
    }
    if (!best) fail(refusals);
    for (ir::Value* view : views_) view->type.layout = best->layouts.at(view);
  }

 private:
  static constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

  struct KnownCost {
    Layout registers, memory;
    bool by_matrices;
    int64_t cost;
  };

  /// A candidate carried to every view, as far as it goes.
  struct Placement {
    std::unordered_map<const ir::Value*, Layout> layouts;
    std::unordered_map<const ir::Op*, std::string> broken_views;
  };

  void visit(ir::Value& value) {
    const auto found = uses_.find(&value);
    if (found == uses_.end()) return;
    for (const Use& use : found->second) {
      if (ir::has(use.op->code, ir::Fact::kView) && use.operand == 0) {
        views_.push_back(use.op->result());
        demands_.push_back(view_demand(*use.op));
        continue;
      }
      for (MemoryDemand& demand : memory_demands(use)) demands_.push_back(std::move(demand));
      if (use.op->code == Opcode::kLoadShared) accesses_.push_back({use.op, &value, use.op->result()});
      if (use.op->code == Opcode::kStoreShared) accesses_.push_back({use.op, &value, use.op->operands[1]});
      const bool is_copy = use.op->code == Opcode::kCopyAsync || use.op->code == Opcode::kCopyAsyncGather;
      if (is_copy && use.operand == 1) accesses_.push_back({use.op, &value, nullptr});
    }
  }

  /// That the view exists; checked by place().
  static MemoryDemand view_demand(ir::Op& view) {
    return {&view, view.result(), fmt::format("a view by {}", view.info().mnemonic), nullptr};
  }

  Placement place(const Layout& candidate) const {
    Placement placement;
    placement.layouts.emplace(&root_, candidate);
    for (const ir::Value* view : views_) {
      if (view == &root_) continue;
      const auto of = placement.layouts.find(view->def->operands[0]);
      if (of == placement.layouts.end()) continue;  // its base is broken already
      try {
        placement.layouts.emplace(view, view_layout(*view->def, of->second));
      } catch (const CompileError& error) {
        placement.broken_views.emplace(view->def, error.diagnostics().front().message);
      }
    }
    return placement;
  }

  std::vector<std::string> refusals_of(const Placement& placement) const {
    std::vector<std::string> result;
    for (const MemoryDemand& demand : demands_) {
      const auto layout = placement.layouts.find(demand.view);
      if (const auto broken = placement.broken_views.find(demand.op);
          broken != placement.broken_views.end()) {
        result.push_back(broken->second);
      } else if (layout == placement.layouts.end() || !demand.refusal) {
        result.emplace_back();  // what it is a view of is refused already
      } else {
        result.push_back(demand.refusal(layout->second));
      }
    }
    return result;
  }

  int64_t cost_of(const Placement& placement) const {
    int64_t cost = 0;
    for (const Access& access : accesses_) {
      const Layout& memory = placement.layouts.at(access.memory);
      if (access.registers && access.registers->type.layout) {
        const bool by_matrices = access.op->code == Opcode::kLoadShared || has_stmatrix_;
        cost += access_cost(*access.registers->type.layout, memory, by_matrices);
      } else {
        const VectorDim along = vector_dim(memory);
        const Layout registers = coalesced_along(memory.shape(), along.dim, threads_.at(access.op),
                                                 access.memory->type.dtype, along.max_bytes);
        cost += access_cost(registers, memory, false);
      }
    }
    return cost;
  }

  /// How many instructions bring a tensor by TMA: a box with a swizzle has rows of its span only. The most
  /// there is where the target lacks the swizzle.
  int64_t tma_copies_of(const Placement& placement) const {
    int64_t copies = 0;
    for (const MemoryDemand& demand : demands_) {
      if (demand.op->code != Opcode::kTmaGlobalToShared && demand.op->code != Opcode::kTmaSharedToGlobal)
        continue;
      const auto boxes = layout::describe_tma_boxes(placement.layouts.at(demand.view));
      if (!boxes) continue;
      if (boxes->swizzle.mode > layout::Swizzle::k128B && !has_wide_atoms_) return kMost;
      copies += static_cast<int64_t>(boxes->boxes.size());
    }
    return copies;
  }

  /// Wavefronts; of equal accesses, as an unrolled loop has them, counted once.
  int64_t access_cost(const Layout& registers, const Layout& memory, bool by_matrices) const {
    for (const KnownCost& known : known_costs_)
      if (known.by_matrices == by_matrices && known.registers == registers && known.memory == memory)
        return known.cost;
    const int64_t cost = (by_matrices ? matrix_access_cost : shared_access_cost)(registers, memory);
    known_costs_.push_back({registers, memory, by_matrices, cost});
    return cost;
  }

  /// One demand that no candidate meets, or else two that none meets together.
  [[noreturn]] void fail(const std::vector<std::vector<std::string>>& refusals) const {
    const auto refused = [&](size_t candidate, size_t demand) {
      return !refusals[candidate][demand].empty();
    };
    const auto line = [&](size_t demand, size_t candidate) {
      return fmt::format("{} wants {}: {}", op_text(*demands_[demand].op), demands_[demand].what,
                         refusals[candidate][demand]);
    };
    for (size_t d = 0; d < demands_.size(); ++d) {
      bool always = true;
      for (size_t c = 0; c < refusals.size(); ++c) always = always && refused(c, d);
      if (always)
        throw CompileError(
            Diagnostic{demands_[d].op->where,
                       fmt::format("{}: no layout of {} gives {}", demands_[d].op->info().mnemonic,
                                   ir::print(root_), demands_[d].what),
                       {tensor_text(root_), line(d, 0)},
                       ""});
    }
    for (size_t second = 0; second < demands_.size(); ++second)
      for (size_t first = 0; first < second; ++first) {
        bool never = true;
        size_t without_first = 0, without_second = 0;  // the first candidates that the other one likes
        for (size_t c = refusals.size(); c-- > 0;) {
          never = never && (refused(c, first) || refused(c, second));
          if (!refused(c, second)) without_first = c;
          if (!refused(c, first)) without_second = c;
        }
        if (never)
          throw CompileError(
              Diagnostic{demands_[second].op->where,
                         fmt::format("{}: no layout of {} meets this demand and another one",
                                     demands_[second].op->info().mnemonic, ir::print(root_)),
                         {tensor_text(root_), line(first, without_first), line(second, without_second)},
                         "use two tensors, or change one of the two"});
      }
    std::vector<std::string> facts{tensor_text(root_)};
    for (const MemoryDemand& demand : demands_)
      facts.push_back(fmt::format("{} wants {}", op_text(*demand.op), demand.what));
    throw CompileError(Diagnostic{
        root_.def->where,
        fmt::format("{}: no layout of {} meets all demands", root_.def->info().mnemonic, ir::print(root_)),
        std::move(facts), "use two tensors, or change one of the demands"});
  }

  ir::Value& root_;
  const Uses& uses_;
  const ThreadCounts& threads_;
  bool has_stmatrix_;
  bool has_wide_atoms_ = false;
  mutable std::vector<KnownCost> known_costs_;
  std::vector<ir::Value*> views_;  // the root and all views of it
  std::vector<MemoryDemand> demands_;
  std::vector<Access> accesses_;
};

}  // namespace

void infer_memory_layouts(ir::Function& function, TypeKind kind, const Uses& uses,
                          const ThreadCounts& threads) {
  ir::walk(function.body, [&](ir::Op& op) {
    if (op.code == Opcode::kSharedAlloc && kind == TypeKind::kShared)
      AllocationLayout(*op.result(), function, uses, threads).choose();
    if (op.code == Opcode::kTcgen05Alloc && kind == TypeKind::kTensorMemory) {
      const std::vector<int64_t>& shape = op.ints_attr("shape");
      if (memory_candidates(*op.result(), true).empty())
        throw CompileError(Diagnostic{op.where,
                                      fmt::format("tcgen05_alloc: {} has {} rows, tensor memory 128 lanes",
                                                  ir::print(*op.result()), shape[shape.size() - 2]),
                                      {tensor_text(*op.result())},
                                      "make the rows a multiple of 128, or split them over a pair of CTAs"});
      AllocationLayout(*op.result(), function, uses, threads).choose();
    }
  });
}

}  // namespace imbrex::passes
