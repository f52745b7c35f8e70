// SPDX-License-Identifier: Apache-2.0
// Where K and V of sequences that grow lie: a row of memory for each sequence, or pages of some rows in any order, which
// a table lists. Lengths and table are in memory, so that a captured graph serves every step.
#pragma once

#include <algorithm>

#include "imbrex/kernels/attention/head_strides.h"
#include "imbrex/kernels/parts/pipeline.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// A parameter of a kernel. K and V are [pages, heads_kv, page_rows, head_size]; without `is_paged` page b is sequence b.
struct KvCache {
  using Parameters = ParameterList<bool, bool, Int32, int, Int32, Ptr<>, HeadStrides, Ptr<>, HeadStrides,
                                   Ptr<int32>, Ptr<int32>>;
  bool is_paged, has_lengths;
  Int32 pages;
  int rows_of_page;          ///< of paged caches
  Int32 pages_per_sequence;  ///< columns of the table; without it, rows of a sequence
  Ptr<> k_ptr;
  HeadStrides k_strides;
  Ptr<> v_ptr;
  HeadStrides v_strides;
  Ptr<int32> length_ptr;  ///< [batches]; read with `has_lengths`
  Ptr<int32> table_ptr;   ///< [batches, pages_per_sequence]; read with `is_paged`

  /// Rows that there is room for in each sequence.
  Expr capacity() const { return is_paged ? pages_per_sequence * rows_of_page : pages_per_sequence * 1; }
  Expr length_of(const Int32& batch) const {
    if (!has_lengths) return capacity();
    auto length = global_view(length_ptr, {grid_dim.z})[batch];
    return max(0, min(length, capacity()));
  }
  /// Whether TMA loads a block, or a part of one, from each page: its rows fill whole patterns of the swizzle.
  bool has_tma_pages(int block_kv) const {
    return !is_paged || rows_of_page % block_kv == 0 ||
           (block_kv % rows_of_page == 0 && rows_of_page % 8 == 0);
  }
  /// Warps that load.
  int warps_needed(int block_kv) const { return has_tma_pages(block_kv) ? 1 : 4; }
};

/// Factors of K and V of float8, one for each of their heads: what a cache stands for is its elements multiplied by it. A
/// parameter of a kernel; without `are_given` they are 1.
struct CacheScales {
  using Parameters = ParameterList<bool, Ptr<float32>, Ptr<float32>>;
  bool are_given;
  Ptr<float32> k_ptr, v_ptr;  ///< [heads_kv]

  Expr of_k(const Int32& heads_kv, const Int32& head) const { return item(k_ptr, heads_kv, head); }
  Expr of_v(const Int32& heads_kv, const Int32& head) const { return item(v_ptr, heads_kv, head); }

 private:
  Expr item(const Ptr<float32>& pointer, const Int32& heads_kv, const Int32& head) const {
    return are_given ? global_view(pointer, {heads_kv}).item({head}) : Float32(1.f) + 0.f;
  }
};

/// The ring of blocks of K and V of one sequence and head, and how they are loaded.
class KvBlocks {
 public:
  KvBlocks(const KvCache& cache, DataType dtype, int block_kv, int stages, const Int32& batches,
           const Int32& heads_kv, int head_size, const Int32& batch, const Int32& head_kv)
      : cache_(cache),
        block_kv_(block_kv),
        head_size_(head_size),
        head_kv_(head_kv),
        g_k_(cache.k_strides.view(cache.k_ptr, dtype, cache.is_paged ? cache.pages : batches, heads_kv,
                                  rows(), head_size)),
        g_v_(cache.v_strides.view(cache.v_ptr, dtype, cache.is_paged ? cache.pages : batches, heads_kv,
                                  rows(), head_size)),
        batch_(batch),
        batches_(batches),
        s_k_(shared_tensor(dtype, {stages, block_kv, head_size})),
        s_v_(shared_tensor(dtype, {stages, block_kv, head_size})) {}

  SharedTensor k(const Int32& stage) const { return s_k_[stage]; }
  SharedTensor v(const Int32& stage) const { return s_v_[stage]; }
  /// That make a stage full.
  int64_t arrivals() const { return cache_.has_tma_pages(block_kv_) ? 1 : 128; }

  /// Where the block ends beyond the sequence, sets those rows of V in the consumer's stage to zero: their weights are
  /// zero, but what is there may be no number. The consumer's role; nothing may be reading the stage.
  void clear_beyond(const Int32& length, const ScalarArg& block, Pipeline& v_pipe) const {
    if (auto edge = when((block + 1) * block_kv_ > length)) {
      v_pipe.consumer_acquire();
      auto stage = v(v_pipe.consumer_stage);
      auto is_inside = register_tensor(boolean, {block_kv_, 1},
                                       [&](auto r, auto) { return block * block_kv_ + r < length; });
      store_shared(stage, select(is_inside, load_shared(stage), 0));
      fence::proxy_async();
      sync();
    }
  }

  /// The loading warps' role: blocks first ... last - 1 of a sequence of `length` rows.
  void load(const Int32& first, const Int32& last, const Int32& length, Pipeline& k_pipe, Pipeline& v_pipe) {
    if (!cache_.has_tma_pages(block_kv_)) return gather_blocks(first, last, length, k_pipe, v_pipe);
    for (Int32 block : range(first, last)) {
      if (cache_.is_paged)
        load_pages(block * block_kv_, length, k_pipe, v_pipe);
      else
        load_rows(block * block_kv_, k_pipe, v_pipe);
    }
  }

