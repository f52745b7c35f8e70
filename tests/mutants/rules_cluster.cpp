// SPDX-License-Identifier: Apache-2.0
// Faults in clusters and in cluster launch control.
#include <algorithm>

#include "mutants/rules.h"

namespace imbrex::mutants {
namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

void drop_sync(Places& places) {
  places.each(Op::barrier_cluster_arrive, [&](size_t i) {
    if (places.f.body[i + 1].op == Op::barrier_cluster_wait) places.add(i, [&](Edit& e) { e.erase(i, 2); });
  });
}
void drop_sync_wait(Places& places) {
  places.each(Op::barrier_cluster_wait, [&](size_t i) { places.add(i, [&](Edit& e) { e.erase(i); }); });
}
void relaxed_sync(Places& places) {
  places.each(Op::barrier_cluster_arrive,
              [&](size_t i) { places.add(i, [&](Edit& e) { e.add_words(i, 0, {Mod::relaxed}); }); });
}
void cta_sync(Places& places) {
  places.each(Op::barrier_cluster_arrive, [&](size_t i) {
    if (places.f.body[i + 1].op != Op::barrier_cluster_wait) return;
    places.add(i, [&](Edit& e) {
      e.erase(i, 2);
      e.insert(i, Op::bar_sync, {}, {0});
    });
  });
}

template <int kRank>
void rank(Places& places) {
  places.each(Op::mapa, [&](size_t i) {
    if (places.operand(i, 2).is_immediate() && places.operand(i, 2).value != kRank)
      places.add(i, [&](Edit& e) { e.operand(i, 2).value = kRank; });
  });
}
/// The address of the CTA's own barrier in place of the peer's.
void own_barrier(Places& places) {
  places.each(Op::mapa, [&](size_t i) {
    places.add(i, [&](Edit& e) {
      const ptx::Operand to = e.operand(i, 0), from = e.operand(i, 1);
      e.erase(i);
      e.insert(i, Op::mov, {ScalarType::b32}, {to, from});
    });
  });
}
/// `rank == k` or `rank != k`: one CTA of two takes itself for the other, or both do.
template <bool kBoth>
void leader(Places& places) {
  places.each(Op::setp, [&](size_t i) {
    if (!places.operand(i, 1).is_reg() || !places.operand(i, 2).is_immediate()) return;
    if (!places.f.body[i].has(Mod::eq) && !places.f.body[i].has(Mod::ne)) return;
    const auto rank = definition_before(places.f, i, places.operand(i, 1).reg());
    if (!rank || places.f.body[*rank].op != Op::mov ||
        places.operand(*rank, 1).kind != ptx::OperandKind::special ||
        static_cast<ptx::SpecialReg>(places.operand(*rank, 1).id) != ptx::SpecialReg::cluster_ctarank)
      return;
    places.add(i, [&](Edit& e) {
      if (!kBoth) {
        e.operand(i, 2).value ^= 1;
        return;
      }
      e.operand(i, 2).value = 0;
      e.replace(i, Mod::eq, Mod::ge);
      e.replace(i, Mod::ne, Mod::ge);
    });
  });
}
void pair_form(Places& places) {
  places.each(Op::cp_async_bulk_tensor, [&](size_t i) {
    if (places.f.body[i].has(Mod::cta_group_2))
      places.add(i, [&](Edit& e) { e.remove_word(i, Mod::cta_group_2); });
  });
}

// Cluster launch control.
constexpr Op kCancel = Op::clusterlaunchcontrol_try_cancel;
void drop_request(Places& places) {
  places.each(kCancel, [&](size_t i) { places.add(i, [&](Edit& e) { e.erase(i); }); });
}
void request_twice(Places& places) {
  places.each(kCancel, [&](size_t i) { places.add(i, [&](Edit& e) { e.duplicate(i); }); });
}
void request_by_all_lanes(Places& places) {
  places.each(kCancel, [&](size_t i) { places.add(i, [&](Edit& e) { e.at(i).guard = ptx::Reg(); }); });
}
void request_alone(Places& places) {
  places.each(kCancel, [&](size_t i) {
    if (places.f.body[i].has(Mod::multicast_cluster_all))
      places.add(i, [&](Edit& e) { e.remove_word(i, Mod::multicast_cluster_all); });
  });
}
void request_other_barrier(Places& places) {
  places.each(kCancel, [&](size_t i) { places.add(i, [&](Edit& e) { e.operand(i, 1).value += 8; }); });
}
void request_shift(Places& places) {
  places.each(kCancel, [&](size_t i) { places.add(i, [&](Edit& e) { e.operand(i, 0).value += 16; }); });
}
void unchecked_grant(Places& places) {
  places.each(Op::clusterlaunchcontrol_query_cancel, [&](size_t i) {
    if (places.f.body[i].has(Mod::get_first_ctaid))
      places.add(i, [&](Edit& e) { e.at(i).guard = ptx::Reg(); });
  });
}
/// Whether a grant was refused, as the roles of a kernel that asks for clusters keep it.
template <class Body>
void each_refusal(Places& places, Body&& body) {
  const std::vector<ptx::Instruction>& all = places.f.body;
  if (std::none_of(all.begin(), all.end(), [](const ptx::Instruction& insn) { return insn.op == kCancel; }))
    return;
  places.each(Op::not_, [&](size_t i) {
    if (all[i].type() == ScalarType::pred) body(i);
  });
}
/// One role takes a grant for a refusal and a refusal for a grant.
void grant_misread(Places& places) {
  each_refusal(places, [&](size_t i) { places.add(i, [&](Edit& e) { e.at(i).op = Op::mov; }); });
}
/// One role goes on whatever the response says; one stops.
template <bool kGoOn>
void grant_ignored(Places& places) {
  each_refusal(places, [&](size_t i) {
    places.add(i, [&](Edit& e) {
      const ptx::Reg last = e.operand(i, 0).reg();
      e.insert(i + 1, Op::setp, {kGoOn ? Mod::ne : Mod::eq, ScalarType::u32}, {last, 0, 0});
    });
  });
}

constexpr Rule kRules[] = {
    {"drop-cluster-sync", "a cluster barrier is left out", drop_sync},
    {"drop-cluster-wait", "a cluster barrier is arrived at and not waited for", drop_sync_wait},
    {"relaxed-cluster-sync", "a cluster barrier that does not release", relaxed_sync},
    {"cta-for-cluster-sync", "a barrier of the CTA in place of the cluster's", cta_sync},
    {"rank-1", "a remote barrier of CTA 1 in place of CTA 0", rank<1>},
    {"rank-2", "a remote barrier of a CTA that the cluster does not have", rank<2>},
    {"own-barrier", "the CTA's own barrier in place of the leader's", own_barrier},
    {"other-leader", "one CTA of two does what the other should", leader<false>},
    {"two-leaders", "both CTAs do what one should", leader<true>},
    {"load-without-pair", "a TMA load to the peer's barrier without .cta_group::2", pair_form},
    {"drop-request", "a try_cancel is left out", drop_request},
    {"double-request", "a try_cancel is made twice", request_twice},
    {"request-all-lanes", "all 32 lanes ask for the next cluster", request_by_all_lanes},
    {"request-alone", "the response goes to CTA 0 alone", request_alone},
    {"request-other-barrier", "a try_cancel signals the next barrier", request_other_barrier},
    {"request-plus-16", "the response is written 16 bytes further", request_shift},
    {"unchecked-grant", "a response is decoded without asking whether it is a grant", unchecked_grant},
    {"misread-grant", "one role takes a refusal for a grant, and a grant for a refusal", grant_misread},
    {"grant-always", "one role goes on after a refusal", grant_ignored<true>},
    {"grant-never", "one role stops at the first response", grant_ignored<false>},
};

}  // namespace

std::span<const Rule> cluster_rules() { return kRules; }

}  // namespace imbrex::mutants
