// SPDX-License-Identifier: Apache-2.0
// Running sums of rows of any length: y[i, j] = x[i, 0] + ... + x[i, j]. A CTA takes a row tile by tile, each behind the sum
// of those before, and loads the next one while it sums.
#pragma once

#include "imbrex/lang.h"

namespace imbrex::kernels {

struct CumsumRows {
  int columns = 2048, num_warps = 4;

  static auto space() {
    return Space<CumsumRows>().choose<&CumsumRows::columns, &CumsumRows::num_warps>(
        {{2048, 4}, {1024, 4}, {4096, 8}, {512, 2}});
  }

  /// x and y [rows, width] of `dtype`, float32 or float16 or bfloat16; sums in float32.
  void operator()(Int32 rows, int width, DataType dtype, Ptr<> x_ptr, Ptr<> y_ptr) const {
    grid(rows);
    warps(num_warps);
    Int32 row = block_idx.x;
    auto g_x = global_view(x_ptr, dtype, {rows, width})[row],
         g_y = global_view(y_ptr, dtype, {rows, width})[row];
    RegisterTensor next = load_global(g_x, {0}, {columns});
    Float32 before = 0;
    for (Int32 at : range(0, width, columns)) {
      RegisterTensor tile = next.to(float32);
      next = load_global(g_x, {at + columns}, {columns});
      store_global(g_y, (cumsum(tile) + before).to(dtype), {at});
      before += sum(tile);
    }
  }
};

}  // namespace imbrex::kernels
