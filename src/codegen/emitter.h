// SPDX-License-Identifier: Apache-2.0
// Writes the instructions of one kernel: fresh results, scopes, and code moved out of loops.
//
// Address arithmetic depends mostly on the thread and on values made before a loop. Such code is emitted
// through hoisted(): it lands in front of the outermost loop that its operands come from outside of, once,
// and later requests for the same thing get the same register.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "imbrex/core/dtype.h"
#include "imbrex/core/source_location.h"
#include "ptx/builder.h"

namespace imbrex::codegen {

using ptx::Mod;
using ptx::Operand;
using ptx::Reg;
using ptx::ScalarType;
using ptx::Suffix;
using Op = ptx::Op;

/// The register class that holds a scalar of this type: 8- and 16-bit integers live in 32 bits, sign- or
/// zero-extended; bool is a predicate; small floats without arithmetic are the low bits of 32.
ScalarType register_type(DataType type);
/// The type word of arithmetic on it: s32, u32, s64, f16, ...
ScalarType arithmetic_type(DataType type);
/// How instructions of the tensor cores name the elements of their operands, and of their sums.
ScalarType matrix_type(DataType type);
ScalarType matrix_sum_type(DataType type);

class Emitter {
 public:
  Emitter(ptx::Module& module, std::string_view entry, bool comments, bool source_lines);

  ptx::Builder& builder() { return builder_; }
  ptx::Module& module() { return module_; }

  /// Source line and comment of what is emitted from now on.
  void set_location(const SourceLocation& where);
  void set_comment(std::string text) { comment_ = std::move(text); }
  bool wants_comments() const { return comments_; }

  ptx::Instruction& emit(Op op, std::initializer_list<Suffix> words, std::initializer_list<Operand> operands);
  ptx::Instruction& emit(Op op, std::span<const Suffix> words, std::span<const Operand> operands);
  /// Emits `op.words result, operands...` with a fresh result register.
  Reg make(ScalarType type, Op op, std::initializer_list<Suffix> words,
           std::initializer_list<Operand> operands);
  Reg reg(ScalarType type) { return builder_.reg(type); }
  /// The operand in a register of this class: a mov when it is not one already.
  Reg to_register(ScalarType type, const Operand& value);
  void move(ScalarType type, Reg to, const Operand& from);

  ptx::LabelId label(std::string_view name) { return builder_.label(name); }
  void bind(ptx::LabelId label) { builder_.bind(label); }
  void branch(ptx::LabelId target) { emit(Op::bra, {}, {target}); }
  void branch_if(Reg predicate, ptx::LabelId target) { emit(Op::bra, {}, {target}).when(predicate); }
  void branch_unless(Reg predicate, ptx::LabelId target) { emit(Op::bra, {}, {target}).unless(predicate); }

  // Scopes: a stack that follows the structure of the kernel. What is cached in a scope ends with it.
  /// Opens a scope. That of a loop must be opened before the loop's first label is made.
  void enter_scope(bool is_loop = false);
  void leave_scope() { scopes_.pop_back(); }
  /// Index of the innermost scope; 0 is the kernel.
  size_t depth() const { return scopes_.size() - 1; }

  /// The value of an expression identified by `key` whose operands exist since scope `available`. `make`
  /// emits it, when it has not been in any scope around here.
  template <class Make>
  Operand hoisted(int64_t key, size_t available, Make&& make) {
    if (const Operand* known = find(key)) return *known;
    const size_t home = begin_hoist(available);
    const Operand value = make();
    end_hoist();
    scopes_[home].cache.emplace(key, value);
    return value;
  }

 private:
  struct Scope {
    bool is_loop = false;
    uint32_t start = 0;        // position of the scope's first instruction
    uint32_t first_label = 0;  // labels from here on were made inside
    std::map<int64_t, Operand> cache;
  };
  struct Hoist {
    uint32_t start;  // where the code is being emitted
    size_t loop;     // the loop it will be moved in front of, or 0 when it stays
  };
  const Operand* find(int64_t key) const;
  size_t begin_hoist(size_t available);
  void end_hoist();
  void move_up(uint32_t start, size_t loop);

  ptx::Module& module_;
  ptx::Builder builder_;
  bool comments_, source_lines_;
  std::string comment_;
  const char* last_file_ = nullptr;
  uint32_t last_file_index_ = 0;
  std::vector<Scope> scopes_;
  std::vector<Hoist> hoists_;
};

}  // namespace imbrex::codegen
