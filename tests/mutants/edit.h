// SPDX-License-Identifier: Apache-2.0
// Changing one thing in a kernel's PTX tree.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>

#include "codegen/compiled_kernel.h"
#include "ptx/ptx.h"

namespace imbrex::mutants {

/// A copy of a compiled kernel, to be changed: its PTX as a tree, and its launch plan. Positions are indices
/// into the entry's body; they shift as instructions come and go.
class Edit {
 public:
  Edit(const codegen::CompiledKernel& kernel, const ptx::Module& module) : kernel(kernel), module_(module) {}

  codegen::CompiledKernel kernel;  ///< its `ptx` is stale until finish()

  ptx::Function& function() { return module_.functions.front(); }
  const ptx::Function& function() const { return module_.functions.front(); }
  const ptx::Module& module() const { return module_; }
  size_t size() const { return function().body.size(); }
  ptx::Instruction& at(size_t i) { return function().body[i]; }
  const ptx::Instruction& at(size_t i) const { return function().body[i]; }
  ptx::Operand& operand(size_t i, size_t k) { return function().operands[at(i).first_operand + k]; }
  const ptx::Operand& operand(size_t i, size_t k) const {
    return function().operands[at(i).first_operand + k];
  }

  /// Takes `count` instructions out. Labels that stood before them stand before what follows.
  void erase(size_t i, size_t count = 1);
  /// Puts an instruction before position i, after the labels that stand there.
  void insert(size_t i, ptx::Instruction instruction);
  /// A new instruction at i, at the kernel line of the one that was there.
  ptx::Instruction& insert(size_t i, ptx::Op op, std::initializer_list<ptx::Suffix> suffixes,
                           std::initializer_list<ptx::Operand> operands);
  /// The instruction at i once more, behind it.
  void duplicate(size_t i, size_t count = 1);
  /// Moves `count` instructions to before position `to` (counted before the move). A label that only they
  /// branch to goes with them.
  void move(size_t from, size_t count, size_t to);
  /// Puts a modifier where another stands, or (other = nullopt) behind position `at_word` of the modifiers.
  void replace(size_t i, ptx::Mod mod, ptx::Mod with);
  void add_words(size_t i, size_t at_word, std::initializer_list<ptx::Suffix> words);
  void remove_word(size_t i, ptx::Mod mod);

  /// A register that nothing uses yet.
  ptx::Reg fresh(ptx::ScalarType type);
  /// Operand k of the instruction at i becomes this number: in the operand, or in a register of 16 bits, set in front.
  void set_mask(size_t i, size_t k, int64_t mask);
  /// {d, p} as an operand.
  ptx::Operand pair(ptx::Operand d, ptx::Operand p);

  /// The kernel with its PTX printed.
  codegen::CompiledKernel finish();

 private:
  ptx::Module module_;
  int fresh_ = 0;
};

/// What rules ask about the instructions of a body.
bool is_wait(const ptx::Function& f, size_t i);  ///< an mbarrier.try_wait whose next instruction loops to it
bool is_branch(const ptx::Instruction& i);
/// Position a branch goes to.
size_t target_of(const ptx::Function& f, const ptx::Instruction& branch);
/// The forward branch that skips position i alone or with its neighbours (`@!%p bra END; ...; END:`), nearest
/// first; nothing when there is none within `reach` instructions.
std::optional<size_t> skipping_branch(const ptx::Function& f, size_t i, size_t reach = 12);
/// The last instruction before `i` that writes the register; nothing when there is none.
std::optional<size_t> definition_before(const ptx::Function& f, size_t i, ptx::Reg reg);
/// Whether the lanes of a warp see different numbers in the register, as far as its last definitions say.
bool varies_by_lane(const ptx::Function& f, size_t i, ptx::Reg reg);
/// Whether a predicate comes from elect.sync.
bool is_elected(const ptx::Function& f, ptx::Reg predicate);

}  // namespace imbrex::mutants
