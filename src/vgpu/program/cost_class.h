// SPDX-License-Identifier: Apache-2.0
// What an instruction is to those who predict its time.
#pragma once

#include <cstdint>
#include <vector>

#include "ptx/ptx.h"

namespace imbrex::vgpu {

/// What the recorder must know about an instruction.
enum class CostClass : uint8_t {
  kFree,  // vanishes in the machine code: register moves, labels
  kAlu,
  kWide,    // two instructions on 32-bit data paths
  kDouble,  // 64-bit floating point
  kMufu,
  kExact,        // float32 division, reciprocal or root, exactly rounded: a dozen instructions and a branch
  kExactDouble,  // the same of float64
  kDivide,       // of 32-bit integers
  kWideDivide,   // of 64-bit integers
  kSharedAccess,
  kGlobalAccess,
  kLocalAccess,
  kMatrixAccess,  // ldmatrix, stmatrix
  kAtomic,
  kShuffle,
  kMmaSync,
  kMbarrier,
  kFence,
  kAsync,  // hands work to a unit
  // The waits and groups of asynchronous work.
  kCopyCommit,
  kCopyWait,
  kBulkCommit,
  kBulkWait,
  kBulkWaitRead,
  kWgmmaCommit,
  kWgmmaWait,
  kTensorLoadWait,
  kTensorStoreWait,
};
/// `last`: its last operand; null where that does not matter.
CostClass cost_class(const ptx::Instruction& insn, const ptx::Operand* last = nullptr);

/// Does it access memory beyond the CTA as others see it?
bool is_strong_access(const ptx::Instruction& insn);
/// Does it wait until other SMs see what the CTA stored before it: a fence or a release of more than the CTA's scope?
bool drains_stores(const ptx::Instruction& insn);

/// What the assembler makes of an atomic update of shared memory.
enum class SharedUpdate : uint8_t {
  kNone,     // it is something else, or one instruction
  kGuarded,  // its predicate becomes a branch around it
  kCounted,  // all lanes add to one word: one of them adds their number, and tells the others the old value
};
/// Of each instruction of a function.
std::vector<SharedUpdate> shared_updates(const ptx::Function& f);

/// FLOP of a warp's mma.sync, counted as if its operands had 16 bits: wider and narrower ones are scaled to
/// the time they take. 0 for other instructions.
double mma_sync_work(const ptx::Instruction& insn);

}  // namespace imbrex::vgpu
