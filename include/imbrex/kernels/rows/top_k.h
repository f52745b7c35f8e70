// SPDX-License-Identifier: Apache-2.0
// The k largest elements of each row.
#pragma once

#include <bit>
#include <limits>
#include <numeric>

#include "imbrex/kernels/rows/number_order.h"
#include "imbrex/kernels/rows/row_tile.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

/// values[i, :] = the k largest elements of x[i, :], largest first, and indices[i, :] their columns: of equal elements the
/// one of the smaller column comes first. x [rows, columns], float16, bfloat16 or float32, columns neighbours in memory;
/// values [rows, k] of x's type and indices [rows, k], int32, both dense; k at most 64 and at most the columns. NaN counts
/// as minus infinity. Rows of more than 16384 columns take two launches and memory of the stream's. Otherwise as
/// rms_norm().
LaunchReport top_k(const DeviceTensor& x, const DeviceTensor& values, const DeviceTensor& indices,
                   const Stream& stream = {}, SourceLocation where = SourceLocation::current());

namespace kernels {

/// What TopK is compiled for, to take k elements.
inline int most_taken(int64_t k) {
  constexpr int64_t kLeast = 8;
  return static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::max(k, kLeast))));
}

/// A CTA holds some rows, or a part of one. It looks for a bound that at least k and not many more elements reach, moves these
/// to shared memory, and ranks them there by counting how many are before each. The bound comes from the largest elements of
/// groups, of which there are few: k of them that reach it are k elements. First whole vectors are listed, those with an
/// element that reaches the bound, since there are a quarter as many to compare; their elements are read once more. Where so
/// many elements reach the bound that there is no room for them, the k-th largest is found exactly, among integers that are
/// ordered as the numbers are.
/// `kOverlaps`: starts while the kernel before ends.
template <bool kOverlaps>
struct TopKOf {
  static constexpr const char* target = kOverlaps ? "sm_90" : "sm_80";
  int thread_bytes = 128;  // of x, per thread

  static auto space() { return Space<TopKOf>().template choose<&TopKOf::thread_bytes>({128, 64, 256}); }

  /// `most` is a power of two, k at most that. values and indices [rows, k * parts], where a row has parts =
  /// cdiv(columns, tile_columns); x_indices, where there are, [rows, columns]: what stands for the columns of x.
  void operator()(RowShape shape, Int32 k, int most, RowOperand x, bool has_indices, Ptr<int32> x_indices_ptr,
                  DataType values_type, Ptr<> values_ptr, Ptr<int32> indices_ptr) const {
    const Tile tile(shape.tile_columns, most, x.dtype.bytes(), thread_bytes);
    warps(tile.threads / 32);
    auto parts = cdiv(shape.columns(), tile.columns);
    grid(cdiv(shape.rows, tile.rows), parts);
    if (kOverlaps) {
      griddepcontrol::launch_dependents();
      griddepcontrol::wait();
    }
    Int32 row = block_idx.x * tile.rows, column = block_idx.y * tile.columns;
    /// Stores the elements of the mask, which are at these places of the tile's rows, as those of these ranks.
    const auto store = [&](const RegisterBase& mask, const RegisterBase& of_row, const RegisterBase& rank,
                           const RegisterBase& values, const RegisterBase& places) {
      const RegisterValue to_row = of_row + row, to = rank + block_idx.y * k;
      scatter(global_view(values_ptr, values_type, {shape.rows, k * parts}), values.to(values_type),
              {to_row, to}, {.mask = mask});
      auto g_indices = global_view(indices_ptr, {shape.rows, k * parts});
      if (has_indices) {
        auto index = gather(global_view(x_indices_ptr, {shape.rows, shape.columns()}),
                            {to_row, places + column}, mask.shape(), {.mask = mask});
        scatter(g_indices, index, {to_row, to}, {.mask = mask});
      } else {
        scatter(g_indices, places + column, {to_row, to}, {.mask = mask});
      }
    };
    take(tile, shape, k, most, x, row, column, store);
  }

 private:
  static constexpr int kFew = 16;  // elements taken

