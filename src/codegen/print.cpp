// SPDX-License-Identifier: Apache-2.0
// printf, print_tensor and check: messages through the driver's vprintf.
#include "codegen/print.h"

#include <fmt/format.h>

#include "codegen/memory/shared_memory.h"
#include "codegen/tile.h"
#include "codegen/values/scalar.h"
#include "codegen/values/words.h"
#include "imbrex/core/error.h"
#include "layout/memory.h"

namespace imbrex::codegen {

using ir::Opcode;
using layout::Axis;

namespace {

constexpr std::string_view kPrint = "vprintf";
constexpr int64_t kArgumentBytes = 8;

bool prints(const ir::Op& op, const Options& options) {
  if (ir::has(op.code, ir::Fact::kAssumes)) return options.check_assumptions;
  return ir::has(op.code, ir::Fact::kPrints);
}

/// A zero-terminated string in global memory, as a generic address.
Operand text_address(Generator& g, const std::string& text) {
  Emitter& e = g.e();
  ptx::Module& module = e.module();
  ptx::Variable v;
  v.name = fmt::format("text_{}", module.variables.size());
  v.space = ptx::Space::global;
  v.type = ScalarType::b8;
  v.align = 1;
  v.initialiser.assign(text.begin(), text.end());
  v.initialiser.push_back(0);
  v.dims = {static_cast<int64_t>(v.initialiser.size())};
  uint32_t index = static_cast<uint32_t>(module.variables.size());
  for (uint32_t i = 0; i < module.variables.size(); ++i)
    if (module.variables[i].initialiser == v.initialiser && module.variables[i].space == v.space) index = i;
  if (index == module.variables.size()) module.variables.push_back(std::move(v));
  const Reg address =
      e.make(ScalarType::b64, Op::mov, {ScalarType::u64}, {ptx::SymbolRef{ptx::Ref::global, index}});
  return e.make(ScalarType::b64, Op::cvta, {Mod::global, ScalarType::u64}, {address});
}

/// One argument as printf takes it: integers of 4 or 8 bytes, floats as doubles.
struct Argument {
  Operand value;
  ScalarType type;
};

Argument promoted(Generator& g, const ir::Op& op, const Operand& value, DataType type) {
  if (type.is_float()) {
    const Operand wide =
        type == float64 ? value : convert(g, op, convert(g, op, value, type, float32), float32, float64);
    return {g.e().to_register(ScalarType::f64, wide), ScalarType::f64};
  }
  if (type.bits() == 64) return {g.e().to_register(ScalarType::b64, value), ScalarType::b64};
  const Operand word = type.is_bool() ? convert(g, op, value, boolean, int32) : value;
  return {g.e().to_register(ScalarType::b32, word), ScalarType::b32};
}

/// vprintf(format, arguments); `format` is a generic address.
void call_printf(Generator& g, const Operand& format, std::span<const Argument> arguments) {
  Emitter& e = g.e();
  ptx::Builder& b = e.builder();
  Operand buffer = int64_t{0};
  if (!arguments.empty()) {
    const ptx::SymbolRef local = b.variable(ptx::Space::local, ScalarType::b8, "printf_arguments", 8,
                                            kArgumentBytes * static_cast<int64_t>(arguments.size()));
    int64_t offset = 0;
    for (const Argument& a : arguments) {
      const int64_t bytes = a.type == ScalarType::b32 ? 4 : 8;
      offset = (offset + bytes - 1) / bytes * bytes;
      e.emit(Op::st, {Mod::local, a.type}, {ptx::address(local, offset), a.value});
      offset += bytes;
    }
    const Reg address = e.make(ScalarType::b64, Op::mov, {ScalarType::u64}, {local});
    buffer = e.make(ScalarType::b64, Op::cvta, {Mod::local, ScalarType::u64}, {address});
  }
  const ptx::SymbolRef p0 = b.variable(ptx::Space::param, ScalarType::b64, "printf_format", 0, 0);
  const ptx::SymbolRef p1 = b.variable(ptx::Space::param, ScalarType::b64, "printf_buffer", 0, 0);
  const ptx::SymbolRef result = b.variable(ptx::Space::param, ScalarType::b32, "printf_result", 0, 0);
  for (const ptx::SymbolRef& p : {p0, p1, result}) b.function().variables[p.index].dims.clear();
  e.emit(Op::st, {Mod::param, ScalarType::b64}, {ptx::address(p0), format});
  e.emit(Op::st, {Mod::param, ScalarType::b64}, {ptx::address(p1), buffer});
  const Operand results[] = {result}, parameters[] = {p0, p1};
  e.emit(Op::call, {Mod::uni},
         {b.tuple(results), ptx::SymbolRef{ptx::Ref::function, 0}, b.tuple(parameters)});
}

void print_text(Generator& g, const std::string& text) { call_printf(g, text_address(g, text), {}); }

/// Text that printf prints as it is.
std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    out += c;
    if (c == '%') out += c;
  }
  return out;
}

