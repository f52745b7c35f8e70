// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "core/text.h"
#include "imbrex/core/error.h"
#include "vgpu/memory/memory.h"
#include "vgpu/program/decode.h"
#include "vgpu/program/program_builder.h"

namespace imbrex::vgpu {

namespace {

using ptx::Operand;
using ptx::OperandKind;
using ptx::ScalarType;

int lanes_of(ScalarType type) {
  const int bits = ptx::bits(type);
  return bits <= 32 ? 4 : bits / 8;
}

/// The bits an immediate has when it is read as `type`.
uint64_t literal(const Operand& o, ScalarType type) {
  const uint64_t bits = static_cast<uint64_t>(o.value);
  if (o.kind == OperandKind::f64 && type == ScalarType::f32)
    return std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
  if (o.kind == OperandKind::f32 && type == ScalarType::f64)
    return std::bit_cast<uint64_t>(static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits))));
  if (o.kind == OperandKind::immediate && type == ScalarType::f32)
    return std::bit_cast<uint32_t>(static_cast<float>(o.value));
  if (o.kind == OperandKind::immediate && type == ScalarType::f64)
    return std::bit_cast<uint64_t>(static_cast<double>(o.value));
  const int width = ptx::bits(type);
  return width >= 64 ? bits : bits & ((uint64_t{1} << width) - 1);
}

}  // namespace

Decoder::Decoder(ProgramBuilder& builder, FunctionLayout& layout, const ptx::Instruction& insn)
    : builder_(builder), layout_(layout), insn_(insn), operands_(layout.function->operands_of(insn)) {}

std::span<const Operand> Decoder::elements(const Operand& operand) const {
  return layout_.function->elements_of(operand);
}

void Decoder::note_read(const Operand& o) {
  if (o.is_reg()) layout_.add_numbers(o.id, builder_.program().info.back().reads);
}

void Decoder::note_write(const Operand& o) {
  if (o.is_reg()) layout_.add_numbers(o.id, builder_.program().info.back().writes);
}

void Decoder::note_write(const FunctionLayout& callee, uint32_t reg) {
  callee.add_numbers(reg, builder_.program().info.back().writes);
}

int Decoder::lane_bytes(const Operand& o, ScalarType type) const {
  if (o.is_reg()) return lanes_of(layout_.function->type_of(o.reg()));
  if (o.kind == OperandKind::special) return lanes_of(ptx::type_of(static_cast<ptx::SpecialReg>(o.id)));
  return lanes_of(type);
}

Slot Decoder::source(const Operand& o, ScalarType type) {
  switch (o.kind) {
    case OperandKind::reg:
      note_read(o);
      return layout_.registers[o.id];
    case OperandKind::special: {
      const auto special = static_cast<ptx::SpecialReg>(o.id);
      if (is_running_counter(special)) refuse(fmt::format("%{} is read by mov only", ptx::name(special)));
      return builder_.special(special);
    }
    case OperandKind::immediate:
    case OperandKind::f32:
    case OperandKind::f64:
      return builder_.constant(literal(o, type), lanes_of(type));
    case OperandKind::symbol: {
      if (o.ref == ptx::Ref::function)
        return builder_.constant(builder_.image().function_address(o.id) + static_cast<uint64_t>(o.value),
                                 lanes_of(type));
      const SymbolAddress address = builder_.address_of(layout_, o);
      if (address.in_frame)
        refuse("the address of a variable of a function that calls itself is taken by mov only");
      return builder_.constant(address.address, lanes_of(type), address.space == Space::kSharedCta);
    }
    default:
      refuse("an operand of this kind is not modelled here");
  }
}

Slot Decoder::destination(const Operand& o, ScalarType type) {
  if (o.kind == OperandKind::sink) return scratch(lanes_of(type));
  if (!o.is_reg()) refuse("the destination is not a register");
  note_write(o);
  return layout_.registers[o.id];
}

PredicateSource Decoder::predicate(const Operand& o) {
  if (o.kind == OperandKind::immediate) return {builder_.constant(o.value != 0 ? kAllLanes : 0, 1), 0};
  if (o.kind == OperandKind::special) return {source(o, ScalarType::pred), 0};
  if (!o.is_reg()) refuse("a predicate was expected");
  note_read(o);
  return {layout_.registers[o.id], o.negated ? kAllLanes : 0};
}

Slot Decoder::predicate_destination(const Operand& o) {
  if (o.kind == OperandKind::sink) return builder_.allocate(sizeof(Mask));
  return destination(o, ScalarType::pred);
}

