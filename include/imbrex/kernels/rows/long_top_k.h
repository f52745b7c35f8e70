// SPDX-License-Identifier: Apache-2.0
// The k largest elements of each row, where rows are long.
#pragma once

#include <algorithm>
#include <limits>

#include "imbrex/kernels/rows/number_order.h"
#include "imbrex/kernels/rows/row_tile.h"

namespace imbrex::kernels {

/// A CTA reads a row, or a part of one, tile by tile, and keeps a list of what may be among the largest in shared memory: at
/// least k elements, of which the k-th largest is a bound. Only elements above it join the list, since of equal elements those
/// of smaller columns come first; of random ones there are fewer in each tile. Where the list is nearly full, one warp finds the
/// k-th largest of it and keeps k. A tile with more elements above the bound than there is room for, the first for one, gives a
/// nearer bound itself, which k groups of its elements reach; where still too many do, its k largest are found exactly.
/// `kOverlaps`: starts while the kernel before ends.
template <bool kOverlaps>
struct LongTopKOf {
  static constexpr const char* target = kOverlaps ? "sm_90" : "sm_80";
  static constexpr int kThreads = 256, kThreadBytes = 64;  // of x, per thread and tile

  static int tile_columns(DataType dtype) { return kThreads * kThreadBytes / dtype.bytes(); }

  /// `most` is at least k and a power of two. The rows are divided into `parts` of `part_tiles` tiles; values and indices
  /// [rows, k * parts] get the k largest of each. Of all parts but the last there are at least k columns, and so there are of a row.
  void operator()(RowShape shape, Int32 k, int most, Int32 parts, Int32 part_tiles, RowOperand x,
                  DataType values_type, Ptr<> values_ptr, Ptr<int32> indices_ptr) const {
    using namespace number_order;
    const int columns = shape.tile_columns, limit = List::room(most) - most;
    warps(kThreads / 32);
    max_registers(64);  // so that a multiprocessor has four CTAs
    grid(shape.rows, parts);
    if (kOverlaps) {
      griddepcontrol::launch_dependents();
      griddepcontrol::wait();
    }
    const Spread spread(kThreads, columns, 16 / x.dtype.bytes());
    const List list(most);
    auto g_x = x.view(shape, 0);
    Int32 row = block_idx.x, first = block_idx.y * part_tiles,
          end = min(first + part_tiles, cdiv(shape.columns(), columns));
    const auto load = [&](const ScalarArg& tile) {
      return spread.laid_out(load_global(g_x, {row, tile * columns}, {1, columns}, {.other = kLeast}));
    };
    list.clear();
    sync();
    Int32 taken = 0, turn = 0;  // elements of the list; the counter of this tile's
    Float32 bound = kLeast;
    RegisterTensor coming = load(first);
    for (Int32 tile : range(first, end)) {
      auto numbers = coming.to(float32);
      auto places = register_tensor(int32, {1, columns}, [&](auto, auto j) { return tile * columns + j; });
      coming = load(select(tile + 1 < end, tile + 1, tile));
      Int32 next = select(turn == List::kCounters - 1, 0, turn + 1);
      list.clear_counter(next);  // all have read it: in the iteration before the one before
      list.move(spread, numbers, places, numbers > bound, taken, turn);
      sync();
      Int32 reached = taken + list.count(turn);
      turn = next;
      if (auto crowded = when(reached > limit || tile == first || tile + 1 == end)) {
        if (auto over = when(reached > List::room(most) || tile == first)) {
          Float32 nearer = bound_of_groups(spread, numbers, k, most);
          reached =
              taken + list.move_again(spread, numbers, places, numbers >= nearer && numbers > bound, taken);
          // A tile with few numbers above minus infinity has no such bound.
          if (auto still = when(reached > List::room(most) || nearer == kLeast)) {
            auto keys = select(places < shape.columns(), key_of(numbers), kOutside);
            RegisterTensor least = bound_of(keys, k, 0);
            auto missing = k - count_of(keys > least);
            RegisterTensor last = last_place(keys == least, places, missing, kPlaceBits);
            auto is_taken = keys > least || (keys == least && places <= last);
            reached =
                taken + list.move_again(spread, max(numbers, kLeast), places,
                                        is_taken && (numbers > bound || full(boolean, {1, 1}, tile == first)),
                                        taken);
          }
        }
        bound = list.keep_largest(reached, k);
        taken = k;
      }
      if (auto fits = otherwise()) taken = reached;
    }
    list.rank(k, most,
              [&](const RegisterBase& mask, const RegisterBase& rank, const RegisterBase& numbers,
                  const RegisterBase& places) {
                auto to = rank + block_idx.y * k;
                scatter(global_view(values_ptr, values_type, {shape.rows, k * parts}),
                        numbers.to(values_type), {row, to}, {.mask = mask});
                scatter(global_view(indices_ptr, {shape.rows, k * parts}), places, {row, to}, {.mask = mask});
              });
  }

 private:
  static constexpr int kPlaceBits = 31;

  /// How threads share a row of numbers: [1, vectors * threads * vector].
  struct Spread {
    int threads, vectors, vector;
    Spread(int threads, int columns, int vector)
        : threads(threads), vectors(columns / (threads * vector)), vector(vector) {}
    Shape shape() const { return {vectors, threads, vector}; }
    RegisterTensor laid_out(const RegisterBase& row) const {
      RegisterTensor laid = row;
      annotate_layout(
          laid, layout::local({1, vectors}) * layout::spatial({1, threads}) * layout::local({1, vector}));
      return laid;
    }
  };

