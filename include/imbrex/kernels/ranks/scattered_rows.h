// SPDX-License-Identifier: Apache-2.0
// Matmul + reduce-scatter in one kernel: every rank multiplies its part of k, and the rows of the sum are dealt out to the
// ranks, each of which adds up and keeps its own.
//
// A rank's tiles begin with the rows of the rank behind it and end with its own. A tile of another's rows is stored to a
// place in that rank's memory, one for each sender, by TMA as any result, and a signal follows it. A tile of its own rows
// it finishes itself: it waits until the others have stored theirs, and adds them to its sums in registers.
//
// Matmul + all-reduce is the same, but for where an owner's tiles go: to all ranks.
//
// Or there are several launches, one for each rank's rows and the own ones last: what is another's is stored to the rank's own
// memory, and copy engines carry it to the owner while the next launch multiplies. What a multiprocessor stores to another GPU
// keeps its loads waiting (docs/parallel.md).
#pragma once

#include <optional>
#include <vector>

#include "imbrex/kernels/parts/batch.h"
#include "imbrex/kernels/parts/epilogue.h"
#include "imbrex/kernels/parts/product_sizes.h"
#include "imbrex/kernels/parts/steps/output_tile.h"
#include "imbrex/kernels/parts/tile_order.h"
#include "imbrex/kernels/ranks/rank_call.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// A step of a matmul's epilogue, the first: adds what the other ranks have computed of the rank's own rows, in float32 from
/// partial results of the result's type. The kernel's m is `rank_rows`, its C has the rank's own rows.
struct ScatteredRows {
  using Parameters =
      ParameterList<RankSignals, Ptr<>, Int32, Int32, bool, Ptr<>, int, Int32, Int32, Int32, Ptr<>>;
  static constexpr int kAllTiles = 0, kTilesOfAnother = 1, kOwnTiles = 2;

  RankSignals signals;
  Ptr<> partial_ptr;  ///< symmetric, [ranks, rank_rows, n] of the result's type: from each rank
  Int32 all_rows;     ///< of A
  Int32 rank_rows;    ///< of each rank but the last ones, which may have fewer or none
  bool to_all;        ///< every rank gets all rows of the result
  Ptr<> result_ptr;   ///< then: symmetric, the rank's own rows in everybody's result
  int tiles;  ///< kAllTiles, or of several launches: kTilesOfAnother, which copies bring there; then kOwnTiles
  Int32 distance;    ///< of kTilesOfAnother: how many places behind this rank their owner is
  Int32 first_row;   ///< and the first of them among the owner's rows
  Int32 piece_rows;  ///< that copies bring together; a tile has rows of one piece
  Ptr<> sent_ptr;    ///< where kTilesOfAnother are stored: [ranks, rank_rows, n] in the rank's own memory

  /// Signals that each rank needs for each other, of a kernel with so many tiles of a rank's rows, clusters and consumers:
  /// that a part of a tile has been sent, and that the result of it has.
  static int64_t parts(int64_t tiles, int64_t cluster_ctas, int64_t consumers) {
    return 2 * tiles * cluster_ctas * consumers;
  }
  /// The part that tells of a piece that a copy has brought: as if a tile had been sent.
  static Expr part_of_piece(const ScalarArg& piece) { return 2 * piece; }
  /// What each rank sends to each: [to, from, rank_rows, n].
  GlobalTensor partials(DataType dtype, const ScalarArg& n) const {
    return symmetric_view(partial_ptr, dtype, signals.rank_stride_bytes, signals.ranks,
                          {signals.ranks, rank_rows, n});
  }
  RegisterValue operator()(const RegisterBase& x, const OutputTile& at) const {
    const GlobalTensor mine = partials(at.dtype, at.columns)[signals.rank];
    RegisterTensor sum = x.to(float32);
    for (int i = 1; i < signals.ranks; ++i)
      sum +=
          load_global(mine[(signals.rank + i) % signals.ranks], {at.row, at.column}, {x.shape(0), x.shape(1)})
              .to(float32);
    return RegisterValue(sum.handle());
  }
};

/// The tiles of such a kernel.
class ScatteredTiles {
 public:
  ScatteredTiles(const ScatteredRows& rows, const ProductSizes&, const RankTileShape& shape)
      : rows_(rows), shape_(shape) {}

