// SPDX-License-Identifier: Apache-2.0
// The facts of the instruction table insns.def and the words of words.def, and how text is looked up in them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "ptx/ptx.h"

namespace imbrex::ptx {

/// A target such as sm_90a.
struct Target {
  int sm = 0;        ///< 90
  char variant = 0;  ///< 'a', 'f' or 0

  /// Reads "sm_90a"; nothing when it is no such name.
  static std::optional<Target> parse(std::string_view name);
};

/// True when `target` meets a requirement as insns.def writes it: "" always; "80" that or later; "90a"
/// exactly that; "90a+" an 'a' or 'f' variant of that or later; "100f" an 'a' or 'f' variant of sm_10x or
/// sm_11x.
bool meets(Target target, std::string_view requirement);
/// The requirement in words: "sm_80 or later", "sm_90a".
std::string requirement_in_words(std::string_view requirement);

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
};

const InsnFacts& insn_facts(Op op);
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