  /// How threads share a tile: whole rows by a few lanes each, or a wide one by several warps.
  struct Tile {
    int columns, threads, rows, per_row, vector;
    Tile(int columns, int most, int bytes, int thread_bytes) : columns(columns) {
      constexpr int kMost = 64, kNarrow = 1024;  // numbers that a thread's registers hold; columns
      constexpr int kOfLane = 32, kLeastLanes = 4;
      if (columns < kNarrow || (columns == kNarrow && most <= kFew)) {
        threads = 32;
        per_row = std::max(kLeastLanes, columns / kOfLane);
      } else {
        // Where many of few columns are taken, the time is that of ranking, which more threads share.
        const int per_thread = columns <= kNarrow ? 8 : std::min(kMost, thread_bytes / bytes);
        threads = std::clamp(static_cast<int>(std::bit_ceil(static_cast<unsigned>(columns / per_thread))), 32,
                             1024);
        per_row = threads;
      }
      rows = threads / per_row;
      vector = std::gcd(columns / per_row, 16 / bytes);
    }
    bool is_narrow() const { return threads == 32; }
    int vectors() const { return columns / (per_row * vector); }  // of a thread
    layout::Layout layout() const {
      return layout::spatial({rows, 1}) * layout::local({1, vectors()}) * layout::spatial({1, per_row}) *
             layout::local({1, vector});
    }
    /// The elements of a row by vector of a thread, thread, and element of a vector.
    Shape in_vectors() const { return {rows, vectors(), per_row, vector}; }
  };

  /// What was found of each row of a tile, in shared memory: the columns of vectors with an element that reaches the bound, then
  /// the elements that do.
  struct Found {
    static constexpr int kPad = 4;  // so that rows lie in other banks
    int rows, room;
    SharedTensor s_vector_count, s_columns;     // [rows], [rows, room]
    SharedTensor s_count, s_numbers, s_places;  // [rows], [rows, room]
    Found(int rows, int room)
        : rows(rows),
          room(room),
          s_vector_count(shared_tensor(int32, {rows})),
          s_columns(shared_tensor(int32, {rows, room + kPad})),
          s_count(shared_tensor(int32, {rows})),
          s_numbers(shared_tensor(float32, {rows, room + kPad})),
          s_places(shared_tensor(int32, {rows, room + kPad})) {}

    void clear() const {
      using namespace number_order;
      store_shared(s_vector_count, zeros(int32, {rows}));
      store_shared(s_count, zeros(int32, {rows}));
      // Slots beyond the count are before none.
      store_shared(s_numbers.slice({0, 0}, {rows, room}), full(float32, {rows, room}, kNan));
      store_shared(s_places.slice({0, 0}, {rows, room}), zeros(int32, {rows, room}));
    }
    /// Moves the elements of the mask, as far as there is room.
    void add(const RegisterBase& row, const RegisterBase& elements, const RegisterBase& places,
             const RegisterValue& mask) const {
      auto at = atomic::add(s_count, 1, {row}, {.mask = mask});
      auto fits = mask && at < room;
      scatter(s_numbers, elements, {row, at}, {.mask = fits});
      scatter(s_places, places, {row, at}, {.mask = fits});
    }
    /// Lists the vectors whose `largest` reach the bounds [rows, 1]. Where there is no room for a thread's, none of them: their
    /// number tells.
    void list_vectors(const Tile& tile, const RegisterBase& largest, const RegisterBase& bound) const {
      using namespace number_order;
      const Shape of_thread{rows, 1, tile.per_row, 1};
      auto row = register_tensor(int32, of_thread, [](auto i, auto, auto, auto) { return i; });
      auto column =
          register_tensor(int32, of_thread, [&](auto, auto, auto l, auto) { return l * tile.vector; });
      auto bounds = bound.reshape({rows, 1, 1, 1});
      auto count = sum((largest >= bounds).to(int32), {.axis = 1, .keep = true});
      RegisterTensor at = atomic::add(s_vector_count, count, {row}, {.mask = count > 0});
      auto limit = select(at + count <= room, bounds, kNan);
      for (int v = 0; v < tile.vectors(); ++v) {
        auto is_listed = largest.slice({0, v, 0, 0}, of_thread) >= limit;
        scatter(s_columns, column + v * tile.per_row * tile.vector, {row, at}, {.mask = is_listed});
        at += is_listed.to(int32);
      }
    }
    /// Moves the elements of the listed vectors that reach the bounds, if all are listed; `x` has what the tile holds.
    void collect(const Tile& tile, const GlobalTensor& x, const Int32& first_row, const Int32& first_column,
                 const ScalarArg& width, const RegisterBase& bound) const {
      using namespace number_order;
      const int lanes = tile.per_row, each = tile.is_narrow() ? std::min(2, tile.vector) : 1,
                at_once = each * lanes;
      auto count = load_shared(s_vector_count).reshape({rows, 1});
      auto ends = select(count <= room, count * tile.vector, 0);
      auto row = register_tensor(int32, {rows, at_once}, [](auto i, auto) { return i; });
      for (Int32 first : range(0, max(ends), at_once)) {
        RegisterTensor slot =
            register_tensor(int32, {rows, at_once}, [&](auto, auto j) { return first + j; });
        annotate_layout(slot, layout::spatial({rows, lanes}) * layout::local({1, each}));
        auto is_there = slot < ends;
        auto place = gather(s_columns, {row, slot >> std::countr_zero(static_cast<unsigned>(tile.vector))},
                            {rows, at_once}, {.mask = is_there}) +
                     (slot & (tile.vector - 1));
        auto number = gather(x, {row + first_row, place + first_column}, {rows, at_once},
                             {.other = kNan, .mask = is_there && place + first_column < width})
                          .to(float32);
        add(row, number, place, number >= bound);
      }
    }
  };

