// SPDX-License-Identifier: Apache-2.0
// Rows of a table, found through indices in memory: what an embedding layer does, and the permutation of tokens in
// front of a mixture of experts. Each CTA gathers a tile of `rows` rows and `columns` columns, 16 bytes at a time.
#pragma once

#include "imbrex/lang.h"

namespace imbrex::kernels {

struct GatherRows {
  int rows = 16, columns = 256, num_warps = 4;

  static auto space() {
    return Space<GatherRows>().choose<&GatherRows::rows, &GatherRows::columns, &GatherRows::num_warps>(
        {{16, 256, 4}, {8, 512, 4}, {32, 128, 4}, {16, 512, 8}, {64, 64, 4}});
  }

  /// y[i, :] = table[index[i], :], or zeros where index[i] is negative; y[count, width], table[table_size, width].
  void operator()(Int32 count, Int32 table_size, int width, DataType dtype, Ptr<int32> index_ptr,
                  Ptr<> table_ptr, Ptr<> y_ptr) const {
    grid(cdiv(count, rows), cdiv(width, columns));
    warps(num_warps);
    Int32 row = rows * block_idx.x;
    Int32 column = columns * block_idx.y;

    auto g_index = global_view(index_ptr, {count});
    auto g_table = global_view(table_ptr, dtype, {table_size, width});
    auto g_y = global_view(y_ptr, dtype, {count, width});
    // Rows beyond the count get index 0, are read and not written.
    auto index = load_global(g_index, {row}, {rows}).reshape({rows, 1});
    auto tile = gather(g_table, {index, column}, {rows, columns}, {.mask = index >= 0});
    store_global(g_y, tile, {row, column});
  }
};

}  // namespace imbrex::kernels
