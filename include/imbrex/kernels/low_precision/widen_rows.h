// SPDX-License-Identifier: Apache-2.0
// Rows as another type, in memory where they begin at multiples of 16 bytes, with zeros behind them: what a product with
// packed weights does first with activations that it cannot read where they are.
#pragma once

#include "imbrex/kernels/parts/batch.h"
#include "imbrex/lang.h"

namespace imbrex::kernels {

template <bool kIsFollowed>
struct WidenRowsOf {
  int rows = 8, columns = 256;

  /// to[i, j] = from[i, j], or 0 from column `columns` on; to [m, to_columns], dense.
  void operator()(Int32 m, Int32 from_columns, Int32 to_units, int to_unit, DataType from_type,
                  Ptr<> from_ptr, MatrixStrides from_strides, DataType to_type, Ptr<> to_ptr) const {
    auto to_columns = to_units * to_unit;
    grid(cdiv(to_columns, columns), cdiv(m, rows));
    Int32 row = block_idx.y * rows, column = block_idx.x * columns;
    if constexpr (kIsFollowed) {
      griddepcontrol::wait();
      griddepcontrol::launch_dependents();
    }
    auto tile = load_global(from_strides.view(from_ptr, from_type, 1, m, from_columns)[0], {row, column},
                            {rows, columns});
    store_global(global_view(to_ptr, to_type, {m, to_columns}), tile.to(to_type), {row, column});
  }
};

using WidenRows = WidenRowsOf<false>;
/// The same ahead of a kernel that begins with what does not depend on it, and waits for this one then.
struct HopperWidenRows {
  static constexpr const char* target = "sm_90a";
  WidenRowsOf<true> rows;

  void operator()(Int32 m, Int32 from_columns, Int32 to_units, int to_unit, DataType from_type,
                  Ptr<> from_ptr, MatrixStrides from_strides, DataType to_type, Ptr<> to_ptr) const {
    rows(m, from_columns, to_units, to_unit, from_type, from_ptr, from_strides, to_type, to_ptr);
  }
};

}  // namespace imbrex::kernels
