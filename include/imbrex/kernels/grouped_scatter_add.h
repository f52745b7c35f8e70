// SPDX-License-Identifier: Apache-2.0
// Rows added to those of a table, in groups: the indices are sorted first, so that rows that go to one row of the table are
// added up in registers, and the table is read and written about once. Of many rows the time is that of their bytes; atomics
// for each row take longer (scatter_add_rows.h).
#pragma once

#include "imbrex/lang.h"

namespace imbrex::kernels {

/// The first step of three that sort: how many indices have each value, and how many with the same one were counted before.
struct CountIndices {
  static constexpr const char* target = "sm_90";
  int items = 1024;

  /// counts [values] are zero before; ranks [count]. Negative indices are left out.
  void operator()(Int32 count, Int32 values, Ptr<int32> index_ptr, Ptr<int32> counts_ptr,
                  Ptr<int32> ranks_ptr) const {
    grid(cdiv(count, items));
    warps(8);
    griddepcontrol::launch_dependents();
    Int32 first = items * block_idx.x;
    auto index = load_global(global_view(index_ptr, {count}), {first}, {items}, {.other = -1});
    griddepcontrol::wait();
    auto rank = atomic::add(global_view(counts_ptr, {values}), 1, {index}, {.mask = index >= 0});
    store_global(global_view(ranks_ptr, {count}), rank, {first});
  }
};

/// The second: where the indices of each value begin in a list of all, in which those of one value follow each other.
struct PlaceGroups {
  static constexpr const char* target = "sm_90";
  int items = 1024;

  /// begins [values]; total, zero before, becomes the length of the list.
  void operator()(Int32 values, Ptr<int32> counts_ptr, Ptr<int32> begins_ptr, Ptr<int32> total_ptr) const {
    grid(cdiv(values, items));
    warps(8);
    griddepcontrol::launch_dependents();
    griddepcontrol::wait();
    Int32 first = items * block_idx.x;
    auto counts = load_global(global_view(counts_ptr, {values}), {first}, {items});
    auto before = scan(counts, Combine::kSum, {.exclusive = true});
    Int32 begin = atomic::add(global_view(total_ptr, {1})[0], sum(counts));
    store_global(global_view(begins_ptr, {values}), before + begin, {first});
  }
};

/// The third: the list.
struct ListGroups {
  static constexpr const char* target = "sm_90";
  int items = 1024;

  /// list [count]: places in index; to [count]: what index has there.
  void operator()(Int32 count, Int32 values, Ptr<int32> index_ptr, Ptr<int32> begins_ptr,
                  Ptr<int32> ranks_ptr, Ptr<int32> list_ptr, Ptr<int32> to_ptr) const {
    grid(cdiv(count, items));
    warps(8);
    griddepcontrol::launch_dependents();
    Int32 first = items * block_idx.x;
    auto index = load_global(global_view(index_ptr, {count}), {first}, {items}, {.other = -1});
    griddepcontrol::wait();
    auto is_listed = index >= 0;
    auto place = gather(global_view(begins_ptr, {values}), {index}, {items}, {.mask = is_listed}) +
                 load_global(global_view(ranks_ptr, {count}), {first}, {items});
    auto number = register_tensor(int32, {items}, [&](auto i) { return first + i; });
    scatter(global_view(list_ptr, {count}), number, {place}, {.mask = is_listed});
    scatter(global_view(to_ptr, {count}), index, {place}, {.mask = is_listed});
  }
};

/// A CTA takes some rows of the list, adds up those of one destination in registers and adds the sum to the table.
struct AddGroupedRows {
  static constexpr const char* target = "sm_90";
  int rows = 16, columns = 512, num_warps = 4;

  static auto space() {
    using K = AddGroupedRows;
    return Space<K>().choose<&K::rows, &K::columns, &K::num_warps>(
        {{16, 512, 4}, {8, 1024, 4}, {16, 1024, 8}, {32, 512, 4}, {32, 256, 2}, {16, 256, 2}, {8, 512, 4}});
  }

  /// table[to[i], :] += x[list[i], :] for the total[0] first of `count`. x [count, width] and table [table_size, width], with
  /// width = width_units * width_unit; both float32, float16 or bfloat16. Groups that lie in several CTAs' parts are added
  /// by atomics, so that the order of additions differs between launches.
  void operator()(Int32 count, Int32 table_size, Int32 width_units, int width_unit, DataType dtype,
                  Ptr<int32> total_ptr, Ptr<int32> list_ptr, Ptr<int32> to_ptr, Ptr<> x_ptr,
                  Ptr<> table_ptr) const {
    auto width = width_units * width_unit;
    grid(cdiv(width, columns), cdiv(count, rows));
    warps(num_warps);
    griddepcontrol::wait();
    const int threads = 32 * num_warps, vector = std::min(16 / dtype.bytes(), columns / threads);
    const auto slab = layout::local({1, columns / (threads * vector)}) * layout::spatial({1, threads}) *
                      layout::local({1, vector});
    Int32 column = block_idx.x * columns, first = block_idx.y * rows;
    Int32 total = global_view(total_ptr, {1})[0];
    if (auto none = when(first >= total)) return_();
    auto number =
        load_global(global_view(list_ptr, {total}), {first}, {rows}, {.other = -1}).reshape({rows, 1});
    RegisterTensor to = load_global(global_view(to_ptr, {total}), {first}, {rows}, {.other = -1});
    annotate_layout(to, layout::local({rows}));
    auto tile = gather(global_view(x_ptr, dtype, {count, width}), {number, column}, {rows, columns},
                       {.mask = number >= 0});
    annotate_layout(tile, layout::local({rows, 1}) * slab);
    auto g_table = global_view(table_ptr, dtype, {table_size, width});
    RegisterTensor sum = zeros(float32, {1, columns});
    annotate_layout(sum, slab);
    for (int i = 0; i < rows; ++i) {
      sum += tile.slice({i, 0}, {1, columns}).to(float32);
      Int32 destination = to.item({i});
      const Expr next = i + 1 < rows ? to.item({i + 1}) : Expr(destination ^ -1);
      if (auto ends = when(destination >= 0 && destination != next)) {
        atomic::add(g_table, sum.to(dtype), {destination, column});
        sum = zeros(float32, {1, columns});
      }
    }
  }
};

}  // namespace imbrex::kernels