 private:
  ScalarArg rows() const {
    return cache_.is_paged ? ScalarArg(cache_.rows_of_page) : ScalarArg(cache_.pages_per_sequence);
  }
  GlobalTensor table() const {
    return global_view(cache_.table_ptr, {batches_, cache_.pages_per_sequence})[batch_];
  }

  /// `copy(destination)` of the pipe's stage, all of whose bytes arrive on its barrier.
  template <class Copy>
  void fill(Pipeline& pipe, const SharedTensor& ring, const Copy& copy) {
    pipe.producer_acquire();
    auto stage = ring[pipe.producer_stage];
    if (auto thread = single_thread())
      mbarrier::arrive_and_expect_tx(pipe.producer_barrier(), stage.nbytes());
    copy(stage);
    pipe.producer_advance();
  }

  void load_rows(const ScalarArg& offset, Pipeline& k_pipe, Pipeline& v_pipe) {
    auto from = offset + 0;
    const auto load = [&](Pipeline& pipe, const GlobalTensor& g, const SharedTensor& ring) {
      fill(pipe, ring, [&](const SharedTensor& stage) {
        tma::global_to_shared(g, stage, {batch_, head_kv_, from, 0}, pipe.producer_barrier(), kOnce);
      });
    };
    load(k_pipe, g_k_, s_k_);
    load(v_pipe, g_v_, s_v_);
  }

  void load_pages(const ScalarArg& offset, const Int32& length, Pipeline& k_pipe, Pipeline& v_pipe) {
    const int of_page = std::min(block_kv_, cache_.rows_of_page);
    std::vector<Int32> pages, rows;
    for (int i = 0; i < block_kv_ / of_page; ++i) {
      // Rows beyond the sequence's end come from its last page: the table need not list more.
      Int32 row = min(offset + i * of_page, (length - 1) / of_page * of_page);
      pages.emplace_back(table()[row / cache_.rows_of_page]);
      rows.emplace_back(row % cache_.rows_of_page);
    }
    const auto load = [&](Pipeline& pipe, const GlobalTensor& g, const SharedTensor& ring) {
      fill(pipe, ring, [&](const SharedTensor& stage) {
        for (size_t i = 0; i < pages.size(); ++i)
          tma::global_to_shared(g, stage.slice({static_cast<int64_t>(i) * of_page, 0}, {of_page, head_size_}),
                                {pages[i], head_kv_, rows[i], 0}, pipe.producer_barrier(), kOnce);
      });
    };
    load(k_pipe, g_k_, s_k_);
    load(v_pipe, g_v_, s_v_);
  }

  /// Row by row in pieces of 16 bytes, for pages that TMA has no use for. While one is waited for, those
  /// behind it for which the ring has room are in flight; pages are looked up two blocks ahead, one round of the loop
  /// before anything waits for them.
  void gather_blocks(const Int32& first, const Int32& last, const Int32& length, Pipeline& k_pipe,
                     Pipeline& v_pipe) {
    // The consumer is done with a block when it has the next one.
    const int behind = std::max(k_pipe.num_stages - 2, 0);
    const auto row_of = [&](const ScalarArg& block) {
      return register_tensor(int32, {block_kv_, 1},
                             [&](auto r, auto) { return min(block * block_kv_ + r, max(length - 1, 0)); });
    };
    const auto page_of = [&](const ScalarArg& block) {
      auto table = global_view(cache_.table_ptr, {batches_, cache_.pages_per_sequence});
      return gather(table, {batch_, row_of(block) / cache_.rows_of_page}, {block_kv_, 1}, {.dims = {-1, -1}});
    };
    Int32 announced = first, stage = 0;
    const auto announce = [&] {
      fence::proxy_async();
      mbarrier::arrive(k_pipe.full_barriers[stage]);  // every thread, for what it has copied
      mbarrier::arrive(v_pipe.full_barriers[stage]);
      announced += 1;
      stage = select(stage == k_pipe.num_stages - 1, 0, stage + 1);
    };
    if (auto some = when(first < last)) {
      RegisterTensor page = page_of(first), next_page = page_of(min(first + 1, last - 1));
      for (Int32 block : range(first, last)) {
        auto in_page = row_of(block) % cache_.rows_of_page;
        const auto start = [&](Pipeline& pipe, const GlobalTensor& g, const SharedTensor& ring) {
          pipe.producer_acquire();
          copy_async_gather(g, ring[pipe.producer_stage], {page, head_kv_, in_page, 0});
          pipe.producer_advance();
        };
        start(k_pipe, g_k_, s_k_);
        start(v_pipe, g_v_, s_v_);
        copy_async_commit_group();
        page = next_page;
        next_page = page_of(min(block + 2, last - 1));
        if (auto full = when(block - announced >= behind)) {
          copy_async_wait_group(behind);
          announce();
        }
      }
      copy_async_wait_all();
      for (int i = 0; i < behind; ++i)
        if (auto rest = when(announced < last)) announce();
    }
  }

  static constexpr auto kEvict = tma::CachePolicy::kEvictFirst;
  inline static const tma::LoadOptions kOnce{.cache_policy = kEvict};  // a row is read once

  const KvCache& cache_;
  int block_kv_, head_size_;
  const Int32& head_kv_;
  GlobalTensor g_k_, g_v_;
  const Int32 &batch_, &batches_;
  SharedTensor s_k_, s_v_;
};

}  // namespace imbrex::kernels
