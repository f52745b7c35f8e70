// SPDX-License-Identifier: Apache-2.0
#include "analysis/register_pressure.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <vector>

#include "ptx/insns.h"
#include "ptx/reader.h"

namespace imbrex::analysis {
namespace {

using ptx::Function;
using ptx::Instruction;
using ptx::Operand;
using ptx::OperandKind;

using Set = std::vector<bool>;

/// Calls back for every register an operand names; what is behind brackets is read whatever the slot says.
template <class Visit>
void each_register(const Function& f, const Operand& o, Visit&& visit, bool in_address = false) {
  if (o.kind == OperandKind::reg) visit(o.id, in_address);
  if (o.kind == OperandKind::address && o.ref == ptx::Ref::reg) visit(o.id, true);
  if (o.has_elements())
    for (const Operand& element : f.elements_of(o))
      each_register(f, element, visit, in_address || o.kind == OperandKind::tensor);
}

/// The slot letters of an instruction's operands, in order.
std::string slot_kinds(std::string_view slots) {
  std::string kinds;
  for (size_t i = 0; i < slots.size();
       i = slots.find(' ', i) == std::string_view::npos ? slots.size() : slots.find(' ', i) + 1)
    kinds += slots[i];
  return kinds;
}

/// The accumulator of wgmma is read as well as written, in one operand.
bool reads_its_result(const Instruction& i) { return ptx::name(i.op).starts_with("wgmma.mma_async"); }

struct Liveness {
  const Function& f;
  std::vector<std::vector<size_t>> successors;  // of instruction i

  explicit Liveness(const Function& function) : f(function), successors(function.body.size()) {
    for (size_t i = 0; i < f.body.size(); ++i) {
      const Instruction& insn = f.body[i];
      const std::string_view mnemonic = ptx::name(insn.op);
      const bool leaves = mnemonic == "ret" || mnemonic == "exit" || mnemonic == "trap";
      if (mnemonic.starts_with("bra") || mnemonic.starts_with("brx"))
        for (const Operand& o : f.operands_of(insn)) {
          if (o.ref == ptx::Ref::label) add(i, f.labels[o.id].position);
          if (o.ref == ptx::Ref::target_list)
            for (uint32_t label : f.target_lists[o.id].targets) add(i, f.labels[label].position);
        }
      const bool goes_on =
          insn.guard.is_valid() || !(leaves || mnemonic == "bra" || mnemonic.starts_with("brx"));
      if (goes_on) add(i, i + 1);
    }
  }
  void add(size_t from, size_t to) {
    if (to < f.body.size()) successors[from].push_back(to);
  }

  /// What is live before the instruction when `live` is live after it.
  void step(const Instruction& insn, Set& live) const {
    const std::string kinds = slot_kinds(ptx::insn_facts(insn.op).operands);
    const auto operands = f.operands_of(insn);
    const bool kills = !insn.guard.is_valid() && !reads_its_result(insn);
    auto writes = [&](size_t slot) {
      return slot < kinds.size() && std::string_view("dDwqQP").find(kinds[slot]) != std::string_view::npos;
    };
    for (size_t slot = 0; slot < operands.size(); ++slot)
      if (writes(slot))
        each_register(f, operands[slot], [&](uint32_t id, bool in_address) {
          if (!in_address) live[id] = !kills && live[id];
        });
    for (size_t slot = 0; slot < operands.size(); ++slot)
      each_register(f, operands[slot], [&](uint32_t id, bool in_address) {
        if (in_address || !writes(slot) || reads_its_result(insn)) live[id] = true;
      });
    if (insn.guard.is_valid()) live[insn.guard.id] = true;
  }
};

}  // namespace

RegisterPressure register_pressure(const Function& function) {
  const size_t n = function.body.size();
  const Liveness liveness(function);
  std::vector<int64_t> weight;
  for (const ptx::Register& r : function.registers)
    weight.push_back(r.type == ptx::ScalarType::pred ? 0 : std::max(1, ptx::bits(r.type) / 32));

  // Straight runs of instructions share one set: `live` holds what is live before each run's first
  // instruction.
  std::vector<bool> starts(n + 1, false);
  if (n > 0) starts[0] = true;
  for (size_t i = 0; i < n; ++i)
    if (liveness.successors[i] != std::vector<size_t>{i + 1}) {
      starts[i + 1] = true;
      for (size_t to : liveness.successors[i]) starts[to] = true;
    }
  std::vector<size_t> blocks;
  for (size_t i = 0; i < n; ++i)
    if (starts[i]) blocks.push_back(i);
  std::map<size_t, Set> live;
  for (size_t first : blocks) live[first] = Set(function.registers.size());

  RegisterPressure result;
  auto sweep = [&](size_t block, bool measure) {
    const size_t first = blocks[block], end = block + 1 < blocks.size() ? blocks[block + 1] : n;
    Set now(function.registers.size());
    for (size_t to : liveness.successors[end - 1]) {
      const Set& other = live[to];
      for (size_t r = 0; r < now.size(); ++r) now[r] = now[r] || other[r];
    }
    for (size_t i = end; i-- > first;) {
      liveness.step(function.body[i], now);
      if (!measure) continue;
      int64_t sum = 0;
      for (size_t r = 0; r < now.size(); ++r) sum += now[r] ? weight[r] : 0;
      if (sum <= result.live) continue;
      result.live = sum;
      if (const uint32_t loc = function.body[i].loc; loc != Instruction::kNone)
        result.line = function.locs[loc].line;
    }
    return now;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t block = blocks.size(); block-- > 0;) {
      Set now = sweep(block, false);
      if (now == live[blocks[block]]) continue;
      live[blocks[block]] = std::move(now);
      changed = true;
    }
  }
  for (size_t block = 0; block < blocks.size(); ++block) sweep(block, true);
  return result;
}

RegisterPressure register_pressure(std::string_view ptx, std::string_view kernel) {
  const ptx::Module module = ptx::read(ptx, kernel);
  return register_pressure(*module.find_function(kernel));
}

}  // namespace imbrex::analysis