  /// A bound that at least k numbers reach, and not many more than k groups, those of the threads; minus infinity where it is not
  /// known.
  static Float32 bound_of_groups(const Spread& spread, const RegisterBase& numbers, const Int32& k,
                                 int most) {
    using namespace number_order;
    constexpr int kFewMore = 8;  // share of `most` by which more groups than k may reach the bound
    auto s_maxima = shared_tensor(float32, {spread.threads}), s_bound = shared_tensor(float32, {1});
    store_shared(s_maxima, max(numbers.reshape(spread.shape()), {.axes = {0, 2}}));
    sync();
    if (auto first = single_warp()) {
      auto keys = key_of(load_shared(s_maxima).reshape({1, spread.threads}));
      store_shared(s_bound, max(value_of(bound_of(keys, k, most / kFewMore)), kLeast).reshape({1}));
    }
    sync();
    return s_bound.item();
  }

  /// Numbers and their columns in shared memory.
  struct List {
    static constexpr int kCounters = 3;  // used in turns: one is cleared, one counts, one is read
    int size;
    SharedTensor s_numbers, s_places, s_counters, s_again, s_bound;

    static int room(int most) { return std::max(4 * most, 128); }
    explicit List(int most)
        : size(room(most)),
          s_numbers(shared_tensor(float32, {1, size})),
          s_places(shared_tensor(int32, {1, size})),
          s_counters(shared_tensor(int32, {kCounters})),
          s_again(shared_tensor(int32, {1})),
          s_bound(shared_tensor(float32, {1})) {}

    void clear() const { store_shared(s_counters, zeros(int32, {kCounters})); }
    void clear_counter(const Int32& turn) const {
      store_shared(s_counters.slice({turn}, {1}), zeros(int32, {1}));
    }
    Int32 count(const Int32& turn) const { return s_counters.item({turn}); }

    /// Moves the numbers of the mask behind the `taken` first of the list, as far as there is room, and counts all of them.
    void move(const Spread& spread, const RegisterBase& numbers, const RegisterBase& places,
              const RegisterBase& mask, const Int32& taken, const ScalarArg& turn) const {
      move(spread, numbers, places, mask, taken, s_counters, turn);
    }
    /// The same in place of what was moved there before. Their number.
    Int32 move_again(const Spread& spread, const RegisterBase& numbers, const RegisterBase& places,
                     const RegisterBase& mask, const Int32& taken) const {
      store_shared(s_again, zeros(int32, {1}));
      sync();
      move(spread, numbers, places, mask, taken, s_again, 0);
      sync();
      Int32 count = s_again.item();
      sync();  // all have read it
      return count;
    }

    /// Leaves the k largest of the `taken` first, by one warp. The least of them.
    Float32 keep_largest(const Int32& taken, const Int32& k) const {
      using namespace number_order;
      if (auto warp = single_warp()) {
        const Spread spread(32, size, 4);
        const RegisterTensor numbers = spread.laid_out(load_shared(s_numbers)),
                             places = spread.laid_out(load_shared(s_places));
        auto is_there = register_tensor(boolean, {1, size}, [&](auto, auto j) { return j < taken; });
        auto keys = select(is_there, key_of(numbers), kOutside);
        RegisterTensor least = bound_of(keys, k, 0);
        RegisterTensor last = full(int32, {1, 1}, std::numeric_limits<int>::max());
        if (auto equal = when(any(count_of(keys >= least) > k)))
          last = last_place(keys == least, places, k - count_of(keys > least), kPlaceBits);
        store_shared(s_bound, value_of(least).reshape({1}));
        store_shared(s_again, zeros(int32, {1}));
        sync();
        move(spread, numbers, places, keys > least || (keys == least && places <= last), 0, s_again, 0);
      }
      sync();
      return s_bound.item();
    }

    /// store(mask, rank, numbers, places) of the k first: an element's rank is the number of those before it.
    template <class Store>
    void rank(const Int32& k, int most, const Store& store) const {
      auto slot = register_tensor(int32, {1, most}, [](auto, auto j) { return j; });
      const auto first = [&](const SharedTensor& s) { return load_shared(s.slice({0, 0}, {1, most})); };
      auto numbers = first(s_numbers), places = first(s_places);
      const auto other = [&](const RegisterBase& t) { return t.reshape({most, 1}); };
      auto is_before = other(numbers) > numbers || (other(numbers) == numbers && other(places) < places);
      auto before = sum((is_before && other(slot) < k).to(int32), {.axis = 0, .keep = true});
      store(slot < k, before, numbers, places);
    }

   private:
    void move(const Spread& spread, const RegisterBase& numbers, const RegisterBase& places,
              const RegisterBase& mask, const Int32& taken, const SharedTensor& counters,
              const ScalarArg& turn) const {
      const auto each = [&](const RegisterBase& t) { return t.reshape(spread.shape()); };
      auto count = sum(each(mask.to(int32)), {.keep = true, .axes = {0, 2}});
      RegisterTensor at =
          taken + atomic::add(counters, count, {turn + zeros(int32, count.shape())}, {.mask = count > 0});
      auto fits = at + count <= size;
      for (int v = 0; v < spread.vectors; ++v)
        for (int i = 0; i < spread.vector; ++i) {
          const auto one = [&](const RegisterBase& t) {
            return each(t).slice({v, 0, i}, {1, spread.threads, 1});
          };
          auto is_moved = one(mask);
          auto zero = zeros(int32, is_moved.shape());
          scatter(s_numbers, one(numbers), {zero, at}, {.mask = is_moved && fits});
          scatter(s_places, one(places), {zero, at}, {.mask = is_moved && fits});
          at += is_moved.to(int32);
        }
    }
  };
};
using LongTopK = LongTopKOf<false>;
using HopperLongTopK = LongTopKOf<true>;

}  // namespace imbrex::kernels
