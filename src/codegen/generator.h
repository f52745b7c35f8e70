// SPDX-License-Identifier: Apache-2.0
// The state of generating one kernel.
//
// Every op of ops.def has one function emit_<Id>, declared below from the table, except that element-wise ops share
// one; a missing body is a link error.
#pragma once

#include <set>
#include <string>
#include <unordered_map>
#include <variant>

#include "codegen/codegen.h"
#include "codegen/digits.h"
#include "codegen/host.h"
#include "codegen/integers.h"
#include "codegen/uses.h"
#include "imbrex/core/error.h"

namespace imbrex::codegen {

/// Threads begin ... begin + threads - 1 of the CTA: those that a thread_group lets through.
struct Group {
  int64_t begin = 0;
  int64_t threads = 0;
  size_t depth = 0;  ///< scope that only they run
  bool is_warp() const { return threads == 32 && begin % 32 == 0; }
  bool is_in_one_warp() const { return begin / 32 == (begin + threads - 1) / 32; }
  bool is_whole_warps() const { return threads % 32 == 0 && begin % 32 == 0; }
  friend bool operator<(const Group& a, const Group& b) {
    return std::pair(a.begin, a.threads) < std::pair(b.begin, b.threads);
  }
};

/// Elements per PTX register of a register tensor: 16-bit elements share a 32-bit register in pairs, 8-bit
/// ones in fours, element i of a register at bits i * width; bool has a predicate each.
int elements_per_word(DataType type);
/// The class of those registers.
ScalarType word_type(DataType type);

/// A register tensor: the registers (or immediates) of one thread, in the layout's order.
struct RegisterTensor {
  DataType dtype;
  layout::Layout layout;
  Group group;  ///< threads are numbered from its begin
  std::vector<Operand> words;
};

/// A run-time number times a constant.
struct ScaledInteger {
  Integer value;
  int64_t scale;
};

/// A tensor in shared memory or a view of one. Element i is at byte offset + terms + layout.linear(i) of the
/// CTA's shared memory, swizzled.
struct SharedView {
  DataType dtype;
  layout::Layout layout;
  int64_t offset = 0;
  std::vector<ScaledInteger> terms;  ///< what is known at run time: bytes, e.g. of the stage
  std::optional<Integer> remote;     ///< where that memory of another CTA begins, else this CTA's
};

/// True when the view is known to start at a multiple of `bytes` of the CTA's shared memory.
inline bool starts_at_multiple(const SharedView& view, int64_t bytes) {
  bool is_aligned = view.offset % bytes == 0;
  for (const ScaledInteger& t : view.terms)
    is_aligned &= (t.value.known * Range::constant(t.scale)).is_multiple_of(bytes);
  return is_aligned;
}

/// A tensor in tensor memory or a view of one; addresses as the hardware counts them.
struct TensorMemoryView {
  DataType dtype;
  layout::Layout layout;
  Integer base;        ///< lane << 16 | column
  int64_t lane = 0;    ///< constant parts
  int64_t column = 0;  ///< in 32-bit columns
  int columns = 0;     ///< of the allocation
  int cta_group = 1;
};

/// One mbarrier or an array of them.
struct BarrierView {
  int64_t offset = 0;
  std::vector<ScaledInteger> terms;  ///< as in SharedView
  std::optional<Integer> remote;     ///< of another CTA: where its shared memory lies in the cluster's window
};

/// One dimension of a tensor in global memory.
struct GlobalDim {
  Integer extent, stride, offset;  ///< in elements; offset is where the view starts
};
/// A tensor in global memory or a view of one. Bounds are those of the whole tensor.
struct GlobalView {
  DataType dtype;
  Integer address;
  int argument = -1;            ///< index of the pointer among the kernel's parameters
  std::vector<GlobalDim> dims;  ///< of the whole tensor
  std::vector<int> view_dims;   ///< dimension d of the view is dims[view_dims[d]]; -1: extent 1
};

using Binding =
    std::variant<std::monostate, RegisterTensor, SharedView, TensorMemoryView, BarrierView, GlobalView>;

/// A scalar of the kernel.
struct Scalar {
  Operand value;
  size_t depth = 0;   ///< scope in which it was made
  size_t number = 0;  ///< tells bindings apart, also of one value bound again (an unrolled body)
};

/// What device pointers are taken to be aligned to; kernels that rely on less say so in their arguments, and
/// the launch checks.
inline constexpr int64_t kPointerAlignment = 16;

/// Kinds of leaves among the integer expressions.
enum LeafKind : int64_t {
  kThreadId,
  kSharedBase,
  kValueLeaf,
  kWideLeaf,
  kTensorBase,
  kElected,
  kConstantLeaf,
  kSourceBytes,
  kInstructionLeaf,
  kCachePolicy,
  kRemoteBase,
  kIsWarp,
  kPrintIndex,
  kElementLeaf
};

class Generator {
 public:
  Generator(const ir::Function& function, const Options& options);
  const Options& options() const { return options_; }
  CompiledKernel run();

