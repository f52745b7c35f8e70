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

/// A CTA holds some rows, or a part of one, as integers that are ordered as the numbers are. It looks for a bound that at
/// least k and not many more elements reach, moves these to shared memory, and ranks them there by counting how many are
/// before each. The bound comes from the largest elements of groups, of which there are few: k of them that reach it are
/// k elements. A warp takes the largest of them away k times; several warps count them in bins of equal width. Where so many
/// elements reach that bound that there is no room for them, the k-th largest is found exactly.
struct TopK {
  int thread_bytes = 128;  // of x, per thread

  static auto space() { return Space<TopK>().choose<&TopK::thread_bytes>({128, 64, 256}); }

  /// `most` is a power of two, k at most that. values and indices [rows, k * parts], where a row has parts =
  /// cdiv(columns, tile_columns); x_indices, where there are, [rows, columns]: what stands for the columns of x.
  void operator()(RowShape shape, Int32 k, int most, RowOperand x, bool has_indices, Ptr<int32> x_indices_ptr,
                  DataType values_type, Ptr<> values_ptr, Ptr<int32> indices_ptr) const {
    const Tile tile(shape.tile_columns, x.dtype.bytes(), thread_bytes);
    const int rows = tile.rows, columns = tile.columns, room = std::min(columns, 4 * most);
    warps(tile.threads / 32);
    // So that a multiprocessor has room for a second CTA, which loads while the first one counts.
    if (tile.threads >= 128 && tile.per_thread <= 32) max_registers(std::max(64, 4 * tile.per_thread));
    auto parts = cdiv(shape.columns(), columns);
    grid(cdiv(shape.rows, rows), parts);
    Int32 row = block_idx.x * rows, column = block_idx.y * columns;

    auto keys = load_keys(tile, x.view(shape, 0), row, column, shape.columns());
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

    RegisterTensor count = collect(keys >= first_bound(tile, group_maxima(tile, keys, most), k, most));
    if (auto many = when(max(count) > room)) {
      sync();  // all have read the counts
      RegisterTensor least = bound_of(keys, k, 0);
      auto missing = k - count_of(keys > least);
      count =
          collect(keys > least || (keys == least && places <= last_place(keys == least, places, missing)));
    }

    // An element's rank is the number of those before it.
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
    auto chosen = present && rank < k && numbers + row < shape.rows;
    auto to_row = numbers + row, to = rank + block_idx.y * k;
    scatter(global_view(values_ptr, values_type, {shape.rows, k * parts}), value_of(ranked).to(values_type),
            {to_row, to}, {.mask = chosen});
    auto g_indices = global_view(indices_ptr, {shape.rows, k * parts});
    if (has_indices) {
      auto index = gather(global_view(x_indices_ptr, {shape.rows, shape.columns()}),
                          {to_row, ranked_places + column}, {rows, room}, {.mask = chosen});
      scatter(g_indices, index, {to_row, to}, {.mask = chosen});
    } else {
      scatter(g_indices, ranked_places + column, {to_row, to}, {.mask = chosen});
    }
  }

 private:
  static constexpr int kOutside = std::numeric_limits<int>::min();  // the key of columns that there are not

  /// How threads share a tile: whole rows by one warp, or a wide one by several.
  struct Tile {
    int columns, per_thread, threads, rows, per_row, vector;
    Tile(int columns, int bytes, int thread_bytes) : columns(columns) {
      per_thread = std::clamp(columns / 32, 8, thread_bytes / bytes);  // narrow rows: a warp for each
      threads = std::clamp(
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

  /// The bits of a float32 as an integer of the same order, and back: negative numbers have theirs turned round.
  static RegisterValue turned(const RegisterValue& bits) { return bits ^ ((bits >> 31) & 0x7FFFFFFF); }
  static RegisterValue value_of(const RegisterValue& keys) { return imbrex::view(turned(keys), float32); }

  static RegisterValue load_keys(const Tile& tile, const GlobalTensor& from, const Int32& row,
                                 const Int32& column, const ScalarArg& width) {
    constexpr float kLeast = -std::numeric_limits<float>::infinity();
    RegisterTensor loaded = load_global(from, {row, column}, {tile.rows, tile.columns}, {.other = kLeast});
    annotate_layout(loaded, tile.layout());
    auto numbers = loaded.to(float32);
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

  /// A number that at least k of each row's maxima reach, [rows, 1], and as a rule not many more.
  static RegisterTensor first_bound(const Tile& tile, const RegisterValue& maxima, const Int32& k, int most) {
    constexpr int kMostTakenAway = 16, kWarp = 32;
    if (tile.threads == kWarp && tile.rows == 1 && maxima.shape()[1] == kWarp && most <= kMostTakenAway)
      return bound_by_taking(maxima, k);
    if (tile.rows == 1 && maxima.shape()[1] == tile.threads && tile.threads > kWarp)
      return bound_by_bins(maxima, k);
    return bound_of(maxima, k, most / 2);
  }

  /// The k-th largest, equal ones counted once.
  static RegisterTensor bound_by_taking(const RegisterValue& maxima, const Int32& k) {
    RegisterTensor left = maxima, bound = max(maxima, {.axis = 1, .keep = true});
    for (Int32 taken : range(1, k)) {
      (void)taken;
      left = select(left == bound, kOutside, left);
      bound = max(left, {.axis = 1, .keep = true});
    }
    return bound;
  }

  /// Of bins of equal width from the least to the largest, the last one that k maxima reach: the least in it or behind.
  static RegisterTensor bound_by_bins(const RegisterValue& maxima, const Int32& k) {
    constexpr int kBins = 256;
    constexpr int kLargest = std::numeric_limits<int>::max();
    const int64_t count = maxima.shape()[1];
    auto s_bins = shared_tensor(int32, {kBins});
    store_shared(s_bins, zeros(int32, {kBins}));
    auto most = max(maxima, {.axis = 1, .keep = true});
    auto least = min(select(maxima == kOutside, kLargest, maxima), {.axis = 1, .keep = true});
    // Differences may be as large as 2^32 - 1.
    const auto above = [&](const auto& x) { return imbrex::view(x - least, uint32).to(float32); };
    auto bins = (above(max(maxima, least)) * ((kBins - 1) / (above(most) + 1.0F))).to(int32);
    sync();
    atomic::add(s_bins, 1, {bins});
    sync();
    // How many are in each bin and behind.
    auto behind = static_cast<int>(count) - scan(load_shared(s_bins), Combine::kSum, {.exclusive = true});
    auto numbers = register_tensor(int32, {kBins}, [](auto i) { return i; });
    auto bin = max(select(behind >= k, numbers, 0));
    return min(select(bins >= bin, maxima, kLargest), {.axis = 1, .keep = true});
  }

  static RegisterValue count_of(const RegisterValue& mask) {
    return sum(mask.to(int32), {.axis = 1, .keep = true});
  }

  /// A number that at least k of each row's keys reach, [rows, 1]: the k-th largest, or a smaller one that at most
  /// `more` further ones reach.
  static RegisterTensor bound_of(const RegisterValue& keys, const Int32& k, int more) {
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
