// SPDX-License-Identifier: Apache-2.0
// The k largest elements of each row, where rows are long.
#pragma once

#include <bit>
#include <limits>

#include "imbrex/kernels/rows/number_order.h"
#include "imbrex/kernels/rows/row_tile.h"

namespace imbrex::kernels {

/// A CTA reads a row, or a part of one, tile by tile, and keeps k elements in shared memory, of which the least is a bound. Only
/// elements above it matter from there on, since of equal elements those of smaller columns come first; of random ones there are
/// fewer in each tile. Vectors that have any are listed, and only when there are many of them their elements are read once more,
/// and one warp finds the k largest of these and of those kept. A tile with more vectors above the bound than there is room for, the
/// first for one, gives a nearer bound itself, which k groups of its elements reach; where too many elements reach that, its k
/// largest are found exactly. `kOverlaps`: starts while the kernel before ends.
template <bool kOverlaps>
struct LongTopKOf {
  static constexpr const char* target = kOverlaps ? "sm_90" : "sm_80";
  static constexpr int kThreads = 256, kElements = 16;   // a thread's of a tile
  static constexpr int kColumns = kThreads * kElements;  // of a tile
  static int64_t tiles(int64_t columns) { return (columns + kColumns - 1) / kColumns; }

  /// `most` is at least k and a power of two. The rows are divided into `parts` of `part_tiles` tiles; values and indices
  /// [rows, k * parts] get the k largest of each. Of all parts but the last there are at least k columns, and so there are of a row.
  void operator()(RowShape shape, Int32 k, int most, Int32 parts, Int32 part_tiles, RowOperand x,
                  DataType values_type, Ptr<> values_ptr, Ptr<int32> indices_ptr) const {
    using namespace number_order;
    const int columns = kColumns;
    warps(kThreads / 32);
    // So that a multiprocessor has four CTAs, of float32 three, and where elements are loaded one by one two.
    max_registers(x.dtype.bytes() == 2 ? 64 : shape.column_unit % 4 == 0 ? 80 : 96);
    grid(shape.rows, parts);
    if (kOverlaps) {
      griddepcontrol::launch_dependents();
      griddepcontrol::wait();
    }
    const Spread spread(kThreads, columns, 16 / x.dtype.bytes());
    const Largest largest;
    const Vectors vectors(spread.vector);
    auto g_x = x.view(shape, 0);
    Int32 row = block_idx.x, first = block_idx.y * part_tiles,
          end = min(first + part_tiles, cdiv(shape.columns(), columns));
    const auto load = [&](const ScalarArg& tile) {
      return spread.laid_out(load_global(g_x, {row, tile * columns}, {1, columns}, {.other = kLeast}));
    };
    vectors.clear();
    sync();
    Int32 listed = 0, turn = 0;  // vectors; the counter of this tile's
    Int32 kept = 0;              // elements: none, then k
    Float32 bound = kLeast;
    RegisterTensor coming = load(first);
    for (Int32 tile : range(first, end)) {
      auto numbers = coming.to(float32);
      coming = load(select(tile + 1 < end, tile + 1, tile));
      Int32 next = select(turn == Vectors::kCounters - 1, 0, turn + 1);
      vectors.clear_counter(next);  // all have read it, in the iteration before the one before
      vectors.list(spread, numbers, bound, tile * columns, listed, turn);
      sync();
      Int32 reached = listed + vectors.count(turn);
      turn = next;
      if (auto many = when(reached > Vectors::kMany || tile == first || tile + 1 == end)) {
        auto has_room = reached <= kRoom && tile != first;
        Int32 ready = select(has_room, reached, listed), done = 0, at_once = kThreads;
        Float32 above =
            bound;  // vectors of a tile are listed in any order, so that equal ones are compared in the end
        for (Loop loop : forever()) {
          loop.break_if(done >= ready);
          const RegisterTensor places = vectors.places(done, min(ready, done + at_once), shape.columns());
          auto elements =
              gather(g_x, {row, places}, places.shape(), {.other = kNan, .mask = places < shape.columns()})
                  .to(float32);
          Int32 taken = kept + largest.add(vectors.spread(), elements, places, elements > above, kept);
          if (auto fits = when(taken <= kRoom)) {
            bound = largest.keep(taken, k);
            done += at_once;
          }
          if (auto over = otherwise()) at_once = (kRoom - most) / spread.vector;
        }
        if (auto over = when(!has_room)) {
          // Read again, so that few registers hold elements meanwhile.
          auto places =
              register_tensor(int32, {1, columns}, [&](auto, auto j) { return tile * columns + j; });
          RegisterTensor again = load(tile).to(float32);
          Float32 nearer = bound_of_groups(spread, again, k, most);
          Int32 taken = kept + largest.add(spread, again, places, again >= nearer && again > bound, kept);
          // A tile with few numbers above minus infinity has no such bound.
          if (auto still = when(taken > kRoom || nearer == kLeast)) {
            RegisterTensor keys = select(places < shape.columns(), key_of(again), kOutside);
            RegisterTensor least = bound_of(keys, k, 0);
            auto missing = k - count_of(keys > least);
            RegisterTensor last = last_place(keys == least, places, missing, kPlaceBits);
            auto value = max(value_of(keys), kLeast);
            auto is_above = value > bound || full(boolean, {1, 1}, tile == first);
            taken = kept + largest.add(spread, value, places,
                                       is_above && (keys > least || (keys == least && places <= last)), kept);
          }
          bound = largest.keep(taken, k);
          kept = k;
        }
        listed = 0;
      }
      if (auto few = otherwise()) listed = reached;
    }
    largest.rank(
        k, most,
        [&](const RegisterBase& mask, const RegisterBase& rank, const RegisterBase& numbers,
            const RegisterBase& places) {
          auto to = rank + block_idx.y * k;
          scatter(global_view(values_ptr, values_type, {shape.rows, k * parts}), numbers.to(values_type),
                  {row, to}, {.mask = mask});
          scatter(global_view(indices_ptr, {shape.rows, k * parts}), places, {row, to}, {.mask = mask});
        });
  }

