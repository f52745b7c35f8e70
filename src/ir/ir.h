// SPDX-License-Identifier: Apache-2.0
// The IR: a kernel as structured control flow over scalar values, mutable variables and tile instructions.
//
//   kernel vector_add(%n: int32, %x: ptr<float32>) target sm_80 warps 4 from "add.cpp":12 {
//     %0: int32 = const {int = 1024} @14
//     %1: int32 = ceil_div %n, %0 @14
//     launch_grid %1 @14
//     %gx: global<float32, [?]> = global_view %x, %n, %one {rank = 1} @15
//     for %i: int32 in %zero, %n, %0 {unroll = 1} @17 { ... }
//   }
//
// @14 is line 14 of the kernel's file, @"other.h":7 a line of another one.
//
// What an op is stands in ops.def and is read through op_info.h. Ops and values belong to their Function and live
// as long as it does; a pass that removes an op takes it out of its block.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "imbrex/core/dtype.h"
#include "imbrex/core/source_location.h"
#include "ir/op_info.h"
#include "layout/layout.h"

namespace imbrex::ir {

// --- types ---

enum class TypeKind : uint8_t {
  kScalar,        // one run-time number; uniform or per thread
  kPointer,       // typed device pointer to global memory
  kVariable,      // a mutable scalar or register tensor (what `var` defines)
  kRegister,      // tensor spread over the registers of a thread group
  kShared,        // tensor in shared memory, or a view of one
  kGlobal,        // tensor in global memory, or a view of one
  kTensorMemory,  // tensor in tensor memory, or a view of one
  kBarrier,       // mbarrier objects in shared memory: shape [] is one, [n] an array
  kTensorMap,     // a TMA descriptor passed as a hidden kernel parameter
};

inline constexpr int64_t kDynamic = -1;  // an extent known only at run time (global tensors)

struct Type {
  TypeKind kind = TypeKind::kScalar;
  DataType dtype = int32;
  std::vector<int64_t> shape;  // of tensors, barriers and tensor variables
  std::optional<layout::Layout>
      layout;  // of register, shared and tensor-memory tensors, once inferred or annotated

  static Type scalar(DataType t) { return {TypeKind::kScalar, t, {}, {}}; }
  static Type pointer(DataType t) { return {TypeKind::kPointer, t, {}, {}}; }
  /// A variable that holds values of `held` (a scalar or register-tensor type).
  static Type variable(const Type& held) {
    return {TypeKind::kVariable, held.dtype, held.shape, held.layout};
  }
  static Type tensor(TypeKind kind, DataType t, std::vector<int64_t> shape) {
    return {kind, t, std::move(shape), {}};
  }

  bool is_scalar() const { return kind == TypeKind::kScalar; }
  bool is_tensor() const { return kind >= TypeKind::kRegister && kind <= TypeKind::kTensorMemory; }
  int rank() const { return static_cast<int>(shape.size()); }
  int64_t elements() const;
  /// "float32", "ptr<float16>", "var<int32>", "shared<float16, [128, 64], LAYOUT>", "barrier[4]", ...
  std::string to_string() const;
  friend bool operator==(const Type&, const Type&) = default;
};

/// "[128, 64]", with ? for kDynamic.
std::string shape_text(const std::vector<int64_t>& shape);

// --- ops ---

using AttrValue =
    std::variant<int64_t, std::vector<int64_t>, bool, double, std::string, DataType, layout::Layout>;
struct Attr {
  std::string_view name;  // the AttrSpec's
  AttrValue value;
};

struct Op;
struct Block;

struct Value {
  Type type;
  Op* def = nullptr;       // null for parameters and block arguments
  Block* owner = nullptr;  // the block whose argument this is, when it is one
  int id = 0;              // printed when there is no name; unique among those
  std::string name;        // what the user called it, if known; unique in the function
};

/// A list of ops. Arguments are the loop variable of `for` and the indices of `tabulate`.
struct Block {
  std::vector<Value*> args;
  std::vector<Op*> ops;
  Op* parent = nullptr;  // the op this is a region of; null for a function's body and host block
};

struct Op {
  Opcode code;
  std::vector<Value*> operands;
  std::vector<Value*> results;
  std::vector<Attr> attrs;
  std::vector<std::unique_ptr<Block>> regions;
  Block* parent = nullptr;
  SourceLocation where;

  const OpInfo& info() const { return ir::info(code); }
  Value* result() const { return results.at(0); }
  Block& body() const { return *regions.at(0); }

