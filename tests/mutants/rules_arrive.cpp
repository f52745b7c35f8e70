// SPDX-License-Identifier: Apache-2.0
// Faults in arriving at mbarriers, in initialising them, and in the bytes announced to them.
#include "mutants/rules.h"

namespace imbrex::mutants {
namespace {

using ptx::Mod;
using ptx::Op;
using ptx::Operand;
using ptx::ScalarType;

bool is_expect(const ptx::Instruction& insn) { return insn.has(Mod::expect_tx); }

template <class Body>
void each_plain_arrive(Places& places, Body&& body) {
  places.each(Op::mbarrier_arrive, [&](size_t i) {
    if (!is_expect(places.f.body[i])) body(i);
  });
}
template <class Body>
void each_expect(Places& places, Body&& body) {
  places.each(Op::mbarrier_arrive, [&](size_t i) {
    if (is_expect(places.f.body[i])) body(i);
  });
}

void drop(Places& places) {
  places.each(Op::mbarrier_arrive, [&](size_t i) { places.add(i, [&](Edit& e) { e.erase(i); }); });
}
void twice(Places& places) {
  places.each(Op::mbarrier_arrive, [&](size_t i) { places.add(i, [&](Edit& e) { e.duplicate(i); }); });
}
void other_barrier(Places& places) {
  places.each(Op::mbarrier_arrive,
              [&](size_t i) { places.add(i, [&](Edit& e) { e.operand(i, 1).value += 8; }); });
}
void relaxed(Places& places) {
  each_plain_arrive(places, [&](size_t i) {
    if (places.f.body[i].has(Mod::relaxed)) return;
    places.add(i, [&](Edit& e) {
      if (e.at(i).has(Mod::release))
        e.replace(i, Mod::release, Mod::relaxed);
      else
        e.add_words(i, 0, {Mod::relaxed, Mod::cta});
    });
  });
}
void narrow(Places& places) {
  each_plain_arrive(places, [&](size_t i) {
    if (places.f.body[i].has(Mod::cluster))
      places.add(i, [&](Edit& e) { e.replace(i, Mod::cluster, Mod::cta); });
  });
}

/// The arrive moves up to behind the wait before it, its address with it.
void early(Places& places) {
  each_plain_arrive(places, [&](size_t i) {
    size_t to = i;
    while (to > 0 && !is_wait(places.f, to - 1)) --to;
    if (to == 0) return;
    ++to;  // behind the branch of the wait
    places.add(i, [&](Edit& e) {
      size_t first = i;
      const Operand address = e.operand(i, 1);
      const auto mapa = definition_before(e.function(), i, {address.id});
      if (mapa && *mapa > to && e.at(*mapa).op == Op::mapa) {
        const auto base = definition_before(e.function(), *mapa, e.operand(*mapa, 1).reg());
        first = base && *base > to ? *base : *mapa;
      }
      if (i - first <= 2)
        e.move(first, i - first + 1, to);
      else
        e.move(i, 1, *mapa + 1);  // its address is that of a store, too
    });
  });
}

/// The constant part of an arrive's address, through mapa and one addition.
int64_t offset_of(const Places& places, size_t i) {
  const ptx::Function& f = places.f;
  Operand address = places.operand(i, 1);
  int64_t offset = address.value;
  auto definition = definition_before(f, i, {address.id});
  if (definition && f.body[*definition].op == Op::mapa) {
    address = places.operand(*definition, 1);
    definition = definition_before(f, *definition, address.reg());
    if (definition && f.body[*definition].op == Op::add && places.operand(*definition, 2).is_immediate())
      offset += places.operand(*definition, 2).value;
  }
  return offset;
}

/// How many warps come to instruction i: four where a comparison other than for one warp lets them in.
int64_t warps_at(const Places& places, size_t i) {
  for (size_t b = i; b-- > 0;) {
    const ptx::Instruction& insn = places.f.body[b];
    if (!is_branch(insn) || !insn.guard.is_valid() || target_of(places.f, insn) <= i) continue;
    const auto test = definition_before(places.f, b, insn.guard);
    if (test && places.f.body[*test].op == Op::setp && !places.f.body[*test].has(Mod::eq)) return 4;
  }
  return 1;
}

/// One lane of each warp arrives for all 32, and the barrier counts so.
void one_lane(Places& places) {
  each_plain_arrive(places, [&](size_t i) {
    const int64_t offset = offset_of(places, i);
    int64_t count = 0, stages = 0;
    places.each(Op::mbarrier_init, [&](size_t b) {
      const int64_t at = places.operand(b, 0).value;
      if (at == offset) count = places.operand(b, 1).value;
      if (at >= offset && places.operand(b, 1).value == count) ++stages;
    });
    if (count < 32) return;
    const auto& shape = places.subject().kernel.cluster;
    const int64_t fewer = 31 * warps_at(places, i) * shape[0] * shape[1] * shape[2];
    places.add(i, [&](Edit& e) {
      const ptx::Reg chosen = e.fresh(ScalarType::pred);
      e.insert(i, Op::elect_sync, {}, {e.pair(ptx::sink(), chosen), -1});
      e.at(i + 1).when(chosen);
      for (size_t b = 0; b < e.size(); ++b) {
        if (e.at(b).op != Op::mbarrier_init || e.operand(b, 1).value != count) continue;
        if (e.operand(b, 0).value >= offset && e.operand(b, 0).value < offset + 8 * stages)
          e.operand(b, 1).value -= fewer;
      }
    });
  });
}

template <int kMore>
void count(Places& places) {
  places.each(Op::mbarrier_init, [&](size_t i) {
    if (places.operand(i, 1).value + kMore >= 1)
      places.add(i, [&](Edit& e) { e.operand(i, 1).value += kMore; });
  });
}
void drop_init(Places& places) {
  places.each(Op::mbarrier_init, [&](size_t i) { places.add(i, [&](Edit& e) { e.erase(i); }); });
}
void init_twice(Places& places) {
  places.each(Op::mbarrier_init, [&](size_t i) { places.add(i, [&](Edit& e) { e.duplicate(i); }); });
}
/// The initialisation moves behind the barrier that makes it known.
void late_init(Places& places) {
  places.each(Op::mbarrier_init, [&](size_t i) {
    for (size_t to = i; to < places.f.body.size(); ++to) {
      const Op op = places.f.body[to].op;
      if (op != Op::bar_sync && op != Op::barrier_cluster_wait) continue;
      const auto test =
          definition_before(places.f, i, places.f.body[*skipping_branch(places.f, i, 40)].guard);
      if (!test) return;
      const ptx::Reg first_thread = places.operand(*test, 0).reg();
      places.add(i, [&](Edit& e) {
        e.at(i).when(first_thread);
        e.move(i, 1, to + 1);
      });
      return;
    }
  });
}

template <int kMore>
void bytes(Places& places) {
  each_expect(places, [&](size_t i) { places.add(i, [&](Edit& e) { e.operand(i, 2).value += kMore; }); });
}
/// Only the first operand's bytes are announced.
void bytes_of_one(Places& places) {
  if (places.subject().kernel.tensor_maps.empty()) return;
  const codegen::TensorMapPlan& map = places.subject().kernel.tensor_maps.front();
  int64_t first = map.dtype.bits();
  for (int32_t extent : map.box) first *= extent;
  first /= 8;
  each_expect(places, [&](size_t i) {
    if (places.operand(i, 2).value > first) places.add(i, [&](Edit& e) { e.operand(i, 2).value = first; });
  });
}
void expect_only(Places& places) {
  each_expect(places, [&](size_t i) {
    places.add(i, [&](Edit& e) {
      const Operand address = e.operand(i, 1), count = e.operand(i, 2);
      const ptx::Reg guard = e.at(i).guard;
      e.erase(i);
      ptx::Instruction& insn =
          e.insert(i, Op::mbarrier_expect_tx, {Mod::relaxed, Mod::cta, Mod::shared_cta, ScalarType::b64},
                   {address, count});
      insn.guard = guard;
    });
  });
}
void arrive_only(Places& places) {
  each_expect(places, [&](size_t i) {
    places.add(i, [&](Edit& e) {
      e.remove_word(i, Mod::expect_tx);
      --e.at(i).operand_count;
    });
  });
}
/// The bytes are announced after the copies have been started.
void late_expect(Places& places) {
  // In a cluster one CTA announces for both, in a branch of its own.
  if (places.subject().kernel.cluster[0] > 1) return;
  each_expect(places, [&](size_t i) {
    const auto branch = skipping_branch(places.f, i);
    if (!branch) return;
    const ptx::Reg chosen = places.f.body[*branch].guard;
    size_t to = i;
    for (size_t k = i; k < places.f.body.size() && !is_wait(places.f, k) && !is_branch(places.f.body[k]); ++k)
      if (places.f.body[k].op == Op::cp_async_bulk_tensor ||
          places.f.body[k].op == Op::clusterlaunchcontrol_try_cancel)
        to = k + 1;
    // Not past the end of the role: then it goes between the copies.
    for (const ptx::Label& label : places.f.labels)
      if (label.position == to) --to;
    if (to <= i + 1 || !is_elected(places.f, chosen)) return;
    places.add(i, [&](Edit& e) {
      e.at(i).when(chosen);
      e.move(i, 1, to);
    });
  });
}

constexpr Rule kRules[] = {
    {"drop-arrive", "an arrival is left out", drop},
    {"double-arrive", "an arrival is made twice", twice},
    {"arrive-other-barrier", "an arrival at the next barrier", other_barrier},
    {"relaxed-arrive", "an arrival that does not release", relaxed},
    {"narrow-arrive", "an arrival releases to its CTA, not to the cluster", narrow},
    {"early-arrive", "a stage is given back before its last use", early},
    {"one-lane-arrive", "one elected lane arrives for the 32 that read", one_lane},
    {"count-plus-1", "a barrier expects one arrival too many", count<1>},
    {"count-minus-1", "a barrier expects one arrival too few", count<-1>},
    {"drop-init", "a barrier is not initialised", drop_init},
    {"double-init", "a barrier is initialised twice", init_twice},
    {"late-init", "a barrier is initialised after the sync that makes it known", late_init},
    {"bytes-minus-16", "16 bytes too few are expected", bytes<-16>},
    {"bytes-plus-16", "16 bytes too many are expected", bytes<16>},
    {"bytes-of-one-copy", "the bytes of the first of two copies are expected", bytes_of_one},
    {"expect-only", "bytes are announced without the arrival", expect_only},
    {"arrive-only", "the arrival is made without announcing bytes", arrive_only},
    {"late-expect", "bytes are announced after the copies were started", late_expect},
};

}  // namespace

std::span<const Rule> arrival_rules() { return kRules; }

}  // namespace imbrex::mutants
