// SPDX-License-Identifier: Apache-2.0
#include "mutants/edit.h"

#include <algorithm>

#include "ptx/writer.h"

namespace imbrex::mutants {

using ptx::Function;
using ptx::Instruction;
using ptx::Mod;
using ptx::Op;
using ptx::Operand;
using ptx::OperandKind;

void Edit::erase(size_t i, size_t count) {
  Function& f = function();
  f.body.erase(f.body.begin() + static_cast<ptrdiff_t>(i),
               f.body.begin() + static_cast<ptrdiff_t>(i + count));
  for (ptx::Label& label : f.labels)
    if (label.position > i) label.position -= std::min<uint32_t>(count, label.position - i);
}

void Edit::insert(size_t i, Instruction instruction) {
  Function& f = function();
  f.body.insert(f.body.begin() + static_cast<ptrdiff_t>(i), instruction);
  for (ptx::Label& label : f.labels)
    if (label.position > i) ++label.position;
}

Instruction& Edit::insert(size_t i, Op op, std::initializer_list<ptx::Suffix> suffixes,
                          std::initializer_list<Operand> operands) {
  Instruction instruction;
  instruction.op = op;
  for (ptx::Suffix s : suffixes) instruction.suffix_array[instruction.suffix_count++] = s;
  instruction.first_operand = static_cast<uint32_t>(function().operands.size());
  instruction.operand_count = static_cast<uint32_t>(operands.size());
  function().operands.insert(function().operands.end(), operands.begin(), operands.end());
  if (i < size()) instruction.loc = at(i).loc;
  insert(i, instruction);
  return at(i);
}

void Edit::duplicate(size_t i, size_t count) {
  for (size_t k = 0; k < count; ++k) insert(i + count + k, at(i + k));
}

void Edit::move(size_t from, size_t count, size_t to) {
  Function& f = function();
  // A label that the moved instructions alone branch to, such as the one of a waiting loop.
  std::vector<std::pair<uint32_t, uint32_t>> own;  // label, offset in the moved part
  for (uint32_t l = 0; l < f.labels.size(); ++l) {
    const uint32_t position = f.labels[l].position;
    if (position < from || position >= from + count) continue;
    bool inside = false, outside = false;
    for (size_t i = 0; i < f.body.size(); ++i) {
      if (!is_branch(f.body[i]) || f.operands[f.body[i].first_operand].id != l) continue;
      (i >= from && i < from + count ? inside : outside) = true;
    }
    if (inside && !outside) own.emplace_back(l, position - static_cast<uint32_t>(from));
  }
  const std::vector<Instruction> moved(f.body.begin() + static_cast<ptrdiff_t>(from),
                                       f.body.begin() + static_cast<ptrdiff_t>(from + count));
  erase(from, count);
  if (to > from) to -= count;
  for (size_t k = 0; k < count; ++k) insert(to + k, moved[k]);
  for (const auto& [label, offset] : own) f.labels[label].position = static_cast<uint32_t>(to) + offset;
}

void Edit::replace(size_t i, Mod mod, Mod with) {
  for (uint8_t k = 0; k < at(i).suffix_count; ++k)
    if (at(i).suffix_array[k] == ptx::Suffix(mod)) at(i).suffix_array[k] = with;
}

void Edit::add_words(size_t i, size_t at_word, std::initializer_list<ptx::Suffix> words) {
  Instruction& insn = at(i);
  for (size_t k = insn.suffix_count; k-- > at_word;)
    insn.suffix_array[k + words.size()] = insn.suffix_array[k];
  std::copy(words.begin(), words.end(), insn.suffix_array.begin() + static_cast<ptrdiff_t>(at_word));
  insn.suffix_count += static_cast<uint8_t>(words.size());
}

void Edit::remove_word(size_t i, Mod mod) {
  Instruction& insn = at(i);
  uint8_t kept = 0;
  for (uint8_t k = 0; k < insn.suffix_count; ++k)
    if (insn.suffix_array[k] != ptx::Suffix(mod)) insn.suffix_array[kept++] = insn.suffix_array[k];
  insn.suffix_count = kept;
}

ptx::Reg Edit::fresh(ptx::ScalarType type) {
  Function& f = function();
  f.register_decls.push_back({"%changed" + std::to_string(fresh_++), type, false, 1});
  f.registers.push_back({static_cast<uint32_t>(f.register_decls.size() - 1), 0, type});
  return ptx::Reg{static_cast<uint32_t>(f.registers.size() - 1)};
}

void Edit::set_mask(size_t i, size_t k, int64_t mask) {
  if (operand(i, k).is_immediate()) {
    operand(i, k).value = mask;
    return;
  }
  const ptx::Reg number = fresh(ptx::ScalarType::b16);
  insert(i, Op::mov, {ptx::ScalarType::b16}, {number, mask});
  operand(i + 1, k) = number;
}

Operand Edit::pair(Operand d, Operand p) {
  Operand result;
  result.kind = OperandKind::pair;
  result.id = static_cast<uint32_t>(function().operands.size());
  result.count = 2;
  function().operands.push_back(d);
  function().operands.push_back(p);
  return result;
}

codegen::CompiledKernel Edit::finish() {
  kernel.ptx = ptx::write(module_);
  return std::move(kernel);
}

bool is_branch(const Instruction& i) { return i.op == Op::bra; }

size_t target_of(const Function& f, const Instruction& branch) {
  return f.labels[f.operands[branch.first_operand].id].position;
}

bool is_wait(const Function& f, size_t i) {
  return f.body[i].op == Op::mbarrier_try_wait && i + 1 < f.body.size() && is_branch(f.body[i + 1]) &&
         target_of(f, f.body[i + 1]) == i;
}

std::optional<size_t> skipping_branch(const Function& f, size_t i, size_t reach) {
  for (size_t b = i; b-- > 0 && i - b <= reach;) {
    if (!is_branch(f.body[b])) continue;
    if (!f.body[b].guard.is_valid()) return std::nullopt;
    const size_t target = target_of(f, f.body[b]);
    if (target <= b) return std::nullopt;  // a loop's end
    if (target > i) return b;
  }
  return std::nullopt;
}

std::optional<size_t> definition_before(const Function& f, size_t i, ptx::Reg reg) {
  while (i-- > 0) {
    const Instruction& insn = f.body[i];
    if (insn.operand_count == 0 || is_branch(insn)) continue;
    const Operand& d = f.operands[insn.first_operand];
    if (d.is_reg() && d.reg() == reg && insn.op != Op::st && insn.op != Op::tcgen05_dealloc) return i;
    if (!d.has_elements()) continue;
    for (const Operand& element : f.elements_of(d))
      if (element.is_reg() && element.reg() == reg) return i;
  }
  return std::nullopt;
}

bool varies_by_lane(const Function& f, size_t i, ptx::Reg reg) {
  const std::optional<size_t> definition = definition_before(f, i, reg);
  if (!definition) return false;
  const Instruction& insn = f.body[*definition];
  if (insn.op == Op::shfl_sync) return false;  // the number of the warp
  for (size_t k = 1; k < insn.operand_count; ++k) {
    const Operand& source = f.operands[insn.first_operand + k];
    if (source.kind == OperandKind::special) {
      const auto special = static_cast<ptx::SpecialReg>(source.id);
      if (special == ptx::SpecialReg::tid_x || special == ptx::SpecialReg::laneid) return true;
    }
    if (source.is_reg() && varies_by_lane(f, *definition, source.reg())) return true;
  }
  return false;
}

bool is_elected(const Function& f, ptx::Reg predicate) {
  for (const Instruction& insn : f.body) {
    if (insn.op != Op::elect_sync) continue;
    for (const Operand& element : f.elements_of(f.operands[insn.first_operand]))
      if (element.is_reg() && element.reg() == predicate) return true;
  }
  return false;
}

}  // namespace imbrex::mutants
