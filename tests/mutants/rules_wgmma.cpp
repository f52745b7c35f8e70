// SPDX-License-Identifier: Apache-2.0
// Faults around wgmma, and in multicast loads.
#include "mutants/rules.h"

namespace imbrex::mutants {
namespace {

using ptx::Mod;
using ptx::Op;

template <Op kOp>
void drop(Places& places) {
  places.each(kOp, [&](size_t i) { places.add(i, [&](Edit& e) { e.erase(i); }); });
}
void loose_wait(Places& places) {
  places.each(Op::wgmma_wait_group,
              [&](size_t i) { places.add(i, [&](Edit& e) { e.operand(i, 0).value += 1; }); });
}
/// The wait for products moves behind the arrival that gives their operands back.
void late_wait(Places& places) {
  places.each(Op::wgmma_wait_group, [&](size_t i) {
    for (size_t k = i + 1; k < places.f.body.size() && !is_wait(places.f, k); ++k) {
      if (places.f.body[k].op != Op::mbarrier_arrive) continue;
      const auto branch = skipping_branch(places.f, k);
      const size_t to = branch ? target_of(places.f, places.f.body[*branch]) : k + 1;
      return places.add(i, [&](Edit& e) { e.move(i, 1, to); });
    }
  });
}
/// The group is closed before the products: they belong to the next.
void early_commit(Places& places) {
  places.each(Op::wgmma_commit_group, [&](size_t i) {
    size_t first = i;
    for (size_t k = i; k-- > 0 && !is_wait(places.f, k);)
      if (places.f.body[k].op == Op::wgmma_mma_async) first = k;
    if (first != i) places.add(i, [&](Edit& e) { e.move(i, 1, first); });
  });
}
template <int kMask>
void load_mask(Places& places) {
  places.each(Op::cp_async_bulk_tensor, [&](size_t i) {
    if (!places.f.body[i].has(Mod::multicast_cluster)) return;
    places.add(i, [&](Edit& e) { e.set_mask(i, 3, kMask); });
  });
}
void load_alone(Places& places) {
  places.each(Op::cp_async_bulk_tensor, [&](size_t i) {
    if (!places.f.body[i].has(Mod::multicast_cluster)) return;
    places.add(i, [&](Edit& e) {
      e.remove_word(i, Mod::multicast_cluster);
      --e.at(i).operand_count;
    });
  });
}

constexpr Rule kRules[] = {
    {"drop-wgmma-fence", "a wgmma.fence is left out", drop<Op::wgmma_fence>},
    {"drop-wgmma-commit", "a wgmma.commit_group is left out", drop<Op::wgmma_commit_group>},
    {"early-wgmma-commit", "a wgmma.commit_group comes before its products", early_commit},
    {"drop-wgmma-wait", "a wgmma.wait_group is left out", drop<Op::wgmma_wait_group>},
    {"loose-wgmma-wait", "a wgmma.wait_group leaves one more group pending", loose_wait},
    {"late-wgmma-wait", "a wgmma.wait_group comes after the operands were given back", late_wait},
    {"load-to-rank-0", "a multicast load reaches CTA 0 alone", load_mask<1>},
    {"load-to-rank-1", "a multicast load reaches CTA 1 alone", load_mask<2>},
    {"load-to-rank-2", "a multicast load names a CTA that the cluster does not have", load_mask<7>},
    {"load-alone", "a load for both CTAs is not multicast", load_alone},
};

}  // namespace

std::span<const Rule> wgmma_rules() { return kRules; }

}  // namespace imbrex::mutants
