// SPDX-License-Identifier: Apache-2.0
#include "vgpu/program/contraction.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "ptx/operands.h"
#include "vgpu/program/control_flow.h"
#include "vgpu/program/decode.h"
#include "vgpu/program/program_builder.h"

namespace imbrex::vgpu {

namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

constexpr size_t kLeft = 1, kRight = 2, kOperands = 3;

bool is_real(ScalarType type) {
  switch (type) {
    case ScalarType::f32:
    case ScalarType::f64:
    case ScalarType::f16:
    case ScalarType::f16x2:
    case ScalarType::bf16:
    case ScalarType::bf16x2:
      return true;
    default:
      return false;
  }
}
bool is_open(const ptx::Instruction& insn) {
  return is_real(insn.type()) && insn.type_count() == 1 && insn.operand_count == kOperands &&
         !insn.has(Mod::rn) && !insn.has(Mod::rz) && !insn.has(Mod::rm) && !insn.has(Mod::rp);
}
bool is_sum(const ptx::Instruction& insn) {
  return (insn.op == Op::add || insn.op == Op::sub) && is_open(insn);
}
bool is_product(const ptx::Instruction& insn) {
  return insn.op == Op::mul && is_open(insn) && !insn.has(Mod::sat) && !insn.guard.is_valid();
}
/// Whether it gives the product, or one that has been passed on, another name.
bool passes_on(const ptx::Instruction& insn, const ptx::Instruction& product) {
  if (insn.guard.is_valid() || insn.operand_count != 2) return false;
  if (insn.op == Op::mov) return ptx::bits(insn.type()) == ptx::bits(product.type());
  return insn.op == Op::neg && insn.type() == product.type() && insn.type() != ScalarType::bf16x2 &&
         (!insn.has(Mod::ftz) || product.has(Mod::ftz));
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
        for (const auto& [sum, contraction] : sums_.at(product)) {
          const auto [at, is_new] = chosen.try_emplace(sum, contraction);
          if (!is_new && contraction.is_left) at->second = contraction;
        }
      const size_t before = candidates_.size();
      std::erase_if(candidates_, [&](uint32_t product) {
        return std::ranges::any_of(sums_.at(product),
                                   [&](const auto& of) { return chosen.at(of.first).product != product; });
      });
      if (candidates_.size() == before) return chosen;
    }
  }

 private:
  using Sums = std::map<uint32_t, Contraction>;

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
    if (!factors[0].is_reg() || writes_[factors[0].id] != 1) return;
    // The registers that hold the product, and whether it is negated there; who mentions them but where they are written.
    std::map<uint32_t, bool> names = {{factors[0].id, false}};
    uint32_t mentions = 0;
    const auto name_of = [&](const ptx::Operand& o) { return o.is_reg() ? names.find(o.id) : names.end(); };
    Sums sums;
    bool are_factors_kept = true;
    for (uint32_t i = product + 1; i < std::min<size_t>(block.end, f_.body.size()) && are_factors_kept; ++i) {
      const ptx::Instruction& insn = f_.body[i];
      const auto operands = f_.operands_of(insn);
      if (is_sum(insn) && insn.type() == mul.type() && insn.has(Mod::ftz) == mul.has(Mod::ftz)) {
        const auto left = name_of(operands[kLeft]), right = name_of(operands[kRight]);
        const bool is_left = left != names.end(), is_difference = insn.op == Op::sub;
        if (is_left != (right != names.end())) {
          const bool is_negated = is_left ? left->second : right->second;
          sums[i] = {product, is_left, is_negated != (is_difference && !is_left), is_difference && is_left};
          ++mentions;
        }
      } else if (passes_on(insn, mul) && operands[0].is_reg() && writes_[operands[0].id] == 1) {
        if (const auto from = name_of(operands[1]); from != names.end()) {
          names.emplace(operands[0].id, from->second != (insn.op == Op::neg));
          ++mentions;
        }
      }
      ptx::each_result(f_, insn, [&](uint32_t id) {
        const auto is = [&](const ptx::Operand& o) { return o.is_reg() && o.id == id; };
        are_factors_kept &= !is(factors[kLeft]) && !is(factors[kRight]);
      });
    }
    for (const auto& [name, is_negated] : names) mentions -= uses_[name] - 1;
    if (!sums.empty() && mentions == 0) sums_[product] = std::move(sums);
  }

  const ptx::Function& f_;
  std::set<uint32_t> candidates_;
  std::map<uint32_t, Sums> sums_;        // by product
  std::vector<uint32_t> writes_, uses_;  // by register
};

}  // namespace

std::map<uint32_t, Contraction> contractions(const ptx::Function& function) {
  return Finder(function).found();
}

void take_contracted(Decoder& decoder, Instruction& out, const Contraction& contraction,
                     ptx::ScalarType type) {
  const ptx::Function& f = *decoder.layout().function;
  const auto factors = f.operands_of(f.body[contraction.product]);
  out.d = decoder.destination(0, type);
  out.a = decoder.source(factors[kLeft], type);
  out.b = decoder.source(factors[kRight], type);
  out.c = decoder.source(contraction.is_left ? kRight : kLeft, type);
}

}  // namespace imbrex::vgpu
