// SPDX-License-Identifier: Apache-2.0
// The k largest elements of each row.
#pragma once

#include <bit>
#include <limits>
#include <numeric>

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
/// groups, of which there are few: k of them that reach it are k elements. Where so many elements reach it that there is no
/// room for them, the k-th largest is found exactly, among integers that are ordered as the numbers are.
struct TopK {
  int thread_bytes = 128;  // of x, per thread

  static auto space() { return Space<TopK>().choose<&TopK::thread_bytes>({128, 64, 256}); }

  /// `most` is a power of two, k at most that. values and indices [rows, k * parts], where a row has parts =
  /// cdiv(columns, tile_columns); x_indices, where there are, [rows, columns]: what stands for the columns of x.
  void operator()(RowShape shape, Int32 k, int most, RowOperand x, bool has_indices, Ptr<int32> x_indices_ptr,
                  DataType values_type, Ptr<> values_ptr, Ptr<int32> indices_ptr) const {
    const Tile tile(shape.tile_columns, x.dtype.bytes(), thread_bytes);
    warps(tile.threads / 32);
    auto parts = cdiv(shape.columns(), tile.columns);
    grid(cdiv(shape.rows, tile.rows), parts);
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
    if (tile.rows == 1 && tile.threads >= 2 * most)
      take_from_row(tile, shape, k, most, x, row, column, store);
    else
      take_from_rows(tile, shape, k, most, x, row, column, store);
  }

 private:
  static constexpr float kLeast = -std::numeric_limits<float>::infinity();
  static constexpr int kOutside = std::numeric_limits<int>::min();  // the key of columns that there are not

  /// How threads share a tile: whole rows by one warp, or a wide one by several.
  struct Tile {
    int columns, threads, rows, per_row, vector;
    Tile(int columns, int bytes, int thread_bytes) : columns(columns) {
      constexpr int kMost = 64;  // numbers that a thread's registers hold
      const int per_thread = std::clamp(columns / 32, 8, std::min(kMost, thread_bytes / bytes));
      threads = std::clamp(  // narrow rows: a warp for each
          static_cast<int>(std::bit_floor(static_cast<unsigned>(std::max(1, columns / per_thread)))), 32,
          1024);
      rows = std::max(1, threads * per_thread / columns);
      if (threads > 32) rows = 1;
      rows = std::min(rows, 32);
      per_row = threads / rows;
      vector = std::gcd(columns / per_row, 16 / bytes);
    }
    layout::Layout layout() const {
      return layout::spatial({rows, 1}) * layout::local({1, columns / (per_row * vector)}) *
             layout::spatial({1, per_row}) * layout::local({1, vector});
    }
  };

