// SPDX-License-Identifier: Apache-2.0
#include "codegen/fuse_logic.h"

#include <set>
#include <vector>

#include "ptx/operands.h"

namespace imbrex::codegen {

using ptx::Instruction;
using ptx::Op;
using ptx::Operand;

namespace {

constexpr uint32_t kNowhere = Instruction::kNone;

/// What the text says of a register.
struct Facts {
  int writes = 0, mentions = 0;       // a write is a mention
  uint32_t last_write = kNowhere;     // so far
  uint32_t mask_position = kNowhere;  // of the `and` with a constant that wrote it last
};

bool is_plain(const ptx::Function& f, const Instruction& i, Op op) {
  if (i.op != op || i.guard.is_valid() || i.operand_count != 3) return false;
  if (i.type() != ptx::ScalarType::b32) return false;
  const auto operands = f.operands_of(i);
  return operands[0].is_reg() && operands[1].is_reg() && operands[2].kind == ptx::OperandKind::immediate;
}

}  // namespace

void fuse_logic(ptx::Function& f) {
  std::vector<Facts> facts(f.registers.size());
  for (const Instruction& i : f.body) {
    for (const Operand& operand : f.operands_of(i))
      ptx::each_register(f, operand, [&](uint32_t id, bool) { ++facts[id].mentions; });
    if (i.guard.is_valid()) ++facts[i.guard.id].mentions;
    ptx::each_result(f, i, [&](uint32_t id) { ++facts[id].writes; });
  }
  std::set<uint32_t> targets;
  for (const ptx::Label& label : f.labels) targets.insert(label.position);

  uint32_t block = 0;  // where the code began that runs through to here
  std::set<uint32_t> fused;
  for (uint32_t at = 0; at < f.body.size(); ++at) {
    Instruction& i = f.body[at];
    if (targets.count(at)) block = at;
    const bool is_or = is_plain(f, i, Op::or_);
    if (is_or || is_plain(f, i, Op::xor_)) {
      const Operand result = f.operands_of(i)[0], constant = f.operands_of(i)[2];
      const Facts& masked = facts[f.operands_of(i)[1].id];
      const uint32_t mask = masked.mask_position;
      if (mask != kNowhere && mask >= block && masked.writes == 1 && masked.mentions == 2) {
        const Operand source = f.operands_of(f.body[mask])[1], bits = f.operands_of(f.body[mask])[2];
        const uint32_t written = facts[source.id].last_write;
        if (written == kNowhere || written < mask) {  // it is what it was
          constexpr int kA = 0xf0, kB = 0xcc, kC = 0xaa;
          const int table = is_or ? (kA & kB) | kC : (kA & kB) ^ kC;
          i.op = Op::lop3;
          i.first_operand = static_cast<uint32_t>(f.operands.size());
          i.operand_count = 5;
          f.operands.insert(f.operands.end(), {result, source, bits, constant, Operand(table)});
          fused.insert(mask);
        }
      }
    }
    const bool is_mask = is_plain(f, i, Op::and_);
    ptx::each_result(f, i, [&](uint32_t id) {
      facts[id].last_write = at;
      facts[id].mask_position = is_mask ? at : kNowhere;
    });
  }
  if (fused.empty()) return;

  // Closes the gaps.
  std::vector<Instruction> body;
  std::vector<uint32_t> moved(f.body.size() + 1);
  for (uint32_t at = 0; at < f.body.size(); ++at) {
    moved[at] = static_cast<uint32_t>(body.size());
    if (!fused.count(at)) body.push_back(f.body[at]);
  }
  moved[f.body.size()] = static_cast<uint32_t>(body.size());
  for (ptx::Label& label : f.labels)
    if (label.position != ptx::Label::kUnbound) label.position = moved[label.position];
  for (ptx::Pragma& pragma : f.body_pragmas) pragma.position = moved[pragma.position];
  f.body = std::move(body);
}

}  // namespace imbrex::codegen
