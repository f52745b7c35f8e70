// SPDX-License-Identifier: Apache-2.0
// Makes a Program out of an entry: finds the functions it calls, gives registers, immediates and variables
// their places, lays the code out and lets the families decode every instruction.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "ptx/ptx.h"
#include "vgpu/program/call_frame.h"
#include "vgpu/program/contraction.h"
#include "vgpu/program/module_image.h"
#include "vgpu/program/program.h"

namespace imbrex::vgpu {

/// Where the things of one PTX function are.
class FunctionLayout {
 public:
  const ptx::Function* function = nullptr;
  CallFrame* frame = nullptr;   // where the function may call itself; offsets in local memory are in it then
  std::vector<Slot> registers;  // by ptx::Reg::id
  std::vector<uint32_t>
      register_numbers;  // dense numbers, same index; 64-bit registers have two, for their halves
  bool has_halves(uint32_t reg) const { return ptx::bits(function->registers[reg].type) == 64; }
  void add_numbers(uint32_t reg, std::vector<uint32_t>& to) const {
    to.push_back(register_numbers[reg]);
    if (has_halves(reg)) to.push_back(register_numbers[reg] + 1);
  }
  std::vector<int64_t> variables;      // Function::variables: offset in local or shared memory
  std::vector<int64_t> params;         // Function::params: offset in the parameter buffer, or in local memory
  std::vector<int64_t> return_params;  // offset in local memory
  std::vector<uint32_t> pcs;           // of every instruction of the body, and of its end
  std::vector<uint32_t> meetings;      // pc where lanes meet again after instruction i, or kNowhere
  std::vector<bool> is_meeting;        // a join stands before instruction i
  std::vector<uint8_t> in_flight;      // the RegisterWriters that instruction i has to wait for; empty: none
  std::map<uint32_t, Contraction> contractions;  // by instruction
  /// Of an instruction of the body; null where it takes no product in.
  const Contraction* contraction_of(const ptx::Instruction& insn) const {
    const auto at = contractions.find(static_cast<uint32_t>(&insn - function->body.data()));
    return at == contractions.end() ? nullptr : &at->second;
  }
  uint8_t waits_for(size_t i) const { return i < in_flight.size() ? in_flight[i] : 0; }
  /// The machine's own instructions before instruction i.
  uint32_t own_before(size_t i) const { return (is_meeting[i] ? 1 : 0) + (waits_for(i) != 0 ? 1 : 0); }
  static constexpr int64_t kDynamicShared = -2;  // as an offset: where dynamic shared memory starts
};

/// A place in memory that a symbol stands for.
struct SymbolAddress {
  Space space = Space::kGlobal;
  uint64_t address = 0;
  bool in_frame = false;  // in local memory, the address being a distance from the stack pointer
};

class ProgramBuilder {
 public:
  ProgramBuilder(const ModuleImage& image, const ptx::Function& entry);
  std::shared_ptr<const Program> build();

  // For Decoder
  // ------------------------------------------------------------------------------------------------
  Program& program() { return *program_; }
  const ptx::Module& module() const { return image_.tree(); }
  const ModuleImage& image() const { return image_; }
  Slot allocate(uint32_t bytes);
  /// A slot with `value` in all lanes (lane_bytes 4, 8 or 16; the upper half of 16 is zero), or a predicate
  /// (1).
  Slot constant(uint64_t value, int lane_bytes, bool shared_address = false);
  Slot special(ptx::SpecialReg special);
  /// The predicate that holds the carry of add.cc, addc and the like.
  Slot carry();
  SymbolAddress address_of(const FunctionLayout& layout, const ptx::Operand& symbol) const;
  /// The layout of a function of the module that has a body and is reachable from the entry.
  const FunctionLayout& layout_of(uint32_t function) const;
  /// Place in local memory that is in no frame, for values on their way.
  int64_t allocate_local(int64_t bytes);
  /// The functions that a call through a register may mean: those of its list, else those of its prototype's kind whose
  /// address is taken somewhere.
  std::vector<uint32_t> callees_by_pointer(const ptx::Function& function, const ptx::Instruction& call);
  const std::string& text_name() const { return image_.name(); }

 private:
  struct Constant {
    Slot slot;
    uint64_t value;
    int lane_bytes;
  };
  void find_functions(uint32_t function);
  // Frames of functions that may call themselves (call_frames.cpp)
  void find_circles();
  void finish_frames();
  void place_stack();
  void place_registers(FunctionLayout& layout);
  void place_variables(FunctionLayout& layout);
  void place_shared(const ptx::Variable& variable, int64_t& offset);
  void lay_out_code(FunctionLayout& layout, uint32_t& pc);
  void decode_function(FunctionLayout& layout);
  void decode_instruction(FunctionLayout& layout, uint32_t index);
  void describe_undefined_flow(const FunctionLayout& layout, const ptx::Instruction& source, bool computes);
  void append(Instruction insn, const FunctionLayout& layout, uint32_t index);
  void finish_image();
  void describe_entry();

  const ModuleImage& image_;
  const ptx::Function& entry_;
  std::shared_ptr<Program> program_;
  std::map<uint32_t, FunctionLayout> layouts_;
  std::optional<std::vector<uint32_t>> by_address_;  // ModuleImage::functions_by_address, once asked for
  std::vector<uint32_t> order_;                      // functions in code order
  std::map<uint32_t, std::set<uint32_t>> calls_;     // by function, those that it may call
  std::vector<int64_t> module_shared_;               // offsets of module-scope shared variables
  int64_t dynamic_alignment_ = 16;
  uint32_t local_bytes_ = 0;
  int64_t stack_alignment_ = 16;
  uint32_t next_slot_ = 0;
  std::vector<Constant> constants_;
  std::map<std::tuple<uint64_t, int, bool>, Slot> constant_slots_;
  std::map<ptx::SpecialReg, Slot> special_slots_;
  Slot carry_ = 0;
};

/// How many machine instructions a PTX instruction becomes, its join not counted.
uint32_t machine_instructions(const ptx::Instruction& insn);

}  // namespace imbrex::vgpu
