// SPDX-License-Identifier: Apache-2.0
// A kernel ready to run: decoded code of the entry and of every function it calls, and the layout of its
// registers, shared and local memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "imbrex/vgpu/virtual_gpu.h"
#include "vgpu/program/habits.h"
#include "vgpu/program/instruction.h"

namespace imbrex::vgpu {

/// A special register the program reads: `slot` is filled when a warp starts.
struct SpecialSlot {
  int special = 0;  // ptx::Special
  Slot slot = 0;
};

/// What of an InstructionInfo is needed each time: the registers read, then those written, in Program::use_numbers.
struct DefinedUse {
  uint32_t first = 0;
  uint16_t reads = 0, all = 0;
  bool passes = false;       // the result is undefined where an operand is
  bool is_reported = false;  // UndefinedFlow::kReported
  bool is_loaded = false;    // UndefinedFlow::kLoaded
  bool stages = false;       // InstructionInfo::stages says something
};

struct Program {
  std::string name;
  std::shared_ptr<const std::vector<std::string>> text;  // lines of the PTX
  std::vector<Instruction> code;                         // entry first, execution starts at index 0
  std::vector<InstructionInfo> info;
  std::vector<DefinedUse> uses;  // by index too
  std::vector<uint32_t> use_numbers;

  uint32_t register_bytes = 0;  // register file of one warp, immediates included
  uint32_t register_count = 0;  // dense numbers for defined-tracking; number 0 is always defined
  /// What a warp's register file holds at the start: immediates in their slots, elsewhere a pattern other than
  /// zero, so that a kernel that reads what it never wrote does not work by chance.
  std::vector<std::byte> register_image;
  /// Slots of shared addresses (`wide`: 64-bit lanes): the CTA's rank is put into bits 31:24 when a warp
  /// starts.
  std::vector<std::pair<Slot, bool>> shared_addresses;
  std::vector<SpecialSlot> specials;

  uint32_t static_shared_bytes = 0;  // from the start of user data to the start of dynamic shared memory
  uint32_t local_bytes = 0;          // per thread: .local variables and call parameters of every function
  /// Where a function may call itself (vgpu/program/call_frame.h): where the lanes' stack pointers are, 64 bits each, how
  /// many bytes behind the others the stack takes for one of the chip's. Else 0.
  Slot stack_pointer = 0;
  double stack_scale = 0;
  /// Of local memory, for threads with a stack of so many bytes.
  uint32_t local_bytes_with(int64_t stack_bytes) const {
    return local_bytes +
           (static_cast<uint32_t>(stack_scale * static_cast<double>(stack_bytes)) + 15) / 16 * 16;
  }

  int64_t max_registers = 0, ctas_per_sm = 0;  // .maxnreg and .minnctapersm; 0: absent
  Habits habits;
  bool allocates = false;  // calls malloc or free
  FunctionAttributes attributes;
  std::vector<Parameter> parameters;

  /// Keeps `list` and `extra` of instructions alive.
  std::vector<std::shared_ptr<const void>> kept;

  /// Fills `uses` from `info`.
  void collect_uses();
  /// Where instruction `index` was written, for findings.
  CodePlace place(uint32_t index) const;
  /// kernel.cpp:42 (PTX line 17), for the middle of a sentence.
  std::string place_text(uint32_t index) const;
};

}  // namespace imbrex::vgpu
