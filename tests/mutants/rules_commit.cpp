// SPDX-License-Identifier: Apache-2.0
// Faults in issuing tensor-core work and in committing it.
#include "mutants/rules.h"

namespace imbrex::mutants {
namespace {

using ptx::Op;
using ptx::Operand;

void drop(Places& places) {
  places.each(Op::tcgen05_commit, [&](size_t i) { places.add(i, [&](Edit& e) { e.erase(i); }); });
}
void twice(Places& places) {
  places.each(Op::tcgen05_commit, [&](size_t i) { places.add(i, [&](Edit& e) { e.duplicate(i); }); });
}
void other_barrier(Places& places) {
  places.each(Op::tcgen05_commit,
              [&](size_t i) { places.add(i, [&](Edit& e) { e.operand(i, 0).value += 8; }); });
}
void by_all_lanes(Places& places) {
  places.each(Op::tcgen05_commit,
              [&](size_t i) { places.add(i, [&](Edit& e) { e.at(i).guard = ptx::Reg(); }); });
}
/// The commit moves before the products it should cover.
void early(Places& places) {
  places.each(Op::tcgen05_commit, [&](size_t i) {
    for (size_t k = i; k-- > 0 && !is_wait(places.f, k);) {
      if (places.f.body[k].op != Op::tcgen05_mma) continue;
      const auto branch = skipping_branch(places.f, k, 24);
      if (branch) places.add(i, [&](Edit& e) { e.move(i, 1, *branch); });
      return;
    }
  });
}
/// A commit to several CTAs reaches one.
template <int kMask>
void mask(Places& places) {
  places.each(Op::tcgen05_commit, [&](size_t i) {
    if (places.f.body[i].operand_count < 2) return;
    places.add(i, [&](Edit& e) { e.set_mask(i, 1, kMask); });
  });
}
void mma_by_all_lanes(Places& places) {
  places.each(Op::tcgen05_mma, [&](size_t i) {
    const auto branch = skipping_branch(places.f, i, 24);
    if (branch && is_elected(places.f, places.f.body[*branch].guard))
      places.add(i, [&](Edit& e) { e.erase(*branch); });
  });
}
/// The product goes 32 columns further: to the next stage, or out of the allocation.
void mma_shift(Places& places) {
  places.each(Op::tcgen05_mma, [&](size_t i) {
    places.add(i, [&](Edit& e) {
      const ptx::Reg moved = e.fresh(ptx::ScalarType::b32);
      const Operand address = e.operand(i, 0);
      e.insert(i, Op::add, {ptx::ScalarType::u32}, {moved, ptx::Reg{address.id}, 32});
      e.operand(i + 1, 0).id = moved.id;
    });
  });
}
void mma_before_wait(Places& places) {
  places.each(Op::tcgen05_mma, [&](size_t i) {
    // The products of one stage stand together, behind the branch that elects; only the first is moved.
    const auto branch = skipping_branch(places.f, i, 24);
    if (!branch) return;
    for (size_t k = *branch; k-- > 0;) {
      if (!is_wait(places.f, k)) continue;
      return places.add(i, [&](Edit& e) { e.move(k, 2, target_of(e.function(), e.at(*branch))); });
    }
  });
}

constexpr Rule kRules[] = {
    {"drop-commit", "a tcgen05.commit is left out", drop},
    {"double-commit", "a tcgen05.commit is made twice", twice},
    {"commit-other-barrier", "a tcgen05.commit names the next barrier", other_barrier},
    {"commit-all-lanes", "all 32 lanes commit", by_all_lanes},
    {"early-commit", "a commit comes before the products it should cover", early},
    {"commit-to-rank-0", "a multicast commit reaches CTA 0 alone", mask<1>},
    {"commit-to-rank-1", "a multicast commit reaches CTA 1 alone", mask<2>},
    {"commit-to-rank-2", "a multicast commit names a CTA that the cluster does not have", mask<7>},
    {"mma-all-lanes", "all 32 lanes start the products", mma_by_all_lanes},
    {"mma-shift", "products go 32 columns further in tensor memory", mma_shift},
    {"mma-before-wait", "products start before the wait for their operands", mma_before_wait},
};

}  // namespace

std::span<const Rule> commit_rules() { return kRules; }

}  // namespace imbrex::mutants
