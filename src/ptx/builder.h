// SPDX-License-Identifier: Apache-2.0
// Builds one function of a PTX module, for code generation.
//
//   Module m{.version = 90, .target = "sm_100a"};
//   Builder b(m, "kernel");
//   SymbolRef a_ptr = b.param(ScalarType::u64, "a_ptr");
//   Reg base = b.reg(ScalarType::b64), x = b.reg(ScalarType::f32, "x");
//   b.emit(Op::ld, {Mod::param, ScalarType::u64}, {base, address(a_ptr)});
//   b.emit(Op::ld, {Mod::global, Mod::v2, ScalarType::f32}, {b.vec({x, y}), address(base, 16)}).when(p);
//   b.finish();
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>

#include "ptx/ptx.h"

namespace imbrex::ptx {

/// Adds one function with a body to a module. The module must outlive the builder; another function must not
/// be added while this one is being built. Call finish() when done.
class Builder {
 public:
  /// Begins a kernel (or a device function, with is_entry = false).
  Builder(Module& module, std::string_view name, bool is_entry = true, Linkage linkage = Linkage::visible);

  /// The function being built, for directives (b.function().maxntid = {128, 1, 1}).
  Function& function() { return module_.functions[index_]; }
  Module& module() { return module_; }

  /// Adds a parameter; array_size > 0 makes it `.param .align A .b8 name[array_size]`.
  SymbolRef param(ScalarType type, std::string_view name, int64_t align = 0, int64_t array_size = 0);
  /// Adds a variable inside the function, e.g. a shared array of bytes. The name is made unique.
  SymbolRef variable(Space space, ScalarType type, std::string_view name, int64_t align, int64_t count);

  /// A fresh register from the range of its class: predicates %p, floats %f and %fd, everything else by size:
  /// %rs (16 bits and less), %r, %rd, %rq. Packed and 16-bit floats live in bit registers.
  Reg reg(ScalarType type);
  /// A fresh register of its own name, "%name", or "%name_2" when that is taken.
  Reg reg(ScalarType type, std::string_view name);

  /// A vector operand {a, b, ...}.
  Operand vec(std::initializer_list<Operand> elements) {
    return pooled(OperandKind::vector, {elements.begin(), elements.size()});
  }
  Operand vec(std::span<const Operand> elements) { return pooled(OperandKind::vector, elements); }
  Operand vec(std::span<const Reg> elements);
  /// d|p
  Operand pair(Operand d, Operand p) {
    Operand both[] = {d, p};
    return pooled(OperandKind::pair, both);
  }
  /// [map, {c0, c1, ...}]; `map` is an address operand.
  Operand tensor(Operand map, std::span<const Operand> coordinates);
  Operand tensor(Operand map, std::initializer_list<Operand> coordinates) {
    return tensor(map, std::span<const Operand>(coordinates.begin(), coordinates.size()));
  }
  /// (a, b) of a call.
  Operand tuple(std::span<const Operand> elements) { return pooled(OperandKind::tuple, elements); }

  /// Appends an instruction. The reference is valid until the next one is appended.
  Instruction& emit(Op op, std::initializer_list<Suffix> suffixes, std::initializer_list<Operand> operands) {
    return emit(op, {suffixes.begin(), suffixes.size()}, {operands.begin(), operands.size()});
  }
  Instruction& emit(Op op, std::span<const Suffix> suffixes, std::span<const Operand> operands);
  Instruction& emit(Op op, std::initializer_list<Suffix> suffixes, std::span<const Operand> operands) {
    return emit(op, {suffixes.begin(), suffixes.size()}, operands);
  }

  /// A label to branch to, printed `$name` or `$name_2`; bind() places it before the next instruction.
  LabelId label(std::string_view name);
  void bind(LabelId label);

  /// A list of labels for brx.idx, `$name: .branchtargets ...`, written before the next instruction.
  SymbolRef targets(std::string_view name, std::span<const LabelId> labels);

  /// Source line of what follows (a file index from Module::file). Line 0 is ignored: PTX cannot take a .loc
  /// back.
  void loc(uint32_t file, uint32_t line, uint32_t column = 0);
  /// A comment printed above the next instruction; several calls give several lines.
  void comment(std::string_view text);
  /// A pragma before the next instruction, e.g. "nounroll".
  void pragma(std::string_view text);

  /// Checks that every label is bound (InternalError otherwise).
  void finish();

 private:
  Operand pooled(OperandKind kind, std::span<const Operand> elements);
  std::string unique(std::string name);

  Module& module_;
  size_t index_;
  uint32_t loc_ = Instruction::kNone;
  uint32_t pending_comment_ = Instruction::kNone;
  std::array<uint32_t, 8> ranges_;  // register declaration of each class, made when first used
  std::unordered_map<std::string, int> names_;
};

}  // namespace imbrex::ptx
