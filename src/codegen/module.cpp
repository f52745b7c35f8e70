// SPDX-License-Identifier: Apache-2.0
// The kernel as a whole: entry, parameters, directives, shared memory, the launch plan.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <unordered_set>

#include "codegen/fuse_logic.h"
#include "codegen/generator.h"
#include "codegen/interleave.h"
#include "codegen/print.h"
#include "core/target.h"
#include "imbrex/core/error.h"
#include "ptx/writer.h"

namespace imbrex::codegen {

using ir::Opcode;

namespace {

constexpr int64_t kSharedAlignment = 1024;  // the longest swizzle period: offsets can rely on it

const Target& target_of(const ir::Function& function) {
  const Target* target = find_target(function.target);
  if (!target)
    throw CompileError(Diagnostic{function.where,
                                  fmt::format("{}: unknown target '{}'", function.name, function.target),
                                  {},
                                  fmt::format("targets: {}", fmt::join(target_names(), ", "))});
  return *target;
}

/// The oldest PTX version that has the target and what we emit for it: 8.7, of CUDA 12.8, for all of tcgen05.
int ptx_version(const Target& target) {
  if (target.sm >= 110 && target.sm < 120) return 90;
  if (target.sm % 10 != 0 && target.sm >= 100) return 88;  // sm_103, sm_121
  if (target.variant == 'f') return 88;
  return target.sm >= 100 ? 87 : 80;
}

/// PTX names have no dots.
std::string ptx_name(std::string name) {
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

ScalarType parameter_type(const ir::Type& type) {
  if (type.kind == ir::TypeKind::kPointer) return ScalarType::u64;
  switch (type.dtype.code) {
    case DataType::kBool:
    case DataType::kUInt8:
      return ScalarType::u8;
    case DataType::kInt8:
      return ScalarType::s8;
    case DataType::kInt16:
      return ScalarType::s16;
    case DataType::kUInt16:
      return ScalarType::u16;
    case DataType::kFloat16:
    case DataType::kBFloat16:
      return ScalarType::b16;
    case DataType::kTFloat32:
      return ScalarType::f32;
    default:
      if (type.dtype.bits() < 32) return ScalarType::b8;
      return arithmetic_type(type.dtype);
  }
}

/// The module with everything that must stand before the kernel.
ptx::Module& prepared(ptx::Module& module, const ir::Function& function, const Options& options) {
  declare_print(module, function, options);
  return module;
}

}  // namespace

CompiledKernel generate(const ir::Function& function, const Options& options) {
  return Generator(function, options).run();
}

Generator::Generator(const ir::Function& function, const Options& options)
    : function_(function),
      options_(options),
      module_{.version = ptx_version(target_of(function)), .target = function.target},
      emitter_(prepared(module_, function, options), ptx_name(function.name), options.comments,
               options.source_lines),
      integers_(emitter_),
      ranges_(function),
      host_(function, kernel_),
      uses_(function),
      arch_(target_of(function).sm) {
  groups_.push_back({0, function.threads(), 0});
}

CompiledKernel Generator::run() {
  kernel_.name = ptx_name(function_.name);
  kernel_.target = function_.target;
  kernel_.threads = function_.threads();
  kernel_.where = function_.where;
  kernel_.tensor_memory_columns = static_cast<int>(function_.tensor_memory_columns);
  for (size_t i = 0; i < 3 && i < function_.cluster.size(); ++i)
    kernel_.cluster[i] = static_cast<int>(function_.cluster[i]);

  ptx::Function& entry = emitter_.builder().function();
  entry.maxntid = {function_.threads(), 1, 1};
  entry.maxnreg = static_cast<int>(function_.max_registers.value_or(0));
  if (!function_.max_registers) entry.minnctapersm = 1;
  if (kernel_.cluster != std::array{1, 1, 1}) entry.reqnctapercluster = kernel_.cluster;

  emitter_.set_location(function_.where);
  declare_params();
  plan_scratch();
  declare_shared();
  bool needs_warp_index = false;
  ir::walk(function_.body,
           [&](const ir::Op& op) { needs_warp_index |= ir::has(op.code, ir::Fact::kUsesWarpIndex); });
  if (needs_warp_index && function_.warps > 1) {
    // Through a shuffle, so that the assembler knows it is the same in the whole warp.
    const Reg tid = emitter_.to_register(ScalarType::b32, thread_index(groups_[0]).value);
    const Reg shifted = emitter_.make(ScalarType::b32, Op::shr, {ScalarType::u32}, {tid, 5});
    warp_index_ =
        emitter_.make(ScalarType::b32, Op::shfl_sync, {Mod::idx, ScalarType::b32}, {shifted, 0, 31, -1});
  } else {
    warp_index_ = 0;
  }
  prefetch_tensor_maps();
  emit_block(function_.body);
  emitter_.emit(Op::ret, {}, {});
  emitter_.builder().finish();
  fuse_logic(entry);
  interleave_loads(entry);

  for (size_t i = 0; i < function_.grid.size() && i < 3; ++i) {
    if (!function_.grid[i]) continue;
    const std::optional<int32_t> slot = host_.slot(function_.grid[i]);
    if (!slot) throw InternalError("codegen: a grid extent is not a host value");
    kernel_.grid_slots[i] = *slot;
  }
  const std::vector<int64_t> offsets = ptx::param_offsets(entry);
  for (size_t i = 0; i < kernel_.params.size(); ++i)
    kernel_.params[i].offset = static_cast<int32_t>(offsets[i]);
  kernel_.param_bytes = static_cast<int32_t>(ptx::param_bytes(entry));
  kernel_.ptx = ptx::write(module_);
  return std::move(kernel_);
}

void Generator::fail(const ir::Op& op, std::string message, std::vector<std::string> facts,
                     std::string help) const {
  throw CompileError(Diagnostic{op.where, fmt::format("{}: {}", op.info().mnemonic, message),
                                std::move(facts), std::move(help)});
}

void Generator::require_arch(const ir::Op& op, int arch, std::string_view what) const {
  if (arch_ < arch)
    fail(op, fmt::format("{} needs sm_{} or later, the kernel is for {}", what, arch, function_.target));
}

void Generator::load_param(const ir::Value* value, std::string name) {
  const ir::Type& type = value->type;
  const ScalarType ptx_type = parameter_type(type);
  const ptx::SymbolRef param = emitter_.builder().param(ptx_type, ptx_name(std::move(name)));
  if (type.kind == ir::TypeKind::kPointer) {
    ptx::Variable& v = emitter_.builder().function().params.back();
    v.is_pointer = true;
    v.pointer_space = "global";
    v.pointer_align = kPointerAlignment;
  }
  const DataType held = type.kind == ir::TypeKind::kPointer ? uint64 : type.dtype;
  const ScalarType reg_type = held.is_bool() ? ScalarType::b32 : register_type(held);
  const Reg loaded = emitter_.reg(reg_type);
  emitter_.emit(Op::ld, {Mod::param, ptx_type}, {loaded, address(param)});
  if (held.is_bool())
    bind(value, emitter_.make(ScalarType::pred, Op::setp, {Mod::ne, ScalarType::u32}, {loaded, 0}));
  else
    bind(value, loaded);
}

/// User parameters in order, then what the host computes and the body uses.
void Generator::declare_params() {
  for (size_t i = 0; i < function_.params.size(); ++i) {
    const ir::Value* p = function_.params[i];
    const bool is_pointer = p->type.kind == ir::TypeKind::kPointer;
    kernel_.arguments.push_back({p->name, is_pointer, p->type.dtype, 1});
    kernel_.params.push_back({ParamPlan::Kind::kUser, static_cast<int32_t>(i), 0,
                              static_cast<int32_t>(is_pointer ? 8 : p->type.dtype.bytes())});
    load_param(p, fmt::format("arg_{}", p->name.empty() ? std::to_string(i) : p->name));
  }
  std::unordered_set<const ir::Value*> seen;
  ir::walk(function_.body, [&](const ir::Op& op) {
    if (op.code == Opcode::kLaunchGrid) return;
    for (const ir::Value* v : op.operands) {
      if (!v->def || v->def->parent != &function_.host || v->def->code == Opcode::kConst ||
          !seen.insert(v).second)
        continue;
      if (v->type.kind == ir::TypeKind::kTensorMap) {
        declare_tensor_map(v);
        continue;
      }
      const std::optional<int32_t> slot = host_.slot(v);
      if (!slot) throw InternalError("codegen: " + ir::print(*v->def) + " cannot be computed on the host");
      kernel_.params.push_back({ParamPlan::Kind::kHost, *slot, 0, v->type.dtype.bytes()});
      load_param(v, fmt::format("host_{}", *slot));
    }
  });
  ir::walk(function_.body, [&](const ir::Op& op) {
    if (op.code != Opcode::kFastDivmod) return;
    const ir::Value* divisor = op.operands[1];
    if (ir::constant_int(divisor) || magics_.count(divisor)) return;
    const std::optional<int32_t> slot = host_.slot(divisor);
    if (!slot) throw InternalError("codegen: " + ir::print(op) + " divides by what is not known at launch");
    const int32_t magic = host_.divmod_magic(*slot, op.where);
    kernel_.params.push_back({ParamPlan::Kind::kHost, magic, 0, 8});
    const ptx::SymbolRef param = emitter_.builder().param(ScalarType::u64, fmt::format("divide_{}", magic));
    magics_[divisor] =
        emitter_.make(ScalarType::b64, Op::ld, {Mod::param, ScalarType::u64}, {address(param)});
  });
}

Operand Generator::divmod_magic(const ir::Value* divisor) { return magics_.at(divisor); }

void Generator::declare_shared() {
  const int64_t bytes = scratch_end_;
  kernel_.shared_bytes = bytes;
  const Target& target = target_of(function_);
  if (bytes > target.max_shared_bytes)
    throw CompileError(
        Diagnostic{function_.where,
                   fmt::format("{}: needs {} bytes of shared memory, {} has {} for a CTA", function_.name,
                               bytes, function_.target, target.max_shared_bytes),
                   {},
                   "use smaller tiles or fewer stages"});
  if (bytes == 0) return;
  ptx::Variable v;
  v.name = "shared_memory";
  v.space = ptx::Space::shared;
  v.linkage = ptx::Linkage::external;
  v.type = ScalarType::b8;
  v.align = kSharedAlignment;
  v.dims = {ptx::Variable::kUnsized};
  module_.variables.push_back(std::move(v));
  shared_symbol_ = {ptx::Ref::global, static_cast<uint32_t>(module_.variables.size() - 1)};
  shared_base();
}

Integer Generator::shared_base() {
  if (shared_symbol_.ref == ptx::Ref::none)
    throw InternalError("codegen: " + function_.name + " uses shared memory that was never allocated");
  const int64_t key = integers_.name(kSharedBase, 0);
  const Operand r = emitter_.hoisted(key, 0, [&] {
    return Operand(emitter_.make(ScalarType::b32, Op::mov, {ScalarType::u32}, {shared_symbol_}));
  });
  return integers_.leaf(kSharedBase, 0, r, false, {0, int64_t{1} << 24, kSharedAlignment}, 0);
}

Integer Generator::shared_address(std::span<const ScaledInteger> terms) {
  Integer sum = shared_base();
  for (const ScaledInteger& t : terms)
    sum = integers_.add(sum, integers_.mul(t.value, Integers::constant(t.scale)));
  return sum;
}

Operand Generator::shared_operand(std::span<const ScaledInteger> terms, int64_t offset) {
  return ptx::address(shared_address(terms).value.reg(), offset);
}

/// Ops that go through shared memory share one area per thread group; areas of different groups are apart,
/// because their threads run apart.
void Generator::plan_scratch() {
  std::map<Group, int64_t> bytes;
  std::vector<Group> groups = {groups_[0]};
  auto visit = [&](auto&& self, const ir::Block& block) -> void {
    for (const ir::Op* op : block.ops) {
      const Group outer = groups.back();
      if (const int64_t need = scratch_bytes(*op, outer)) bytes[outer] = std::max(bytes[outer], need);
      if (op->code == Opcode::kThreadGroup)
        groups.push_back({outer.begin + op->int_attr("begin"), op->int_attr("threads"), 0});
      for (const auto& region : op->regions) self(self, *region);
      if (op->code == Opcode::kThreadGroup) groups.pop_back();
    }
  };
  visit(visit, function_.body);
  int64_t end = function_.shared_bytes;
  for (const auto& [group, need] : bytes) {
    const int64_t begin = (end + 15) / 16 * 16;
    scratch_[group] = begin;
    end = begin + need;
  }
  scratch_end_ = end;
}

int64_t Generator::scratch_offset(const Group& group) const { return scratch_.at(group); }

}  // namespace imbrex::codegen
