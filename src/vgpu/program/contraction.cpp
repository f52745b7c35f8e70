// SPDX-License-Identifier: Apache-2.0
#include "vgpu/program/contraction.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "ptx/operands.h"
#include "vgpu/program/control_flow.h"

namespace imbrex::vgpu {

namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

constexpr size_t kLeft = 1, kRight = 2, kOperands = 3;

bool is_open(const ptx::Instruction& insn) {
  const bool is_wide = insn.type() == ScalarType::f32 || insn.type() == ScalarType::f64;
  return is_wide && insn.type_count() == 1 && insn.operand_count == kOperands && !insn.has(Mod::rn) &&
         !insn.has(Mod::rz) && !insn.has(Mod::rm) && !insn.has(Mod::rp);
}
bool is_sum(const ptx::Instruction& insn) {
  return (insn.op == Op::add || insn.op == Op::sub) && is_open(insn);
}
bool is_product(const ptx::Instruction& insn) {
  return insn.op == Op::mul && is_open(insn) && !insn.has(Mod::sat) && !insn.guard.is_valid();
}

class Finder {
 public:
  explicit Finder(const ptx::Function& f) : f_(f) {
    for (uint32_t i = 0; i < f.body.size(); ++i)
      if (is_product(f.body[i])) candidates_.insert(i);
    if (candidates_.empty()) return;
    count_writes();
    for (const Block& block : basic_blocks(f))
      for (uint32_t i = block.begin; i < std::min<size_t>(block.end, f.body.size()); ++i)
        if (candidates_.contains(i)) note_uses(i, block);
    std::erase_if(candidates_, [&](uint32_t product) { return !sums_.contains(product); });
  }

  /// A product whose sums do not all take it in is computed and rounded for itself, and then all of them use that.
  std::map<uint32_t, Contraction> found() {
    for (;;) {
      std::map<uint32_t, Contraction> chosen;
      for (const uint32_t product : candidates_)
        for (const uint32_t sum : sums_.at(product)) {
          const bool is_left = f_.operands_of(f_.body[sum])[kLeft] == product_of(product);
          const auto [at, is_new] = chosen.try_emplace(sum, Contraction{product, is_left});
          if (!is_new && is_left) at->second = {product, true};
        }
      const size_t before = candidates_.size();
      std::erase_if(candidates_, [&](uint32_t product) {
        return std::ranges::any_of(sums_.at(product),
                                   [&](uint32_t sum) { return chosen.at(sum).product != product; });
      });
      if (candidates_.size() == before) return chosen;
    }
  }

 private:
  struct Register {
    uint32_t id;
    friend bool operator==(const ptx::Operand& o, Register r) { return o.is_reg() && o.id == r.id; }
  };
  Register product_of(uint32_t product) const { return {f_.operands_of(f_.body[product])[0].id}; }

  void count_writes() {
    writes_.assign(f_.registers.size(), 0);
    uses_.assign(f_.registers.size(), 0);
    for (const ptx::Instruction& insn : f_.body) {
      ptx::each_result(f_, insn, [&](uint32_t id) { ++writes_[id]; });
      for (const ptx::Operand& o : f_.operands_of(insn))
        ptx::each_register(f_, o, [&](uint32_t id, bool) { ++uses_[id]; });
    }
  }

  void note_uses(uint32_t product, const Block& block) {
    const ptx::Instruction& mul = f_.body[product];
    const auto factors = f_.operands_of(mul);
    const Register result = product_of(product);
    if (!factors[0].is_reg() || writes_[result.id] != 1) return;
    std::vector<uint32_t> sums;
    bool are_factors_kept = true;
    for (uint32_t i = product + 1; i < std::min<size_t>(block.end, f_.body.size()) && are_factors_kept; ++i) {
      const ptx::Instruction& insn = f_.body[i];
      const auto operands = f_.operands_of(insn);
      if (is_sum(insn) && insn.type() == mul.type() && insn.has(Mod::ftz) == mul.has(Mod::ftz) &&
          (operands[kLeft] == result) != (operands[kRight] == result))
        sums.push_back(i);
      ptx::each_result(f_, insn, [&](uint32_t id) {
        are_factors_kept &= !(factors[kLeft] == Register{id}) && !(factors[kRight] == Register{id});
      });
    }
    // Every mention of the product but where it is made.
    if (!sums.empty() && sums.size() + 1 == uses_[result.id]) sums_[product] = std::move(sums);
  }

  const ptx::Function& f_;
  std::set<uint32_t> candidates_;
  std::map<uint32_t, std::vector<uint32_t>> sums_;  // by product
  std::vector<uint32_t> writes_, uses_;             // by register
};

}  // namespace

std::map<uint32_t, Contraction> contractions(const ptx::Function& function) {
  return Finder(function).found();
}

}  // namespace imbrex::vgpu