  const Int32& rows_of_a(const Int32&) const { return rows_.all_rows; }
  ProductSizes sizes_of_c(const ProductSizes& sizes) const {
    return {own_rows(), sizes.n_units, sizes.n_unit, sizes.k, sizes.k_fills_rings, sizes.ctas};
  }
  Expr tiles(const ScalarArg& tiles_of_rank) const {
    return tiles_of_rank * (rows_.tiles == ScatteredRows::kAllTiles ? rows_.signals.ranks : 1);
  }
  /// The matrix of a batch is here the rank whose rows they are.
  TileOfBatch tile(const Batch*, const ScalarArg& tile, const ScalarArg& tiles_of_rank) const {
    if (has_own_alone()) return {rows_.signals.rank, tile};
    if (has_anothers()) return {(rows_.signals.rank + rows_.distance) % rows_.signals.ranks, tile};
    const auto [distance, of_rank] = fast_divmod(tile, tiles_of_rank);
    return {(rows_.signals.rank + 1 + distance) % rows_.signals.ranks, of_rank};
  }
  BlockCoord block(const ScalarArg& tile, const ScalarArg& num_m_blocks, const ScalarArg& num_n_blocks,
                   int swizzle_size) const {
    return compute_block_coord(tile, num_m_blocks, num_n_blocks, swizzle_size);
  }
  struct SourceOfA {
    GlobalTensor a;
    Int32 row;
    template <class Load>
    void operator()(const ScalarArg&, const Load& load) const {
      load(a, row);
    }
  };
  /// Rows that a tile has beyond those of its rank are computed, and not stored.
  SourceOfA source_of_a(const GlobalTensor& a, const ScalarArg& owner, const Int32& row) const {
    return {a, owner * rows_.rank_rows + (has_anothers() ? rows_.first_row + row : row)};
  }
  /// `cta`: which of the cluster. The threads of warp group `group` execute it.
  template <class Store>
  void store(const Store& store, int group, const RegisterBase& sums, const Int32& row, const Int32& column,
             const ScalarArg& owner, const TileOfBatch& at, const Int32& cta) {
    if (has_anothers()) {
      const GlobalTensor sent =
          global_view(rows_.sent_ptr, store.dtype(), {rows_.signals.ranks, rows_.rank_rows, store.columns()});
      return store.to({sent[owner]}, Epilogue<>(), group, sums, rows_.first_row + row, column, owner);
    }
    Int32 part = part_of(at, cta, group);
    tell_of_stored();  // nobody is kept waiting while this one waits
    if (has_own_alone()) {
      Int32 pieces = row / rows_.piece_rows + 1;
      if (auto next = when(pieces > pieces_)) {
        for (Int32 piece : range(pieces_, pieces))
          for (int i = 1; i < call_->ranks(); ++i)
            call_->wait_for(call_->peer(i), ScatteredRows::part_of_piece(piece));
        pieces_ = pieces;
      }
      return store_own(store, group, sums, row, column, part);
    }
    if (auto theirs = when(owner != call_->rank())) {
      if (auto first = when(owner != owner_)) {
        call_->wait_for_begin(owner);
        owner_ = owner;
      }
      const GlobalTensor place = rows_.partials(store.dtype(), store.columns())[owner][call_->rank()];
      store.to({place}, Epilogue<>(), group, sums, row, column, owner);
      part_ = part;
      if (!store.is_by_tma()) {
        call_->stored(owner, part_);
        part_ = -1;
      }
    }
    if (auto mine = otherwise()) {
      for (int i = 1; i < call_->ranks(); ++i) call_->wait_for(call_->peer(i), part);
      store_own(store, group, sums, row, column, part);
    }
  }
  /// TMA's stores take a while: their owner is told while the next tile is being multiplied.
  void between_blocks(const ScalarArg& k_block) {
    if (rows_.tiles != ScatteredRows::kAllTiles && !rows_.to_all) return;
    // As long as it takes that all CTAs store a tile over the links at once: a warp that waits for its stores multiplies nothing.
    constexpr int kBlocks = 28;
    if (auto due = when(k_block == kBlocks)) tell_of_stored();
  }
  /// Behind a warp group's last tile. Its tiles were `first`, `first` + `step`, ... below `end`: of those of the other
  /// ranks' rows the results must have come before the kernel ends.
  void end_of_tiles(const Int32& first, const Int32& end, const Int32& step, const ScalarArg& tiles_of_rank,
                    const Int32& cta, int group) {
    if (has_anothers()) return;
    tell_of_stored();
    if (!rows_.to_all) return;
    for (Int32 tile : range(first, end, step)) {
      const TileOfBatch at = this->tile(nullptr, tile, tiles_of_rank);
      if (has_own_alone()) {
        for (int i = 1; i < call_->ranks(); ++i) call_->wait_for(call_->peer(i), part_of(at, cta, group) + 1);
        continue;
      }
      if (auto theirs = when(at.matrix != call_->rank()))
        call_->wait_for(at.matrix, part_of(at, cta, group) + 1);
    }
  }

