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

CostClass access(const ptx::Instruction& insn) {
  using ptx::Mod;
  if (insn.has(Mod::shared) || insn.has(Mod::shared_cta) || insn.has(Mod::shared_cluster))
    return CostClass::kSharedAccess;
  for (Mod near : {Mod::local, Mod::const_, Mod::param, Mod::param_entry, Mod::param_func})
    if (insn.has(near)) return CostClass::kLocalAccess;
  return CostClass::kGlobalAccess;
}

}  // namespace

CostClass cost_class(const ptx::Instruction& insn) {
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
      return insn.type() == ptx::ScalarType::f64 ? CostClass::kDouble : CostClass::kMufu;
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
