// SPDX-License-Identifier: Apache-2.0
// Rows added to those of a table, found through indices in memory: the gradient of an embedding, and the sum of the experts'
// rows of each token. Rows of one index may be many: they are added by atomics, as neighbouring elements together as the
// target can. (grouped_scatter_add.h has what sorts them first.)
#pragma once

#include "imbrex/lang.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

/// table[index[i], :] += x[i, :] for each row of x; rows with a negative index are left out. x [rows, width] and
/// table [table rows, width], both float32, float16 or (from sm_90 on) bfloat16, and index [rows], int32: all dense. Sums of
/// rows that go to one row are float32 where they are added up before they are added to the table; in which order they
/// are, and so their rounding, differs between calls. From sm_90 on many rows are sorted by index first, in memory of the
/// stream's. On a CUDA GPU it returns without waiting. LaunchError names the condition that a call does not meet.
LaunchReport scatter_add_rows(const DeviceTensor& x, const DeviceTensor& index, const DeviceTensor& table,
                              const Stream& stream = {}, SourceLocation where = SourceLocation::current());

}  // namespace imbrex

namespace imbrex::kernels {

/// `kHasVectors`: the target adds four neighbouring floats in one operation. Without that, neighbouring threads have neighbouring
/// elements, so that those of a warp still go to memory together.
template <bool kHasVectors>
struct ScatterAddRowsOf {
  int rows = 16, columns = 256, num_warps = 4;

  static auto space() {
    using K = ScatterAddRowsOf;
    return Space<K>().template choose<&K::rows, &K::columns, &K::num_warps>(
        {{16, 256, 4}, {8, 512, 4}, {32, 128, 4}, {4, 1024, 4}, {8, 256, 4}});
  }

  /// table[index[i], :] += x[i, :]; rows with a negative index are left out. x[count, width], table[table_size, width],
  /// both float32, or float16 or (from sm_90 on) bfloat16. The order of the additions, and so their rounding, differs
  /// between launches.
  void operator()(Int32 count, Int32 table_size, int width, DataType dtype, Ptr<int32> index_ptr, Ptr<> x_ptr,
                  Ptr<> table_ptr) const {
    grid(cdiv(count, rows), cdiv(width, columns));
    warps(num_warps);
    Int32 row = rows * block_idx.x, column = columns * block_idx.y;

    auto index =
        load_global(global_view(index_ptr, {count}), {row}, {rows}, {.other = -1}).reshape({rows, 1});
    auto tile = load_global(global_view(x_ptr, dtype, {count, width}), {row, column}, {rows, columns});
    if (!kHasVectors && columns >= 32 * num_warps)
      annotate_layout(
          tile, layout::local({rows, columns / (32 * num_warps)}) * layout::spatial({1, 32 * num_warps}));
    atomic::add(global_view(table_ptr, dtype, {table_size, width}), tile, {index, column},
                {.mask = index >= 0});
  }
};

using ScatterAddRows = ScatterAddRowsOf<false>;
struct HopperScatterAddRows {
  static constexpr const char* target = "sm_90";
  int rows = 16, columns = 256, num_warps = 4;

  static auto space() {
    using K = HopperScatterAddRows;
    return Space<K>().choose<&K::rows, &K::columns, &K::num_warps>(
        {{16, 256, 4}, {8, 512, 4}, {4, 1024, 4}, {1, 2048, 4}, {2, 2048, 8}, {32, 128, 4}, {8, 256, 4}});
  }
  void operator()(Int32 count, Int32 table_size, int width, DataType dtype, Ptr<int32> index_ptr, Ptr<> x_ptr,
                  Ptr<> table_ptr) const {
    ScatterAddRowsOf<true>{rows, columns, num_warps}(count, table_size, width, dtype, index_ptr, x_ptr,
                                                     table_ptr);
  }
};

}  // namespace imbrex::kernels
