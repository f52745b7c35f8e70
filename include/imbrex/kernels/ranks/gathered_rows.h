// SPDX-License-Identifier: Apache-2.0
// All-gather + matmul in one kernel: every rank has some of the rows of A, and multiplies all of them by its own B.
//
// Of the first warp group of each CTA, whose first warp loads tiles for the products, the second warp carries the rank's
// rows to the others: from A through shared memory into their copies of all rows, by TMA, a chunk at a time, and tells them
// of each. No multiprocessor is set aside for it. The tiles of a rank begin with those of its own rows and go on with
// those of the rank behind it, which come first; a tile's loads wait for the chunks that they need, along k too.
//
// Or copy engines bring the rows of each rank, all at once, behind the kernel's back: what a multiprocessor stores to another GPU
// keeps its loads waiting (docs/parallel.md).
#pragma once

#include <optional>

#include "imbrex/kernels/parts/batch.h"
#include "imbrex/kernels/parts/product_sizes.h"
#include "imbrex/kernels/parts/steps/output_tile.h"
#include "imbrex/kernels/parts/tile_order.h"
#include "imbrex/kernels/ranks/rank_call.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// A step of a matmul's epilogue, which changes no element: the kernel's A is the rank's copy of all rows, [m, k], and this
/// tells of the rows that it has itself. `m` need not be a multiple of anything.
struct GatheredRows {
  using Parameters = ParameterList<RankSignals, Ptr<>, Ptr<>, Int32, int, bool, bool>;
  static constexpr int kChunkRows = 64;

  RankSignals signals;
  Ptr<> own_ptr;    ///< the rank's rows, dense: rank * rank_rows and following
  Ptr<> place_ptr;  ///< symmetric: where they go in the copies of all rows
  Int32 rank_rows;  ///< of each rank but the last ones, which may have fewer or none
  int chunk_k;      ///< elements of k that are carried and waited for together, a multiple of 256 bytes
  bool keeps_own;  ///< the rank's own rows are wanted in its copy, too, for tiles that have rows of two ranks
  bool
      is_copied;  ///< copies bring the others' rows, and part 0 of a rank tells that its have come; no tile has rows of two ranks

  /// Signals that each rank needs for each other.
  static int64_t parts(int64_t rank_rows, int64_t k, int64_t chunk_k) {
    return cdiv(rank_rows, kChunkRows) * cdiv(k, chunk_k);
  }
  RegisterValue operator()(const RegisterBase& x, const OutputTile&) const {
    return RegisterValue(x.handle());
  }
};

/// The tiles of such a kernel.
class GatheredTiles {
 public:
  GatheredTiles(const GatheredRows& rows, const ProductSizes& sizes, const RankTileShape& shape)
      : rows_(rows),
        shape_(shape),
        m_(sizes.m),
        k_(sizes.k),
        first_row_(rows.signals.rank * rows.rank_rows),
        own_rows_(max(min(rows.rank_rows, sizes.m - first_row_), 0)),
        k_chunks_(cdiv(sizes.k, rows.chunk_k)),
        g_own_(global_view(rows.own_ptr, shape.dtype, {max(own_rows_, 1), sizes.k})),
        g_places_(symmetric_view(rows.place_ptr, shape.dtype, rows.signals.rank_stride_bytes,
                                 rows.signals.ranks, {max(own_rows_, 1), sizes.k})) {
    if (rows.is_copied) return;
    s_piece_.emplace(shared_tensor(shape.dtype, {GatheredRows::kChunkRows, 2048 / shape.dtype.bits()}));
    loaded_.emplace(mbarrier::alloc(1));
  }

  const Int32& rows_of_a(const Int32& m) const { return m; }
  const ProductSizes& sizes_of_c(const ProductSizes& sizes) const { return sizes; }
  template <class Tiles>
  const Tiles& tiles(const Tiles& matrix_tiles) const {
    return matrix_tiles;
  }
  TileOfBatch tile(const Batch*, const ScalarArg& tile, const ScalarArg&) const { return {0, tile}; }
  /// Rows of tiles from the first that are the rank's own, in groups of `swizzle_size`.
  BlockCoord block(const ScalarArg& tile, const ScalarArg& num_m_blocks, const ScalarArg& num_n_blocks,
                   int swizzle_size) const {
    BlockCoord turned = compute_block_coord(tile, num_n_blocks, num_m_blocks, swizzle_size);
    Int32 first = cdiv(first_row_, shape_.cluster_m * shape_.block_m) % num_m_blocks;
    Int32 m_block = turned.n_block + first;
    return {select(m_block >= num_m_blocks, m_block - num_m_blocks, m_block), turned.m_block};
  }

