// SPDX-License-Identifier: Apache-2.0
// A kernel for transformer_block.py, which compiles it by imbrex.Kernel: y = x / sqrt(mean(x^2) + epsilon) * weight for
// each row of x [m, n]; in memory everything is `dtype`, in registers float32.
#include "imbrex/lang.h"

using namespace imbrex;

struct RmsNorm {
  int rows = 4;  // per CTA

  static auto space() { return Space<RmsNorm>().choose<&RmsNorm::rows>({4, 1, 2, 8}); }

  void operator()(Int32 m, int n, Float32 epsilon, DataType dtype, Ptr<> x_ptr, Ptr<> weight_ptr,
                  Ptr<> y_ptr) const {
    require(n <= 16384, "RmsNorm holds whole rows in registers: n is {}, at most 16384", n);
    grid(cdiv(m, rows));
    warps(4);
    int columns =
        128;  // n rounded up to a power of two; what is beyond the row is loaded as 0 and adds nothing
    while (columns < n) columns *= 2;
    Int32 row = rows * block_idx.x;
    auto x = load_global(global_view(x_ptr, dtype, {m, n}), {row, 0}, {rows, columns}).to(float32);
    auto weight = load_global(global_view(weight_ptr, dtype, {n}), {0}, {columns}).to(float32);
    auto mean_square = sum(x * x, {.axis = 1, .keep = true}) / n;
    store_global(global_view(y_ptr, dtype, {m, n}), (x * rsqrt(mean_square + epsilon) * weight).to(dtype),
                 {row, 0});
  }
};
