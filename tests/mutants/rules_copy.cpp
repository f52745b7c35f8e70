// SPDX-License-Identifier: Apache-2.0
// Faults in copies by TMA and in the groups of stores.
#include "mutants/rules.h"

namespace imbrex::mutants {
namespace {

using ptx::Mod;
using ptx::Op;
using ptx::OperandKind;

bool is_store(const Places& places, size_t i) { return places.operand(i, 0).kind == OperandKind::tensor; }

template <class Body>
void each_load(Places& places, Body&& body) {
  places.each(Op::cp_async_bulk_tensor, [&](size_t i) {
    if (!is_store(places, i)) body(i);
  });
}
template <class Body>
void each_store(Places& places, Body&& body) {
  places.each(Op::cp_async_bulk_tensor, [&](size_t i) {
    if (is_store(places, i)) body(i);
  });
}

void drop_load(Places& places) {
  each_load(places, [&](size_t i) { places.add(i, [&](Edit& e) { e.erase(i); }); });
}
void load_twice(Places& places) {
  each_load(places, [&](size_t i) { places.add(i, [&](Edit& e) { e.duplicate(i); }); });
}
void load_by_all_lanes(Places& places) {
  each_load(places, [&](size_t i) {
    if (places.f.body[i].guard.is_valid()) places.add(i, [&](Edit& e) { e.at(i).guard = ptx::Reg(); });
  });
}
void load_other_barrier(Places& places) {
  each_load(places, [&](size_t i) { places.add(i, [&](Edit& e) { e.operand(i, 2).value += 8; }); });
}
template <int kBytes>
void load_shift(Places& places) {
  each_load(places, [&](size_t i) { places.add(i, [&](Edit& e) { e.operand(i, 0).value += kBytes; }); });
}

void store_by_all_lanes(Places& places) {
  each_store(places, [&](size_t i) {
    if (places.f.body[i].guard.is_valid()) places.add(i, [&](Edit& e) { e.at(i).guard = ptx::Reg(); });
  });
}
void store_shift(Places& places) {
  each_store(places, [&](size_t i) { places.add(i, [&](Edit& e) { e.operand(i, 1).value += 128; }); });
}
void drop_group(Places& places) {
  places.each(Op::cp_async_bulk_commit_group, [&](size_t i) { places.add(i, [&](Edit& e) { e.erase(i); }); });
}
/// The group is closed before the store: the store belongs to none.
void early_group(Places& places) {
  places.each(Op::cp_async_bulk_commit_group, [&](size_t i) {
    if (i > 0 && places.f.body[i - 1].op == Op::cp_async_bulk_tensor)
      places.add(i, [&](Edit& e) { e.move(i, 1, i - 1); });
  });
}
void drop_group_wait(Places& places) {
  places.each(Op::cp_async_bulk_wait_group, [&](size_t i) { places.add(i, [&](Edit& e) { e.erase(i); }); });
}
void loose_group_wait(Places& places) {
  places.each(Op::cp_async_bulk_wait_group,
              [&](size_t i) { places.add(i, [&](Edit& e) { e.operand(i, 0).value += 1; }); });
}
void early_group_wait(Places& places) {
  places.each(Op::cp_async_bulk_wait_group, [&](size_t i) {
    for (size_t k = i; k-- > 0;)
      if (places.f.body[k].op == Op::cp_async_bulk_tensor)
        return places.add(i, [&](Edit& e) { e.move(i, 1, k); });
  });
}
void late_group_wait(Places& places) {
  places.each(Op::cp_async_bulk_wait_group, [&](size_t i) {
    const auto role = skipping_branch(places.f, i);
    for (size_t k = i; k < places.f.body.size(); ++k) {
      if (places.f.body[k].op != Op::bar_sync) continue;
      return places.add(i, [&](Edit& e) {
        const ptx::Reg inside = e.at(*role).guard;
        e.at(i).when(inside);
        e.move(i, 1, k + 1);
      });
    }
  });
}
/// Another warp than the one that stored waits for the store.
void group_wait_of_other(Places& places) {
  places.each(Op::cp_async_bulk_wait_group, [&](size_t i) {
    const auto role = skipping_branch(places.f, i);
    if (!role) return;
    places.add(i, [&](Edit& e) {
      e.at(i).unless(e.at(*role).guard);
      e.move(i, 1, target_of(e.function(), e.at(*role)));
    });
  });
}

constexpr Rule kRules[] = {
    {"drop-load", "a TMA load is left out", drop_load},
    {"double-load", "a TMA load is started twice", load_twice},
    {"load-all-lanes", "all 32 lanes start a TMA load", load_by_all_lanes},
    {"load-other-barrier", "a TMA load signals the next barrier", load_other_barrier},
    {"load-shift-128", "a TMA load goes 128 bytes further", load_shift<128>},
    {"load-shift-4096", "a TMA load goes 4096 bytes further", load_shift<4096>},
    {"store-all-lanes", "all 32 lanes start a TMA store", store_by_all_lanes},
    {"store-shift-128", "a TMA store reads from 128 bytes further", store_shift},
    {"drop-group", "a bulk commit_group is left out", drop_group},
    {"early-group", "a bulk commit_group comes before the store", early_group},
    {"drop-group-wait", "a bulk wait_group is left out", drop_group_wait},
    {"loose-group-wait", "a bulk wait_group leaves one more group pending", loose_group_wait},
    {"early-group-wait", "a bulk wait_group comes before the store", early_group_wait},
    {"late-group-wait", "a bulk wait_group comes after the barrier", late_group_wait},
    {"group-wait-of-other", "a bulk wait_group is executed by warps that stored nothing",
     group_wait_of_other},
};

}  // namespace

std::span<const Rule> copy_rules() { return kRules; }

}  // namespace imbrex::mutants
