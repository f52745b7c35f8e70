// SPDX-License-Identifier: Apache-2.0
// A decoded instruction: everything that can be resolved before the launch has been, so that executing it is
// one call through a pointer with byte offsets into the warp's register file.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "vgpu/lanes.h"
#include "vgpu/memory/memory.h"

namespace imbrex::vgpu {

class Warp;
struct Instruction;

/// Byte offset of an operand in the warp's register file. Registers of up to 32 bits hold 32 lanes of
/// uint32_t, 64-bit ones 32 lanes of uint64_t, 128-bit ones 32 lanes of two uint64_t; a predicate is one
/// Mask. Immediates and special registers have slots too (filled when the warp starts), so bodies never ask
/// what an operand is.
using Slot = uint32_t;

/// A predicate operand: lanes are those of (slot ^ flip).
struct PredicateSource {
  Slot slot = 0;
  Mask flip = 0;
};

/// An address operand: value of `base` (a 64-bit slot if `base_is_64`, else 32-bit) plus `offset`.
struct AddressSource {
  Slot base = 0;
  bool base_is_64 = true;
  int64_t offset = 0;
  Space space = Space::kGeneric;  // as the instruction says, or as the symbol implies
};

/// A place in the code that is never reached.
inline constexpr uint32_t kNowhere = ~0u;

/// Instruction::small of and, or, xor and not of predicates, and of selp: 1 where the operand is inverted.
struct PredicateSmall {
  enum Index : int { kInvertA, kInvertB, kInvertSelector = 0 };
};

/// What executing an instruction did to the warp's current split.
enum class Step : uint8_t {
  kNext,   // go on with the following instruction
  kJump,   // Warp::split() has a new pc (or is another split altogether): load it again
  kYield,  // done, and give the other warps a turn
  kBlock,  // the split waits (see Warp::wait_*); run something else
  kTurn,   // the whole cluster has to wait for its turn at globally visible operations; then execute this
           // again
};

/// Executes an instruction for the lanes of `active` (never 0).
using ExecFunction = Step (*)(Warp& warp, const Instruction& insn, Mask active);

/// What a body gets to see. 64 bytes or a little more: it is read for every instruction executed.
struct Instruction {
  /// [0] the unchecked body, [1] the checked one; the same function where there is nothing to check.
  ExecFunction exec[2] = {nullptr, nullptr};
  /// Active lanes are those of the split where (guard slot ^ guard_flip) is set.
  Slot guard = 0;
  Mask guard_flip = 0;
  /// Operands, named by the order in which PTX writes them: destination first.
  Slot d = 0, a = 0, b = 0, c = 0;
  /// Address offset, branch target, or whatever else one number the family needs.
  int64_t immediate = 0;
  /// Small facts of the family: vector length, element size, comparison, ...
  uint8_t small[4] = {};
  /// Own index in Program::code; Program::info[index] has what only messages and checkers need.
  uint32_t index = 0;
  /// Slots of vector operands and of whatever exceeds a to d, in the order the family pushed them.
  const Slot* list = nullptr;
  /// A structure of the family's own, kept alive by the program.
  const void* extra = nullptr;
  /// That structure.
  template <class T>
  const T& form() const {
    return *static_cast<const T*>(extra);
  }
};

/// What comes of lanes of an operand register that were never written. Compilers compute with such lanes
/// freely and throw the results away, so only what leaves the registers is an error.
enum class UndefinedFlow : uint8_t {
  kReported,  // the value gets out: into memory, control flow, an address, another unit
  kPassed,    // the result is undefined where any operand is
  kSelected,  // selp: where the chosen operand or the predicate is
  kAnd,       // of predicates: ... unless the other one is false
  kOr,        // ... unless the other one is true
  kShuffled,  // shfl: where the lane it comes from is; the body knows
  kByParts,   // byte by byte, as `parts` says
  kLoaded,    // where memory was never written; the body knows
  kStored,    // what is stored: passed on to shared and local memory, reported elsewhere; the body knows
};

/// Columns from `column` on of those that one tcgen05.ld.32x32b loads; `load` is 0 for none.
struct LoadedColumns {
  uint32_t load = 0;
  uint32_t column = 0;
  friend bool operator==(const LoadedColumns&, const LoadedColumns&) = default;
};

/// What a register of a result gets from a register of an operand, in bytes as bits; registers as dense
/// numbers.
struct BytePart {
  uint32_t from = 0, to = 0;
  uint8_t from_bytes = 0xF, to_bytes = 0xF;
  bool bytewise = false;  // each byte from the same one; else all of to_bytes from all of from_bytes
};

/// The cold half of an instruction.
struct InstructionInfo {
  /// Registers read and written, as dense register numbers (for tracking what is defined), halves of 64 bits
  /// each.
  std::vector<uint32_t> reads, writes;
  UndefinedFlow flow = UndefinedFlow::kReported;
  /// kSelected: numbers of a, b, p; kAnd, kOr: of a, b; kShuffled: of the value and the result. 0: not a
  /// register.
  uint32_t numbers[3] = {};
  std::vector<BytePart> parts;  // kByParts
  /// kLoaded, kStored: of every element the number of its register, 0 for none.
  std::vector<uint32_t> elements;
  uint8_t element_bytes = 0;  // in memory
  uint32_t guard = 0;         // number of the guard
  const char* file = "";      // interned kernel source file by .loc, or ""
  int line = 0;               // its line
  int ptx_line = 0;           // line of the PTX text
  const char* function = "";  // interned name of the PTX function
  const char* object = "";    // mbarrier.init: interned name of the variable that holds the barriers, or ""
  LoadedColumns stages = {};  // 16-byte stores: what they store
  bool in_cas = false;        // atom.cas, or the plain load of what it compares first
  // For predicted times:
  uint8_t cost = 0;    // CostClass
  bool tests = false;  // asks whether an mbarrier's phase is over
  bool looks = false;  // a load by which a warp may wait for what others store
  bool tells = false;  // a store or update that others may wait for; `releases`: after what was stored before
  bool releases = false;
  bool ends_block = false;  // a branch: instructions behind it are not moved before it
  bool is_strong = false;   // touches global memory as others see it: volatile, relaxed, acquire, release
  bool drains = false;      // waits until other SMs see what was stored before it
  uint8_t update = 0;       // SharedUpdate
  float matrix_work = 0;    // mma_sync_work
};

}  // namespace imbrex::vgpu
