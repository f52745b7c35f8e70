// SPDX-License-Identifier: Apache-2.0
// Faults in allocating and addressing tensor memory and shared memory.
#include "mutants/rules.h"

namespace imbrex::mutants {
namespace {

using ptx::Mod;
using ptx::Op;
using ptx::ScalarType;

void drop_dealloc(Places& places) {
  places.each(Op::tcgen05_dealloc, [&](size_t i) { places.add(i, [&](Edit& e) { e.erase(i); }); });
}
void dealloc_twice(Places& places) {
  places.each(Op::tcgen05_dealloc, [&](size_t i) { places.add(i, [&](Edit& e) { e.duplicate(i); }); });
}
void half_dealloc(Places& places) {
  places.each(Op::tcgen05_dealloc, [&](size_t i) {
    if (places.operand(i, 1).value > 32) places.add(i, [&](Edit& e) { e.operand(i, 1).value /= 2; });
  });
}
void half_alloc(Places& places) {
  places.each(Op::tcgen05_alloc, [&](size_t i) {
    if (places.operand(i, 1).value > 32) places.add(i, [&](Edit& e) { e.operand(i, 1).value /= 2; });
  });
}
/// Both ends agree on too small an allocation.
void shrink(Places& places) {
  places.each(Op::tcgen05_alloc, [&](size_t i) {
    if (places.operand(i, 1).value == 32) return;
    places.add(i, [&](Edit& e) {
      for (size_t k = 0; k < e.size(); ++k)
        if (e.at(k).op == Op::tcgen05_alloc || e.at(k).op == Op::tcgen05_dealloc) e.operand(k, 1).value /= 2;
    });
  });
}
template <Op kOp>
void by_every_warp(Places& places) {
  places.each(kOp, [&](size_t i) {
    if (const auto branch = skipping_branch(places.f, i)) places.add(i, [&](Edit& e) { e.erase(*branch); });
  });
}
/// Deallocation moves before the barrier that ends the use.
void early_dealloc(Places& places) {
  places.each(Op::tcgen05_dealloc, [&](size_t i) {
    const auto branch = skipping_branch(places.f, i);
    const auto test = branch ? definition_before(places.f, *branch, places.f.body[*branch].guard) : branch;
    if (!test) return;
    for (size_t k = i; k-- > 0;) {
      const Op op = places.f.body[k].op;
      if (op != Op::bar_sync && op != Op::barrier_cluster_arrive) continue;
      return places.add(i, [&](Edit& e) { e.move(*test, i - *test + 1, k); });
    }
  });
}
void never_relinquish(Places& places) {
  places.each(Op::tcgen05_alloc, [&](size_t i) {
    places.add(i, [&](Edit& e) {
      const Mod group = e.at(i).has(Mod::cta_group_2) ? Mod::cta_group_2 : Mod::cta_group_1;
      e.insert(i, Op::tcgen05_relinquish_alloc_permit, {group, Mod::sync, Mod::aligned}, {});
    });
  });
}

template <int kColumns>
void load_shift(Places& places) {
  places.each(Op::tcgen05_ld, [&](size_t i) {
    places.add(i, [&](Edit& e) {
      const ptx::Reg moved = e.fresh(ScalarType::b32);
      e.insert(i, Op::add, {ScalarType::u32}, {moved, ptx::Reg{e.operand(i, 1).id}, kColumns});
      e.operand(i + 1, 1).id = moved.id;
    });
  });
}
void other_lanes(Places& places) {
  places.each(Op::tcgen05_ld, [&](size_t i) {
    places.add(i, [&](Edit& e) {
      const ptx::Reg moved = e.fresh(ScalarType::b32);
      e.insert(i, Op::xor_, {ScalarType::b32}, {moved, ptx::Reg{e.operand(i, 1).id}, 32 << 16});
      e.operand(i + 1, 1).id = moved.id;
    });
  });
}

void shrink_shared(Places& places) {
  places.add(0, [&](Edit& e) { e.kernel.shared_bytes -= 1024; });
}
template <int kBytes>
void store_shared_shift(Places& places) {
  places.each(Op::st, [&](size_t i) {
    if (places.f.body[i].has(Mod::shared) || places.f.body[i].has(Mod::shared_cluster))
      places.add(i, [&](Edit& e) { e.operand(i, 0).value += kBytes; });
  });
}
/// `kBytes` less than a tile: of words that all lanes read. Inside a tile it is but another element of the
/// tile, written and in order: the wrong number is all there is.
template <int kBytes, bool kInTiles>
void load_shared_shift(Places& places) {
  places.each(Op::ld, [&](size_t i) {
    if (!places.f.body[i].has(Mod::shared)) return;
    if (!kInTiles && varies_by_lane(places.f, i, ptx::Reg{places.operand(i, 1).id})) return;
    places.add(i, [&](Edit& e) { e.operand(i, 1).value += kBytes; });
  });
}
void copy_shift(Places& places) {
  places.each(Op::cp_async,
              [&](size_t i) { places.add(i, [&](Edit& e) { e.operand(i, 0).value += 2048; }); });
}

constexpr Rule kRules[] = {
    {"drop-dealloc", "tensor memory is not given back", drop_dealloc},
    {"double-dealloc", "tensor memory is given back twice", dealloc_twice},
    {"half-dealloc", "half of an allocation is given back", half_dealloc},
    {"half-alloc", "half as many columns are allocated as given back", half_alloc},
    {"shrink-alloc", "too few columns are allocated, and as few given back", shrink},
    {"alloc-every-warp", "every warp allocates", by_every_warp<Op::tcgen05_alloc>},
    {"dealloc-every-warp", "every warp gives the allocation back", by_every_warp<Op::tcgen05_dealloc>},
    {"early-dealloc", "tensor memory is given back before the last barrier", early_dealloc},
    {"alloc-after-relinquish", "the permit to allocate is given up before the allocation", never_relinquish},
    {"load-columns-plus-16", "a tcgen05.ld reads 16 columns further", load_shift<16>},
    {"load-columns-plus-64", "a tcgen05.ld reads 64 columns further", load_shift<64>},
    {"load-other-lanes", "a warp reads another warp's lanes of tensor memory", other_lanes},
    {"shrink-shared", "the launch gives 1 KiB of shared memory too little", shrink_shared},
    {"store-shared-plus-16", "a st.shared writes 16 bytes further", store_shared_shift<16>},
    {"store-shared-plus-4096", "a st.shared writes 4096 bytes further", store_shared_shift<4096>},
    {"load-shared-plus-16", "a ld.shared of what all lanes read reads 16 bytes further",
     load_shared_shift<16, false>},
    {"load-shared-plus-8192", "a ld.shared reads 8192 bytes further", load_shared_shift<8192, true>},
    {"copy-plus-2048", "a cp.async writes 2048 bytes further", copy_shift},
};

}  // namespace

std::span<const Rule> tensor_memory_rules() { return kRules; }

}  // namespace imbrex::mutants
