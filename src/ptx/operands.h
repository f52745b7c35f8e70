// SPDX-License-Identifier: Apache-2.0
// What an instruction's operands read and write, for analyses of PTX.
#pragma once

#include <string>
#include <string_view>

#include "ptx/insns.h"

namespace imbrex::ptx {

/// Calls visit(register id, in_address) for every register an operand names; what is behind brackets is read
/// whatever the slot says.
template <class Visit>
void each_register(const Function& f, const Operand& o, Visit&& visit, bool in_address = false) {
  if (o.kind == OperandKind::reg) visit(o.id, in_address);
  if (o.kind == OperandKind::address && o.ref == Ref::reg) visit(o.id, true);
  if (o.has_elements())
    for (const Operand& element : f.elements_of(o))
      each_register(f, element, visit, in_address || o.kind == OperandKind::tensor);
}

/// The slot letters of an instruction's operands, in order.
inline std::string slot_kinds(const Instruction& i) {
  const std::string_view slots = insn_facts(i.op).operands;
  std::string kinds;
  for (size_t at = 0; at < slots.size();
       at = slots.find(' ', at) == std::string_view::npos ? slots.size() : slots.find(' ', at) + 1)
    kinds += slots[at];
  return kinds;
}
/// Whether the operand in this slot is a result.
inline bool is_written(const std::string& kinds, size_t slot) {
  return slot < kinds.size() && std::string_view("dDwqQP").find(kinds[slot]) != std::string_view::npos;
}
/// Calls visit(register id) for every register the instruction writes.
template <class Visit>
void each_result(const Function& f, const Instruction& i, Visit&& visit) {
  const std::string kinds = slot_kinds(i);
  const auto operands = f.operands_of(i);
  for (size_t slot = 0; slot < operands.size(); ++slot)
    if (is_written(kinds, slot))
      each_register(f, operands[slot], [&](uint32_t id, bool in_address) {
        if (!in_address) visit(id);
      });
}

}  // namespace imbrex::ptx
