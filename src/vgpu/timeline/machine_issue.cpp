// SPDX-License-Identifier: Apache-2.0
#include "vgpu/timeline/machine_issue.h"

#include <algorithm>

#include "ptx/machine_code.h"

namespace imbrex::vgpu {

namespace {

// Clocks until a result is there. M: docs/measurements/2026-11-23-instructions.md and 2026-11-23-waits.md.
constexpr float kSpecialLatency = 17, kShuffleLatency = 24, kSharedLatency = 23;
// M: setmaxnreg takes 75 to 215 (docs/measurements/2026-11-24-timeline.md).
constexpr float kSetMaxRegisters = 150;
constexpr float kUnknown = -1;
constexpr uint16_t kShuffle = 0x189, kReduce = 0x1C4;  // SHFL, REDUX

/// How long a result takes that a barrier of the warp tells of; kUnknown where that depends on others.
float latency(uint16_t opcode) {
  switch (opcode) {
    case 0x184:  // LDS
    case 0x03B:  // LDSM
      return kSharedLatency;
    case kShuffle:
    case kReduce:
      return kShuffleLatency;
    default:
      return busy(opcode).pipe == Pipe::kSpecial ? kSpecialLatency : kUnknown;
  }
}

bool ends_block(uint16_t opcode) {
  switch (opcode) {
    case 0x142:  // BREAK
    case 0x144:  // CALL
    case 0x147:  // BRA
    case 0x14D:  // EXIT
    case 0x150:  // RET
      return true;
    default:
      return false;
  }
}

}  // namespace

// D: units of 16 lanes serve integers, comparisons, selections and conversions (64 results a clock and SM), one of 4 special functions;
// which of them share one was measured (docs/measurements/2026-11-25-pipes.md).
Busy busy(uint16_t opcode) {
  switch (opcode) {
    case 0x002:  // MOV
    case 0x003:  // P2R
    case 0x006:  // VOTE
    case 0x007:  // SEL
    case 0x008:  // FSEL
    case 0x009:  // FMNMX
    case 0x00A:  // FSET
    case 0x00B:  // FSETP
    case 0x00C:  // ISETP
    case 0x00F:  // VIMNMX3
    case 0x010:  // IADD3
    case 0x011:  // LEA
    case 0x012:  // LOP3
    case 0x013:  // IABS
    case 0x016:  // PRMT
    case 0x017:  // IMNMX
    case 0x019:  // SHF
    case 0x01A:  // SGXT
    case 0x01B:  // BMSK
    case 0x01C:  // PLOP3
    case 0x036:  // VIADD
    case 0x03E:  // F2FP
    case 0x045:  // I2FP
    case 0x046:  // VIADDMNMX
    case 0x048:  // VIMNMX
      return {Pipe::kAlu, 2};
    case 0x024:  // IMAD
    case 0x025:  // IMAD.WIDE
    case 0x027:  // IMAD.HI
      return {Pipe::kProduct, 2};
    case 0x100:  // FLO
    case 0x101:  // BREV
    case 0x104:  // F2F
    case 0x105:  // F2I
    case 0x106:  // I2F
    case 0x107:  // FRND
    case 0x108:  // MUFU
    case 0x109:  // POPC
    case kReduce:
      return {Pipe::kSpecial, 8};
    default:
      return {};
  }
}

float shuffle_clocks(uint16_t opcode) { return opcode == kShuffle ? 1 : opcode == kReduce ? 2 : 0; }

std::vector<float> issue_clocks(const ptx::MachineCode& code) {
  constexpr uint16_t kSetsMaxRegisters = 0x1C8;
  constexpr size_t kBarriers = 6;
  std::vector<float> clocks;
  clocks.reserve(code.instructions.size());
  // From when on the warp may issue; when units are free and results there. Results of other SMs may be there at any time.
  float now = 0;
  std::array<float, kPipes> free = {};
  std::array<float, kBarriers> ready = {};
  const auto begin_anew = [&] {
    now = 0;
    free.fill(0);
    ready.fill(0);
  };
  for (const ptx::MachineInstruction& insn : code.instructions) {
    float begin = now;
    for (size_t barrier = 0; barrier < kBarriers; ++barrier) {
      if ((insn.waits >> barrier & 1) == 0) continue;
      if (ready[barrier] == kUnknown) {  // by then everything else is done
        begin_anew();
        begin = 0;
        break;
      }
      begin = std::max(begin, ready[barrier]);
    }
    const auto [pipe, taken] = busy(insn.opcode);
    if (taken > 0) {
      float& unit = free[static_cast<size_t>(pipe)];
      begin = std::max(begin, unit);
      unit = begin + taken;
    }
    if (insn.sets < kBarriers) {
      const float takes = latency(insn.opcode);
      ready[insn.sets] = takes == kUnknown ? kUnknown : begin + takes;
    }
    const float stall = insn.opcode == kSetsMaxRegisters ? kSetMaxRegisters : std::max<float>(1, insn.stall);
    clocks.push_back(begin + stall - now);
    now = begin + stall;
    if (ends_block(insn.opcode)) begin_anew();
  }
  return clocks;
}

}  // namespace imbrex::vgpu