  template <class Store>
  void take(const Tile& tile, const RowShape& shape, const Int32& k, int most, const RowOperand& x,
            const Int32& row, const Int32& column, const Store& store) const {
    using namespace number_order;
    const int rows = tile.rows, columns = tile.columns, room = 4 * most;
    // So that some CTAs fit a multiprocessor.
    const int least_registers = tile.is_narrow() && (x.dtype.bytes() < 4 || most > kFew) ? 88
                                : tile.threads < 512                                     ? 64
                                                                                         : 80;
    max_registers(std::max(least_registers, 2 * tile.vectors() * tile.vector));
    RegisterTensor numbers = load(tile, x.view(shape, 0), row, column);
    RegisterTensor largest = max(numbers.reshape(tile.in_vectors()), {.axis = 3, .keep = true});
    const Found found(rows, room);
    found.clear();
    auto row_numbers = register_tensor(int32, {rows, 1}, [](auto i, auto) { return i; });
    auto is_row = row_numbers + row < shape.rows;
    RegisterTensor bound = select(is_row, bound_of_rows(tile, numbers, largest, k, most), kNan);
    found.list_vectors(tile, largest, bound);
    sync();
    found.collect(tile, x.view(shape, 0), row, column, shape.columns(), bound);
    sync();
    const auto counts = [&] { return load_shared(found.s_count).reshape({rows, 1}); };
    auto vector_counts = load_shared(found.s_vector_count).reshape({rows, 1});
    // All columns that there are not are minus infinity, too.
    if (auto exactly = when(any(max(vector_counts, counts()) > room || bound == kLeast))) {
      sync();  // all have read the counts
      found.clear();
      // Read again, so that few registers hold elements meanwhile.
      auto places = register_tensor(int32, {rows, columns}, [](auto, auto j) { return j; });
      RegisterTensor keys = keys_of(tile, load(tile, x.view(shape, 0), row, column), column, shape.columns());
      RegisterTensor least = bound_of(keys, k, 0);
      auto missing = k - count_of(keys > least);
      RegisterTensor last =
          last_place(keys == least, places, missing, std::bit_width(static_cast<unsigned>(columns - 1)));
      sync();
      auto in_row = register_tensor(int32, {rows, 1, 1, 1}, [](auto i, auto, auto, auto) { return i; });
      for (int v = 0; v < tile.vectors(); ++v) {
        const Shape of_vector{rows, 1, tile.per_row, tile.vector};
        const auto vector = [&](const RegisterBase& t) {
          return t.reshape(tile.in_vectors()).slice({0, v, 0, 0}, of_vector);
        };
        auto key = vector(keys), place = vector(places);
        auto bound = least.reshape({rows, 1, 1, 1});
        found.add(in_row + zeros(int32, of_vector), max(value_of(key), kLeast), place,
                  key > bound || (key == bound && place <= last.reshape({rows, 1, 1, 1})));
      }
      sync();
    }

    // An element's rank is the number of those before it: each is compared with the others by some neighbouring lanes, a
    // few at a time.
    const int lanes = tile.per_row, slots = std::min(room, std::max({16, most, lanes / 32})),
              sharing = std::max(1, lanes / slots), each = slots * sharing / lanes,
              at_once = std::min(4, room / sharing);
    auto count = counts();
    const Int32 end = max(count);
    for (Int32 first : range(0, end, slots)) {
      auto slot = register_tensor(int32, {rows, slots}, [&](auto, auto j) { return first + j; });
      auto number = gather(found.s_numbers, {row_numbers, slot}, {rows, slots});
      auto place = gather(found.s_places, {row_numbers, slot}, {rows, slots});
      RegisterTensor before = zeros(int32, {rows, slots, sharing});
      annotate_layout(before,
                      layout::spatial({rows, lanes / sharing, sharing}) * layout::local({1, each, 1}));
      const Shape of_slot{rows, slots, 1, 1};
      for (Int32 other : range(0, end, sharing * at_once)) {
        auto others = [&](const SharedTensor& s) {
          return load_shared(s.slice({0, other}, {rows, sharing * at_once}))
              .reshape({rows, 1, sharing, at_once});
        };
        auto other_number = others(found.s_numbers);
        auto other_place = others(found.s_places);
        auto is_before = other_number > number.reshape(of_slot) ||
                         (other_number == number.reshape(of_slot) && other_place < place.reshape(of_slot));
        annotate_layout(is_before, layout::spatial({rows, lanes / sharing, sharing, 1}) *
                                       layout::local({1, each, 1, at_once}));
        before += sum(is_before.to(int32), {.axis = 3});
      }
      RegisterTensor rank = sum(before, {.axis = 2});
      store(slot < count && rank < k && is_row, row_numbers + zeros(int32, {rows, slots}), rank, number,
            place);
    }
  }

