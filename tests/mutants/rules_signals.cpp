// SPDX-License-Identifier: Apache-2.0
// Faults in the signals between ranks: what waits for them, sets them, and how far they order.
#include <algorithm>

#include "mutants/rules.h"

namespace imbrex::mutants {
namespace {

using ptx::Mod;
using ptx::Op;

/// The loop that waits for a signal: an acquiring load, a comparison, and the branch back to the load.
constexpr size_t kWait = 3;
bool is_signal_wait(const Places& places, size_t i) {
  const std::vector<ptx::Instruction>& body = places.f.body;
  return body[i].op == Op::ld && body[i].has(Mod::acquire) && body[i].has(Mod::sys) && i + 2 < body.size() &&
         is_branch(body[i + 2]) && target_of(places.f, body[i + 2]) == i;
}
bool is_signal(const Places& places, size_t i) {
  const ptx::Instruction& insn = places.f.body[i];
  return (insn.op == Op::st || insn.op == Op::red || insn.op == Op::atom) && insn.has(Mod::release) &&
         insn.has(Mod::sys);
}
template <class Body>
void each_wait(Places& places, Body&& body) {
  places.each(Op::ld, [&](size_t i) {
    if (is_signal_wait(places, i)) body(i);
  });
}
template <class Body>
void each_signal(Places& places, Body&& body) {
  for (const Op op : {Op::st, Op::red, Op::atom})
    places.each(op, [&](size_t i) {
      if (is_signal(places, i)) body(i);
    });
}

void drop_wait(Places& places) {
  each_wait(places, [&](size_t i) { places.add(i, [&](Edit& e) { e.erase(i, kWait); }); });
}
void drop_signal(Places& places) {
  each_signal(places, [&](size_t i) { places.add(i, [&](Edit& e) { e.erase(i); }); });
}
void relaxed_wait(Places& places) {
  each_wait(places,
            [&](size_t i) { places.add(i, [&](Edit& e) { e.replace(i, Mod::acquire, Mod::relaxed); }); });
}
void relaxed_signal(Places& places) {
  each_signal(places,
              [&](size_t i) { places.add(i, [&](Edit& e) { e.replace(i, Mod::release, Mod::relaxed); }); });
}
void narrow_wait(Places& places) {
  each_wait(places, [&](size_t i) { places.add(i, [&](Edit& e) { e.replace(i, Mod::sys, Mod::gpu); }); });
}
void narrow_signal(Places& places) {
  each_signal(places, [&](size_t i) { places.add(i, [&](Edit& e) { e.replace(i, Mod::sys, Mod::gpu); }); });
}
/// The signal of the call before is taken for this one's: one more is read than is there.
void stale_wait(Places& places) {
  each_wait(places, [&](size_t i) {
    places.add(i, [&](Edit& e) {
      const ptx::Reg value = e.operand(i, 0).reg(), one_more = e.fresh(ptx::ScalarType::b32);
      e.insert(i + 1, Op::add, {ptx::ScalarType::s32}, {one_more, value, ptx::Operand(int64_t{1})});
      for (size_t k = 1; k < 3; ++k)
        if (ptx::Operand& operand = e.operand(i + 2, k); operand.reg() == value) operand = one_more;
    });
  });
}
/// Before the barrier or the wait for stores that it should follow.
void early_signal(Places& places) {
  each_signal(places, [&](size_t i) {
    const auto branch = skipping_branch(places.f, i);
    for (size_t k = i; k-- > 0;) {
      const Op op = places.f.body[k].op;
      if (is_branch(places.f.body[k]) && !(branch && *branch == k)) return;
      if (op != Op::bar_sync && op != Op::cp_async_bulk_wait_group) continue;
      if (branch && definition_before(places.f, *branch, places.f.body[*branch].guard).value_or(0) > k)
        return;
      return places.add(i, [&](Edit& e) {
        if (branch) e.at(i).unless(e.at(*branch).guard);
        e.move(i, 1, k);
      });
    }
  });
}
/// The wait for stores that a signal tells of.
void drop_store_wait(Places& places) {
  places.each(Op::cp_async_bulk_wait_group, [&](size_t i) {
    if (!places.f.body[i].has(Mod::read)) places.add(i, [&](Edit& e) { e.erase(i); });
  });
}
void read_store_wait(Places& places) {
  places.each(Op::cp_async_bulk_wait_group, [&](size_t i) {
    if (!places.f.body[i].has(Mod::read)) places.add(i, [&](Edit& e) { e.add_words(i, 0, {Mod::read}); });
  });
}
/// A word that carries its own signal, stored or looked at.
template <class Body>
void each_word(Places& places, Body&& body) {
  for (const Op op : {Op::st, Op::ld})
    places.each(op, [&](size_t i) {
      const ptx::Instruction& insn = places.f.body[i];
      if (insn.has(Mod::relaxed) && insn.has(Mod::sys)) places.add(i, [&](Edit& e) { body(e, i); });
    });
}
void narrow_word(Places& places) {
  each_word(places, [](Edit& e, size_t i) { e.replace(i, Mod::sys, Mod::gpu); });
}
void weak_word(Places& places) {
  each_word(places, [](Edit& e, size_t i) {
    e.remove_word(i, Mod::relaxed);
    e.remove_word(i, Mod::sys);
  });
}
constexpr Rule kRules[] = {
    {"drop-signal-wait", "a signal is not waited for", drop_wait},
    {"stale-signal", "the signal of the call before is taken for this one's", stale_wait},
    {"relaxed-signal-wait", "what waits for a signal does not acquire", relaxed_wait},
    {"narrow-signal-wait", "what waits for a signal acquires from its GPU alone", narrow_wait},
    {"drop-signal", "a signal is not set", drop_signal},
    {"relaxed-signal", "a signal does not release", relaxed_signal},
    {"narrow-signal", "a signal releases to its GPU alone", narrow_signal},
    {"early-signal", "a signal is set before the group is through, or its stores are", early_signal},
    {"drop-store-wait", "stores are not waited for before the signal", drop_store_wait},
    {"read-store-wait", "stores are waited for only until they have read", read_store_wait},
    {"narrow-word", "a word that carries its signal is stored or read for its GPU alone", narrow_word},
    {"weak-word", "a word that carries its signal is stored or read as any other", weak_word},
};

}  // namespace

std::span<const Rule> signal_rules() { return kRules; }

}  // namespace imbrex::mutants
