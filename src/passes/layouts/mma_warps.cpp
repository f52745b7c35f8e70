// SPDX-License-Identifier: Apache-2.0
// How the warps of a group share a product of register tiles.
#include <fmt/format.h>

#include "imbrex/core/error.h"
#include "layout/registers.h"
#include "passes/layouts/layout_inference.h"

namespace imbrex::passes {

layout::MmaFragments mma_layouts(ir::Op& op, int64_t threads) {
  const int64_t m = op.operands[0]->type.shape[0], k = op.operands[0]->type.shape[1],
                n = op.operands[1]->type.shape[1], warps = threads / 32;
  int64_t warps_m = op.int_attr("warps_m", 0), warps_n = op.int_attr("warps_n", 0);
  if (warps_m == 0) {
    // Every warp loads the rows of a and the columns of b of its box.
    for (int64_t rows = warps; rows >= 1; --rows) {
      const int64_t columns = warps / rows;
      if (warps % rows != 0 || m % (16 * rows) != 0 || n % (8 * columns) != 0) continue;
      if (warps_m > 0 && m / rows + n / columns >= m / warps_m + n / warps_n) continue;
      warps_m = rows;
      warps_n = columns;
    }
    if (warps_m == 0)
      throw CompileError(Diagnostic{
          op.where,
          fmt::format("{}: {} warps cannot share a {} x {} product", op.info().mnemonic, warps, m, n),
          {fmt::format("each takes a box of whole 16 x 8 blocks, of which there are {} x {}", m / 16, n / 8)},
          "change the number of warps, or the product's extents"});
    op.set_attr("warps_m", warps_m);
    op.set_attr("warps_n", warps_n);
  }
  if (warps_m * warps_n != warps)
    throw CompileError(Diagnostic{op.where,
                                  fmt::format("{}: a grid of {} x {} warps, executed by {}",
                                              op.info().mnemonic, warps_m, warps_n, warps),
                                  {},
                                  "make warps_m * warps_n the number of warps in the thread group"});
  return layout::mma_tile(m, n, k, op.operands[0]->type.dtype.bits(), warps_m, warps_n);
}

}  // namespace imbrex::passes
