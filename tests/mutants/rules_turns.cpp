// SPDX-License-Identifier: Apache-2.0
// Faults in what goes through memory: atomics, semaphores (a word that says whose turn it is), groups of cp.async.
#include <algorithm>

#include "mutants/rules.h"

namespace imbrex::mutants {
namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

/// The loop that waits for a turn: an acquiring access, a comparison, and the branch back to the access.
constexpr size_t kTurnWait = 3;
bool is_turn_wait(const Places& places, size_t i) {
  const std::vector<ptx::Instruction>& body = places.f.body;
  return body[i].has(Mod::acquire) && (body[i].op == Op::ld || body[i].op == Op::atom) &&
         i + 2 < body.size() && is_branch(body[i + 2]) && target_of(places.f, body[i + 2]) == i;
}
/// What hands a turn on.
bool is_pass(const Places& places, size_t i) {
  const ptx::Instruction& insn = places.f.body[i];
  return (insn.op == Op::st || insn.op == Op::atom || insn.op == Op::red) && insn.has(Mod::release) &&
         !is_turn_wait(places, i);
}

bool has_type(const ptx::Instruction& insn, ScalarType type) {
  const auto words = insn.suffixes();
  return std::find(words.begin(), words.end(), ptx::Suffix(type)) != words.end();
}

template <class Body>
void each_access(Places& places, Body&& body) {
  for (const Op op : {Op::ld, Op::st, Op::atom, Op::red}) places.each(op, body);
}
template <class Body>
void each_atomic(Places& places, Body&& body) {
  for (const Op op : {Op::atom, Op::red}) places.each(op, body);
}

/// An addition of 32-bit integers, made by a load, an addition and a store.
void plain(Places& places) {
  each_atomic(places, [&](size_t i) {
    const ptx::Instruction& insn = places.f.body[i];
    const bool returns = insn.op == Op::atom;
    if (!insn.has(Mod::add) || !has_type(insn, ScalarType::u32)) return;
    const Mod space = insn.has(Mod::shared) ? Mod::shared : Mod::global;
    places.add(i, [&](Edit& e) {
      const ptx::Operand address = e.operand(i, returns ? 1 : 0), value = e.operand(i, returns ? 2 : 1);
      const ptx::Reg before = returns ? e.operand(i, 0).reg() : e.fresh(ScalarType::b32);
      const ptx::Reg after = e.fresh(ScalarType::b32), guard = e.at(i).guard;
      const bool is_negated = e.at(i).guard_negated;
      const uint32_t loc = e.at(i).loc;
      e.insert(i, Op::ld, {space, ScalarType::b32}, {before, address});
      e.insert(i + 1, Op::add, {ScalarType::u32}, {after, before, value});
      e.insert(i + 2, Op::st, {space, ScalarType::b32}, {address, after});
      e.erase(i + 3);
      for (size_t k = i; k < i + 3; ++k) {
        e.at(k).guard = guard;
        e.at(k).guard_negated = is_negated;
        e.at(k).loc = loc;
      }
    });
  });
}

template <Mod kOrder>
void relaxed(Places& places) {
  each_access(places, [&](size_t i) {
    if (places.f.body[i].has(kOrder)) places.add(i, [&](Edit& e) { e.replace(i, kOrder, Mod::relaxed); });
  });
}
void narrow(Places& places) {
  each_access(places, [&](size_t i) {
    const ptx::Instruction& insn = places.f.body[i];
    if (insn.has(Mod::gpu) && (insn.has(Mod::acquire) || insn.has(Mod::release) || insn.has(Mod::acq_rel)))
      places.add(i, [&](Edit& e) { e.replace(i, Mod::gpu, Mod::cta); });
  });
}

void drop_turn_wait(Places& places) {
  each_access(places, [&](size_t i) {
    if (is_turn_wait(places, i)) places.add(i, [&](Edit& e) { e.erase(i, kTurnWait); });
  });
}
void drop_pass(Places& places) {
  each_access(places, [&](size_t i) {
    if (is_pass(places, i)) places.add(i, [&](Edit& e) { e.erase(i); });
  });
}
/// The turn is handed on before the barrier behind which the whole CTA is through.
void early_pass(Places& places) {
  each_access(places, [&](size_t i) {
    if (!is_pass(places, i)) return;
    const auto branch = skipping_branch(places.f, i);
    for (size_t k = i; k-- > 0;) {
      if (is_branch(places.f.body[k]) && !(branch && *branch == k)) return;
      if (places.f.body[k].op != Op::bar_sync) continue;
      // What it needs must be known there.
      if (branch && definition_before(places.f, *branch, places.f.body[*branch].guard).value_or(0) > k)
        return;
      return places.add(i, [&](Edit& e) {
        if (branch) e.at(i).unless(e.at(*branch).guard);
        e.move(i, 1, k);
      });
    }
  });
}

template <Op kOp>
void drop(Places& places) {
  places.each(kOp, [&](size_t i) { places.add(i, [&](Edit& e) { e.erase(i); }); });
}
void loose_wait(Places& places) {
  places.each(Op::cp_async_wait_group,
              [&](size_t i) { places.add(i, [&](Edit& e) { e.operand(i, 0).value += 1; }); });
}
template <Op kOp>
void late_wait(Places& places) {
  places.each(kOp, [&](size_t i) {
    for (size_t k = i; k < places.f.body.size() && k < i + 6; ++k)
      if (places.f.body[k].op == Op::bar_sync) return places.add(i, [&](Edit& e) { e.move(i, 1, k + 1); });
  });
}

/// Counters and turns that nobody has set to zero before the launch.
void drop_zeroing(Places& places) {
  const auto counts = [](const ptx::Instruction& insn) {
    return insn.op == Op::atom || insn.op == Op::red || (insn.op == Op::ld && insn.has(Mod::acquire));
  };
  const auto first = std::ranges::find_if(places.f.body, counts);
  if (first == places.f.body.end()) return;
  const std::vector<TensorArgument>& tensors = places.subject().tensors;
  for (size_t t = 0; t < tensors.size(); ++t)
    if (tensors[t].is_zeroed && tensors[t].dtype == int32)
      places.add_unzeroed(static_cast<size_t>(first - places.f.body.begin()), static_cast<int>(t));
}

constexpr Rule kRules[] = {
    {"plain-atomic", "an atomic addition becomes a load, an addition and a store", plain},
    {"relaxed-acquire", "what waits for or takes a turn does not acquire", relaxed<Mod::acquire>},
    {"relaxed-release", "what hands a turn on does not release", relaxed<Mod::release>},
    {"relaxed-acq-rel", "an atomic that acquires and releases does neither", relaxed<Mod::acq_rel>},
    {"narrow-turn", "a turn among CTAs is ordered within one", narrow},
    {"drop-turn-wait", "a turn is not waited for", drop_turn_wait},
    {"drop-pass", "a turn is not handed on", drop_pass},
    {"early-pass", "a turn is handed on before the CTA is through", early_pass},
    {"drop-async-wait", "a cp.async.wait_group is left out", drop<Op::cp_async_wait_group>},
    {"loose-async-wait", "a cp.async.wait_group leaves one more group pending", loose_wait},
    {"late-async-wait", "a cp.async.wait_group comes after the barrier", late_wait<Op::cp_async_wait_group>},
    {"drop-async-group", "a cp.async.commit_group is left out", drop<Op::cp_async_commit_group>},
    {"drop-zeroing", "counters or turns are not set to zero before the launch", drop_zeroing},
};

}  // namespace

std::span<const Rule> turn_rules() { return kRules; }

}  // namespace imbrex::mutants
