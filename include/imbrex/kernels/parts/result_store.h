// SPDX-License-Identifier: Apache-2.0
// From sums in the registers of a warp group to C in memory: the steps of the epilogue, and stores in slices through
// shared memory.
#pragma once

#include <vector>

#include "imbrex/kernels/parts/epilogue.h"
#include "imbrex/kernels/parts/fused_results.h"
#include "imbrex/kernels/parts/operand.h"
#include "imbrex/kernels/parts/parts_of_k.h"
#include "imbrex/kernels/parts/product_sizes.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// The tile whose sums each warp group of a CTA holds: wgmma's rows and columns. `swap_ab`: C has them transposed. Of a
/// gated product as many sums again, which are multiplied by, lie behind them along C's columns.
/// `store_stages`: slices that TMA may be storing at once.
struct SumsTile {
  int groups, rows, columns;
  bool swap_ab;
  int store_stages = 1;
};

/// Stores tiles of C. TMA stores slices of them where C's rows begin at multiples of 32 bytes, the L2 cache's sectors;
/// else the threads do, row by row.
template <class... Steps>
class ResultStore {
 public:
  /// `c` is all of C, [m, n], or as many as `matrix` numbers. The whole CTA executes it.
  ResultStore(const Epilogue<Steps...>& finish, const GlobalTensor& c, DataType c_type,
              const ProductSizes& sizes, const SumsTile& tile)
      : finish_(finish),
        batch_(finish.batch()),
        c_(c),
        c_type_(c_type),
        sizes_(sizes),
        tile_(tile),
        has_tma_rows_(batch_ && !finish.template find<PartsOfK>() ? batch_->c_has_tma_rows
                                                                  : sizes.n_unit * c_type.bits() % 256 == 0),
        slices_(tile.swap_ab ? transposed_slices() : slices()) {}

  /// Stores a tile of `matrix` that begins at (offset_m, offset_n). The threads of warp group `group` execute it.
  void operator()(int group, const RegisterBase& sums, const Int32& offset_m, const Int32& offset_n,
                  const ScalarArg& matrix) const {
    to({c_.rank() == 3 ? c_[matrix] : c_}, finish_, group, sums, offset_m, offset_n, matrix);
  }

  /// The same to other places for all of C or the matrix, with other steps.
  template <class Finish>
  void to(const std::vector<GlobalTensor>& places, const Finish& finish, int group, const RegisterBase& sums,
          const Int32& offset_m, const Int32& offset_n, const ScalarArg& matrix) const {
    auto rows = finish.rows(tile_.rows);
    const auto part = [&](const Slice& s, int behind = 0) {
      const int column = s.column + behind;
      // Of integers little by little: a whole tile of both types would be twice as many registers.
      return as_float(tile_.swap_ab ? sums.slice({column, s.row}, {s.columns, s.rows}).transpose()
                                    : sums.slice({s.row, column}, {s.rows, s.columns}));
    };
    const auto place = [&](const Slice& s) {
      return OutputTile{sizes_.m, sizes_.n(), c_type_, offset_m + s.row, offset_n + s.column, matrix};
    };
    const GatedBy* gate = used_step<GatedBy>(finish);
    const auto gated = [&](const Slice& s) {
      const auto half = [&](int which) {
        const ScalarArg column = offset_n + s.column;
        const OutputTile at{sizes_.m,
                            2 * sizes_.n(),
                            float32,
                            offset_m + s.row,
                            which == 0 ? column : ScalarArg(column + sizes_.n()),
                            matrix};
        return rows(part(s, which * (tile_.swap_ab ? tile_.rows : tile_.columns)), at);
      };
      return gate->apply(half(0), half(1)).to(c_type_);
    };
    require(slices_.size() % tile_.store_stages == 0,
            "{} slices of a tile are not a multiple of store_stages = {}", slices_.size(),
            tile_.store_stages);
    for (const Slice& s : slices_) {
      auto s_slice = s.s_c[group].slice({0, 0}, {s.rows, s.columns});
      if (has_tma_rows_)
        if (auto warp = single_warp()) tma::wait_group(tile_.store_stages - 1, {.read = true});
      sync();  // the slice that was here has been stored
      // Steps need registers: they take fewer of wgmma's columns at a time.
      const int along = tile_.swap_ab ? s.rows : s.columns;
      const int step = finish.kEmpty ? along : min(along, (tile_.groups > 2 ? 512 : 2048) / tile_.rows);
      for (int j = 0; j < along; j += step) {
        const int size = min(step, along - j);
        const Slice now = tile_.swap_ab ? Slice{s.row + j, s.column, size, s.columns, s.s_c}
                                        : Slice{s.row, s.column + j, s.rows, size, s.s_c};
        store_shared(s_slice.slice({now.row - s.row, now.column - s.column}, {now.rows, now.columns}),
                     gate ? gated(now) : rows(part(now), place(now)));
      }
      if (has_tma_rows_) fence::proxy_async();  // what was written becomes visible to TMA
      sync();
      if (!has_tma_rows_) {
        const RegisterTensor tile = load_shared(s_slice);
        if (batch_ == nullptr && sizes_.n_unit * c_type_.bits() < 128) annotate_layout(tile, narrow(s));
        for (const GlobalTensor& place : places)
          store_global(place, tile, {offset_m + s.row, offset_n + s.column});
      } else if (auto warp = single_warp()) {
        for (const GlobalTensor& place : places)
          tma::shared_to_global(s_slice, place, {offset_m + s.row, offset_n + s.column});
        tma::commit_group();
      }
    }
  }

