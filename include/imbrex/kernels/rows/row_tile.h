// SPDX-License-Identifier: Apache-2.0
// What kernels that work row by row share: tensors of rows whose number and length are known when they run, and the
// tiles that CTAs take of them. A length costs no compilation of its own: what is compiled for is the tile's width, of
// which there are a few between powers of two, and the vectors that length and strides allow.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <tuple>

#include "imbrex/kernels/parts/batch.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

/// The rows of a call: `matrices` of `rows`, each of column_units * column_unit elements.
struct RowShape {
  using Parameters = ParameterList<Int32, Int32, Int32, int, int, int>;
  Int32 matrices, rows, column_units;
  int column_unit;   ///< a power of two that divides the number of columns: what vector accesses rely on
  int tile_columns;  ///< of a tile; longer rows are taken tile by tile
  /// Where 16 bytes do not divide rows: so many rows together they do, all operands are dense and begin at multiples of 16
  /// bytes, and tiles are moved as one span; see flat_tile.h. 0: each row is moved by itself.
  int span_rows;

  Expr columns() const { return column_units * column_unit; }
};
/// What a launch passes for a RowShape.
struct RowShapeArguments {
  int64_t matrices, rows, column_units;
  int column_unit, tile_columns, span_rows = 0;
  auto arguments() const {
    return std::tie(matrices, rows, column_units, column_unit, tile_columns, span_rows);
  }
};

/// A tensor with a row for each row of the call.
struct RowOperand {
  using Parameters = ParameterList<DataType, Ptr<>, MatrixStrides>;
  DataType dtype;
  Ptr<> pointer;
  MatrixStrides strides;

  /// [rows, columns] of one of the matrices.
  GlobalTensor view(const RowShape& shape, const ScalarArg& matrix) const {
    return view(shape.matrices, shape.rows, shape.columns(), matrix);
  }
  GlobalTensor view(const ScalarArg& matrices, const ScalarArg& rows, const ScalarArg& columns,
                    const ScalarArg& matrix) const {
    return strides.view(pointer, dtype, matrices, rows, columns)[matrix];
  }
};
template <class Address = uint64_t>  // or const DeviceTensor&
struct RowOperandArguments {
  DataType dtype;
  Address address;
  MatrixStridesArguments strides;
  auto arguments() const { return std::tie(dtype, address, strides); }
};

/// A dense vector with an element for each column.
struct ColumnOperand {
  using Parameters = ParameterList<DataType, Ptr<>>;
  DataType dtype;
  Ptr<> pointer;

  /// `columns` of them from `column` on, as float32, zero beyond the last; [columns].
  RegisterValue load(const RowShape& shape, const ScalarArg& column, int columns) const {
    return load_global(global_view(pointer, dtype, {shape.columns()}), {column}, {columns}).to(float32);
  }
};
template <class Address = uint64_t>
struct ColumnOperandArguments {
  DataType dtype;
  Address address;
  auto arguments() const { return std::tie(dtype, address); }
};

/// The width of a tile for rows of so many columns: the next power of two or, of wide ones, the next eighth of it.
inline int row_tile_columns(int64_t columns) {
  constexpr int64_t kLeast = 32, kEighthsFrom = 4096;
  const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(columns, kLeast))));
  const int64_t step = power > kEighthsFrom ? power / 8 : power;
  return static_cast<int>((columns + step - 1) / step * step);
}

/// The first row of a tile, and its matrix.
struct RowPlace {
  Int32 row, matrix;
};

/// The tile of a CTA: some whole rows, or one row of which it holds a part at a time.
class RowTile {
 public:
  static constexpr int kMostColumns = 16384;  ///< of a row that is held whole
  static constexpr int kMostOfSpan = 32;      ///< elements of a span in a thread
  /// Parts of longer rows: narrow, so that a multiprocessor has several CTAs, one loading while another computes.
  static constexpr int kPartColumns = 8192;

  /// How many threads a CTA has for tiles of this width.
  static int threads(int columns, int bytes, int thread_bytes, int most = 1024) {
    return std::clamp(columns / std::max(1, thread_bytes / bytes), 128, most);
  }
  /// The most, where rows allow vectors of so many elements: single elements take registers for their addresses.
  static int most_threads(int column_unit) { return column_unit % 8 == 0 ? 1024 : 512; }

  /// Sets the number of warps. A thread takes about `thread_bytes` of the tensor whose elements have `bytes`: enough
  /// loads in flight, few enough registers.
  RowTile(const RowShape& shape, int bytes, int thread_bytes = 64, int most = 1024)
      : columns(shape.tile_columns), is_whole_(true), shape_(shape) {
    if (shape.span_rows == 0)
      most = std::min(most, most_threads(shape.column_unit));
    else
      thread_bytes = std::min(thread_bytes, kMostOfSpan * bytes);
    const int per_thread = std::max(1, thread_bytes / bytes);
    const int count = threads_ = threads(columns * std::max(1, shape.span_rows), bytes, thread_bytes, most);
    rows = std::max({1, shape.span_rows, count * per_thread / columns});
    warps(count / 32);
    // A multiprocessor has room for 1024 threads; spans need registers for the places of their elements, too.
    if (count >= 256 && most == 1024)
      max_registers(shape.span_rows == 0 ? 64 : std::min(128, 65536 / count / 8 * 8));
  }
  /// The same for rows that may be longer than the tile: `is_whole` says that they are not.
  RowTile(const RowShape& shape, int bytes, bool is_whole, int thread_bytes)
      : RowTile(shape, bytes, thread_bytes) {
    is_whole_ = is_whole;
  }

  int rows, columns;

