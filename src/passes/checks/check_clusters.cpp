// SPDX-License-Identifier: Apache-2.0
#include "passes/checks/check_clusters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unordered_set>

#include "imbrex/core/error.h"
#include "ir/tcgen05_kinds.h"
#include "passes/describe.h"

namespace imbrex::passes {
namespace {

using ir::Op;
using ir::Opcode;
using ir::Value;

class Checker {
 public:
  explicit Checker(const ir::Function& function) : function_(function) {
    for (int64_t extent : function.cluster) ctas_ *= extent;
  }

  void run() {
    ir::walk(function_.body, [&](const Op& op) {
      if (op.code == Opcode::kClcTryCancel) responses_.insert(ir::view_root(op.operands[0]));
    });
    ir::walk(function_.body, [&](const Op& op) { check(op); });
    if (!findings_.empty()) throw CompileError(std::move(findings_));
  }

 private:
  void check(const Op& op) {
    if (op.attr("multicast_mask")) check_mask(op);
    const bool has_computed_mask = op.code == Opcode::kTmaGlobalToShared
                                       ? op.bool_attr("masked", false)
                                       : op.code == Opcode::kTcgen05Commit && op.operands.size() > 1;
    if (ctas_ == 1 && has_computed_mask)
      find(op, "names CTAs by a mask, in a cluster of one",
           "give the kernel a cluster(), or leave out the mask");
    if (is_of_tensor_core(op)) check_group(op, op.int_attr("cta_group", 1));
    if (op.code == Opcode::kTmaGlobalToShared && op.int_attr("cta_group", 1) == 2) check_pair(op);
    switch (op.code) {
      case Opcode::kMbarrierRemote:
      case Opcode::kLoadShared:
        return check_rank(op, 1);
      case Opcode::kStoreShared:
        return check_rank(op, 2);
      case Opcode::kMbarrierWait:
        if (ir::defined_by(op.operands[0], Opcode::kMbarrierRemote))
          find(op, "waits for a barrier of another CTA",
               "let the CTA that holds it wait, and tell the others");
        return;
      case Opcode::kClcTryCancel:
        if (ir::defined_by(op.operands[1], Opcode::kMbarrierRemote))
          find(op, "the response completes on a barrier of another CTA",
               "use this CTA's; with multicast, each CTA's own barrier receives it");
        return;
      case Opcode::kClcQuery:
        if (!responses_.count(ir::view_root(op.operands[0])))
          find(op, fmt::format("no clc_try_cancel requests the response {}", ir::print(*op.operands[0])));
        return;
      default:
        return;
    }
  }

  static bool is_of_tensor_core(const Op& op) {
    switch (op.code) {
      case Opcode::kTcgen05Alloc:
      case Opcode::kTcgen05RelinquishAllocPermit:
      case Opcode::kTcgen05Copy:
      case Opcode::kTcgen05Shift:
      case Opcode::kTcgen05Commit:
        return true;
      default:
        return ir::is_tcgen05_mma(op);
    }
  }

  void check_rank(const Op& op, size_t operand) {
    if (op.operands.size() <= operand) return;
    if (const auto rank = ir::constant_int(op.operands[operand]); rank && *rank >= ctas_)
      find(op, fmt::format("there is no CTA of rank {} in a cluster of {}", *rank, ctas_));
  }

  void check_mask(const Op& op) {
    const int64_t mask = op.int_attr("multicast_mask");
    if (mask >> ctas_ == 0) return;
    find(op, fmt::format("multicast_mask {:#x} names CTAs that a cluster of {} does not have", mask, ctas_),
         ctas_ == 1 ? "give the kernel a cluster()" : "bit i stands for the CTA of rank i");
  }

  /// One kernel's tensor-core work is all of one CTA or all of pairs.
  void check_group(const Op& op, int64_t group) {
    if (group == 2) check_pair(op);
    if (!first_) first_ = &op;
    const int64_t other = first_->int_attr("cta_group", 1);
    if (other == group) return;
    find(op, fmt::format("cta_group is {}, and {} in {}", group, other, op_text(*first_)),
         "all tensor-memory allocations, products, copies and commits of a kernel have the same");
  }

  void check_pair(const Op& op) {
    if (ctas_ % 2 == 0) return;
    find(op, fmt::format("cta_group 2 takes pairs of CTAs, the cluster has {}", ctas_),
         "give the kernel a cluster() of an even number");
  }

  void find(const Op& op, const std::string& fact, std::string help = "") {
    findings_.push_back({op.where,
                         fmt::format("{}: {}", op.info().mnemonic, fact),
                         {fmt::format("the kernel has clusters of {}", fmt::join(function_.cluster, " x "))},
                         std::move(help)});
  }

  const ir::Function& function_;
  int64_t ctas_ = 1;
  std::unordered_set<const Value*> responses_;
  const Op* first_ = nullptr;  // tensor-core work of the kernel
  std::vector<Diagnostic> findings_;
};

}  // namespace

void check_clusters(ir::Function& function) { Checker(function).run(); }

}  // namespace imbrex::passes
