// SPDX-License-Identifier: Apache-2.0
#include "vgpu/timeline/machine_costs.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include "imbrex/vgpu/timeline_assembler.h"
#include "ptx/machine_code.h"
#include "vgpu/timeline/machine_issue.h"

namespace imbrex::vgpu {
namespace {

/// Opcodes of instructions that the assembler makes of one of PTX each, and does not drop or merge: accesses of memory, shuffles, special
/// functions, products, barriers. More than one of them at a line of PTX are copies of it.
bool is_anchor(uint16_t opcode) {
  switch (opcode) {
    case 0x181:  // LDG
    case 0x184:  // LDS
    case 0x186:  // STG
    case 0x188:  // STS
    case 0x03B:  // LDSM
    case 0x03C:  // HMMA
    case 0x037:  // IMMA
    case 0x108:  // MUFU
    case 0x11D:  // BAR
    case 0x189:  // SHFL
    case 0x1C4:  // REDUX
    case 0x1AE:  // LDGSTS
    case 0x1B4:  // UTMALDG
      return true;
    default:
      return false;
  }
}

constexpr ptrdiff_t kLineInstructions = 8;  // of 128 bytes

struct Line {
  std::vector<const ptx::MachineInstruction*> all;
  int written = 0;  // instructions of PTX at it
  int anchors(int depth) const {
    return static_cast<int>(std::count_if(all.begin(), all.end(), [&](const auto* insn) {
      return is_anchor(insn->opcode) && insn->depth >= depth;
    }));
  }
};

bool has_label(const std::vector<std::string>& text, int from, int to) {
  for (int line = from; line < to && line <= static_cast<int>(text.size()); ++line) {
    const std::string& each = text[static_cast<size_t>(line - 1)];
    const size_t last = each.find_last_not_of(" \t\r");
    if (last != std::string::npos && each[last] == ':') return true;
  }
  return false;
}

/// Costs of a block, instructions that are executed one after the other. Assemblers copy loops' bodies, so that there are `copies` of
/// each instruction; and what lies in fewer loops than its block does is executed before them.
void cost_block(const Program& program, const ptx::MachineCode& code, const std::vector<float>& clocks,
                const std::vector<Line>& lines, size_t begin, size_t end, MachineCosts& costs) {
  const auto line_of = [&](size_t i) -> const Line& {
    const auto line = static_cast<size_t>(std::max(0, program.info[i].ptx_line));
    return lines[line < lines.size() ? line : 0];
  };
  int depth = -1;
  std::vector<uint8_t> depths;
  for (size_t i = begin; i < end; ++i) {
    int deepest = -1;
    for (const ptx::MachineInstruction* insn : line_of(i).all) {
      depths.push_back(insn->depth);
      if (is_anchor(insn->opcode)) deepest = std::max<int>(deepest, insn->depth);
    }
    if (deepest >= 0) depth = depth < 0 ? deepest : std::min(depth, deepest);
  }
  if (depths.empty()) return;
  if (depth < 0) {
    std::nth_element(depths.begin(), depths.begin() + static_cast<ptrdiff_t>(depths.size() / 2),
                     depths.end());
    depth = depths[depths.size() / 2];
  }
  int anchored = 0, any = 0;
  const auto least = [](int& so_far, int count) {
    if (count > 0) so_far = so_far == 0 ? count : std::min(so_far, count);
  };
  for (size_t i = begin; i < end; ++i) {
    const Line& line = line_of(i);
    least(anchored, line.anchors(depth));
    least(any, static_cast<int>(std::count_if(line.all.begin(), line.all.end(),
                                              [&](const auto* insn) { return insn->depth >= depth; })));
  }
  const auto copies = static_cast<float>(std::max(1, anchored > 0 ? anchored : any));
  for (size_t i = begin; i < end; ++i) {
    const float share = 1 / copies / static_cast<float>(std::max(1, line_of(i).written));
    costs.costs[i].code = static_cast<uint32_t>(costs.code.size());
    for (const ptx::MachineInstruction* insn : line_of(i).all)
      if (insn->depth >= depth) {
        const auto at = static_cast<uint16_t>((insn - code.instructions.data()) / kLineInstructions);
        if (costs.costs[i].code_count == 0 || costs.code.back() != at) {
          costs.code.push_back(at);
          ++costs.costs[i].code_count;
        }
        costs.costs[i].issue += share;
        const auto [pipe, taken] = busy(insn->opcode);
        costs.costs[i].pipes[static_cast<size_t>(pipe)] += taken * share;
        costs.costs[i].shared += shuffle_clocks(insn->opcode) * share;
        costs.costs[i].stall += clocks[static_cast<size_t>(insn - code.instructions.data())] * share;
      }
  }
}

std::mutex assembler_mutex, known_mutex;
TimelineAssembler assembler;
std::unordered_map<const Program*, const MachineCosts*> known;

}  // namespace

MachineCosts machine_costs(const Program& program, const ptx::MachineCode& code) {
  MachineCosts costs;
  costs.registers = code.registers;
  costs.costs.resize(program.info.size());
  costs.code_lines = code.instructions.size() / kLineInstructions + 1;
  std::vector<Line> lines(1);
  for (const ptx::MachineInstruction& insn : code.instructions) {
    if (insn.ptx_line <= 0) continue;
    if (lines.size() <= static_cast<size_t>(insn.ptx_line))
      lines.resize(static_cast<size_t>(insn.ptx_line) + 1);
    lines[static_cast<size_t>(insn.ptx_line)].all.push_back(&insn);
  }
  for (const InstructionInfo& info : program.info)
    if (info.ptx_line > 0 && static_cast<size_t>(info.ptx_line) < lines.size())
      ++lines[static_cast<size_t>(info.ptx_line)].written;
  const std::vector<float> clocks = issue_clocks(code);
  const size_t count = program.info.size();
  for (size_t begin = 0; begin < count;) {
    size_t end = begin + 1;
    while (end < count && !program.info[end - 1].ends_block &&
           !has_label(*program.text, program.info[end - 1].ptx_line + 1, program.info[end].ptx_line))
      ++end;
    cost_block(program, code, clocks, lines, begin, end, costs);
    begin = end;
  }
  return costs;
}

void set_timeline_assembler(TimelineAssembler given) {
  const std::lock_guard lock(assembler_mutex);
  assembler = std::move(given);
}

std::shared_ptr<const MachineCosts> assembled_costs(const Program& program, const std::string& target,
                                                    int sm) {
  const std::lock_guard lock(assembler_mutex);
  if (!assembler) return nullptr;
  std::string ptx;
  for (const std::string& line : *program.text) ptx += line + '\n';
  const std::string cubin = assembler(ptx, program.name, target);
  const std::optional<ptx::MachineCode> code = ptx::read_machine_code(cubin, program.name, sm);
  if (!code) return nullptr;
  auto costs = std::make_unique<MachineCosts>(machine_costs(program, *code));
  const std::lock_guard knowing(known_mutex);
  known[&program] = costs.get();
  return {costs.release(), [key = &program](const MachineCosts* gone) {
            {
              const std::lock_guard forgetting(known_mutex);
              known.erase(key);
            }
            delete gone;
          }};
}

const MachineCosts* assembled_costs_of(const Program& program) {
  const std::lock_guard lock(known_mutex);
  const auto found = known.find(&program);
  return found == known.end() ? nullptr : found->second;
}

}  // namespace imbrex::vgpu
