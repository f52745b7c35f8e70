// SPDX-License-Identifier: Apache-2.0
// The facts of the instruction table insns.def and the words of words.def, and how text is looked up in them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/target.h"
#include "ptx/ptx.h"

namespace imbrex::ptx {

/// A target such as sm_90a.
using Target = TargetName;
/// The requirement in words: "sm_80 or later", "sm_90a".
std::string requirement_in_words(std::string_view requirement);

/// What is decoded and executed together on the virtual GPU: the rows of families.def.
enum class Family : uint8_t {
#define PTX_FAMILY(name, computes, what) name,
#include "ptx/families.def"
#undef PTX_FAMILY
};
/// Do the family's results depend on register operands alone?
bool computes(Family family);

/// What an instruction takes of the chip's time: the rows of costs.def.
enum class Cost : uint8_t {
#define PTX_COST(name, what) name,
#include "ptx/costs.def"
#undef PTX_COST
};

/// What a pass or a check asks about an instruction.
enum Trait : uint8_t {
  kElementwise = 1,  // each element of the result is a function of one element of each operand
  kAddress = 2,      // scalar arithmetic of which addresses and predicates are made
  kUniform = 4,    // of warp-uniform operands, one result for the warp (shfl.sync with .idx, ld.param alike)
  kFetches = 8,    // brings a value from elsewhere: from memory, or what the thread is
  kTwoSteps = 16,  // fetches its result in a second step, after others have run
};

/// One row of insns.def; its head comment explains the notation.
struct InsnFacts {
  Op op;
  std::string_view mnemonic;
  std::string_view operands;
  std::string_view modifiers;
  std::string_view types;
  std::string_view target;
  int version;
  std::string_view section;
  Family family;
  Cost cost;
  uint8_t traits;
};

const InsnFacts& insn_facts(Op op);
inline bool has_trait(Op op, Trait trait) { return (insn_facts(op).traits & trait) != 0; }
/// All rows, in the order of the table; index = Op.
std::span<const InsnFacts> all_insns();
/// The target a word needs ("" = any).
std::string_view target_of(Suffix suffix);
/// A form of an instruction that needs a later target than the instruction and its words: PTX_NEEDS of
/// insns.def.
struct LaterForm {
  Op op;
  std::string_view when;
  std::string_view target;
};
std::span<const LaterForm> later_forms();
std::span<const std::string_view> all_words();

/// The instruction with the longest mnemonic that is a dotted prefix of `text`, and the length of that
/// prefix.
struct MnemonicMatch {
  Op op;
  size_t length;
};
std::optional<MnemonicMatch> find_mnemonic(std::string_view text);
/// A modifier, type or shape by its spelling (no dot).
std::optional<Suffix> find_suffix(std::string_view word);
std::optional<ScalarType> find_type(std::string_view word);
/// "tid.x", without the '%'.
std::optional<SpecialReg> find_special(std::string_view name);

/// The mnemonic or the word nearest to a mistyped one; empty when none is close.
std::string nearest_mnemonic(std::string_view text);
std::string nearest_suffix(std::string_view word);

}  // namespace imbrex::ptx