  const AttrValue* attr(std::string_view name) const;  // null when absent
  int64_t int_attr(std::string_view name) const;       // the attribute must be there
  int64_t int_attr(std::string_view name, int64_t otherwise) const;
  bool bool_attr(std::string_view name, bool otherwise) const;
  double float_attr(std::string_view name) const;
  const std::vector<int64_t>& ints_attr(std::string_view name) const;
  const std::string& string_attr(std::string_view name) const;
  DataType dtype_attr(std::string_view name) const;
  void set_attr(std::string_view name, AttrValue value);
  void remove_attr(std::string_view name);
};

// --- functions ---

/// A kernel. `body` is what a CTA executes. `host` holds pure ops on the parameters that the runtime
/// evaluates once per launch; values defined there and used in `body` become hidden kernel parameters (design
/// D7).
struct Function {
  std::string name;
  std::string target = "sm_80";
  int warps = 4;                             // warps per CTA
  std::vector<int64_t> cluster = {1, 1, 1};  // CTAs per cluster
  std::optional<int64_t> max_registers;      // .maxnreg
  SourceLocation where;                      // the kernel's operator()
  std::vector<Value*> params;
  std::vector<Value*> grid;           // 3 host values once launch_grid has been lifted; empty before
  int64_t shared_bytes = 0;           // dynamic shared memory, set by allocate_memory
  int64_t tensor_memory_columns = 0;  // 32-bit columns, set by allocate_memory
  Block host;
  Block body;

  Function() = default;
  Function(const Function&) = delete;
  Function& operator=(const Function&) = delete;

  /// A value nothing defines yet. `name` is made an identifier, and unique by a suffix (`acc`, `acc_1`).
  Value* new_value(Type type, std::string name = "");
  /// Names a value later, by the same rules.
  void set_name(Value& value, std::string name);
  /// An op in no block yet, with the (empty) regions that the table gives it.
  Op* new_op(Opcode code);
  Value* add_param(Type type, std::string name);
  /// Appends an argument to a region: the variable of a `for`, an index of a `tabulate`.
  Value* add_argument(Block& block, Type type, std::string name = "");
  /// Gives an unnamed value this id. For the parser, which keeps the numbers of the text.
  void set_id(Value& value, int id);
  int threads() const { return warps * 32; }

 private:
  std::deque<Value> values_;  // a deque's elements stay where they are
  std::deque<Op> ops_;
  std::unordered_map<std::string, int> names_;  // every name given out, and its next suffix
  int next_id_ = 0;
};

/// Appends ops at a point of a function. Passes and the tracing front end build through it.
class Builder {
 public:
  explicit Builder(Function& function) : function_(&function), block_(&function.body) {}

  Function& function() const { return *function_; }
  Block& block() const { return *block_; }
  /// Insert at the end of `block` from now on.
  void set_insertion_point(Block& block);
  void set_location(SourceLocation where) { where_ = where; }

  /// Creates an op and inserts it. `regions` empty blocks are made as the table says.
  Op* create(Opcode code, std::vector<Value*> operands, std::vector<Type> result_types,
             std::vector<Attr> attrs = {});
  Value* constant(DataType dtype, int64_t value);
  Value* constant(DataType dtype, double value);
  Value* constant(DataType dtype, int value) { return constant(dtype, int64_t{value}); }
  /// A binary op; the type is that of `a` (of the tensor operand, when one is), comparisons give bool.
  Value* binary(Opcode code, Value* a, Value* b);

 private:
  Function* function_;
  Block* block_;
  SourceLocation where_;
};

/// The defining op of a value when it is one of `code`, else null.
Op* defined_by(const Value* value, Opcode code);

/// Calls `visit(Op&)` for every op of a block, outer before inner, regions included.
template <class Visit>
void walk(Block& block, Visit&& visit) {
  for (size_t i = 0; i < block.ops.size(); ++i) {
    Op* op = block.ops[i];
    visit(*op);
    for (auto& region : op->regions) walk(*region, visit);
  }
}

template <class Visit>
void walk(const Block& block, Visit&& visit) {
  for (const Op* op : block.ops) {
    visit(*op);
    for (const auto& region : op->regions) walk(static_cast<const Block&>(*region), visit);
  }
}

/// The constant an integer, bool or float value is known to be, when its definition is a `const`.
std::optional<int64_t> constant_int(const Value* value);
std::optional<double> constant_float(const Value* value);

/// The allocation (or global_view) that a chain of view ops starts from.
Value* view_root(Value* value);
/// The variable that the op sets or changes; null when it does not. (A var op makes one.)
const Value* written_variable(const Op& op);

// --- text and verification ---
// What prints, reads back and checks functions.

/// The exact text form: parse(print(f)) prints the same again.
std::string print(const Function& function);
/// One op with its regions, for messages and debuggers.
std::string print(const Op& op);
/// "%name" or "%12".
std::string print(const Value& value);
/// Throws ParseError with the line and column of `text`.
std::unique_ptr<Function> parse(std::string_view text, std::string_view file_name = "<ir>");
/// Checks structure, types, scopes, targets; throws CompileError with every finding.
void verify(const Function& function);
/// Checks one op that fits its row of the table by its own rules: types, shapes, attribute values. For the
/// front end, which can then blame the line it is tracing.
void verify(const Op& op);

}  // namespace imbrex::ir
