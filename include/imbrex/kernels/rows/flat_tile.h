// SPDX-License-Identifier: Apache-2.0
// A RowTile's elements, loaded and stored, of tensors whose rows 16 bytes divide and of those whose rows they do not.
//
// Rows of the latter begin anywhere, so that their elements would move one by one. Where they follow each other without a gap,
// some of them together are a multiple of 16 bytes: a tile is one span of memory, which moves by vectors, and shared memory is
// where its elements are found one by one.
#pragma once

#include <algorithm>

#include "imbrex/kernels/rows/row_tile.h"

namespace imbrex::kernels {

/// The span of memory that a tile of shape.span_rows rows, or a multiple of them, takes.
class FlatTile {
 public:
  FlatTile(const RowTile& tile, const RowShape& shape, const ScalarArg& row)
      : tile_(tile),
        columns_(shape.columns()),
        begin_(cast<int64>(row) * columns_),
        elements_(min(shape.rows - row, tile.rows) * columns_) {}

  /// Starts to load the tile; finish() waits for it.
  SharedTensor start(const RowOperand& from) const {
    const int unit = unit_of(from.dtype);
    SharedTensor s_units = units_of_tile(from.dtype);
    copy_async(view_of_units(from, unit), s_units, {first_unit(unit), 0});
    return s_units;
  }
  /// [rows, columns] of it; `other` beyond the columns.
  RegisterValue finish(const SharedTensor& s_units, const RowOperand& from, double other) const {
    const int unit = unit_of(from.dtype);
    copy_async_wait_all();
    const SharedTensor s_elements = s_units.reshape({s_units.shape(0) * unit});
    // The last tile may end within a vector.
    if (auto has_rest = when(elements_ % unit != 0)) {
      sync();
      scatter(s_elements, load_global(view_of_elements(from), {begin_ + elements_ / unit * unit}, {unit}),
              {rest_places(unit)});
    }
    sync();
    RegisterValue values =
        gather(s_elements, {places()}, {tile_.rows, tile_.columns}, {.other = other, .mask = are_there()});
    annotate_layout(values, layout());
    return values;
  }
  void store(const RowOperand& to, const RegisterBase& values) const {
    const int unit = unit_of(to.dtype);
    const SharedTensor s_units = units_of_tile(to.dtype);
    const SharedTensor s_elements = s_units.reshape({s_units.shape(0) * unit});
    scatter(s_elements, values, {places()}, {.mask = are_there()});
    sync();
    store_global(view_of_units(to, unit), load_shared(s_units), {first_unit(unit), 0});
    if (auto has_rest = when(elements_ % unit != 0))
      store_global(view_of_elements(to), gather(s_elements, {rest_places(unit)}, {unit}),
                   {begin_ + elements_ / unit * unit});
  }

 private:
  static int unit_of(DataType dtype) { return 16 / dtype.bytes(); }
  SharedTensor units_of_tile(DataType dtype) const {
    const int unit = unit_of(dtype);
    return shared_tensor(dtype, {tile_.rows * tile_.columns / unit, unit});
  }
  Expr first_unit(int unit) const { return cast<int32>(begin_ / unit); }
  /// All whole units up to the end of the tile.
  GlobalTensor view_of_units(const RowOperand& operand, int unit) const {
    return global_view(operand.pointer, operand.dtype, {first_unit(unit) + elements_ / unit, unit});
  }
  /// All elements up to there.
  GlobalTensor view_of_elements(const RowOperand& operand) const {
    return global_view(operand.pointer, operand.dtype, {begin_ + elements_});
  }
  RegisterValue rest_places(int unit) const {
    return register_tensor(int32, {unit}, [&](auto j) { return elements_ / unit * unit + j; });
  }
  RegisterValue places() const {
    return register_tensor(int32, {tile_.rows, tile_.columns},
                           [&](auto i, auto j) { return i * columns_ + j; });
  }
  RegisterValue are_there() const {
    return register_tensor(boolean, {1, tile_.columns}, [&](auto, auto j) { return j < columns_; });
  }
  /// Neighbouring threads have neighbouring elements, so that they find them in different banks.
  layout::Layout layout() const {
    const int per_row = std::max(1, tile_.threads() / tile_.rows);
    return layout::local({tile_.rows * per_row / tile_.threads(), tile_.columns / per_row}) *
           layout::spatial({tile_.threads() / per_row, per_row});
  }

  const RowTile& tile_;
  Int32 columns_;
  Int64 begin_;     // the tile's first element
  Int32 elements_;  // of the tile
};

/// Stores the values, of float32, in the part of an operand that lies in the tile, from `column` on.
inline void store_tile(const RowTile& tile, const RowOperand& to, const RowPlace& at, const ScalarArg& column,
                       const RegisterBase& values) {
  const RowShape& shape = tile.shape();
  const RegisterValue converted = values.to(to.dtype);
  if (shape.span_rows > 0) return FlatTile(tile, shape, at.row).store(to, converted);
  store_global(to.view(shape, at.matrix), converted, {at.row, column});
}

/// A tensor's elements in a RowTile, which are loaded once where the rows are whole, else whenever they are asked for.
class TileRows {
 public:
  TileRows(const RowTile& tile, const RowOperand& from, const RowPlace& at, double other = 0)
      : tile_(tile), from_(from), at_(at), other_(other) {
    if (tile.shape().span_rows > 0) {
      flat_.emplace(tile, tile.shape(), at.row);
      s_units_.emplace(flat_->start(from));
    } else if (tile.is_whole()) {
      held_.emplace(load(0));
    }
  }
  /// As float32, [rows, columns]; `other` beyond the row. All threads of the CTA execute the first call.
  RegisterValue at(const ScalarArg& column) {
    if (flat_ && !held_) held_.emplace(flat_->finish(*s_units_, from_, other_));
    return held_ ? held_->to(float32) : load(column).to(float32);
  }

 private:
  RegisterValue load(const ScalarArg& column) const {
    return load_global(from_.view(tile_.shape(), at_.matrix), {at_.row, column}, {tile_.rows, tile_.columns},
                       {.other = other_});
  }
  const RowTile& tile_;
  const RowOperand& from_;
  const RowPlace& at_;
  double other_;
  std::optional<RegisterValue> held_;
  std::optional<FlatTile> flat_;
  std::optional<SharedTensor> s_units_;
};

}  // namespace imbrex::kernels