/// Reads one element of a tensor that is in memory, at an index known at run time.
class ElementReader {
 public:
  ElementReader(Generator& g, const ir::Op& op, const ir::Value* value) : g_(g), op_(op), value_(value) {}

  Operand read(std::span<const Integer> index) {
    const DataType type = memory_type(value_->type.dtype);
    if (type.bits() < 8)
      g_.fail(op_, fmt::format("cannot print elements of {}", type.name()), {}, "cast first");
    const bool is_global = value_->type.kind == ir::TypeKind::kGlobal;
    const Operand address = is_global ? global_address(index) : shared_address(index);
    WordFiller filler(g_, type, 1);
    filler.load(is_global ? Mod::global : Mod::shared, {0, 1, 1}, address, 1, 0);
    return extract(g_, type, filler.finish()[0], 0);
  }

  void set_staging(SharedView view) { staging_ = std::move(view); }

 private:
  Operand global_address(std::span<const Integer> index) {
    Integers& ints = g_.ints();
    const GlobalView& view = g_.get<GlobalView>(value_);
    std::vector<Integer> position;
    for (const GlobalDim& d : view.dims) position.push_back(d.offset);
    for (size_t d = 0; d < index.size(); ++d)
      if (view.view_dims[d] >= 0)
        position[view.view_dims[d]] = ints.add(position[view.view_dims[d]], index[d]);
    Integer sum = view.address;
    for (size_t d = 0; d < position.size(); ++d) {
      const Integer elements = ints.wide_mul(position[d], view.dims[d].stride);
      sum = ints.add(sum, ints.mul(elements, Integers::constant(view.dtype.bytes())));
    }
    return ptx::address(sum.value.reg());
  }

  Operand shared_address(std::span<const Integer> index) {
    Integers& ints = g_.ints();
    const SharedView& view = staging_ ? *staging_ : g_.get<SharedView>(value_);
    const Integer elements = sum_of(g_, linear_terms(g_, view.layout, index, Axis::kAddress));
    Integer address = ints.add(g_.shared_address(view.terms),
                               ints.mul(elements, Integers::constant(memory_type(view.dtype).bytes())));
    address = ints.add(address, Integers::constant(view.offset));
    if (view.layout.swizzle()) address = swizzle_address(g_, view.layout.swizzle(), address);
    return ptx::address(address.value.reg());
  }

  Generator& g_;
  const ir::Op& op_;
  const ir::Value* value_;
  std::optional<SharedView> staging_;
};

layout::Layout staging_layout(const ir::Type& type) {
  return layout::row_major(type.shape, memory_type(type.dtype).bits());
}

/// The extents of a tensor, run-time ones included.
std::vector<Integer> extents_of(Generator& g, const ir::Value* value) {
  std::vector<Integer> extents;
  for (int d = 0; d < value->type.rank(); ++d) {
    if (value->type.shape[d] != ir::kDynamic) {
      extents.push_back(Integers::constant(value->type.shape[d]));
      continue;
    }
    const GlobalView& view = g.get<GlobalView>(value);
    extents.push_back(view.dims[view.view_dims[d]].extent);
  }
  return extents;
}

/// Loops over all indices, one loop per dimension, and prints: elements of a row divided by commas.
void print_rows(Generator& g, const ir::Op& op, ElementReader& reader, std::span<const Integer> extents,
                DataType type) {
  Emitter& e = g.e();
  const char* conversion = type.is_float()     ? "%g"
                           : type.bits() == 64 ? (type.is_signed() ? "%lld" : "%llu")
                           : type.is_signed()  ? "%d"
                                               : "%u";
  std::vector<Integer> index;
  auto loop = [&](auto&& self, size_t d) -> void {
    if (d == extents.size()) {
      const Operand value = reader.read(index);
      const Argument argument = promoted(g, op, value, memory_type(type));
      const Operand between = text_address(g, std::string(conversion) + ", ");
      const Operand last = text_address(g, std::string(conversion) + "\n");
      Operand format = last;
      if (d > 0) {
        const Integer next = g.ints().add(index[d - 1], Integers::constant(1));
        const Operand more = g.ints().less(next, extents[d - 1]);
        format = more.is_immediate()
                     ? (more.value ? between : last)
                     : Operand(e.make(ScalarType::b64, Op::selp, {ScalarType::b64}, {between, last, more}));
      }
      call_printf(g, format, std::span(&argument, 1));
      return;
    }
    const Reg counter = e.reg(extents[d].is_wide ? ScalarType::b64 : ScalarType::b32);
    const ScalarType word = extents[d].is_wide ? ScalarType::s64 : ScalarType::s32;
    e.emit(Op::mov, {word}, {counter, 0});
    const ptx::LabelId end = e.label("print_end");
    e.enter_scope(true);
    const ptx::LabelId top = e.label("print");
    e.bind(top);
    const Reg done = e.reg(ScalarType::pred);
    e.emit(Op::setp, {Mod::ge, word}, {done, counter, extents[d].value});
    e.branch_if(done, end);
    index.push_back(g.ints().leaf(kPrintIndex, counter.id, counter, extents[d].is_wide,
                                  Range::between(0, extents[d].known.hi), e.depth()));
    self(self, d + 1);
    index.pop_back();
    e.emit(Op::add, {word}, {counter, counter, 1});
    e.branch(top);
    e.leave_scope();
    e.bind(end);
  };
  loop(loop, 0);
}

}  // namespace

