// SPDX-License-Identifier: Apache-2.0
// The very few largest elements of short rows, one after the other: then faster than top_k.h's way.
#pragma once

#include <limits>

#include "imbrex/kernels/rows/row_tile.h"

namespace imbrex::kernels {

/// A CTA takes a tile of whole rows; it takes the largest element left, k times.
struct TopFew {
  int thread_bytes = 32;  // of x, per thread

  static auto space() { return Space<TopFew>().choose<&TopFew::thread_bytes>({32, 16, 64}); }

  /// values and indices [rows, k * parts], where a row has parts = cdiv(columns, tile_columns); x_indices, where there
  /// are, [rows, columns]: what stands for the columns of x.
  void operator()(RowShape shape, Int32 k, RowOperand x, bool has_indices, Ptr<int32> x_indices_ptr,
                  DataType values_type, Ptr<> values_ptr, Ptr<int32> indices_ptr) const {
    const RowTile tile(shape, x.dtype.bytes(), thread_bytes);
    auto parts = cdiv(shape.columns(), tile.columns);
    grid(tile.count(), parts);
    Int32 row = block_idx.x * tile.rows, column = block_idx.y * tile.columns;
    constexpr float kLeast = -std::numeric_limits<float>::infinity();
    constexpr int kNone = std::numeric_limits<int>::max();
    auto loaded = load_global(x.view(shape, 0), {row, column}, {tile.rows, tile.columns}, {.other = kLeast});
    // Not yet taken: an element of minus infinity can be the largest left, one that was taken cannot.
    auto numbers = loaded.to(float32);
    RegisterTensor left = select(numbers == numbers, numbers, kLeast);
    RegisterTensor places = register_tensor(int32, {1, tile.columns},
                                            [&](auto, auto j) {
                                              return select(column + j < shape.columns(), column + j, kNone);
                                            }) +
                            zeros(int32, {tile.rows, tile.columns});
    auto wide = shape.columns();
    auto g_values = global_view(values_ptr, values_type, {shape.rows, k * parts});
    auto g_indices = global_view(indices_ptr, {shape.rows, k * parts});
    auto rows = register_tensor(int32, {tile.rows, 1}, [&](auto i, auto) { return row + i; });
    for (Int32 taken : range(k)) {
      RegisterTensor largest = max(left, {.axis = 1, .keep = true});
      RegisterTensor place = min(select(left == largest, places, kNone), {.axis = 1, .keep = true});
      auto is_taken = places == place;
      left = select(is_taken, kLeast, left);
      places = select(is_taken, kNone, places);
      Int32 to = block_idx.y * k + taken;
      store_global(g_values, largest.to(values_type), {row, to});
      if (has_indices) {
        auto g_from = global_view(x_indices_ptr, {shape.rows, wide});
        auto index = gather(g_from, {rows, place}, {tile.rows, 1},
                            {.other = kNone, .mask = place < wide && rows < shape.rows});
        store_global(g_indices, index, {row, to});
      } else {
        store_global(g_indices, place, {row, to});
      }
    }
  }
};

}  // namespace imbrex::kernels