  bool is_whole() const { return is_whole_; }
  int threads() const { return threads_; }
  const RowShape& shape() const { return shape_; }
  /// Sets the grid to a CTA for each tile, `across` of them beside each other; the tile of this CTA.
  RowPlace place_of_cta(const ScalarArg& across = 1) const {
    const Expr tiles = count();
    grid(shape_.matrices * tiles, across);
    const auto [matrix, tile] = fast_divmod(block_idx.x, tiles);
    return {tile * rows, matrix};
  }
  /// How many tiles a matrix has.
  Expr count() const { return cdiv(shape_.rows, rows); }
  /// Runs body(column) for each part of the rows; for a whole one once, for column 0.
  template <class Body>
  void each_part(const Body& body) const {
    if (is_whole_) return body(ScalarArg(0));
    for (Int32 column : range(0, shape_.columns(), columns)) body(ScalarArg(column));
  }
  /// Whether a column of the part that begins at `column` is in the row; [1, columns].
  RegisterValue in_row(const ScalarArg& column) const {
    const Expr end = shape_.columns() - column;
    return register_tensor(boolean, {1, columns}, [&](auto, auto j) { return j < end; });
  }

 private:
  bool is_whole_;
  int threads_;
  const RowShape& shape_;
};

/// The width of tiles for rows of so many columns: of a whole row, or of a part.
inline int tile_columns_of(int64_t columns) {
  return columns <= RowTile::kMostColumns ? row_tile_columns(columns) : RowTile::kPartColumns;
}

/// RowShape::span_rows for dense rows of `columns` elements, of which an operand's have least_bytes; 0 where they are not moved
/// so: single elements of 32 bits move well enough, and more elements take more registers than 512 threads have.
inline int span_rows_of(int64_t columns, int least_bytes) {
  constexpr int kVectorBytes = 16, kMostElements = 512 * RowTile::kMostOfSpan;
  const int rows = kVectorBytes / least_bytes;
  const bool are_spans = columns % 2 == 1 && least_bytes < 4 && columns <= RowTile::kMostColumns &&
                         rows * row_tile_columns(columns) <= kMostElements;
  return are_spans ? rows : 0;
}

/// A long row of a matrix without gaps whose rows 16 bytes do not divide: what lies in it between multiples of 8 elements
/// is taken by vectors, as units of 8, and up to 7 elements before and behind, its edges, one by one. The matrix begins at a
/// multiple of 16 bytes.
class FlatRow {
 public:
  static constexpr int kUnit = 8;

  FlatRow(const RowTile& tile, const RowShape& shape, const Int32& row)
      : FlatRow(tile.columns / kUnit, shape, row) {}
  /// `units` of a tile.
  FlatRow(int units, const RowShape& shape, const Int32& row) : units_(units), row_(row) {
    const Expr columns = shape.columns();
    // Of row * columns, which may be beyond 32 bits, only what is left of units.
    Int32 over = ((row & (kUnit - 1)) * (columns & (kUnit - 1))) & (kUnit - 1);
    head_ = (kUnit - over) & (kUnit - 1);
    first_ = cast<int32>((cast<int64>(row) * columns + head_) / kUnit);
    last_ = first_ + (columns - head_) / kUnit;
    tail_ = head_ + (last_ - first_) * kUnit;
    columns_ = columns;
  }

  /// The units of all rows up to the end of this one's.
  GlobalTensor view(DataType dtype, const PtrArg& pointer) const {
    return global_view(pointer, dtype, {last_, kUnit});
  }
  /// Runs body(unit) for each part of the row between its edges.
  template <class Body>
  void each_part(const Body& body) const {
    for (Int32 unit : range(first_, last_, units_)) body(ScalarArg(unit));
  }
  /// The part that begins at `unit`, [units of a tile, 8]; `other` beyond the row.
  RegisterValue load(DataType dtype, const PtrArg& pointer, const ScalarArg& unit, double other) const {
    return load_global(view(dtype, pointer), {unit, 0}, {units_, kUnit}, {.other = other});
  }
  /// The edges, [1, 16]: of `matrix`, [rows, columns]; `other` where there are fewer.
  RegisterValue load_edges(const GlobalTensor& matrix, double other) const {
    return gather(matrix, {row_, places()}, {1, 2 * kUnit}, {.other = other, .mask = are_there()});
  }
  void store_edges(const GlobalTensor& matrix, const RegisterBase& values) const {
    scatter(matrix, values, {row_, places()}, {.mask = are_there()});
  }
  int units() const { return units_; }
  /// The row's units: the first, and the one behind the last.
  const Int32& first() const { return first_; }
  const Int32& last() const { return last_; }
  /// The elements in front of them.
  const Int32& head() const { return head_; }

 private:
  RegisterValue places() const {
    return register_tensor(int32, {1, 2 * kUnit},
                           [&](auto, auto j) { return select(j < kUnit, j, tail_ + j - kUnit); });
  }
  RegisterValue are_there() const {
    return register_tensor(boolean, {1, 2 * kUnit}, [&](auto, auto j) {
      return select(j < kUnit, j, tail_ + j - kUnit) < select(j < kUnit, head_, columns_);
    });
  }

  int units_;
  const Int32& row_;
  Int32 head_ = 0, tail_ = 0, columns_ = 0;  // columns: before the units, where they end, all
  Int32 first_ = 0, last_ = 0;               // units of the matrix
};

/// The sum along rows of what body(column) returns for each part, [rows, 1].
template <class Body>
RegisterValue sum_of_rows(const RowTile& tile, const Body& body) {
  if (tile.is_whole()) return sum(body(ScalarArg(0)), {.axis = 1, .keep = true});
  RegisterTensor sums = zeros(float32, {tile.rows, tile.columns});
  tile.each_part([&](const ScalarArg& column) { sums += body(column); });
  return sum(sums, {.axis = 1, .keep = true});
}

}  // namespace imbrex::kernels