  const ir::Function& function() const { return function_; }
  Emitter& e() { return emitter_; }
  Integers& ints() { return integers_; }
  Ranges& ranges() { return ranges_; }
  HostProgram& host() { return host_; }
  const Uses& uses() const { return uses_; }
  CompiledKernel& kernel() { return kernel_; }
  /// 80, 90, 100.
  int arch() const { return arch_; }
  /// Throws CompileError at the op unless the target is at least this; `what` is not available before it.
  void require_arch(const ir::Op& op, int arch, std::string_view what) const;
  [[noreturn]] void fail(const ir::Op& op, std::string message, std::vector<std::string> facts = {},
                         std::string help = "") const;

  // Values.
  void bind(const ir::Value* value, Operand scalar) {
    scalars_[value] = {scalar, emitter_.depth(), next_number_++};
  }
  void bind(const ir::Value* value, Binding binding) { bindings_[value] = std::move(binding); }
  /// The scalar as an operand; constants as immediates where PTX has them.
  Operand scalar(const ir::Value* value);
  /// The scalar in a register of its class.
  Reg scalar_register(const ir::Value* value);
  /// An integer scalar for address arithmetic.
  Integer integer(const ir::Value* value);
  template <class T>
  T& get(const ir::Value* value) {
    if (T* found = std::get_if<T>(&bindings_[value])) return *found;
    throw InternalError("codegen: " + ir::print(*value) + " has no binding of the kind asked for");
  }
  /// The layout of a tensor's type; InternalError when inference has not given it one.
  const layout::Layout& layout_of(const ir::Value* value) const;
  /// A register tensor of the value's type with fresh registers.
  RegisterTensor new_tensor(const ir::Value* value);
  RegisterTensor new_tensor(DataType dtype, const layout::Layout& layout);

  // Threads.
  const Group& group() const { return groups_.back(); }
  void enter_group(const Group& group) { groups_.push_back(group); }
  void leave_group() { groups_.pop_back(); }
  /// The thread's number in the group: 0 ... threads - 1.
  Integer thread_index(const Group& group);
  /// Warp number in the CTA, uniform across the warp.
  Integer warp_index();
  /// True in exactly one thread of each warp of the current group, whose warps run together.
  Reg elected();
  /// True in the warp of that number.
  Operand is_warp(int64_t number);
  /// For ops of one warp or one thread: the thread that acts; nothing when it is the only one.
  std::optional<Reg> issuer() { return group().threads > 1 ? std::optional(elected()) : std::nullopt; }
  /// The multiplier and shift of fast division by a grid constant, in 64 bits.
  Operand divmod_magic(const ir::Value* divisor);
  /// Waits for every thread of the group.
  void synchronize(const Group& group, const ir::Op& op);

  // Memory.
  /// Byte address of the CTA's dynamic shared memory.
  Integer shared_base();
  /// shared_base() + terms.
  Integer shared_address(std::span<const ScaledInteger> terms);
  /// [shared memory + terms + offset]
  Operand shared_operand(std::span<const ScaledInteger> terms, int64_t offset);
  /// Byte offset of the scratch space that the group's ops share.
  int64_t scratch_offset(const Group& group) const;

  // Structure.
  void emit_block(const ir::Block& block);
  void emit_op(const ir::Op& op);
  /// Where a break from each enclosing loop goes, innermost last.
  std::vector<ptx::LabelId>& loop_exits() { return loop_exits_; }
  /// What the region's yield gave.
  Operand yielded;

 private:
  void declare_params();
  void declare_shared();
  void plan_scratch();
  void load_param(const ir::Value* value, std::string name);
  void declare_tensor_map(const ir::Value* map);
  /// Lets one thread bring all tensor maps near.
  void prefetch_tensor_maps();

  const ir::Function& function_;
  Options options_;
  ptx::Module module_;
  Emitter emitter_;
  Integers integers_;
  Ranges ranges_;
  HostProgram host_;
  Uses uses_;
  CompiledKernel kernel_;
  int arch_;
  std::unordered_map<const ir::Value*, Scalar> scalars_;
  std::unordered_map<const ir::Value*, Binding> bindings_;
  size_t next_number_ = 0;
  std::unordered_map<const ir::Value*, Operand> magics_;  // of fast_divmod's divisors
  std::vector<const ir::Value*> tensor_maps_;
  std::vector<Group> groups_;
  std::vector<ptx::LabelId> loop_exits_;
  std::map<Group, int64_t> scratch_;                     // offset of each group's scratch space
  std::map<std::pair<int64_t, int64_t>, int> barriers_;  // named barrier of each group
  int64_t scratch_end_ = 0;                              // bytes of shared memory in all
  ptx::SymbolRef shared_symbol_;
  Operand warp_index_;
};

/// Bytes of scratch shared memory that an op needs while it runs.
int64_t scratch_bytes(const ir::Op& op, const Group& group);
int64_t relayout_scratch(const ir::Op& op);
int64_t scan_scratch(const ir::Op& op, const Group& group);
int64_t exchange_scratch(const ir::Op& op, const Group& group);
int64_t print_scratch(const ir::Op& op);
int64_t atomic_scratch(const ir::Op& op);
int64_t item_scratch(const ir::Op& op, const Group& group);

/// Every element-wise op (ir::is_elementwise).
void emit_elementwise(Generator& g, const ir::Op& op);
/// Every other op has a function of its own.
#define IR_OP(id, ...) void emit_##id(Generator& g, const ir::Op& op);
#include "ir/ops.def"
#undef IR_OP

}  // namespace imbrex::codegen