  /// Loads of a tile's rows of A, from `row` on: when they have come, and from where they are.
  class SourceOfA {
   public:
    SourceOfA(const GatheredTiles& tiles, const GlobalTensor& a, const Int32& row)
        : tiles_(tiles), a_(a), row_(row) {
      if (tiles.rows_.is_copied) {
        first_chunk_ = row_ / tiles.rows_.rank_rows;
        is_own_ = first_chunk_ == tiles.rows_.signals.rank || row_ >= tiles.m_;
        return;
      }
      Int32 end = min(row_ + tiles.shape_.block_m, tiles.m_);
      is_own_ = (row_ >= tiles.first_row_ && end <= tiles.first_row_ + tiles.own_rows_) || row_ >= tiles.m_;
      first_chunk_ = chunk_of(row_);
      last_chunk_ = chunk_of(end - 1);
    }
    template <class Load>
    void operator()(const ScalarArg& k, const Load& load) const {
      if (auto own = when(is_own_)) load(tiles_.g_own_, row_ - tiles_.first_row_);
      if (auto carried = otherwise()) {
        if (tiles_.rows_.is_copied) {
          if (auto first = when(k == 0)) {
            tiles_.call_->wait_for(first_chunk_, 0);
            fence::proxy_async(fence::Space::kGlobal);  // a copy stored it, and TMA reads it
          }
        } else {
          const auto [k_chunk, in_chunk] = fast_divmod(k, tiles_.rows_.chunk_k);
          if (auto next = when(in_chunk == 0)) {
            for (Int32 chunk : range(first_chunk_, last_chunk_ + 1)) {
              const auto [rank, of_rank] = fast_divmod(chunk, chunks_of_rank());
              tiles_.call_->wait_for(rank, of_rank * tiles_.k_chunks_ + k_chunk);
            }
            fence::proxy_async(fence::Space::kGlobal);  // TMA stored it, and TMA reads it
          }
        }
        load(a_, row_);
      }
    }

   private:
    Expr chunks_of_rank() const { return cdiv(tiles_.rows_.rank_rows, GatheredRows::kChunkRows); }
    Expr chunk_of(const ScalarArg& row) const {
      const auto [rank, of_rank] = fast_divmod(row, tiles_.rows_.rank_rows);
      return rank * chunks_of_rank() + of_rank / GatheredRows::kChunkRows;
    }

    const GatheredTiles& tiles_;
    GlobalTensor a_;
    Int32 row_;
    Bool is_own_ = false;
    Int32 first_chunk_ = 0, last_chunk_ = 0;
  };
  SourceOfA source_of_a(const GlobalTensor& a, const ScalarArg& /*matrix*/, const Int32& row) const {
    return {*this, a, row};
  }
  template <class Store>
  void store(const Store& store, int group, const RegisterBase& sums, const Int32& row, const Int32& column,
             const ScalarArg& matrix, const TileOfBatch&, const Int32&) const {
    store(group, sums, row, column, matrix);
  }

  void between_blocks(const ScalarArg&) const {}
  void end_of_tiles(const Int32&, const Int32&, const Int32&, const ScalarArg&, const Int32&, int) const {}
  void begin() {
    call_.emplace(rows_.signals);
    if (!rows_.is_copied) call_->begin();
  }
  /// The work of the second warp of the group that loads: chunks to the rank before this one, which wants them first, then
  /// to the one before that, and so on.
  void carry() {
    if (rows_.is_copied) return;
    if (auto warp = single_warp(1)) {
      const int places = rows_.signals.ranks - (rows_.keeps_own ? 0 : 1);
      const int piece_k = 2048 / shape_.dtype.bits();
      Int32 row_chunks = cdiv(own_rows_, GatheredRows::kChunkRows), chunks = row_chunks * k_chunks_;
      UInt32 phase = 0;
      for (Int32 work : range(block_idx.x, places * chunks, grid_dim.x)) {
        const auto [distance, chunk] = fast_divmod(work, max(chunks, 1));
        const auto [k_chunk, row_chunk] = fast_divmod(chunk, max(row_chunks, 1));
        Int32 place = call_->peer(rows_.signals.ranks - 1 - distance);
        Int32 row = row_chunk * GatheredRows::kChunkRows, begin_k = k_chunk * rows_.chunk_k;
        if (auto other = when(place != call_->rank())) call_->wait_for_begin(place);
        for (Int32 k : range(begin_k, min(begin_k + rows_.chunk_k, k_), piece_k)) {
          tma::wait_group(0, {.read = true});  // the last piece has left
          if (auto thread = single_thread()) mbarrier::arrive_and_expect_tx(*loaded_, s_piece_->nbytes());
          tma::global_to_shared(g_own_, *s_piece_, {row, k}, *loaded_);
          mbarrier::wait(*loaded_, phase);
          phase ^= 1;
          tma::shared_to_global(*s_piece_, g_places_[place], {row, k});
          tma::commit_group();
        }
        tma::wait_group(0);
        call_->stored(place, row_chunk * k_chunks_ + k_chunk);
      }
    }
  }
  void end() { call_->end(); }

 private:
  const GatheredRows& rows_;
  RankTileShape shape_;
  Int32 m_, k_, first_row_, own_rows_, k_chunks_;
  GlobalTensor g_own_, g_places_;
  std::optional<SharedTensor> s_piece_;  // of who carries
  std::optional<Barrier> loaded_;
  std::optional<RankCall> call_;
};

}  // namespace imbrex::kernels
