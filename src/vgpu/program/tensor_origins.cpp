// SPDX-License-Identifier: Apache-2.0
#include "vgpu/program/tensor_origins.h"

#include <array>

#include "ptx/insns.h"
#include "ptx/operands.h"

namespace imbrex::vgpu {

namespace {

using ptx::Op;

}  // namespace

const TensorOrigins::Origin TensorOrigins::kPlain{Kind::kPlain};
const TensorOrigins::Origin TensorOrigins::kMixed{Kind::kMixed};

TensorOrigins::TensorOrigins(const ptx::Function& f)
    : f_(f), definitions_(f.registers.size()), origins_(f.registers.size()) {
  for (uint32_t i = 0; i < f.body.size(); ++i)
    ptx::each_result(f, f.body[i], [&](uint32_t reg) { definitions_[reg].push_back(i); });
}

LoadedColumns TensorOrigins::stored_by(const ptx::Instruction& store) {
  const std::span<const ptx::Operand> operands = f_.operands_of(store);
  if (store.op != Op::st || operands.size() != 2 || !operands[1].has_elements()) return {};
  const std::span<const ptx::Operand> elements = f_.elements_of(operands[1]);
  if (static_cast<int>(elements.size()) * ptx::bytes(store.type()) != 16) return {};
  return packed_of(elements).columns;
}

TensorOrigins::Origin TensorOrigins::of(const ptx::Operand& operand) {
  return operand.is_reg() ? of_register(operand.id) : kPlain;
}

TensorOrigins::Origin TensorOrigins::of_register(uint32_t reg) {
  if (origins_[reg].kind == Kind::kAsking) return kMixed;
  if (origins_[reg].kind != Kind::kUnasked) return origins_[reg];
  origins_[reg].kind = Kind::kAsking;
  Origin all;
  for (const uint32_t position : definitions_[reg]) {
    const Origin one = of_result(f_.body[position], reg);
    all = all.kind == Kind::kUnasked || all == one ? one : kMixed;
  }
  if (all.kind == Kind::kUnasked) all = kMixed;
  return origins_[reg] = all;
}

template <class Operands>
TensorOrigins::Origin TensorOrigins::packed_of(const Operands& operands) {
  Origin all, last;
  for (const ptx::Operand& operand : operands) {
    const Origin one = of(operand);
    const bool follows = last.kind == Kind::kUnasked ||
                         (one.kind == last.kind && one.columns.load == last.columns.load &&
                          (one.kind == Kind::kPlain || one.columns.column > last.columns.column));
    if (!follows || one.kind == Kind::kMixed) return kMixed;
    if (last.kind == Kind::kUnasked) all = one;
    last = one;
  }
  return all;
}

template <class Operands>
TensorOrigins::Origin TensorOrigins::computed_from(const Operands& operands) {
  Origin all = kPlain;
  for (const ptx::Operand& operand : operands) {
    const Origin one = operand.has_elements() ? kMixed : of(operand);
    if (one.kind == Kind::kPlain) continue;
    if (one.kind == Kind::kMixed || (all.kind == Kind::kColumns && all != one)) return kMixed;
    all = one;
  }
  return all;
}

TensorOrigins::Origin TensorOrigins::of_result(const ptx::Instruction& insn, uint32_t reg) {
  const std::span<const ptx::Operand> operands = f_.operands_of(insn);
  if (insn.op == Op::tcgen05_ld) {
    if (!insn.has(ptx::Mod::_32x32b)) return kMixed;
    uint32_t index = 0;
    if (operands[0].has_elements()) {
      const std::span<const ptx::Operand> elements = f_.elements_of(operands[0]);
      while (elements[index].id != reg) ++index;
    }
    const uint32_t width = insn.has(ptx::Mod::pack_16b) ? 2 : 1;
    return {Kind::kColumns, {static_cast<uint32_t>(&insn - f_.body.data()) + 1, index * width}};
  }
  if (ptx::has_trait(insn.op, ptx::kFetches)) return kPlain;
  if (!ptx::has_trait(insn.op, ptx::kElementwise)) return kMixed;
  if (operands[0].has_elements()) {
    // Unpacking: which part of a column's value, or of which column, is not followed.
    const Origin whole = computed_from(operands.subspan(1));
    return whole.kind == Kind::kPlain ? kPlain : kMixed;
  }
  if (insn.op == Op::mov && operands[1].has_elements()) return packed_of(f_.elements_of(operands[1]));
  if (insn.op == Op::cvt && operands.size() == 3)  // a pack's upper half comes first
    return packed_of(std::array{operands[2], operands[1]});
  return computed_from(operands.subspan(1));
}

}  // namespace imbrex::vgpu