  /// Waits until the slices in shared memory have been read, as they must be before the CTA ends. The threads of a warp
  /// group that has stored execute it.
  void wait() const {
    if (has_tma_rows_)
      if (auto warp = single_warp()) tma::wait_group(0, {.read = true});
  }
  /// TMA stores, started by the first warp of a group; else all threads do.
  bool is_by_tma() const { return has_tma_rows_; }
  const Epilogue<Steps...>& finish() const { return finish_; }
  DataType dtype() const { return c_type_; }
  Expr columns() const { return sizes_.n(); }

 private:
  /// A part of a tile of C that is stored at once.
  struct Slice {
    int row, column, rows, columns;
    SharedTensor s_c;  // of each group
  };
  /// Columns as wide as TMA's widest swizzle, 128 bytes, then 64, 32 and 16 for the rest.
  std::vector<Slice> slices() const {
    std::vector<Slice> slices;
    int columns = 1024 / c_type_.bits();
    for (int first = 0; first < tile_.columns; first += columns) {
      while (columns > tile_.columns - first) columns /= 2;
      const auto turn = static_cast<size_t>(tile_.store_stages);
      const bool is_new = slices.size() < turn || slices[slices.size() - turn].columns != columns;
      slices.push_back({0, first, tile_.rows, columns,
                        is_new ? shared_tensor(c_type_, {tile_.groups, tile_.rows, columns})
                               : slices[slices.size() - turn].s_c});
    }
    return slices;
  }
  /// How threads hold a slice whose rows in memory begin at odd places: each has as few columns as they allow to store at
  /// once, next to those of its neighbours, so that a warp's store is one piece. (Eight columns a thread, as shared memory
  /// would have it, are stores of 32 single elements in as many sectors.)
  layout::Layout narrow(const Slice& s) const {
    constexpr int kWarps = 4, kLanes = 32;
    const int unit = min(sizes_.n_unit, s.columns), units = s.columns / unit, beside = min(units, kLanes),
              below = kWarps * (kLanes / beside);
    return layout::local({s.rows / below, units / beside}) * layout::spatial({below, beside}) *
           layout::local({1, unit});
  }
  /// Slices that have all rows of a product, and the same shape.
  std::vector<Slice> transposed_slices() const {
    constexpr int kColumns = 64;
    std::vector<Slice> slices;
    const int count = cdiv(tile_.columns * c_type_.bits(), 1024), rows = cdiv(tile_.columns, 8 * count) * 8;
    auto s_c = shared_tensor(c_type_, {tile_.groups, rows, kColumns});
    for (int row = 0; row < tile_.columns; row += rows)
      for (int column = 0; column < tile_.rows; column += kColumns)
        slices.push_back({row, column, min(rows, tile_.columns - row), kColumns, s_c});
    require(tile_.store_stages == 1, "slices of transposed tiles take turns in one place");
    return slices;
  }

  const Epilogue<Steps...>& finish_;
  const Batch* batch_;
  GlobalTensor c_;
  DataType c_type_;
  ProductSizes sizes_;
  SumsTile tile_;
  bool has_tma_rows_;
  std::vector<Slice> slices_;
};

}  // namespace imbrex::kernels
