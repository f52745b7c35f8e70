// SPDX-License-Identifier: Apache-2.0
// How `imbrex run`, `bench` and the tests try kernels of rows: what their registrations share.
#pragma once

#include <numeric>
#include <span>
#include <vector>

#include "imbrex/kernels/rows/row_tile.h"
#include "imbrex/runtime/registry.h"

namespace imbrex::kernels {

inline std::vector<SizeOption> row_sizes(int64_t m, int64_t n) {
  return {{"m", m, "rows"},
          {"n", n, "columns"},
          {"bits", 16, "of an element: 16 (bfloat16, or float16 with fp16 = 1) or 32"},
          {"fp16", 0, "1: float16, 0: bfloat16"}};
}

/// For kernels that share rows among so many CTAs.
inline std::vector<SizeOption> with_ctas(std::vector<SizeOption> sizes) {
  sizes.push_back({"ctas", 8, "CTAs that share the rows"});
  return sizes;
}

/// Bytes of shared memory for tiles that are loaded ahead: of a multiprocessor of sm_80.
inline constexpr int kTriedRoom = 152 << 10;

/// A problem of row_sizes().
struct RowCase {
  explicit RowCase(Case& c)
      : c(c),
        m(c.size("m")),
        n(c.size("n")),
        dtype(c.size("bits") == 32 ? float32
              : c.size("fp16")     ? float16
                                   : bfloat16) {}
  RowShapeArguments shape() const { return shape(tile_columns_of(n)); }
  RowShapeArguments shape(int tile_columns) const {
    const int64_t unit = std::gcd(n, int64_t{16});
    return {1, m, n / unit, static_cast<int>(unit), tile_columns};
  }
  /// As functions call kernels that move odd rows as spans; least_bytes: of an element of the narrowest operand, 0: x's.
  RowShapeArguments spanned_shape(int least_bytes = 0) const {
    RowShapeArguments spans = shape();
    spans.span_rows = span_rows_of(n, least_bytes == 0 ? dtype.bytes() : least_bytes);
    return spans;
  }
  bool is_flat() const { return !is_whole() && n % FlatRow::kUnit != 0; }
  bool is_whole() const { return n <= RowTile::kMostColumns; }
  /// A dense tensor of rows, or a row of it for each column.
  static RowOperandArguments<const DeviceTensor&> operand(const DeviceTensor& t) {
    const int64_t columns = t.shape().back(), unit = std::gcd(columns, int64_t{16} / t.dtype().bytes());
    return {t.dtype(), t, {static_cast<int>(unit), columns / unit, 0}};
  }
  static ColumnOperandArguments<const DeviceTensor&> column(const DeviceTensor& t) { return {t.dtype(), t}; }
  DeviceTensor input() const { return c.input(dtype, {m, n}); }
  DeviceTensor output() const { return c.output(dtype, {m, n}); }
  /// Runs body(first) for the place of each row's first element.
  template <class Body>
  void each(const Body& body) const {
    for (int64_t i = 0; i < m; ++i) body(i * n);
  }

  Case& c;
  int64_t m, n;
  DataType dtype;
};

}  // namespace imbrex::kernels