  /// Of one row: elements stay the numbers they are, and each thread's largest one is a group's. One warp finds the bound.
  template <class Store>
  void take_from_row(const Tile& tile, const RowShape& shape, const Int32& k, int most, const RowOperand& x,
                     const Int32& row, const Int32& column, const Store& store) const {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    constexpr int kMostTakenAway = 16;
    constexpr int kFewMore = 8;  // share of `most` by which more maxima than k may reach the bound
    const int columns = tile.columns, threads = tile.threads, room = 4 * most;
    max_registers(std::max(80, 5 * columns / threads / 2));  // so that some CTAs fit a multiprocessor
    RegisterTensor numbers = load(tile, x.view(shape, 0), row, column);
    auto places = register_tensor(int32, {1, columns}, [](auto, auto j) { return j; });
    auto s_maxima = shared_tensor(float32, {threads}), s_bound = shared_tensor(float32, {1});
    auto s_count = shared_tensor(int32, {1});
    auto s_numbers = shared_tensor(float32, {room});
    auto s_places = shared_tensor(int32, {room});
    const auto clear = [&] {
      store_shared(s_count, zeros(int32, {1}));
      store_shared(s_numbers, full(float32, {room}, kNan));  // slots beyond the count are before none
      store_shared(s_places, zeros(int32, {room}));
    };
    const Shape in_vectors{columns / (threads * tile.vector), threads, tile.vector};
    /// Moves the elements of the mask to shared memory, as far as there is room: vector by vector, each with one atomic,
    /// so that few masks are held at once. `mask_of` takes what makes a part of a tile.
    const auto collect = [&](const auto& mask_of, const RegisterBase& elements) {
      auto of_thread =
          register_tensor(int32, {1, threads, 1}, [&](auto, auto i, auto) { return i * tile.vector; });
      for (int64_t v = 0; v < in_vectors[0]; ++v) {
        const auto vector = [&](const RegisterBase& t) {
          return t.reshape(in_vectors).slice({v, 0, 0}, {1, threads, tile.vector});
        };
        auto mask = mask_of(vector);
        auto count = sum(mask.to(int32), {.axis = 2, .keep = true});
        auto first = atomic::add(s_count, count, {zeros(int32, {1, threads, 1})}, {.mask = count > 0});
        auto fits = first + count <= room;
        RegisterTensor at = first;
        auto numbers_of_vector = vector(elements);
        for (int64_t i = 0; i < tile.vector; ++i) {
          const auto element = [&](const RegisterBase& t) { return t.slice({0, 0, i}, {1, threads, 1}); };
          auto is_moved = element(mask) && fits;
          scatter(s_numbers, element(numbers_of_vector), {at}, {.mask = is_moved});
          scatter(s_places, of_thread + (v * threads * tile.vector + i), {at}, {.mask = is_moved});
          at += element(mask).to(int32);
        }
      }
      sync();
    };

    clear();
    store_shared(s_maxima, max(max(numbers.reshape(in_vectors), {.axes = {0, 2}}), kLeast));
    sync();
    if (auto first = single_warp()) {
      auto maxima = turned(imbrex::view(load_shared(s_maxima), int32)).reshape({1, threads});
      auto least = most <= kMostTakenAway ? bound_by_taking(maxima, k) : bound_of(maxima, k, most / kFewMore);
      store_shared(s_bound,
                   max(value_of(least), kLeast).reshape({1}));  // too few different ones: all reach it
    }
    sync();
    Float32 bound = s_bound[0];
    collect([&](const auto& part) { return part(numbers) >= bound; }, numbers);
    Int32 count = s_count[0];
    // All columns that there are not are minus infinity, too.
    if (auto exactly = when(count > room || bound == kLeast)) {
      sync();  // all have read the count
      clear();
      auto keys = keys_of(tile, numbers, column, shape.columns());
      RegisterTensor least = bound_of(keys, k, 0);
      auto missing = k - count_of(keys > least);
      auto is_last = keys == least && places <= last_place(keys == least, places, missing);
      sync();
      auto is_taken = keys > least || is_last;
      collect([&](const auto& part) { return part(is_taken); }, select(numbers == numbers, numbers, kLeast));
      count = s_count[0];
    }

    // An element's rank is the number of those before it: each is compared with the others by some neighbouring threads.
    const int slots = std::max({16, most, threads / 32}), sharing = threads / slots,
              at_once = std::min(4, room / sharing);
    auto shares = register_tensor(int32, {1, sharing}, [](auto, auto j) { return j; });
    for (Int32 first : range(0, count, slots)) {
      auto slot = register_tensor(int32, {slots, 1}, [&](auto i, auto) { return first + i; });
      auto number = gather(s_numbers, {slot}, {slots, 1});
      auto place = gather(s_places, {slot}, {slots, 1});
      RegisterTensor before = zeros(int32, {slots, sharing});
      annotate_layout(before, layout::spatial({slots, sharing}));
      for (Int32 other : range(0, count, sharing * at_once))
        for (int i = 0; i < at_once; ++i) {
          auto other_slot = shares + (other + i * sharing);
          auto other_number = gather(s_numbers, {other_slot}, {1, sharing});
          auto other_place = gather(s_places, {other_slot}, {1, sharing});
          auto is_before = other_number > number || (other_number == number && other_place < place);
          before += is_before.to(int32);
        }
      RegisterTensor rank = sum(before, {.axis = 1, .keep = true});
      store(slot < count && rank < k, zeros(int32, {slots, 1}), rank, number, place);
    }
  }