 private:
  static constexpr int kPlaceBits = 31;
  static constexpr int kRoom = 256;  // for vectors, and for elements that are compared at once

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

  /// Vectors with an element above the bound: their columns, in shared memory.
  struct Vectors {
    static constexpr int kCounters = 3;  // used in turns: one is cleared, one counts, one is read
    static constexpr int kMany = kRoom / 2;
    int vector;
    SharedTensor s_columns, s_counters;

    explicit Vectors(int vector)
        : vector(vector),
          s_columns(shared_tensor(int32, {kRoom})),
          s_counters(shared_tensor(int32, {kCounters})) {}

    void clear() const { store_shared(s_counters, zeros(int32, {kCounters})); }
    void clear_counter(const Int32& turn) const {
      store_shared(s_counters.slice({turn}, {1}), zeros(int32, {1}));
    }
    Int32 count(const Int32& turn) const { return s_counters.item({turn}); }
    /// Lists those of a tile behind the `listed` first, as far as there is room, and counts them.
    void list(const Spread& spread, const RegisterBase& numbers, const Float32& bound,
              const Expr& first_column, const Int32& listed, const Int32& turn) const {
      auto largest = max(numbers.reshape(spread.shape()), {.axis = 2});
      const Shape of_thread{1, spread.threads};
      auto count = sum((largest > bound).to(int32), {.axis = 0, .keep = true});
      RegisterTensor at =
          listed + atomic::add(s_counters, count, {turn + zeros(int32, of_thread)}, {.mask = count > 0});
      RegisterTensor limit = select(at + count <= kRoom, full(float32, of_thread, bound), number_order::kNan);
      auto column =
          register_tensor(int32, of_thread, [&](auto, auto t) { return first_column + t * vector; });
      for (int v = 0; v < spread.vectors; ++v) {
        auto is_listed = largest.slice({v, 0}, of_thread) > limit;
        scatter(s_columns, column + v * spread.threads * vector, {at}, {.mask = is_listed});
        at += is_listed.to(int32);
      }
    }
    /// A vector for each thread.
    Spread spread() const { return {kThreads, kThreads * vector, vector}; }
    /// The columns of the elements of the vectors from `first` on, so many as there are threads; `outside` from `end` on.
    RegisterTensor places(const Int32& first, const Expr& end, const Expr& outside) const {
      const Spread all = spread();
      auto slot =
          all.laid_out(register_tensor(int32, {1, kThreads * vector}, [&](auto, auto j) { return j; }));
      auto from = first + (slot >> std::countr_zero(static_cast<unsigned>(vector)));
      auto is_there = from < end;
      auto column = gather(s_columns, {from}, slot.shape(), {.mask = is_there});
      return select(is_there, column + (slot & (vector - 1)), outside);
    }
  };

