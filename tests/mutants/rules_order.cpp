// SPDX-License-Identifier: Apache-2.0
// Faults in what orders: barriers of the CTA, fences, waits for tensor-memory loads.
#include "mutants/rules.h"

namespace imbrex::mutants {
namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

template <Op kOp>
void drop(Places& places) {
  places.each(kOp, [&](size_t i) { places.add(i, [&](Edit& e) { e.erase(i); }); });
}

/// What a barrier may stand between.
bool is_memory(const ptx::Instruction& insn) {
  switch (insn.op) {
    case Op::st:
    case Op::ld:
      return insn.has(Mod::shared);
    case Op::cp_async_bulk_tensor:
    case Op::cp_async_wait_all:
    case Op::cp_async_bulk_wait_group:
    case Op::mbarrier_init:
    case Op::tcgen05_alloc:
    case Op::tcgen05_dealloc:
    case Op::tcgen05_ld:
    case Op::tcgen05_wait_ld:
    case Op::tcgen05_mma:
      return true;
    default:
      return false;
  }
}
/// Position behind instruction i and the branch that skips it.
size_t behind(const Places& places, size_t i) {
  const auto branch = skipping_branch(places.f, i);
  return branch ? target_of(places.f, places.f.body[*branch]) : i + 1;
}

void early_sync(Places& places) {
  places.each(Op::bar_sync, [&](size_t i) {
    for (size_t k = i; k-- > 0;) {
      if (is_branch(places.f.body[k]) && target_of(places.f, places.f.body[k]) <= k) return;
      if (!is_memory(places.f.body[k])) continue;
      const auto branch = skipping_branch(places.f, k);
      return places.add(i, [&](Edit& e) { e.move(i, 1, branch ? *branch : k); });
    }
  });
}
void late_sync(Places& places) {
  places.each(Op::bar_sync, [&](size_t i) {
    for (size_t k = i + 1; k < places.f.body.size(); ++k) {
      if (is_branch(places.f.body[k]) && target_of(places.f, places.f.body[k]) <= k) return;
      if (is_wait(places.f, k)) return;
      if (!is_memory(places.f.body[k])) continue;
      return places.add(i, [&](Edit& e) { e.move(i, 1, behind(places, k)); });
    }
  });
}
void other_id(Places& places) {
  places.each(Op::bar_sync, [&](size_t i) {
    if (places.f.body[i].operand_count == 2) places.add(i, [&](Edit& e) { e.operand(i, 0).value += 1; });
  });
}
template <int kMore>
void threads(Places& places) {
  places.each(Op::bar_sync, [&](size_t i) {
    if (places.f.body[i].operand_count == 2) places.add(i, [&](Edit& e) { e.operand(i, 1).value += kMore; });
  });
}

/// The fence moves behind the barrier: executed by the reader.
void late_fence(Places& places) {
  places.each(Op::fence_proxy, [&](size_t i) {
    for (size_t k = i; k < places.f.body.size() && k < i + 6; ++k)
      if (places.f.body[k].op == Op::bar_sync) return places.add(i, [&](Edit& e) { e.move(i, 1, k + 1); });
  });
}
/// The fence moves before the writes (or reads) it should follow.
void early_fence(Places& places) {
  places.each(Op::fence_proxy, [&](size_t i) {
    size_t to = i;
    for (size_t k = i; k-- > 0 && k + 12 > i;) {
      const ptx::Instruction& insn = places.f.body[k];
      if (is_wait(places.f, k) || insn.op == Op::bar_sync) break;
      if (((insn.op == Op::st || insn.op == Op::ld) && insn.has(Mod::shared)) || insn.op == Op::cp_async ||
          insn.op == Op::cp_async_wait_all)
        to = k;
    }
    if (to != i) places.add(i, [&](Edit& e) { e.move(i, 1, to); });
  });
}
void fence_of_one_lane(Places& places) {
  places.each(Op::fence_proxy, [&](size_t i) {
    places.add(i, [&](Edit& e) {
      const ptx::Reg chosen = e.fresh(ScalarType::pred);
      e.insert(i, Op::elect_sync, {}, {e.pair(ptx::sink(), chosen), -1});
      e.at(i + 1).when(chosen);
    });
  });
}
void fence_of_global(Places& places) {
  places.each(Op::fence_proxy, [&](size_t i) {
    if (places.f.body[i].has(Mod::shared_cta))
      places.add(i, [&](Edit& e) { e.replace(i, Mod::shared_cta, Mod::global); });
  });
}

/// The wait for loads moves behind the first use of what was loaded.
void late_wait_load(Places& places) {
  places.each(Op::tcgen05_wait_ld, [&](size_t i) {
    for (size_t k = i; k < places.f.body.size(); ++k)
      if (places.f.body[k].op == Op::cvt) return places.add(i, [&](Edit& e) { e.move(i, 1, k + 1); });
  });
}
void late_before_fence(Places& places) {
  places.each(Op::tcgen05_fence_before_thread_sync, [&](size_t i) {
    if (places.f.body[i + 1].op == Op::bar_sync) places.add(i, [&](Edit& e) { e.move(i, 1, i + 2); });
  });
}
void early_after_fence(Places& places) {
  places.each(Op::tcgen05_fence_after_thread_sync, [&](size_t i) {
    for (size_t k = i; k-- > 0 && k + 8 > i;) {
      if (is_wait(places.f, k) || places.f.body[k].op == Op::bar_sync)
        return places.add(i, [&](Edit& e) { e.move(i, 1, k); });
    }
  });
}

constexpr Rule kRules[] = {
    {"drop-sync", "a barrier of the CTA or of a group of warps is left out", drop<Op::bar_sync>},
    {"early-sync", "a barrier comes before the access it should follow", early_sync},
    {"late-sync", "a barrier comes after the access it should precede", late_sync},
    {"sync-other-id", "a barrier of a group of warps has another number", other_id},
    {"sync-plus-32", "a barrier waits for one warp too many", threads<32>},
    {"sync-minus-32", "a barrier waits for one warp too few", threads<-32>},
    {"drop-warp-sync", "a bar.warp.sync is left out", drop<Op::bar_warp_sync>},
    {"drop-proxy-fence", "a proxy fence is left out", drop<Op::fence_proxy>},
    {"late-proxy-fence", "a proxy fence comes after the barrier", late_fence},
    {"early-proxy-fence", "a proxy fence comes before the accesses it should follow", early_fence},
    {"one-lane-proxy-fence", "one lane executes a proxy fence for 32 that wrote", fence_of_one_lane},
    {"global-proxy-fence", "a proxy fence names global memory in place of shared", fence_of_global},
    {"drop-init-fence", "a fence.mbarrier_init is left out", drop<Op::fence_mbarrier_init>},
    {"drop-before-fence", "a tcgen05.fence::before_thread_sync is left out",
     drop<Op::tcgen05_fence_before_thread_sync>},
    {"late-before-fence", "a tcgen05.fence::before_thread_sync comes after the barrier", late_before_fence},
    {"drop-after-fence", "a tcgen05.fence::after_thread_sync is left out",
     drop<Op::tcgen05_fence_after_thread_sync>},
    {"early-after-fence", "a tcgen05.fence::after_thread_sync comes before the wait", early_after_fence},
    {"drop-wait-load", "a tcgen05.wait::ld is left out", drop<Op::tcgen05_wait_ld>},
    {"late-wait-load", "a tcgen05.wait::ld comes after the first use", late_wait_load},
    {"drop-copy-wait", "a cp.async.wait_all is left out", drop<Op::cp_async_wait_all>},
};

}  // namespace

std::span<const Rule> order_rules() { return kRules; }

}  // namespace imbrex::mutants