  /// A bound that at least k elements of each row reach, [rows, 1]; minus infinity where it is not known.
  static RegisterTensor bound_of_rows(const Tile& tile, const RegisterBase& numbers,
                                      const RegisterBase& largest, const Int32& k, int most) {
    using namespace number_order;
    constexpr int kFewMore = 8;  // share of `most` by which more groups than k may reach the bound
    int parts = 1;               // of a thread's elements: groups
    while (parts < tile.vectors() && (tile.per_row * parts < 2 * most || tile.vectors() % parts != 0))
      ++parts;
    const int groups = tile.per_row * parts;
    RegisterTensor maxima =
        groups < most
            ? RegisterValue(numbers.reshape({tile.rows, tile.columns}))
            : max(largest.reshape({tile.rows, parts, tile.vectors() / parts, tile.per_row}), {.axis = 2})
                  .reshape({tile.rows, groups});
    const auto bound_among = [&](const RegisterBase& numbers) {
      RegisterTensor keys = turned(imbrex::view(max(numbers, kLeast), int32));
      auto least = most <= kFew ? bound_by_taking(keys, k) : bound_of(keys, k, most / kFewMore);
      return max(value_of(least), kLeast);  // too few different ones: all reach it
    };
    if (tile.is_narrow()) {
      sync();
      return bound_among(maxima);
    }
    auto s_maxima = shared_tensor(float32, {groups}), s_bound = shared_tensor(float32, {1});
    store_shared(s_maxima, maxima.reshape({groups}));
    sync();
    if (auto first = single_warp())
      store_shared(s_bound, bound_among(load_shared(s_maxima).reshape({1, groups})).reshape({1}));
    sync();
    return load_shared(s_bound).reshape({1, 1});
  }

  /// Minus infinity beyond the columns.
  static RegisterValue load(const Tile& tile, const GlobalTensor& from, const Int32& row,
                            const Int32& column) {
    using namespace number_order;
    RegisterTensor loaded = load_global(from, {row, column}, {tile.rows, tile.columns}, {.other = kLeast});
    annotate_layout(loaded, tile.layout());
    return loaded.to(float32);
  }
  /// Beyond the columns what is less than any number.
  static RegisterValue keys_of(const Tile& tile, const RegisterBase& numbers, const Int32& column,
                               const ScalarArg& width) {
    auto is_inside =
        register_tensor(boolean, {1, tile.columns}, [&](auto, auto j) { return column + j < width; });
    return select(is_inside, number_order::key_of(numbers), number_order::kOutside);
  }
};
using TopK = TopKOf<false>;
using HopperTopK = TopKOf<true>;

}  // namespace kernels
}  // namespace imbrex
