// SPDX-License-Identifier: Apache-2.0
// The tracing front end: runs a kernel's operator() once and records it as IR.
//
// trace() is what the rest of the compiler calls. Trace holds the state of one run: the function, its builder
// and the stack of open scopes. The language's functions work through Instruction: it finds the thread's
// trace, checks the handles it is given, and names itself and its line in whatever goes wrong.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "imbrex/core/error.h"
#include "imbrex/lang/kernel_parameters.h"
#include "ir/ir.h"

namespace imbrex::lang {

/// The kernel as IR. `constants` are the bits of its compile-time arguments (constant_bits()), in order.
/// Throws CompileError.
std::unique_ptr<ir::Function> trace(const KernelEntry& entry, const void* kernel,
                                    std::span<const int64_t> constants, std::string_view target);

template <class K>
std::unique_ptr<ir::Function> trace(const K& kernel, std::initializer_list<int64_t> constants = {},
                                    std::string_view target = "sm_80") {
  return trace(kernel_entry<K>(), &kernel, {constants.begin(), constants.size()}, target);
}

/// "ns::MatmulV0" -> "matmul_v0": the name of the kernel in IR, PTX and profilers.
std::string kernel_name(std::string_view type_name);

enum class ScopeKind : uint8_t { kBody, kLoop, kArm, kGroup, kTabulate };

struct OpenScope {
  ScopeKind kind = ScopeKind::kBody;
  ir::Op* op = nullptr;  // null for the kernel's body
  ir::Block* block = nullptr;
  SourceLocation where;
  uint64_t serial = 0;
  int64_t threads = 0;      // of the group that executes it
  ir::Op* chain = nullptr;  // kArm: the `if` that the first when() of the chain made
};

class Trace {
 public:
  Trace(std::string name, std::string_view target, const KernelEntry& entry);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  /// The trace running on this thread, or null.
  static Trace* active();

  ir::Function& function() { return *function_; }
  ir::Builder& builder() { return builder_; }
  uint64_t serial() const { return serial_; }
  SourceLocation last_location() const { return last_location_; }

  // Scopes.
  OpenScope& scope() { return scopes_.back(); }
  const std::vector<OpenScope>& scopes() const { return scopes_; }
  /// Opens a scope over `block`; ops go there until it is closed. Returns its serial.
  uint64_t open(OpenScope scope);
  /// Closes the scope and, when it is cut short, those inside it. Does not throw: destructors call it.
  void close(uint64_t serial, bool cut_short = false);
  bool is_open(uint64_t serial) const;
  /// The last arm closed, while nothing has been traced since that otherwise() may not follow.
  struct ClosedArm {
    ir::Op* chain = nullptr;  // the `if` in the block
    ir::Op* last = nullptr;   // the innermost `if`, whose second region is still empty
  };
  ClosedArm closed_arm;

  /// For errors found where nothing may be thrown: reported at the next op or at the end of the trace.
  void fail_later(Diagnostic diagnostic);

  /// Called by every instruction first: throws what fail_later() left, notes the line.
  void begin(SourceLocation where);
  std::unique_ptr<ir::Function> finish();

  /// How many times it has been called with these.
  int occurrence(SourceLocation where, std::string_view member);

  bool has_grid = false;
  bool has_thread_groups = false;  // warps() must come before the first

 private:
  /// Names the parameters once a line inside operator() is known.
  void locate_kernel(SourceLocation where);

  std::unique_ptr<ir::Function> function_;
  ir::Builder builder_;
  uint64_t serial_;
  std::span<const ParameterInfo> parameters_;
  size_t written_parameters_;
  std::vector<OpenScope> scopes_;
  std::vector<Diagnostic> pending_;
  SourceLocation last_location_;
  std::map<std::string, int, std::less<>> occurrences_;
  Trace* outer_;
};

/// One function of the language at work.
class Instruction {
 public:
  Instruction(std::string_view name, SourceLocation where);

  Trace& trace() const { return *trace_; }
  std::string_view name() const { return name_; }
  SourceLocation where() const { return where_; }

  /// The value of a handle; checks that it belongs to this trace and that its scope is open.
  ir::Value* use(detail::Handle handle) const;
  /// The same; of a variable, its present value.
  ir::Value* read(detail::Handle handle) const;
  detail::Handle handle(ir::Value* value) const { return {value, trace_->serial()}; }

  ir::Op* emit(ir::Opcode code, std::vector<ir::Value*> operands, std::vector<ir::Type> results = {},
               std::vector<ir::Attr> attrs = {}) const;
  ir::Value* constant(DataType dtype, int64_t value) const;
  /// Names a result of this instruction as the source does where it is `auto x = name(...)`.
  void name_result(ir::Value* value) const;
  /// Names what is a member of the object that the source constructs at this line: "pipe.full_barriers". Where the line constructs
  /// several, the first call for `member` is of the first, and so on.
  void name_member(ir::Value* value, std::string_view member) const;

  /// "name: message" at the instruction's line.
  [[noreturn]] void fail(std::string message, std::vector<std::string> facts = {},
                         std::string help = "") const;
  Diagnostic diagnostic(std::string message, std::vector<std::string> facts = {},
                        std::string help = "") const;
  /// "a: shared<float16, [128, 64]>, made at gemm.h:31", a fact for fail().
  static std::string describe(std::string_view operand, const ir::Value* value);

 private:
  std::string_view name_;
  SourceLocation where_;
  Trace* trace_;
};

}  // namespace imbrex::lang
