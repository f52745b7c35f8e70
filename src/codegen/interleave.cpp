// SPDX-License-Identifier: Apache-2.0
#include "codegen/interleave.h"

#include <algorithm>
#include <set>

#include "ptx/insns.h"
#include "ptx/operands.h"

namespace imbrex::codegen {

using ptx::Instruction;
using ptx::Op;
using ptx::Operand;
using ptx::OperandKind;

namespace {

// Measured on an H200: one and two are alike, four are as slow as all loads at once.
constexpr size_t kProductsPerLoad = 2;

bool is_load(const Instruction& i) { return i.op == Op::ldmatrix; }
bool is_copy(const Instruction& i) { return i.op == Op::cp_async || i.op == Op::cp_async_commit_group; }

/// Arithmetic on registers: what addresses and predicates are made of.
bool is_arithmetic(const Instruction& i) { return ptx::has_trait(i.op, ptx::kAddress); }

class Interleaver {
 public:
  explicit Interleaver(ptx::Function& function) : f_(function) {
    for (const ptx::Label& label : f_.labels) targets_.insert(label.position);
    for (const ptx::Pragma& pragma : f_.body_pragmas) targets_.insert(pragma.position);
  }

  void run() {
    std::vector<Instruction>& body = f_.body;
    for (size_t i = 0; i < body.size();) {
      if (body[i].op != Op::mma_sync) {
        ++i;
        continue;
      }
      size_t end = i + 1;
      while (end < body.size() && body[end].op == Op::mma_sync && !is_target(end)) ++end;
      spread(loads_before(i), i, end);
      i = end;
    }
  }

 private:
  bool is_target(size_t position) const { return targets_.count(static_cast<uint32_t>(position)) != 0; }

  /// The first of the loads, copies and address computations that end right before `position`.
  size_t loads_before(size_t position) const {
    size_t begin = position;
    while (begin > 0 && !is_target(begin)) {
      const Instruction& i = f_.body[begin - 1];
      if (!is_load(i) && !is_copy(i) && !is_arithmetic(i)) break;
      --begin;
    }
    return begin;
  }

  /// Moves what can wait of [first, begin) among the products [begin, end).
  void spread(size_t first, size_t begin, size_t end) {
    std::set<uint32_t> used;  // by the products and by what stays where it is
    const auto note = [&](uint32_t id, bool) { used.insert(id); };
    for (size_t i = first; i < end; ++i)
      if (!is_load(f_.body[i]))
        for (const Operand& operand : f_.operands_of(f_.body[i])) ptx::each_register(f_, operand, note);
    std::vector<Instruction> early, loads, copies;
    std::set<uint32_t> used_late;  // by what moves
    for (size_t i = first; i < begin; ++i) {
      const Instruction& it = f_.body[i];
      bool can_move = is_load(it) || is_copy(it);
      if (is_load(it))
        ptx::each_register(f_, f_.operands_of(it)[0],
                           [&](uint32_t id, bool) { can_move &= !used.count(id); });
      if (can_move) {
        for (const Operand& operand : f_.operands_of(it))
          ptx::each_register(f_, operand, [&](uint32_t id, bool) { used_late.insert(id); });
        if (it.guard.is_valid()) used_late.insert(it.guard.id);
      } else if (is_arithmetic(it)) {  // an address that is advanced: then nothing can move
        bool is_changed = false;
        ptx::each_register(f_, f_.operands_of(it)[0],
                           [&](uint32_t id, bool) { is_changed |= used_late.count(id) != 0; });
        if (is_changed) return;
      }
      (!can_move ? early : is_load(it) ? loads : copies).push_back(it);
    }
    if (loads.empty() && copies.empty()) return;
    // The loads early, so that they complete before the next run needs them; the copies evenly among the rest.
    const size_t products = end - begin;
    const size_t taken = std::min(products, loads.size() * kProductsPerLoad);  // by loads
    std::vector<Instruction> order = std::move(early);
    size_t load = 0, copy = 0;
    for (size_t p = 0; p < products; ++p) {
      while (load < loads.size() && load * kProductsPerLoad <= p) order.push_back(loads[load++]);
      while (copy < copies.size() && p >= taken + (2 * copy + 1) * (products - taken) / (2 * copies.size()))
        order.push_back(copies[copy++]);
      order.push_back(f_.body[begin + p]);
    }
    order.insert(order.end(), loads.begin() + static_cast<ptrdiff_t>(load), loads.end());
    order.insert(order.end(), copies.begin() + static_cast<ptrdiff_t>(copy), copies.end());
    std::copy(order.begin(), order.end(), f_.body.begin() + static_cast<ptrdiff_t>(first));
  }

  ptx::Function& f_;
  std::set<uint32_t> targets_;  // positions that are jumped to
};

}  // namespace

void interleave_loads(ptx::Function& function) { Interleaver(function).run(); }

}  // namespace imbrex::codegen