  /// Of several rows, or of one that has few threads: elements are integers.
  template <class Store>
  void take_from_rows(const Tile& tile, const RowShape& shape, const Int32& k, int most, const RowOperand& x,
                      const Int32& row, const Int32& column, const Store& store) const {
    const int rows = tile.rows, columns = tile.columns, room = std::min(columns, 4 * most);
    // So that a multiprocessor has room for a second CTA, which loads while the first one counts.
    if (tile.threads >= 128 && columns <= 32 * tile.threads)
      max_registers(std::max(64, 4 * columns / tile.threads));
    auto keys = keys_of(tile, load(tile, x.view(shape, 0), row, column), column, shape.columns());
    auto places = register_tensor(int32, {rows, columns}, [](auto, auto j) { return j; });
    auto s_count = shared_tensor(int32, {rows});
    auto s_keys = shared_tensor(int32, {rows, room}), s_places = shared_tensor(int32, {rows, room});
    auto numbers = register_tensor(int32, {rows, 1}, [](auto i, auto) { return i; });
    /// Moves the elements of the mask to shared memory, as far as there is room; their number in each row.
    const auto collect = [&](const RegisterValue& mask) {
      store_shared(s_count, zeros(int32, {rows}));
      store_shared(s_keys, full(int32, {rows, room}, kOutside));  // slots beyond the count are before none
      store_shared(s_places, zeros(int32, {rows, room}));
      sync();
      auto at = atomic::add(s_count, 1, {numbers + zeros(int32, {rows, columns})}, {.mask = mask});
      auto fits = mask && at < room;
      scatter(s_keys, keys, {numbers, at}, {.mask = fits});
      scatter(s_places, places, {numbers, at}, {.mask = fits});
      sync();
      return load_shared(s_count);
    };

    RegisterTensor count = collect(keys >= bound_of(group_maxima(tile, keys, most), k, most / 2));
    if (auto many = when(max(count) > room)) {
      sync();  // all have read the counts
      RegisterTensor least = bound_of(keys, k, 0);
      auto missing = k - count_of(keys > least);
      count =
          collect(keys > least || (keys == least && places <= last_place(keys == least, places, missing)));
    }

    auto counts = count.reshape({rows, 1});
    auto slots = register_tensor(int32, {rows, room}, [](auto, auto j) { return j; });
    auto present = slots < counts;
    auto ranked = gather(s_keys, {numbers, slots}, {rows, room}, {.mask = present});
    auto ranked_places = gather(s_places, {numbers, slots}, {rows, room}, {.mask = present});
    RegisterTensor rank = zeros(int32, {rows, room});
    constexpr int kAtOnce = 8;  // divides `room`
    for (Int32 first : range(0, max(count), kAtOnce))
      for (int j = 0; j < kAtOnce; ++j) {
        const auto add = [&](const auto& key, const auto& place) {
          auto is_before = key > ranked || (key == ranked && place < ranked_places);
          rank += is_before.to(int32);
        };
        if (rows == 1) {  // numbers that every thread reads for itself
          Int32 key = s_keys[0][first + j], place = s_places[0][first + j];
          add(key, place);
        } else {
          add(gather(s_keys, {numbers, first + j}, {rows, 1}),
              gather(s_places, {numbers, first + j}, {rows, 1}));
        }
      }
    store(present && rank < k && numbers + row < shape.rows, numbers, rank, value_of(ranked), ranked_places);
  }

  /// The bits of a float32 as an integer of the same order, and back: negative numbers have theirs turned round.
  static RegisterValue turned(const RegisterBase& bits) { return bits ^ ((bits >> 31) & 0x7FFFFFFF); }
  static RegisterValue value_of(const RegisterBase& keys) { return imbrex::view(turned(keys), float32); }

