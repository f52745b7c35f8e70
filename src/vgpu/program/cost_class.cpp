// SPDX-License-Identifier: Apache-2.0
#include "vgpu/program/cost_class.h"

#include <algorithm>

#include "ptx/insns.h"

namespace imbrex::vgpu {

namespace {

bool is_64_bit(const ptx::Instruction& insn) { return ptx::bits(insn.type()) == 64; }

CostClass arithmetic(const ptx::Instruction& insn) {
  if (insn.type() == ptx::ScalarType::f64) return CostClass::kDouble;
  return is_64_bit(insn) || insn.has(ptx::Mod::wide) ? CostClass::kWide : CostClass::kAlu;
}

CostClass special_function(const ptx::Instruction& insn, const ptx::Operand* last) {
  using ptx::Mod;
  const bool is_double = insn.type() == ptx::ScalarType::f64;
  if (insn.has(Mod::rn) || insn.has(Mod::rz) || insn.has(Mod::rm) || insn.has(Mod::rp))
    return is_double ? CostClass::kExactDouble : CostClass::kExact;
  if (is_double) return CostClass::kDouble;
  const bool divides_integers =
      (insn.op == ptx::Op::div || insn.op == ptx::Op::rem) && insn.type() != ptx::ScalarType::f32;
  if (!divides_integers) return CostClass::kMufu;
  // By a constant it is a product and a shift.
  if (last != nullptr && last->kind == ptx::OperandKind::immediate) return CostClass::kWide;
  return is_64_bit(insn) ? CostClass::kWideDivide : CostClass::kDivide;
}

CostClass access(const ptx::Instruction& insn) {
  using ptx::Mod;
  if (insn.has(Mod::shared) || insn.has(Mod::shared_cta) || insn.has(Mod::shared_cluster))
    return CostClass::kSharedAccess;
  for (Mod near : {Mod::local, Mod::const_, Mod::param, Mod::param_entry, Mod::param_func})
    if (insn.has(near)) return CostClass::kLocalAccess;
  return CostClass::kGlobalAccess;
}

}  // namespace

CostClass cost_class(const ptx::Instruction& insn, const ptx::Operand* last) {
  using ptx::Cost;
  // No default: a new row of costs.def does not compile without its class.
  switch (ptx::insn_facts(insn.op).cost) {
    case Cost::free:
      return CostClass::kFree;
    case Cost::issue:
      return CostClass::kAlu;
    case Cost::arithmetic:
      return arithmetic(insn);
    case Cost::special_function:
      return special_function(insn, last);
    case Cost::access:
      return access(insn);
    case Cost::matrix_access:
      return CostClass::kMatrixAccess;
    case Cost::atomic:
      return CostClass::kAtomic;
    case Cost::shuffle:
      return CostClass::kShuffle;
    case Cost::mma_sync:
      return CostClass::kMmaSync;
    case Cost::mbarrier:
      return CostClass::kMbarrier;
    case Cost::fence:
      return CostClass::kFence;
    case Cost::async:
      return CostClass::kAsync;
    case Cost::copy_commit:
      return CostClass::kCopyCommit;
    case Cost::copy_wait:
      return CostClass::kCopyWait;
    case Cost::bulk_commit:
      return CostClass::kBulkCommit;
    case Cost::bulk_wait:
      return insn.has(ptx::Mod::read) ? CostClass::kBulkWaitRead : CostClass::kBulkWait;
    case Cost::wgmma_commit:
      return CostClass::kWgmmaCommit;
    case Cost::wgmma_wait:
      return CostClass::kWgmmaWait;
    case Cost::tensor_load_wait:
      return CostClass::kTensorLoadWait;
    case Cost::tensor_store_wait:
      return CostClass::kTensorStoreWait;
  }
  return CostClass::kAlu;
}

double mma_sync_work(const ptx::Instruction& insn) {
  if (cost_class(insn) != CostClass::kMmaSync) return 0;
  const ptx::Shape shape = insn.shape();
  // Narrow floats in bytes of their own are as fast as bytes.
  const bool has_bytes = insn.has(ptx::Mod::kind_f8f6f4) || insn.has(ptx::Mod::kind_mxf8f6f4);
  const int bits = has_bytes ? 8 : std::max(1, ptx::bits(insn.type(1)));
  const double rate = insn.type(1) == ptx::ScalarType::f64 ? 1.0 / 16 : 16.0 / bits;
  return 2.0 * shape.m * shape.n * shape.k / std::max(rate, 1.0 / 16);
}

}  // namespace imbrex::vgpu
