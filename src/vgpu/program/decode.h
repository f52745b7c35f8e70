// SPDX-License-Identifier: Apache-2.0
// Decoding: from the PTX tree to Program. Every instruction family has one function that recognises its
// instructions, takes their operands through the Decoder and chooses bodies.
#pragma once

#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ptx/insns.h"
#include "vgpu/program/program.h"

namespace imbrex::vgpu {

class FunctionLayout;
class ProgramBuilder;
class ModuleImage;

/// What a family's decode function works with: one PTX instruction and the program under construction.
class Decoder {
 public:
  Decoder(ProgramBuilder& builder, FunctionLayout& layout, const ptx::Instruction& insn);

  const ptx::Instruction& insn() const { return insn_; }
  ptx::Op op() const { return insn_.op; }
  bool has(ptx::Mod mod) const { return insn_.has(mod); }
  ptx::ScalarType type(int index = 0) const { return insn_.type(index); }
  size_t operand_count() const { return operands_.size(); }
  const ptx::Operand& operand(size_t index) const { return operands_[index]; }
  std::span<const ptx::Operand> elements(const ptx::Operand& operand) const;

  // Operands. Each notes what is read or written, for the checker of undefined registers.

  /// A value: register, special register, immediate or symbol's address. `bits` is the width the body reads
  /// (32 for everything up to 32); an immediate is made as `type` says, where a float may be meant.
  Slot source(const ptx::Operand& operand, ptx::ScalarType type);
  Slot source(size_t index, ptx::ScalarType type) { return source(operand(index), type); }
  /// A register to be written, or, for `_`, a slot that is never read.
  Slot destination(const ptx::Operand& operand, ptx::ScalarType type);
  Slot destination(size_t index, ptx::ScalarType type) { return destination(operand(index), type); }
  PredicateSource predicate(const ptx::Operand& operand);
  PredicateSource predicate(size_t index) { return predicate(operand(index)); }
  /// A predicate register to be written, or a slot that is never read.
  Slot predicate_destination(const ptx::Operand& operand);
  /// Width of the lanes of a register operand's slot in bytes: 4, 8 or 16 (as `type` says for others).
  int lane_bytes(const ptx::Operand& operand, ptx::ScalarType type) const;
  AddressSource address(const ptx::Operand& operand);
  /// Of a symbol that lies in the caller's frame: how far from the stack pointer. Nothing for other operands.
  std::optional<int64_t> distance_in_frame(const ptx::Operand& operand) const;
  Slot stack_pointer() const;
  AddressSource address(size_t index) { return address(operand(index)); }
  /// An integer immediate that must be known before the launch. Refuses registers by name of `what`.
  int64_t immediate(size_t index, const char* what);
  /// A slot holding this value in all lanes.
  Slot constant32(uint32_t value);
  /// A slot of scratch registers private to the instruction.
  Slot scratch(int lane_bytes);
  /// The predicate that holds the carry of add.cc, addc and the like.
  Slot carry();
  /// Marks a register operand as read although it is a destination, or the reverse (e.g. accumulators).
  void note_read(const ptx::Operand& operand);
  void note_write(const ptx::Operand& operand);
  /// The same for a register of a function that is called.
  void note_write(const FunctionLayout& callee, uint32_t reg);

  /// Makes the slots reachable as Instruction::list.
  const Slot* keep_list(std::vector<Slot> slots);
  /// Keeps a structure of the family alive with the program; for Instruction::extra.
  template <class T>
  const T* keep(T value) {
    auto kept = std::make_shared<const T>(std::move(value));
    const T* raw = kept.get();
    keep_alive(std::move(kept));
    return raw;
  }

  bool is_predicate(const ptx::Operand& operand) const;
  /// Is the type among the instruction's words?
  bool has_type(ptx::ScalarType type) const;
  /// 80, 90, 100: the architecture the program is made for.
  int target_sm() const;
  /// An address operand of an instruction that names several state spaces: this one is in `space`.
  AddressSource address_in(const ptx::Operand& operand, Space space);
  /// A register that an asynchronous unit writes some time after the instruction. It counts as written when
  /// the body says so: its dense number goes to `numbers`.
  Slot late_destination(const ptx::Operand& operand, std::vector<uint32_t>& numbers);

  /// The state space written on the instruction; kGeneric when none is.
  Space space() const;
  /// The pc of a label, known once the function is laid out; bodies read it from `immediate`.
  int64_t label(const ptx::Operand& operand) const;
  /// The pc where lanes that part at this instruction meet again, or kNowhere.
  int64_t meeting() const;

  /// "this form of mul is not modelled: ..." with the PTX line; throws CompileError.
  [[noreturn]] void refuse(const std::string& why) const;

  ProgramBuilder& builder() { return builder_; }
  FunctionLayout& layout() { return layout_; }
  const ptx::Instruction& instruction() const { return insn_; }

 private:
  void keep_alive(std::shared_ptr<const void> object);
  ProgramBuilder& builder_;
  FunctionLayout& layout_;
  const ptx::Instruction& insn_;
  std::span<const ptx::Operand> operands_;
};

/// Recognises an instruction and fills `out` (bodies, slots, payload). False: not of this family.
using DecodeFunction = bool (*)(Decoder& decoder, Instruction& out);

/// Sets one body for both policies.
inline void set_body(Instruction& out, ExecFunction body) { out.exec[0] = out.exec[1] = body; }
/// Sets a body that is a template over the policy: set_bodies(out, exec_ld<Unchecked>, exec_ld<Checked>).
inline void set_bodies(Instruction& out, ExecFunction unchecked, ExecFunction checked) {
  out.exec[0] = unchecked;
  out.exec[1] = checked;
}

#define PTX_FAMILY(name, computes, what) bool decode_##name(Decoder& decoder, Instruction& out);
#include "ptx/families.def"
#undef PTX_FAMILY
/// Of every family, what recognises its instructions.
DecodeFunction decode_function(ptx::Family family);

/// Special registers that change while a warp runs (%clock and the like) have no slot: mov reads them.
bool is_running_counter(ptx::SpecialReg special);

}  // namespace imbrex::vgpu
