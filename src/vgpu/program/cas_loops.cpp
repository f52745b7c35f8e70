// SPDX-License-Identifier: Apache-2.0
#include "vgpu/program/cas_loops.h"

#include <set>

#include "ptx/operands.h"

namespace imbrex::vgpu {

std::vector<bool> in_cas_loops(const ptx::Function& f) {
  using ptx::Op;
  constexpr size_t kComparedOperand = 2;
  std::vector<bool> result(f.body.size(), false);
  std::set<uint32_t> compared;  // registers whose value may come to be compared, through moves
  const auto add = [&](const ptx::Operand& o) {
    const size_t before = compared.size();
    ptx::each_register(f, o, [&](uint32_t reg, bool) { compared.insert(reg); });
    return compared.size() != before;
  };
  const auto is_compared = [&](const ptx::Operand& o) {
    bool is = false;
    ptx::each_register(f, o, [&](uint32_t reg, bool) { is = is || compared.contains(reg); });
    return is;
  };
  for (size_t i = 0; i < f.body.size(); ++i)
    if (f.body[i].op == Op::atom && f.body[i].has(ptx::Mod::cas)) {
      result[i] = true;
      add(f.operands_of(f.body[i])[kComparedOperand]);
    }
  if (compared.empty()) return {};
  for (bool grows = true; grows;) {
    grows = false;
    for (const ptx::Instruction& insn : f.body) {
      if (insn.op != Op::mov) continue;
      const std::span<const ptx::Operand> operands = f.operands_of(insn);
      if (is_compared(operands[0])) grows = add(operands[1]) || grows;
    }
  }
  for (size_t i = 0; i < f.body.size(); ++i)
    if (f.body[i].op == Op::ld && is_compared(f.operands_of(f.body[i])[0])) result[i] = true;
  return result;
}

}  // namespace imbrex::vgpu