  /// Minus infinity beyond the columns.
  static RegisterValue load(const Tile& tile, const GlobalTensor& from, const Int32& row,
                            const Int32& column) {
    RegisterTensor loaded = load_global(from, {row, column}, {tile.rows, tile.columns}, {.other = kLeast});
    annotate_layout(loaded, tile.layout());
    return loaded.to(float32);
  }
  /// NaN as minus infinity, -0 as 0, and beyond the columns what is less than any number.
  static RegisterValue keys_of(const Tile& tile, const RegisterBase& numbers, const Int32& column,
                               const ScalarArg& width) {
    auto keys = turned(imbrex::view(select(numbers == numbers, numbers, kLeast), int32));
    constexpr int kMinusZero = -1;
    auto is_inside =
        register_tensor(boolean, {1, tile.columns}, [&](auto, auto j) { return column + j < width; });
    return select(is_inside, select(keys == kMinusZero, 0, keys), kOutside);
  }

  /// The largest of each group of elements, at least 2 * most groups where there are as many elements.
  static RegisterValue group_maxima(const Tile& tile, const RegisterValue& keys, int most) {
    auto of_threads =
        keys.reshape({tile.rows, tile.columns / (tile.per_row * tile.vector), tile.per_row, tile.vector});
    if (tile.per_row >= 2 * most) return max(max(of_threads, {.axis = 3}), {.axis = 1});
    if (tile.per_row * tile.vector >= 2 * most)
      return max(of_threads, {.axis = 1}).reshape({tile.rows, tile.per_row * tile.vector});
    return keys;
  }

  /// The k-th largest, equal ones counted once.
  static RegisterTensor bound_by_taking(const RegisterBase& maxima, const Int32& k) {
    RegisterTensor left = maxima, bound = max(maxima, {.axis = 1, .keep = true});
    for (Int32 taken : range(1, k)) {
      (void)taken;
      left = select(left == bound, kOutside, left);
      bound = max(left, {.axis = 1, .keep = true});
    }
    return bound;
  }

  static RegisterValue count_of(const RegisterValue& mask) {
    return sum(mask.to(int32), {.axis = 1, .keep = true});
  }

  /// A number that at least k of each row's keys reach, [rows, 1]: the k-th largest, or a smaller one that at most
  /// `more` further ones reach.
  static RegisterTensor bound_of(const RegisterBase& keys, const Int32& k, int more) {
    RegisterTensor least = min(keys, {.axis = 1, .keep = true}), most = max(keys, {.axis = 1, .keep = true});
    RegisterTensor reached = count_of(keys >= least);
    for (Int32 step : range(32)) {
      (void)step;
      break_if(all(reached <= k + more || least == most));
      auto middle = (least | most) - ((least ^ most) >> 1);  // rounded up, without overflow
      auto number = count_of(keys >= middle);
      auto is_bound = number >= k;
      reached = select(is_bound, number, reached);
      most = select(is_bound, most, middle - 1);
      least = select(is_bound, middle, least);
    }
    return least;
  }

  /// The place up to which the row has `count` elements of the mask, [rows, 1].
  static RegisterTensor last_place(const RegisterValue& mask, const RegisterValue& places,
                                   const RegisterValue& count) {
    const auto rows = static_cast<int>(mask.shape()[0]), columns = static_cast<int>(mask.shape()[1]);
    RegisterTensor first = zeros(int32, {rows, 1}), last = full(int32, {rows, 1}, columns - 1);
    for (Int32 step : range(std::bit_width(static_cast<unsigned>(columns)))) {
      (void)step;
      auto middle = (first + last) >> 1;
      auto is_enough = count_of(mask && places <= middle) >= count;
      last = select(is_enough, middle, last);
      first = select(is_enough, first, min(middle + 1, last));
    }
    return last;
  }
};

}  // namespace kernels
}  // namespace imbrex
