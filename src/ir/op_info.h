// SPDX-License-Identifier: Apache-2.0
// What ops.def says about each op.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace imbrex::ir {

enum class Opcode : uint16_t {
#define IR_OP(id, ...) k##id,
#include "ir/ops.def"
#undef IR_OP
  kCount
};

/// What an op does besides computing its results. Drives dead-code elimination and motion.
enum class Effect : uint8_t {
  kPure,     // result depends on operands only: may be folded, merged, moved, dropped
  kReads,    // reads memory or a variable: may be dropped when unused, not moved over writes
  kWrites,   // writes memory, a variable, a barrier: kept, order kept
  kSync,     // waits or orders: kept, nothing moves across it
  kControl,  // control flow and scopes
};

/// Which threads must execute an op together. Checked against the enclosing thread groups.
enum class Scope : uint8_t {
  kAny,           // any thread group
  kOneThread,     // exactly one thread
  kOneWarp,       // exactly one warp
  kOneIssuer,     // one warp, whose elected thread acts, or one thread
  kWarps,         // a multiple of 32 threads, warp-aligned
  kWarpGroups,    // a multiple of 128 threads, aligned to 128
  kWarpOrGroups,  // exactly one warp, or as kWarpGroups
  kCta,           // every thread of the CTA
};

/// What else passes and code generation ask about an op. Combined by `|` in ops.def.
enum class Fact : uint32_t {
  kNone = 0,
  // Element-wise arithmetic, by the elements it takes. An op with one of these works on scalars and, element by
  // element, on register tensors; scalar_operation() (codegen) is its code.
  kIntegers = 1 << 0,
  kBools = 1 << 1,
  kFloats = 1 << 2,  // float16, bfloat16, float32, float64
  kNumbers = kIntegers | kFloats,
  kAnyType = 1 << 3,  // narrow floats too: elements are moved or converted, not computed with
  // Algebra.
  kCommutative = 1 << 4,
  kComparison = 1 << 5,  // gives bool
  // What dead-code elimination may do beyond the effect.
  kDeadWhenUnused = 1 << 6,  // goes when nothing uses its results, although it writes
  kDeadWhenEmpty = 1 << 7,   // goes when its regions are empty
  kNeedsNotFirst = 1 << 8,   // names its first operand without needing it: goes when nothing else uses that
  // Structure.
  kLoop = 1 << 9,
  kEndsBlock = 1 << 10,      // nothing can follow it in its block
  kView = 1 << 11,           // its result is part of its first operand's memory or registers
  kLaunchIndex = 1 << 12,    // of the running grid: not known to the host
  kUsesWarpIndex = 1 << 13,  // its code may need the warp's number in the CTA
  kPrints = 1 << 14,         // its code may call the driver's vprintf
  /// Its result may consist of an operand's registers, or compute with them only when it is used itself, as
  /// addresses of views do.
  kForwardsRegisters = 1 << 15,
  // The memory model.
  kReleases = 1 << 16,      // what the thread did before is visible to threads that synchronise with it here
  kAcquires = 1 << 17,      // what others did before they synchronised is visible from here on
  kTensorCore = 1 << 18,    // tcgen05 work that runs asynchronously to the thread
  kTensorMemory = 1 << 19,  // accesses tensor memory, in an order that synchronisation alone does not settle
  kReadsByAsyncProxy =
      1 << 20,         // one instruction of the author's that reads shared memory through the async proxy
  kAssumes = 1 << 21,  // relies on what the author promises of its operands; the virtual GPU's code tests it
};
constexpr Fact operator|(Fact a, Fact b) {
  return static_cast<Fact>(static_cast<uint32_t>(a) | static_cast<uint32_t>(b));
}

namespace op_table {
using enum Fact;
inline constexpr Fact kFacts[] = {
#define IR_OP(id, mnemonic, operands, results, attrs, regions, effect, scope, arch, rules, traffic, facts, \
              meaning)                                                                                     \
  facts,
#include "ir/ops.def"
#undef IR_OP
};
}  // namespace op_table

/// True when the op has one of the facts.
constexpr bool has(Opcode code, Fact facts) {
  return (static_cast<uint32_t>(op_table::kFacts[static_cast<size_t>(code)]) &
          static_cast<uint32_t>(facts)) != 0;
}
/// Arithmetic on scalars and, element by element, on register tensors.
constexpr bool is_elementwise(Opcode code) {
  return has(code, Fact::kIntegers | Fact::kBools | Fact::kFloats | Fact::kAnyType);
}
constexpr bool is_comparison(Opcode code) { return has(code, Fact::kComparison); }

/// One operand position: `kinds` is a set of bits 1 << TypeKind.
struct OperandSpec {
  std::string_view name;
  uint32_t kinds = 0;
  bool is_integer = false;   // scalar of integer type
  bool is_bool = false;      // scalar bool
  bool is_variadic = false;  // zero or more, last position only
  bool is_optional = false;
};

enum class AttrKind : uint8_t { kInt, kInts, kBool, kFloat, kString, kDType, kLayout };
struct AttrSpec {
  std::string_view name;
  AttrKind kind;
  bool is_optional;
};

/// Everything ops.def says about an op.
struct OpInfo {
  Opcode code;
  std::string_view mnemonic;
  std::vector<OperandSpec> operands;
  std::vector<OperandSpec> results;
  std::vector<AttrSpec> attrs;
  int regions;
  Effect effect;
  Scope scope;
  std::string_view arch;     // first target that has it, e.g. "sm_80"
  std::string_view meaning;  // one sentence or two
};

const OpInfo& info(Opcode code);
std::optional<Opcode> opcode_from_mnemonic(std::string_view mnemonic);

}  // namespace imbrex::ir