  void begin() {
    call_.emplace(rows_.signals);
    if (has_own_alone()) return;
    call_->begin();
    if (has_anothers()) call_->leave_number();
  }
  void carry() const {}
  void end() {
    if (!has_anothers()) return call_->end();
    // What copies overwrite behind this kernel nobody reads any more.
    if (auto first = when(block_idx.x == 0)) call_->wait_for_all_to_begin();
  }

 private:
  const ScatteredRows& rows_;
  RankTileShape shape_;
  std::optional<RankCall> call_;
  Int32 owner_ = -1;      // a rank that has begun this call
  Int32 part_ = -1;       // of its rows, which TMA is storing
  Int32 result_ = -1;     // a part of the rank's own rows, which TMA is storing to all
  Int32 pieces_ = 0;      // of the rank's own rows, of which copies have come from all
  Bool has_all_ = false;  // all ranks have begun this call

  bool has_anothers() const { return rows_.tiles == ScatteredRows::kTilesOfAnother; }
  bool has_own_alone() const { return rows_.tiles == ScatteredRows::kOwnTiles; }
  /// The signal of a part; that of its result is the next one.
  Expr part_of(const TileOfBatch& at, const Int32& cta, int group) const {
    return 2 * ((at.tile * shape_.cluster_ctas + cta) * shape_.consumers + group);
  }
  template <class Store>
  void store_own(const Store& store, int group, const RegisterBase& sums, const Int32& row,
                 const Int32& column, const Int32& part) {
    if (rows_.to_all)
      store_to_all(store, group, sums, row, column, part);
    else
      store(group, sums, row, column, 0);
  }
  template <class Store>
  void store_to_all(const Store& store, int group, const RegisterBase& sums, const Int32& row,
                    const Int32& column, const Int32& part) {
    if (auto first = when(!has_all_)) {
      call_->wait_for_all_to_begin();
      has_all_ = true;
    }
    const GlobalTensor results =
        symmetric_view(rows_.result_ptr, store.dtype(), rows_.signals.rank_stride_bytes, call_->ranks(),
                       {own_rows(), store.columns()});
    std::vector<GlobalTensor> places;
    for (int i = 0; i < call_->ranks(); ++i) places.push_back(results[call_->peer(i)]);
    store.to(places, store.finish(), group, sums, row, column, 0);
    result_ = part + 1;
    if (!store.is_by_tma()) {
      tell_of_result();
      result_ = -1;
    }
  }
  void tell_of_result() const {
    for (int i = 1; i < call_->ranks(); ++i) call_->stored(call_->peer(i), result_);
  }
  /// At least one: a tensor has elements.
  Expr own_rows() const {
    return max(min(rows_.rank_rows, rows_.all_rows - rows_.signals.rank * rows_.rank_rows), 1);
  }

  void tell_of_stored() {
    if (rows_.tiles == ScatteredRows::kAllTiles) {
      if (auto is_storing = when(part_ >= 0)) {
        if (auto warp = single_warp()) {  // the one that has started the stores
          tma::wait_group(0);
          call_->stored(owner_, part_);
        }
        part_ = -1;
      }
    }
    if (!rows_.to_all) return;
    if (auto is_storing = when(result_ >= 0)) {
      if (auto warp = single_warp()) {
        tma::wait_group(0);
        tell_of_result();
      }
      result_ = -1;
    }
  }
};

}  // namespace imbrex::kernels
