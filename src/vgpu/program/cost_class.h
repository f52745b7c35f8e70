// SPDX-License-Identifier: Apache-2.0
// What an instruction is to those who predict its time.
#pragma once

#include <cstdint>

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

/// FLOP of a warp's mma.sync, counted as if its operands had 16 bits: wider and narrower ones are scaled to
/// the time they take. 0 for other instructions.
double mma_sync_work(const ptx::Instruction& insn);

}  // namespace imbrex::vgpu