  /// The k largest of those that have come so far, in any order, and what joins them.
  struct Largest {
    SharedTensor s_numbers, s_places, s_count, s_bound;

    Largest()
        : s_numbers(shared_tensor(float32, {kRoom})),
          s_places(shared_tensor(int32, {kRoom})),
          s_count(shared_tensor(int32, {1})),
          s_bound(shared_tensor(float32, {1})) {}

    /// Moves the numbers of the mask behind the `kept` first, as far as there is room. How many they are.
    Int32 add(const Spread& spread, const RegisterBase& numbers, const RegisterBase& places,
              const RegisterBase& mask, const Int32& kept) const {
      sync();
      store_shared(s_count, zeros(int32, {1}));
      sync();
      move(spread, numbers, places, mask, kept);
      sync();
      return s_count.item();
    }

    /// Leaves the k largest of the `taken` first, by one warp. The least of them.
    Float32 keep(const Int32& taken, const Int32& k) const {
      using namespace number_order;
      sync();
      if (auto warp = single_warp()) {
        const Spread spread(32, kRoom, 4);
        const auto all = [](const SharedTensor& s) { return load_shared(s).reshape({1, kRoom}); };
        const RegisterTensor places = spread.laid_out(all(s_places));
        auto is_there = register_tensor(boolean, {1, kRoom}, [&](auto, auto j) { return j < taken; });
        auto keys = select(is_there, key_of(all(s_numbers)), kOutside);
        RegisterTensor least = bound_of(keys, k, 0);
        RegisterTensor last = full(int32, {1, 1}, std::numeric_limits<int>::max());
        if (auto equal = when(any(count_of(keys >= least) > k)))
          last = last_place(keys == least, places, k - count_of(keys > least), kPlaceBits);
        store_shared(s_bound, value_of(least).reshape({1}));
        store_shared(s_count, zeros(int32, {1}));
        sync();
        move(spread, value_of(keys), places, keys > least || (keys == least && places <= last), 0);
      }
      sync();
      return s_bound.item();
    }

    /// store(mask, rank, numbers, places) of the k: an element's rank is the number of those before it.
    template <class Store>
    void rank(const Int32& k, int most, const Store& store) const {
      auto slot = register_tensor(int32, {1, most}, [](auto, auto j) { return j; });
      const auto first = [&](const SharedTensor& s) {
        return load_shared(s.slice({0}, {most})).reshape({1, most});
      };
      auto numbers = first(s_numbers), places = first(s_places);
      const auto other = [&](const RegisterBase& t) { return t.reshape({most, 1}); };
      auto is_before = other(numbers) > numbers || (other(numbers) == numbers && other(places) < places);
      auto before = sum((is_before && other(slot) < k).to(int32), {.axis = 0, .keep = true});
      store(slot < k, before, numbers, places);
    }

   private:
    void move(const Spread& spread, const RegisterBase& numbers, const RegisterBase& places,
              const RegisterBase& mask, const ScalarArg& kept) const {
      const auto each = [&](const RegisterBase& t) { return t.reshape(spread.shape()); };
      auto count = sum(each(mask.to(int32)), {.keep = true, .axes = {0, 2}});
      RegisterTensor at =
          kept + atomic::add(s_count, count, {zeros(int32, count.shape())}, {.mask = count > 0});
      auto fits = at + count <= kRoom;
      for (int v = 0; v < spread.vectors; ++v)
        for (int i = 0; i < spread.vector; ++i) {
          const auto one = [&](const RegisterBase& t) {
            return each(t).slice({v, 0, i}, {1, spread.threads, 1});
          };
          auto is_moved = one(mask);
          scatter(s_numbers, one(numbers), {at}, {.mask = is_moved && fits});
          scatter(s_places, one(places), {at}, {.mask = is_moved && fits});
          at += is_moved.to(int32);
        }
    }
  };
};
using LongTopK = LongTopKOf<false>;
using HopperLongTopK = LongTopKOf<true>;

}  // namespace imbrex::kernels
