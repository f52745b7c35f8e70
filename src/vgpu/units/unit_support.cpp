// SPDX-License-Identifier: Apache-2.0
#include "vgpu/units/unit_support.h"

#include <fmt/format.h>

#include "vgpu/program/program_builder.h"

namespace imbrex::vgpu {

bool is_predicate(Decoder& decoder, const ptx::Operand& operand) {
  return operand.is_reg() && decoder.layout().function->type_of(operand.reg()) == ptx::ScalarType::pred;
}

bool has_type(const Decoder& decoder, ptx::ScalarType type) {
  for (const ptx::Suffix suffix : decoder.insn().suffixes())
    if (suffix == ptx::Suffix(type)) return true;
  return false;
}

int target_sm(Decoder& decoder) { return decoder.builder().image().target().sm; }

Slot late_destination(Decoder& decoder, const ptx::Operand& operand, std::vector<uint32_t>& numbers) {
  if (!operand.is_reg()) return decoder.destination(operand, ptx::ScalarType::b32);
  const FunctionLayout& layout = decoder.layout();
  numbers.push_back(layout.register_numbers[operand.id]);
  return layout.registers[operand.id];
}

std::optional<DataType> product_type(ptx::ScalarType type) {
  using ptx::ScalarType;
  switch (type) {
    case ScalarType::f16:
      return float16;
    case ScalarType::bf16:
      return bfloat16;
    case ScalarType::tf32:
      return tfloat32;
    case ScalarType::e4m3:
      return float8_e4m3;
    case ScalarType::e5m2:
      return float8_e5m2;
    case ScalarType::s8:
      return int8;
    case ScalarType::u8:
      return uint8;
    default:
      return std::nullopt;
  }
}

std::string shared_text(const Who& who, const Cta& owner, uint32_t offset) {
  if (who.cta == &owner) return fmt::format("shared {:#x}", offset);
  return fmt::format("shared {:#x} of the CTA of rank {}", offset, owner.rank());
}

}  // namespace imbrex::vgpu
