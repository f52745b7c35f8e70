// SPDX-License-Identifier: Apache-2.0
// Faults in waiting: for mbarriers, by phase.
#include "mutants/rules.h"

namespace imbrex::mutants {
namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

constexpr size_t kWait = 2;  // try_wait and the branch back to it

template <class Body>
void each_wait(Places& places, Body&& body) {
  places.each(Op::mbarrier_try_wait, [&](size_t i) {
    if (is_wait(places.f, i)) body(i);
  });
}

/// What a wait guards: the first use of what was waited for.
bool is_use(const ptx::Instruction& insn) {
  switch (insn.op) {
    case Op::cp_async_bulk_tensor:
    case Op::tcgen05_mma:
    case Op::tcgen05_ld:
    case Op::clusterlaunchcontrol_try_cancel:
      return true;
    case Op::ld:
      return insn.has(Mod::shared);
    default:
      return false;
  }
}

void drop(Places& places) {
  each_wait(places, [&](size_t i) { places.add(i, [&](Edit& e) { e.erase(i, kWait); }); });
}

void late(Places& places) {
  each_wait(places, [&](size_t i) {
    size_t use = i + kWait;
    while (use < places.f.body.size() && !is_use(places.f.body[use])) {
      if (is_wait(places.f, use) || places.f.body[use].op == Op::bar_sync) return;
      ++use;
    }
    if (use == places.f.body.size()) return;
    // The whole warp waits, also where one thread uses.
    size_t to = use + 1;
    if (const auto branch = skipping_branch(places.f, use)) to = target_of(places.f, places.f.body[*branch]);
    places.add(i, [&](Edit& e) { e.move(i, kWait, to); });
  });
}

void twice(Places& places) {
  each_wait(places, [&](size_t i) { places.add(i, [&](Edit& e) { e.duplicate(i, kWait); }); });
}

void wrong_parity(Places& places) {
  each_wait(places, [&](size_t i) {
    places.add(i, [&](Edit& e) {
      if (e.operand(i, 2).is_immediate()) {
        e.operand(i, 2).value ^= 1;
        return;
      }
      const ptx::Operand phase = e.operand(i, 2);
      const ptx::Reg flipped = e.fresh(ScalarType::b32);
      e.insert(i, Op::xor_, {ScalarType::b32}, {flipped, phase, 1});
      e.operand(i + 1, 2) = flipped;
    });
  });
}

void other_barrier(Places& places) {
  each_wait(places, [&](size_t i) { places.add(i, [&](Edit& e) { e.operand(i, 1).value += 8; }); });
}

void relaxed(Places& places) {
  each_wait(places, [&](size_t i) {
    places.add(i, [&](Edit& e) {
      if (e.at(i).has(Mod::acquire))
        e.replace(i, Mod::acquire, Mod::relaxed);
      else
        e.add_words(i, 1, {Mod::relaxed, Mod::cta});
    });
  });
}

void narrow(Places& places) {
  each_wait(places, [&](size_t i) {
    if (places.f.body[i].has(Mod::cluster))
      places.add(i, [&](Edit& e) { e.replace(i, Mod::cluster, Mod::cta); });
  });
}

/// Phases live in registers that start as constants.
void initial_phase(Places& places) {
  const ptx::Function& f = places.f;
  places.each(Op::mov, [&](size_t i) {
    if (f.body[i].operand_count != 2 || !places.operand(i, 1).is_immediate()) return;
    const uint64_t value = static_cast<uint64_t>(places.operand(i, 1).value);
    if (value > 1) return;
    for (size_t w = 0; w < f.body.size(); ++w) {
      if (f.body[w].op != Op::mbarrier_try_wait) continue;
      const ptx::Operand& phase = places.operand(w, 2);
      if (!phase.is_reg() || !(phase.reg() == places.operand(i, 0).reg())) continue;
      places.add(i, [&](Edit& e) { e.operand(i, 1).value ^= 1; });
      return;
    }
  });
}

constexpr Rule kRules[] = {
    {"drop-wait", "a wait for an mbarrier is left out", drop},
    {"late-wait", "a wait comes after the first use of what it waits for", late},
    {"double-wait", "a phase is waited for twice", twice},
    {"wrong-parity", "a wait names the other parity", wrong_parity},
    {"wait-other-barrier", "a wait names the next barrier", other_barrier},
    {"relaxed-wait", "a wait that does not acquire", relaxed},
    {"narrow-wait", "a wait acquires from its CTA, not from the cluster", narrow},
    {"initial-phase", "a phase variable starts with the other parity", initial_phase},
};

}  // namespace

std::span<const Rule> wait_rules() { return kRules; }

}  // namespace imbrex::mutants
