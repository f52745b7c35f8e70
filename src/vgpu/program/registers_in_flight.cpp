// SPDX-License-Identifier: Apache-2.0
#include "vgpu/program/registers_in_flight.h"

#include <algorithm>
#include <map>

#include "ptx/operands.h"
#include "vgpu/program/control_flow.h"

namespace imbrex::vgpu {

namespace {

using ptx::Op;

bool is_product(const ptx::Instruction& insn) {
  return insn.op == Op::wgmma_mma_async || insn.op == Op::wgmma_mma_async_sp;
}

/// By result register of an asynchronous instruction: how many commits, at the least, have followed it without
/// a wait. A load counts as one without a commit.
using Ages = std::vector<uint8_t>;
constexpr uint8_t kDone = 255, kOldest = 254;

class Flow {
 public:
  explicit Flow(const ptx::Function& f) : f_(f) {
    for (const ptx::Instruction& insn : f.body)
      if (insn.op == Op::tcgen05_ld || is_product(insn))
        ptx::each_register(f, f.operands_of(insn)[0], [&](uint32_t reg, bool) {
          if (numbers_.try_emplace(reg, static_cast<uint32_t>(writers_.size())).second)
            writers_.push_back(insn.op == Op::tcgen05_ld ? kLoadWrites : kProductWrites);
        });
  }
  bool empty() const { return writers_.empty(); }
  Ages start() const { return Ages(writers_.size(), kDone); }

  /// The writers of what the instruction uses.
  uint8_t uses(const ptx::Instruction& insn, const Ages& ages) const {
    uint8_t writers = 0;
    const std::span<const ptx::Operand> operands = f_.operands_of(insn);
    for (size_t i = is_product(insn) ? 1 : 0; i < operands.size(); ++i)
      ptx::each_register(f_, operands[i], [&](uint32_t reg, bool) {
        const auto at = numbers_.find(reg);
        if (at != numbers_.end() && ages[at->second] != kDone) writers |= writers_[at->second];
      });
    return writers;
  }

  void pass(const ptx::Instruction& insn, Ages& ages) const {
    const bool always = !insn.guard.is_valid();
    switch (insn.op) {
      case Op::tcgen05_ld:
      case Op::wgmma_mma_async:
      case Op::wgmma_mma_async_sp:
        ptx::each_register(f_, f_.operands_of(insn)[0],
                           [&](uint32_t reg, bool) { ages[numbers_.at(reg)] = 0; });
        break;
      case Op::tcgen05_wait_ld:
        if (always) finish(kLoadWrites, 0, ages);
        break;
      case Op::wgmma_commit_group:
        if (always)
          for (size_t i = 0; i < ages.size(); ++i)
            if (writers_[i] == kProductWrites && ages[i] < kOldest) ++ages[i];
        break;
      case Op::wgmma_wait_group:
        if (always) finish(kProductWrites, f_.operands_of(insn)[0].value + 1, ages);
        break;
      default:
        break;
    }
  }

 private:
  void finish(RegisterWriter writer, int64_t age, Ages& ages) const {
    for (size_t i = 0; i < ages.size(); ++i)
      if (writers_[i] == writer && ages[i] >= age) ages[i] = kDone;
  }

  const ptx::Function& f_;
  std::map<uint32_t, uint32_t> numbers_;  // of registers, in Ages
  std::vector<RegisterWriter> writers_;
};

}  // namespace

std::vector<uint8_t> uses_in_flight(const ptx::Function& f) {
  const Flow flow(f);
  if (flow.empty()) return {};
  const std::vector<Block> blocks = basic_blocks(f);
  std::vector<Ages> at_entry(blocks.size());
  at_entry[0] = flow.start();
  std::vector<uint32_t> changed{0};
  while (!changed.empty()) {
    const Block& block = blocks[changed.back()];
    Ages ages = at_entry[changed.back()];
    changed.pop_back();
    for (uint32_t i = block.begin; i < std::min<size_t>(block.end, f.body.size()); ++i)
      flow.pass(f.body[i], ages);
    for (const uint32_t next : block.successors) {
      Ages& there = at_entry[next];
      Ages met = there.empty() ? ages : there;
      for (size_t i = 0; i < met.size(); ++i) met[i] = std::min(met[i], ages[i]);
      if (met == there) continue;
      there = std::move(met);
      changed.push_back(next);
    }
  }
  std::vector<uint8_t> uses(f.body.size(), 0);
  for (size_t b = 0; b < blocks.size(); ++b) {
    Ages ages = at_entry[b];
    if (ages.empty()) continue;  // never reached
    for (uint32_t i = blocks[b].begin; i < std::min<size_t>(blocks[b].end, f.body.size()); ++i) {
      uses[i] = flow.uses(f.body[i], ages);
      flow.pass(f.body[i], ages);
    }
  }
  return uses;
}

}  // namespace imbrex::vgpu