AddressSource Decoder::address(const Operand& o) {
  AddressSource out;
  out.space = space();
  if (o.kind != OperandKind::address) refuse("an address in brackets was expected");
  if (o.ref == ptx::Ref::none) {
    out.base = builder_.constant(static_cast<uint64_t>(o.value), 8);
    return out;
  }
  if (o.ref == ptx::Ref::reg) {
    layout_.add_numbers(o.id, builder_.program().info.back().reads);
    out.base = layout_.registers[o.id];
    out.base_is_64 = ptx::bits(layout_.function->type_of(ptx::Reg{o.id})) == 64;
    out.offset = o.value;
    // As cvta does it with such an address.
    if (!out.base_is_64 && (out.space == Space::kParam || out.space == Space::kConst))
      out.offset += static_cast<int64_t>(kGlobalBase);
    return out;
  }
  const SymbolAddress symbol = builder_.address_of(layout_, o);
  if (symbol.in_frame) {
    out.base = builder_.program().stack_pointer;
    out.offset = static_cast<int64_t>(symbol.address);
    out.space = Space::kLocal;
    return out;
  }
  out.base = builder_.constant(symbol.address, 8, symbol.space == Space::kSharedCta);
  // Call parameters are kept in local memory; ld.param and generic accesses to a symbol go where it is.
  if (symbol.space == Space::kLocal || out.space == Space::kGeneric) out.space = symbol.space;
  return out;
}

std::optional<int64_t> Decoder::distance_in_frame(const Operand& o) const {
  if (o.kind != OperandKind::symbol || o.ref == ptx::Ref::function) return std::nullopt;
  const SymbolAddress symbol = builder_.address_of(layout_, o);
  if (!symbol.in_frame) return std::nullopt;
  return static_cast<int64_t>(symbol.address);
}

Slot Decoder::stack_pointer() const { return builder_.program().stack_pointer; }

int64_t Decoder::immediate(size_t index, const char* what) {
  if (index >= operands_.size() || operands_[index].kind != OperandKind::immediate)
    refuse(fmt::format("{} must be an integer literal", what));
  return operands_[index].value;
}

Slot Decoder::constant32(uint32_t value) { return builder_.constant(value, 4); }
Slot Decoder::carry() { return builder_.carry(); }
Slot Decoder::scratch(int lane_bytes) {
  return builder_.allocate(static_cast<uint32_t>(kWarpSize * lane_bytes));
}

const Slot* Decoder::keep_list(std::vector<Slot> slots) {
  auto kept = std::make_shared<const std::vector<Slot>>(std::move(slots));
  const Slot* raw = kept->data();
  keep_alive(std::move(kept));
  return raw;
}

void Decoder::keep_alive(std::shared_ptr<const void> object) {
  builder_.program().kept.push_back(std::move(object));
}

Space Decoder::space() const {
  using ptx::Mod;
  switch (insn_.one_of({Mod::global, Mod::shared, Mod::shared_cta, Mod::shared_cluster, Mod::local,
                        Mod::const_, Mod::param, Mod::param_entry, Mod::param_func},
                       Mod::rn)) {
    case Mod::global:
      return Space::kGlobal;
    case Mod::shared:
    case Mod::shared_cta:
      return Space::kSharedCta;
    case Mod::shared_cluster:
      return Space::kSharedCluster;
    case Mod::local:
      return Space::kLocal;
    case Mod::const_:
      return Space::kConst;
    case Mod::param:
    case Mod::param_entry:
    case Mod::param_func:
      return Space::kParam;
    default:
      return Space::kGeneric;
  }
}

int64_t Decoder::label(const Operand& o) const {
  return layout_.pcs[layout_.function->labels[o.id].position];
}

int64_t Decoder::meeting() const {
  return layout_.meetings[static_cast<size_t>(&insn_ - layout_.function->body.data())];
}

void Decoder::refuse(const std::string& why) const {
  std::string form = std::string(ptx::name(insn_.op));
  for (ptx::Suffix s : insn_.suffixes()) form += "." + s.spelling();
  const ptx::Function& f = *layout_.function;
  std::vector<std::string> facts;
  if (insn_.loc != ptx::Instruction::kNone) {
    const ptx::Loc& loc = f.locs[insn_.loc];
    for (const ptx::File& file : builder_.module().files)
      if (file.index == loc.file) facts.push_back(fmt::format("from {}:{}", file.path, loc.line));
  }
  throw CompileError({{intern(builder_.text_name()), insn_.pos.line, intern(f.name)},
                      fmt::format("{}: {}", form, why),
                      std::move(facts),
                      ""});
}

bool Decoder::is_predicate(const ptx::Operand& operand) const {
  return operand.is_reg() && layout_.function->type_of(operand.reg()) == ptx::ScalarType::pred;
}

bool Decoder::has_type(ptx::ScalarType type) const {
  for (const ptx::Suffix suffix : insn_.suffixes())
    if (suffix == ptx::Suffix(type)) return true;
  return false;
}

int Decoder::target_sm() const { return builder_.image().target().sm; }

AddressSource Decoder::address_in(const ptx::Operand& operand, Space space) {
  AddressSource source = address(operand);
  source.space = space;
  return source;
}

Slot Decoder::late_destination(const ptx::Operand& operand, std::vector<uint32_t>& numbers) {
  if (!operand.is_reg()) return destination(operand, ptx::ScalarType::b32);
  numbers.push_back(layout_.register_numbers[operand.id]);
  return layout_.registers[operand.id];
}

}  // namespace imbrex::vgpu
