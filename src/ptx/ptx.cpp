// SPDX-License-Identifier: Apache-2.0
#include "ptx/ptx.h"

#include <fmt/format.h>

#include <bit>

#include "imbrex/core/error.h"

namespace imbrex::ptx {
namespace {

enum class TypeClass : uint8_t { B, U, S, F, P, O };

struct TypeFacts {
  std::string_view name;
  int bits;
  TypeClass type_class;
};

constexpr TypeFacts kTypes[] = {
#define PTX_TYPE(name, bits, type_class, target) {#name, bits, TypeClass::type_class},
#include "ptx/types.def"
#undef PTX_TYPE
};

constexpr std::string_view kWords[] = {
#define PTX_WORD(name, spelling, target) spelling,
#include "ptx/words.def"
#undef PTX_WORD
};

constexpr std::string_view kOps[] = {
#define PTX_INSN(name, mnemonic, ...) mnemonic,
#define PTX_ALIAS(...)
#define PTX_NEEDS(...)
#include "ptx/insns.def"
#undef PTX_INSN
#undef PTX_ALIAS
#undef PTX_NEEDS
};

struct SpecialFacts {
  std::string_view name;
  ScalarType type;
};

constexpr SpecialFacts kSpecials[] = {
#define PTX_SPECIAL(name, spelling, type) {spelling, ScalarType::type},
#include "ptx/special_registers.def"
#undef PTX_SPECIAL
};

constexpr int kShapeM[] = {8, 16, 32, 64};

const TypeFacts& facts(ScalarType type) { return kTypes[static_cast<size_t>(type)]; }

}  // namespace

std::string_view name(ScalarType type) { return facts(type).name; }
std::string_view name(Mod mod) { return kWords[static_cast<size_t>(mod)]; }
std::string_view name(Op op) { return kOps[static_cast<size_t>(op)]; }
std::string_view name(SpecialReg special) { return kSpecials[static_cast<size_t>(special)].name; }
int bits(ScalarType type) { return facts(type).bits; }
bool is_float(ScalarType type) { return facts(type).type_class == TypeClass::F; }
bool is_signed(ScalarType type) { return facts(type).type_class == TypeClass::S; }
bool is_unsigned(ScalarType type) { return facts(type).type_class == TypeClass::U; }
bool is_untyped(ScalarType type) { return facts(type).type_class == TypeClass::B; }
ScalarType type_of(SpecialReg special) { return kSpecials[static_cast<size_t>(special)].type; }

// A shape is coded as m in bits 10:9 (index into kShapeM), n/8 - 1 in bits 8:4 and log2(k) in bits 3:0.
Suffix Suffix::shape(int m, int n, int k) {
  for (uint16_t m_index = 0; m_index < 4; ++m_index)
    if (kShapeM[m_index] == m && n >= 8 && n <= 256 && n % 8 == 0 && k >= 4 && k <= 1024 &&
        std::has_single_bit(static_cast<unsigned>(k))) {
      Suffix s;
      s.code_ = static_cast<uint16_t>(kShape | m_index << 9 | (n / 8 - 1) << 4 |
                                      std::countr_zero(static_cast<unsigned>(k)));
      return s;
    }
  throw InternalError(fmt::format("no matrix shape m{}n{}k{}", m, n, k));
}

Shape Suffix::shape() const {
  return {kShapeM[code_ >> 9 & 3], ((code_ >> 4 & 31) + 1) * 8, 1 << (code_ & 15)};
}

std::string Suffix::spelling() const {
  if (is_type()) return std::string(name(type()));
  if (is_mod()) return std::string(name(mod()));
  Shape s = shape();
  return fmt::format("m{}n{}k{}", s.m, s.n, s.k);
}

Operand::Operand(float literal) : kind(OperandKind::f32), value(std::bit_cast<uint32_t>(literal)) {}
Operand::Operand(double literal) : kind(OperandKind::f64), value(std::bit_cast<int64_t>(literal)) {}

Operand address(Reg base, int64_t offset) {
  Operand o = base;
  o.kind = OperandKind::address;
  o.value = offset;
  return o;
}

Operand address(SymbolRef base, int64_t offset) {
  Operand o = base;
  o.kind = OperandKind::address;
  o.value = offset;
  return o;
}

Operand address(int64_t absolute) {
  Operand o;
  o.kind = OperandKind::address;
  o.value = absolute;
  return o;
}

int64_t Variable::element_count() const {
  int64_t count = vector;
  for (int64_t dim : dims) count *= dim == kUnsized ? 0 : dim;
  return count;
}

std::string Function::register_name(Reg reg) const {
  const Register& r = registers[reg.id];
  const RegisterDecl& decl = register_decls[r.decl];
  return decl.is_range ? decl.prefix + std::to_string(r.number) : decl.prefix;
}

const Function* Module::find_function(std::string_view name) const {
  for (const Function& f : functions)
    if (f.name == name) return &f;
  return nullptr;
}

const Variable* Module::find_variable(std::string_view name) const {
  for (const Variable& v : variables)
    if (v.name == name) return &v;
  return nullptr;
}

uint32_t Module::file(std::string_view path) {
  uint32_t next = 1;
  for (const File& f : files) {
    if (f.path == path) return f.index;
    next = std::max(next, f.index + 1);
  }
  files.push_back({next, std::string(path)});
  return next;
}

SymbolRef Module::add(Variable variable) {
  variables.push_back(std::move(variable));
  return {Ref::global, static_cast<uint32_t>(variables.size() - 1)};
}

std::vector<int64_t> param_offsets(const Function& function) {
  std::vector<int64_t> offsets;
  int64_t end = 0;
  for (const Variable& p : function.params) {
    int64_t align = std::max<int64_t>(p.alignment(), 1);
    end = (end + align - 1) / align * align;
    offsets.push_back(end);
    end += p.size();
  }
  return offsets;
}

int64_t param_bytes(const Function& function) {
  if (function.params.empty()) return 0;
  return param_offsets(function).back() + function.params.back().size();
}

}  // namespace imbrex::ptx
