// SPDX-License-Identifier: Apache-2.0
// Small kernels of what the library's kernels for products do not use: locks, scans, sorting, scattering, rows that TMA
// gathers, tensor memory that is viewed anew. Each exchanges between warps and CTAs in the ways that its instructions allow.
#pragma once

#include "imbrex/lang.h"

namespace imbrex::mutants {

/// Every CTA adds its number to y[0 ... 31] by loads and stores, one CTA at a time. `lock` is 0.
struct Locked {
  static constexpr const char* target = "sm_90a";
  void operator()(int ctas, Ptr<int32> lock_ptr, Ptr<int32> y_ptr) const {
    grid(ctas);
    warps(2);
    auto lock = global_view(lock_ptr, {1})[0];
    auto y = global_view(y_ptr, {64});
    semaphore::lock(lock);
    store_global(y, load_global(y, {0}, {64}) + block_idx.x + 1, {0});
    semaphore::unlock(lock);
  }
};

/// y = the running sums of x, sorted, and written in the order that `places` tells, by way of shared memory.
struct Ordered {
  static constexpr const char* target = "sm_90a";
  void operator()(Ptr<int32> x_ptr, Ptr<int32> y_ptr, Ptr<int32> count_ptr) const {
    constexpr int kCount = 128;
    grid(1);
    warps(2);
    auto x = load_global(global_view(x_ptr, {kCount}), {0}, {kCount});
    auto sums = cumsum(x);
    auto sorted = sort_with_indices(sums);
    auto by_place = shared_tensor(int32, {kCount}), counts = shared_tensor(int32, {32});
    scatter(by_place, sorted.values, {sorted.indices});
    store_shared(counts, zeros(int32, {32}));
    sync();
    auto neighbours = register_tensor(int32, {kCount}, [](auto i) { return (i + 37) % kCount; });
    store_global(global_view(y_ptr, {kCount}), gather(by_place, {neighbours}, {kCount}), {0});
    atomic::add(counts, 1, {x & 31});
    sync();
    store_global(global_view(count_ptr, {32}), load_shared(counts), {0});
  }
};

/// y[7 - i, :] = x[i, :] for 16 rows by twos of four, which TMA gathers and scatters through a ring of two stages.
struct Rows {
  static constexpr const char* target = "sm_100a";
  void operator()(Ptr<float16> x_ptr, Ptr<float16> y_ptr) const {
    constexpr int kGroups = 4, kStages = 2, kRows = 4 * kGroups;
    grid(1);
    warps(2);
    auto g_x = global_view(x_ptr, {kRows, 64}), g_y = global_view(y_ptr, {kRows, 64});
    auto loaded = shared_tensor(float16, {kStages, 4, 64}),
         doubled = shared_tensor(float16, {kStages, 4, 64});
    auto barriers = mbarrier::alloc({1, 1});
    sync();
    const auto start = [&](int group) {
      if (auto warp = single_warp()) {
        if (auto thread = single_thread())
          mbarrier::arrive_and_expect_tx(barriers[group % kStages], loaded[0].nbytes());
        const int row = 4 * group;
        tma::gather4(g_x, loaded[group % kStages], {row + 3, row + 1, row, row + 2}, 0,
                     barriers[group % kStages]);
      }
    };
    start(0);
    start(1);
    for (int group = 0; group < kGroups; ++group) {
      const int stage = group % kStages, row = kRows - 4 - 4 * group;
      mbarrier::wait(barriers[stage], group / kStages % 2);
      auto rows = load_shared(loaded[stage]);
      if (group >= kStages) {
        if (auto warp = single_warp()) tma::wait_group(kStages - 1, {.read = true});
        sync();
      }
      store_shared(doubled[stage], rows + rows);
      fence::proxy_async();
      sync();
      if (group + kStages < kGroups) start(group + kStages);
      if (auto warp = single_warp()) {
        tma::scatter4(doubled[stage], g_y, {row, row + 2, row + 3, row + 1}, 0);
        tma::commit_group();
      }
    }
    if (auto warp = single_warp()) tma::wait_group(0);
  }
};

/// O = (Q K^T / 8) V: scores become an operand in the half of the columns of tensor memory that they stood in.
struct Viewed {
  static constexpr const char* target = "sm_100a";
  void operator()(Ptr<float16> q_ptr, Ptr<float16> k_ptr, Ptr<float16> v_ptr, Ptr<float32> o_ptr) const {
    grid(1);
    auto s_q = shared_tensor(float16, {128, 32}), s_k = shared_tensor(float16, {32, 32}),
         s_v = shared_tensor(float16, {32, 32});
    auto t_s = tcgen05::alloc(float32, {128, 32}), t_o = tcgen05::alloc(float32, {128, 32});
    auto t_p = tcgen05::view(t_s.slice({0, 0}, {128, 16}), float16, {128, 32});
    auto loaded = mbarrier::alloc(1), scored = mbarrier::alloc(1), done = mbarrier::alloc(1);
    sync();
    if (auto warp = single_warp()) {
      if (auto thread = single_thread())
        mbarrier::arrive_and_expect_tx(loaded, s_q.nbytes() + s_k.nbytes() + s_v.nbytes());
      tma::global_to_shared(global_view(q_ptr, {128, 32}), s_q, {0, 0}, loaded);
      tma::global_to_shared(global_view(k_ptr, {32, 32}), s_k, {0, 0}, loaded);
      tma::global_to_shared(global_view(v_ptr, {32, 32}), s_v, {0, 0}, loaded);
      mbarrier::wait(loaded, 0);
      tcgen05::mma(s_q, s_k.transpose(), t_s, {.enable_input_d = false});
      tcgen05::commit(scored);
    }
    mbarrier::wait(scored, 0);
    tcgen05::store(t_p, (tcgen05::load(t_s) / 8).to(float16));
    sync();
    if (auto warp = single_warp()) {
      tcgen05::mma(t_p, s_v, t_o, {.enable_input_d = false});
      tcgen05::commit(done);
    }
    mbarrier::wait(done, 0);
    store_global(global_view(o_ptr, {128, 32}), tcgen05::load(t_o), {0, 0});
    sync();
    tcgen05::dealloc(t_o);
    tcgen05::dealloc(t_s);
  }
};

/// y[cta, 5 i + 3 mod 128, :] = x[i, :] for the rows i of two warps but every third. Each CTA of two loads half of x for both and
/// copies all to its tensor memory, and both know when both have: by masks that the program computes. Each of the two warps reads
/// its own lanes, and leaves out rows by a mask.
struct Masked {
  static constexpr const char* target = "sm_100a";
  void operator()(Ptr<float32> x_ptr, Ptr<float32> y_ptr) const {
    constexpr int kCtas = 2, kRows = 128, kHalf = kRows / kCtas;
    grid(kCtas);
    cluster(kCtas);
    warps(4);
    auto tile = shared_tensor(float32, {kRows, 32});
    auto t = tcgen05::alloc(float32, {kRows, 32});
    auto landed = mbarrier::alloc(1), copied = mbarrier::alloc(kCtas);
    cluster_sync();
    Int32 rank = cluster_rank(), both = (1 << rank) | (1 << (kCtas - 1 - rank));
    if (auto warp = single_warp()) {
      if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(landed, tile.nbytes());
      tma::global_to_shared(global_view(x_ptr, {kRows, 32}), tile.slice({kHalf * rank, 0}, {kHalf, 32}),
                            {kHalf * rank, 0}, landed, {.multicast_mask = both});
      mbarrier::wait(landed, 0);
      tcgen05::copy(tile, t);
      tcgen05::commit(copied, {.multicast_mask = both});
    }
    mbarrier::wait(copied, 0);
    auto g_y = global_view(y_ptr, {kCtas, kRows, 32})[block_idx.x];
    for (int i : {2, 1})
      if (auto warp = single_warp(i)) {
        auto row = register_tensor(int32, {32, 1}, [&](auto r, auto) { return r + 32 * i; });
        scatter(g_y, tcgen05::load(t.slice({32 * i, 0}, {32, 32})), {(5 * row + 3) % kRows, 0},
                {.mask = row % 3 != 0});
      }
    sync();  // all that the other CTA sends has arrived
    tcgen05::dealloc(t);
  }
};

}  // namespace imbrex::mutants
