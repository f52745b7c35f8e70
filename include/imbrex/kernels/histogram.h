// SPDX-License-Identifier: Apache-2.0
// How often each key occurs. Each CTA counts its part of the keys in shared memory, where atomics are fast, then adds
// its counts to those in global memory. The last CTA to finish, which draws the last ticket, moves the sums to the
// output and leaves zeros behind for the next launch.
#pragma once

#include "imbrex/lang.h"

namespace imbrex::kernels {

struct Histogram {
  int keys_per_cta = 65536, num_warps = 32;

  static auto space() {
    return Space<Histogram>().choose<&Histogram::keys_per_cta, &Histogram::num_warps>(
        {{65536, 32}, {32768, 32}, {32768, 8}, {16384, 8}, {8192, 4}});
  }

  /// counts[b] = how many of the keys are b, for 0 <= b < bins; other keys are left out. `sums` and `ticket` are zero,
  /// and are so again at the end.
  void operator()(Int32 n, int bins, Ptr<int32> key_ptr, Ptr<int32> sum_ptr, Ptr<int32> ticket_ptr,
                  Ptr<int32> count_ptr) const {
    require(bins <= 8192, "the counts of a CTA are in shared memory: {} bins, at most 8192", bins);
    grid(cdiv(n, keys_per_cta));
    warps(num_warps);
    const int step = 32 * num_warps * 4;  // 16 bytes for each thread

    auto g_keys = global_view(key_ptr, {n});
    auto g_sums = global_view(sum_ptr, {bins});
    auto g_counts = global_view(count_ptr, {bins});
    auto ticket = global_view(ticket_ptr, {1})[0];
    auto s_counts = shared_tensor(int32, {bins});
    store_shared(s_counts, zeros(int32, {bins}));
    sync_threads();

    Int32 first = keys_per_cta * block_idx.x;
    for (Int32 at : range(first, min(first + keys_per_cta, n), step)) {
      auto keys = load_global(g_keys, {at}, {step}, {.other = -1});
      atomic::add(s_counts, 1, {keys}, {.mask = keys >= 0 && keys < bins});
    }
    sync_threads();
    atomic::add(g_sums, load_shared(s_counts), {0});

    // Releases this CTA's sums; the last one acquires those of all.
    auto finished = atomic::add(ticket, 1, {.sem = Sem::kAcqRel});
    if (auto last = when(finished == grid_dim.x - 1)) {
      store_global(g_counts, load_global(g_sums, {0}, {bins}), {0});
      sync_threads();  // where threads hold copies, all have read
      store_global(g_sums, zeros(int32, {bins}), {0});
      atomic::exch(ticket, 0);
    }
  }
};

}  // namespace imbrex::kernels