void trap_unless(Generator& g, const ir::Op& op, Reg holds, const std::string& what,
                 std::span<const Operand> numbers) {
  Emitter& e = g.e();
  const ptx::LabelId end = e.label("check_end");
  e.branch_if(holds, end);
  const std::string place = op.where.is_known() ? fmt::format("{}:{}: ", op.where.file, op.where.line) : "";
  std::vector<Argument> arguments;
  for (const Operand& n : numbers)
    arguments.push_back({g.e().to_register(ScalarType::b64, n), ScalarType::b64});
  call_printf(g, text_address(g, escaped(place) + (numbers.empty() ? escaped(what) : what) + "\n"),
              arguments);
  e.emit(Op::trap, {}, {});
  e.bind(end);
}

void declare_print(ptx::Module& module, const ir::Function& function, const Options& options) {
  bool needed = false;
  ir::walk(function.body, [&](const ir::Op& op) { needed |= prints(op, options); });
  if (!needed) return;
  ptx::Function f;
  f.name = kPrint;
  f.linkage = ptx::Linkage::external;
  auto parameter = [](std::string name, ScalarType type) {
    ptx::Variable v;
    v.name = std::move(name);
    v.space = ptx::Space::param;
    v.type = type;
    return v;
  };
  f.return_params.push_back(parameter("printed", ScalarType::b32));
  f.params.push_back(parameter("format", ScalarType::b64));
  f.params.push_back(parameter("arguments", ScalarType::b64));
  module.functions.push_back(std::move(f));
}

int64_t print_scratch(const ir::Op& op) {
  const ir::Type& type = op.operands[0]->type;
  return type.kind == ir::TypeKind::kRegister ? staging_layout(type).bytes() : 0;
}

void emit_Printf(Generator& g, const ir::Op& op) {
  std::vector<Argument> arguments;
  for (const ir::Value* v : op.operands) arguments.push_back(promoted(g, op, g.scalar(v), v->type.dtype));
  call_printf(g, text_address(g, op.string_attr("format")), arguments);
}

void emit_Check(Generator& g, const ir::Op& op) {
  trap_unless(g, op, g.scalar_register(op.operands[0]), "check failed: " + op.string_attr("message"));
}

void emit_Assume(Generator& g, const ir::Op& op) {
  if (g.options().check_assumptions)
    trap_unless(g, op, g.scalar_register(op.operands[0]), "what assume() promises does not hold");
}

void emit_PrintTensor(Generator& g, const ir::Op& op) {
  if (op.operands[0]->type.dtype.bits() < 8)
    g.fail(op, "elements of less than a byte are not printed", {}, "print load_shared(tile).to(float32)");
  const ir::Value* value = op.operands[0];
  if (value->type.kind == ir::TypeKind::kTensorMemory)
    g.fail(op, "cannot print tensor memory", {}, "load it into registers with tcgen05_load first");
  Emitter& e = g.e();
  ElementReader reader(g, op, value);
  if (value->type.kind == ir::TypeKind::kRegister) {
    const RegisterTensor& tensor = g.get<RegisterTensor>(value);
    const SharedView staging{tensor.dtype, staging_layout(value->type), g.scratch_offset(g.group()), {}};
    g.synchronize(g.group(), op);  // whoever used the scratch space before is done
    store_shared_tile(g, op, staging, tensor);
    reader.set_staging(staging);
    g.synchronize(g.group(), op);
  }
  // One thread of CTA 0.
  const ptx::LabelId end = e.label("print_tensor_end");
  Reg ordinal = e.to_register(ScalarType::b32, g.thread_index(g.group()).value);
  for (ptx::SpecialReg axis :
       {ptx::SpecialReg::ctaid_x, ptx::SpecialReg::ctaid_y, ptx::SpecialReg::ctaid_z}) {
    const Reg c = e.make(ScalarType::b32, Op::mov, {ScalarType::u32}, {axis});
    ordinal = e.make(ScalarType::b32, Op::or_, {ScalarType::b32}, {ordinal, c});
  }
  e.branch_unless(e.make(ScalarType::pred, Op::setp, {Mod::eq, ScalarType::u32}, {ordinal, 0}), end);
  e.enter_scope();
  if (op.attr("header")) print_text(g, escaped(op.string_attr("header") + "\n"));
  const std::vector<Integer> extents = extents_of(g, value);
  print_rows(g, op, reader, extents, value->type.dtype);
  e.leave_scope();
  e.bind(end);
  // The others wait before the scratch space or the tensor changes.
  g.synchronize(g.group(), op);
}

}  // namespace imbrex::codegen
