// SPDX-License-Identifier: Apache-2.0
#include "codegen/host.h"

namespace imbrex::codegen {

using ir::Opcode;

HostProgram::HostProgram(const ir::Function& function, CompiledKernel& kernel)
    : function_(function), kernel_(kernel) {}

int32_t HostProgram::add(HostStep step) {
  kernel_.host.push_back(step);
  return static_cast<int32_t>(kernel_.host.size() - 1);
}

int32_t HostProgram::constant(int64_t value) {
  auto [it, is_new] = constants_.try_emplace(value, 0);
  if (is_new) it->second = add({.kind = HostStep::Kind::kConstant, .constant = value});
  return it->second;
}

int32_t HostProgram::divmod_magic(int32_t divisor, const SourceLocation& where) {
  auto [it, is_new] = magics_.try_emplace(divisor, 0);
  if (is_new)
    it->second = add({.kind = HostStep::Kind::kDivmodMagic, .dtype = uint64, .a = divisor, .where = where});
  return it->second;
}

int32_t HostProgram::binary(Opcode code, int32_t a, int32_t b, const SourceLocation& where) {
  return add({.kind = HostStep::Kind::kBinary, .op = code, .dtype = int64, .a = a, .b = b, .where = where});
}

std::optional<int32_t> HostProgram::slot(const ir::Value* value) {
  if (auto it = slots_.find(value); it != slots_.end()) return it->second;
  std::optional<int32_t>& result = slots_[value];  // nothing, until shown otherwise
  const ir::Type& type = value->type;
  if (type.kind != ir::TypeKind::kScalar && type.kind != ir::TypeKind::kPointer) return std::nullopt;
  if (type.is_scalar() && !type.dtype.is_integer() && !type.dtype.is_bool()) return std::nullopt;
  if (const std::optional<int64_t> c = ir::constant_int(value)) return result = constant(*c);
  for (size_t i = 0; i < function_.params.size(); ++i)
    if (function_.params[i] == value)
      return result = add({.kind = HostStep::Kind::kParam,
                           .dtype = type.is_scalar() ? type.dtype : uint64,
                           .a = static_cast<int32_t>(i)});
  const ir::Op* op = value->def;
  if (!op || !ir::is_elementwise(op->code)) return std::nullopt;
  int32_t operands[3] = {};
  for (size_t i = 0; i < op->operands.size(); ++i) {
    const std::optional<int32_t> s = slot(op->operands[i]);
    if (!s) return std::nullopt;
    operands[i] = *s;
  }
  const HostStep::Kind kinds[] = {HostStep::Kind::kUnary, HostStep::Kind::kBinary, HostStep::Kind::kSelect};
  const int32_t index = add({.kind = kinds[op->operands.size() - 1],
                             .op = op->code,
                             .dtype = type.dtype,
                             .a = operands[0],
                             .b = operands[1],
                             .c = operands[2],
                             .where = op->where});
  return slots_[value] = index;
}

}  // namespace imbrex::codegen
