// SPDX-License-Identifier: Apache-2.0
#include "vgpu/program/cost_class.h"

#include <algorithm>

#include "ptx/insns.h"
#include "ptx/operands.h"
#include "ptx/uniform_registers.h"

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

bool is_strong_access(const ptx::Instruction& insn) {
  using ptx::Mod;
  const bool is_near = insn.has(Mod::shared) || insn.has(Mod::shared_cta) || insn.has(Mod::shared_cluster);
  const bool is_plain = insn.op == ptx::Op::ld || insn.op == ptx::Op::st;
  return is_plain && !is_near &&
         (insn.has(Mod::volatile_) || insn.has(Mod::relaxed) || insn.has(Mod::acquire) ||
          insn.has(Mod::release) || insn.has(Mod::mmio));
}

bool drains_stores(const ptx::Instruction& insn) {
  using ptx::Mod, ptx::Op;
  const bool is_far = insn.has(Mod::gpu) || insn.has(Mod::sys) || insn.has(Mod::gl);
  const bool is_fence = insn.op == Op::membar ||
                        (insn.op == Op::fence && !insn.has(Mod::acquire));  // .sc, .acq_rel or .release
  const bool is_access = insn.op == Op::st || insn.op == Op::red || insn.op == Op::atom;
  if (insn.op == Op::barrier_cluster_arrive) return !insn.has(Mod::relaxed);
  return is_far && (is_fence || (is_access && (insn.has(Mod::release) || insn.has(Mod::acq_rel))));
}

std::vector<SharedUpdate> shared_updates(const ptx::Function& f) {
  using ptx::Mod, ptx::Op;
  std::vector<SharedUpdate> updates(f.body.size(), SharedUpdate::kNone);
  std::vector<bool> uniform;
  for (size_t i = 0; i < f.body.size(); ++i) {
    const ptx::Instruction& insn = f.body[i];
    const bool is_shared = insn.has(Mod::shared) || insn.has(Mod::shared_cta);
    if ((insn.op != Op::atom && insn.op != Op::red) || !is_shared) continue;
    if (insn.guard.is_valid()) updates[i] = SharedUpdate::kGuarded;
    const auto operands = f.operands_of(insn);
    const size_t address = insn.op == Op::atom ? 1 : 0;
    if (insn.op != Op::atom || !insn.has(Mod::add) || ptx::is_float(insn.type()) ||
        operands.size() <= address + 1)
      continue;
    if (uniform.empty()) uniform = ptx::uniform_registers(f);
    bool is_one_word = true;
    for (const ptx::Operand& o : {operands[address], operands[address + 1]})
      ptx::each_register(f, o, [&](uint32_t id, bool) { is_one_word = is_one_word && uniform[id]; });
    if (is_one_word) updates[i] = SharedUpdate::kCounted;
  }
  return updates;
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
