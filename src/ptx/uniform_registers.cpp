// SPDX-License-Identifier: Apache-2.0
#include "ptx/uniform_registers.h"
#include "ptx/insns.h"
#include "ptx/operands.h"

#include <algorithm>

namespace imbrex::ptx {

namespace {

/// Scalar arithmetic that a warp can do once for all its threads.
bool is_arithmetic(const Instruction& i) {
  return ptx::has_trait(i.op, ptx::kUniform) || (i.op == Op::ld && i.has(ptx::Mod::param));
}

bool differs_within_a_warp(ptx::SpecialReg special) {
  static constexpr std::string_view kNames[] = {"tid", "laneid", "lanemask", "clock", "globaltimer"};
  const std::string_view name = ptx::name(special);
  return std::any_of(std::begin(kNames), std::end(kNames),
                     [&](std::string_view word) { return name.starts_with(word); });
}

bool is_uniform(const ptx::Function& f, const Instruction& i, const std::vector<bool>& uniform) {
  if (!is_arithmetic(i) || (i.guard.is_valid() && !uniform[i.guard.id])) return false;
  if (i.op == Op::shfl_sync) return i.has(ptx::Mod::idx);  // one lane's word, given to all
  const std::string kinds = ptx::slot_kinds(i);
  const auto operands = f.operands_of(i);
  bool result = true;
  for (size_t slot = 0; slot < operands.size(); ++slot) {
    const Operand& o = operands[slot];
    if (o.kind == ptx::OperandKind::special && differs_within_a_warp(static_cast<ptx::SpecialReg>(o.id)))
      return false;
    if (!ptx::is_written(kinds, slot))
      ptx::each_register(f, o, [&](uint32_t id, bool) { result = result && uniform[id]; });
  }
  return result;
}

}  // namespace

std::vector<bool> uniform_registers(const ptx::Function& f) {
  std::vector<bool> uniform;
  for (const ptx::Register& r : f.registers) uniform.push_back(!ptx::is_float(r.type));
  for (bool changed = true; changed;) {
    changed = false;
    for (const Instruction& i : f.body) {
      if (is_uniform(f, i, uniform)) continue;
      ptx::each_result(f, i, [&](uint32_t id) {
        changed = changed || uniform[id];
        uniform[id] = false;
      });
    }
  }
  return uniform;
}

}  // namespace imbrex::ptx
