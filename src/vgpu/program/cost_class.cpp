// SPDX-License-Identifier: Apache-2.0
#include "vgpu/program/cost_class.h"

#include <algorithm>

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
  using ptx::Op;
  switch (insn.op) {
    case Op::mov:
    case Op::cvta:
      return CostClass::kFree;
    case Op::rcp:
    case Op::sqrt:
    case Op::rsqrt:
    case Op::sin:
    case Op::cos:
    case Op::lg2:
    case Op::ex2:
    case Op::tanh:
    case Op::div:
    case Op::rem:
      return insn.type() == ptx::ScalarType::f64 ? CostClass::kDouble : CostClass::kMufu;
    case Op::ld:
    case Op::ldu:
    case Op::st:
      return access(insn);
    case Op::ldmatrix:
    case Op::stmatrix:
      return CostClass::kMatrixAccess;
    case Op::atom:
    case Op::red:
      return CostClass::kAtomic;
    case Op::shfl_sync:
    case Op::vote_sync:
    case Op::match_any_sync:
    case Op::match_all_sync:
    case Op::redux_sync:
      return CostClass::kShuffle;
    case Op::mma_sync:
    case Op::mma_sp_sync:
    case Op::mma_sp_ordered_sync:
    case Op::wmma_mma:
      return CostClass::kMmaSync;
    case Op::mbarrier_init:
    case Op::mbarrier_inval:
    case Op::mbarrier_expect_tx:
    case Op::mbarrier_complete_tx:
    case Op::mbarrier_arrive:
    case Op::mbarrier_arrive_drop:
    case Op::mbarrier_test_wait:
    case Op::mbarrier_try_wait:
      return CostClass::kMbarrier;
    case Op::membar:
    case Op::fence:
    case Op::fence_mbarrier_init:
    case Op::fence_proxy:
      return CostClass::kFence;
    case Op::cp_async:
    case Op::cp_async_bulk:
    case Op::cp_reduce_async_bulk:
    case Op::cp_async_bulk_tensor:
    case Op::cp_reduce_async_bulk_tensor:
    case Op::tcgen05_mma:
    case Op::tcgen05_ld:
    case Op::tcgen05_st:
    case Op::wgmma_mma_async:
      return CostClass::kAsync;
    case Op::cp_async_commit_group:
      return CostClass::kCopyCommit;
    case Op::cp_async_wait_group:
    case Op::cp_async_wait_all:
      return CostClass::kCopyWait;
    case Op::cp_async_bulk_commit_group:
      return CostClass::kBulkCommit;
    case Op::cp_async_bulk_wait_group:
      return insn.has(ptx::Mod::read) ? CostClass::kBulkWaitRead : CostClass::kBulkWait;
    case Op::wgmma_commit_group:
      return CostClass::kWgmmaCommit;
    case Op::wgmma_wait_group:
      return CostClass::kWgmmaWait;
    case Op::tcgen05_wait_ld:
      return CostClass::kTensorLoadWait;
    case Op::tcgen05_wait_st:
      return CostClass::kTensorStoreWait;
    default:
      return arithmetic(insn);
  }
}

double mma_sync_work(const ptx::Instruction& insn) {
  if (cost_class(insn) != CostClass::kMmaSync) return 0;
  const ptx::Shape shape = insn.shape();
  const int bits = std::max(1, ptx::bits(insn.type(1)));
  const double rate = insn.type(1) == ptx::ScalarType::f64 ? 1.0 / 16 : 16.0 / bits;
  return 2.0 * shape.m * shape.n * shape.k / std::max(rate, 1.0 / 16);
}

}  // namespace imbrex::vgpu
