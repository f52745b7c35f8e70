// SPDX-License-Identifier: Apache-2.0
#include "vgpu/program/shared_slots.h"

#include <algorithm>
#include <string_view>

#include "ptx/operands.h"
#include "vgpu/program/control_flow.h"

namespace imbrex::vgpu {

namespace {

using ptx::Op;

constexpr uint32_t kNone = ~0u;

/// Registers of such instructions are read or written when others have been executed since, or may be looked at then.
bool looks_later(const ptx::Instruction& insn) {
  const std::string_view name = ptx::name(insn.op);
  return name.starts_with("wgmma") || name.starts_with("tcgen05") || name.starts_with("call") ||
         name.starts_with("setp");
}

/// The instructions between which a register is needed, if all of them are in one block.
struct Range {
  uint32_t first = kNone, last = kNone;
  bool may_share = true;
};

class Ranges {
 public:
  explicit Ranges(const ptx::Function& f) : f_(f), ranges_(f.registers.size()) {
    for (size_t i = 0; i < ranges_.size(); ++i)
      if (f.registers[i].type == ptx::ScalarType::pred) ranges_[i].may_share = false;
    for (const std::vector<ptx::Variable>* parameters : {&f.params, &f.return_params})
      for (const ptx::Variable& v : *parameters)
        if (v.space == ptx::Space::reg) ranges_[v.reg.id].may_share = false;
  }

  /// The instruction `at` of a block that starts with instruction `begin`.
  void pass(uint32_t at, uint32_t begin) {
    const ptx::Instruction& insn = f_.body[at];
    const std::string kinds = ptx::slot_kinds(insn);
    const auto operands = f_.operands_of(insn);
    const bool is_kept = looks_later(insn), is_sure = !insn.guard.is_valid();
    const auto each = [&](bool written) {
      for (size_t slot = 0; slot < operands.size(); ++slot)
        ptx::each_register(f_, operands[slot], [&](uint32_t id, bool in_address) {
          if ((ptx::is_written(kinds, slot) && !in_address) != written) return;
          if (is_kept) ranges_[id].may_share = false;
          mention(id, at, begin, written && is_sure);
        });
    };
    each(false);
    each(true);
  }
  /// `writes`: for all lanes that are there.
  void mention(uint32_t id, uint32_t at, uint32_t begin, bool writes) {
    Range& range = ranges_[id];
    if (range.first == kNone) {
      range.first = at;
      range.may_share = range.may_share && writes;
    }
    range.may_share = range.may_share && range.first >= begin;
    range.last = at;
  }
  const std::vector<Range>& all() const { return ranges_; }

 private:
  const ptx::Function& f_;
  std::vector<Range> ranges_;
};

}  // namespace

std::vector<uint32_t> shared_slots(const ptx::Function& f,
                                   const std::map<uint32_t, Contraction>& contractions) {
  Ranges ranges(f);
  for (const Block& block : basic_blocks(f))
    for (uint32_t i = block.begin; i < std::min<size_t>(block.end, f.body.size()); ++i) {
      ranges.pass(i, block.begin);
      // A sum that takes a product in reads its factors.
      if (const auto sum = contractions.find(i); sum != contractions.end())
        for (const ptx::Operand& o : f.operands_of(f.body[sum->second.product]).subspan(1))
          ptx::each_register(f, o, [&](uint32_t id, bool) { ranges.mention(id, i, block.begin, false); });
    }

  std::vector<uint32_t> by_first;
  for (uint32_t id = 0; id < f.registers.size(); ++id)
    if (ranges.all()[id].may_share && ranges.all()[id].first != kNone) by_first.push_back(id);
  std::vector<uint32_t> by_last = by_first;
  std::ranges::sort(by_first, {}, [&](uint32_t id) { return ranges.all()[id].first; });
  std::ranges::sort(by_last, {}, [&](uint32_t id) { return ranges.all()[id].last; });
  std::vector<uint32_t> slots(f.registers.size(), kOwnSlot);
  struct Pool {
    std::vector<uint32_t> free;
    uint32_t count = 0;
  };
  std::map<int, Pool> pools;  // by size
  const auto pool_of = [&](uint32_t id) -> Pool& {
    return pools[std::max(32, ptx::bits(f.registers[id].type))];
  };
  auto ended = by_last.begin();
  for (const uint32_t id : by_first) {
    // Only behind their last instruction: its results must not lie where its operands do.
    for (; ranges.all()[*ended].last < ranges.all()[id].first; ++ended)
      pool_of(*ended).free.push_back(slots[*ended]);
    Pool& pool = pool_of(id);
    if (pool.free.empty()) pool.free.push_back(pool.count++);
    slots[id] = pool.free.back();
    pool.free.pop_back();
  }
  return slots;
}

}  // namespace imbrex::vgpu
