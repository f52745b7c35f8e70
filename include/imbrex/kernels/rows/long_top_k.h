// SPDX-License-Identifier: Apache-2.0
// The k largest elements of each row, where rows are long.
#pragma once

#include <bit>
#include <limits>

#include "imbrex/kernels/rows/number_order.h"
#include "imbrex/kernels/rows/row_tile.h"

namespace imbrex::kernels {

/// A CTA reads a row tile by tile. Of what it has read it lists the vectors with an element above a bound that k elements reach, and
/// only when they are many their elements are read once more, and one warp finds the k largest of these and of those kept before:
/// the least of them is the next bound. Only what is above it is listed from there on, since of equal elements those of smaller
/// columns come first; of random elements there are fewer in each tile. The first bound is what k groups of the first tile's
/// elements reach. A tile with more vectors above the bound than there is room for, or one that gives no bound, is taken some
/// columns at a time. `kOverlaps`: starts while the kernel before ends.
template <bool kOverlaps>
struct LongTopKOf {
  static constexpr const char* target = kOverlaps ? "sm_90" : "sm_80";
  static constexpr int kThreads = 256, kElements = 16;   // a thread's of a tile
  static constexpr int kColumns = kThreads * kElements;  // of a tile

  /// `most` is at least k and a power of two. values and indices [rows, k]; a row has k columns or more.
  void operator()(RowShape shape, Int32 k, int most, RowOperand x, DataType values_type, Ptr<> values_ptr,
                  Ptr<int32> indices_ptr) const {
    using namespace number_order;
    warps(kThreads / 32);
    // So that a multiprocessor has four CTAs, of which some load while others compute; before sm_90 a few more are needed.
    max_registers(kOverlaps ? 64 : 88);
    grid(shape.rows);
    if (kOverlaps) {
      griddepcontrol::launch_dependents();
      griddepcontrol::wait();
    }
    const Spread spread(kThreads, kColumns, 16 / x.dtype.bytes());
    const Vectors vectors(spread.vector);
    const Largest largest;
    auto g_x = x.view(shape, 0);
    Int32 row = block_idx.x, tiles = cdiv(shape.columns(), kColumns);
    const auto load = [&](const ScalarArg& tile) {
      return spread.laid_out(load_global(g_x, {row, tile * kColumns}, {1, kColumns}, {.other = kLeast}));
    };
    vectors.clear();
    largest.clear();
    sync();
    Int32 listed = 0, turn = 0;  // vectors; the counter of this tile's
    Int32 kept = 0;              // elements
    Float32 bound = kLeast;
    for (Int32 tile : range(tiles)) {
      RegisterTensor numbers = load(tile).to(float32);
      Int32 next = select(turn == Vectors::kCounters - 1, 0, turn + 1);
      vectors.clear_counter(next);  // all have read it, in the iteration before the one before
      vectors.list(spread, numbers, bound, tile * kColumns, listed, turn);
      sync();
      Int32 reached = listed + vectors.count(turn);
      turn = next;
      if (auto many = when(reached > Vectors::kMany || tile + 1 == tiles || tile == 0)) {
        Int32 is_over = select(reached > kRoom || tile == 0, 1, 0),
              ready = select(is_over == 0, reached, listed);
        for (Loop pass : forever()) {
          Int32 done = 0, at_once = kThreads;
          Float32 above =
              bound;  // of all: vectors of a tile are listed in any order, and so may equal elements come
          for (Loop loop : forever()) {
            loop.break_if(done >= ready);
            const RegisterTensor places = vectors.places(done, min(ready, done + at_once), shape.columns());
            auto elements =
                gather(g_x, {row, places}, places.shape(), {.other = kNan, .mask = places < shape.columns()})
                    .to(float32);
            Int32 taken = kept + largest.add(vectors.spread(), elements, places, elements > above, kept);
            if (auto fits = when(taken <= kRoom)) {
              bound = largest.keep(taken, k, bound);
              kept = min(taken, k);
              done += at_once;
            }
            if (auto over = otherwise()) at_once = (kRoom - most) / spread.vector;
          }
          listed = 0;
          pass.break_if(is_over == 0);
          Float32 nearer = max(bound, below_groups(spread, numbers, k, most));
          listed = vectors.list_again(spread, numbers, nearer, tile * kColumns);
          if (auto still = when(listed > kRoom || nearer == kLeast)) {
            // As many columns at a time as there is room for. In their order, so that none that comes later can equal the bound and
            // count; and so many as make k first, be they minus infinity.
            const int piece = kRoom - most;
            for (Int32 from : range(0, kColumns, piece)) {
              auto column = register_tensor(int32, {1, kColumns}, [](auto, auto j) { return j; });
              auto places = column + tile * kColumns;
              auto is_there = column >= from && column < from + piece && places < shape.columns();
              auto is_large = numbers > bound || full(boolean, {1, 1}, kept < k);
              Int32 taken = kept + largest.add(spread, numbers, places, is_there && is_large, kept);
              bound = largest.keep(taken, k, bound);
              kept = min(taken, k);
            }
            nearer = bound;
            listed = 0;
          }
          bound = nearer;
          is_over = 0;
          ready = listed;
          pass.break_if(ready <= Vectors::kMany && tile + 1 < tiles);
        }
      }
      if (auto few = otherwise()) listed = reached;
    }
    largest.rank(k, most,
                 [&](const RegisterBase& mask, const RegisterBase& rank, const RegisterBase& numbers,
                     const RegisterBase& places) {
                   scatter(global_view(values_ptr, values_type, {shape.rows, k}), numbers.to(values_type),
                           {row, rank}, {.mask = mask});
                   scatter(global_view(indices_ptr, {shape.rows, k}), places, {row, rank}, {.mask = mask});
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

  /// A number that at least k others exceed, and not many more than k of the threads' largest; minus infinity where it is not known.
  static Float32 below_groups(const Spread& spread, const RegisterBase& numbers, const Int32& k, int most) {
    using namespace number_order;
    constexpr int kFewMore = 8;  // share of `most` by which more groups than k may exceed it
    auto s_maxima = shared_tensor(float32, {spread.threads}), s_below = shared_tensor(float32, {1});
    store_shared(s_maxima, max(numbers.reshape(spread.shape()), {.axes = {0, 2}}));
    sync();
    if (auto first = single_warp()) {
      auto keys = key_of(load_shared(s_maxima).reshape({1, spread.threads}));
      RegisterTensor reached = bound_of(keys, k, most / kFewMore);
      store_shared(s_below, max(value_of(before(reached)), kLeast).reshape({1}));
    }
    sync();
    return s_below.item();
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
          s_counters(shared_tensor(int32, {kCounters + 1})) {}

    void clear() const { store_shared(s_counters, zeros(int32, {kCounters + 1})); }
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
    /// The same of a tile alone, in place of all that were listed. Their number.
    Int32 list_again(const Spread& spread, const RegisterBase& numbers, const Float32& bound,
                     const Expr& first_column) const {
      clear_counter(kCounters);
      sync();
      list(spread, numbers, bound, first_column, 0, kCounters);
      sync();
      return count(kCounters);
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

    void clear() const {
      store_shared(s_numbers, zeros(float32, {kRoom}));
      store_shared(s_places, zeros(int32, {kRoom}));
    }
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

    /// Leaves the k largest of the `taken` first, if there are more, by one warp. What k of them reach; `bound` if there are fewer.
    Float32 keep(const Int32& taken, const Int32& k, const Float32& bound) const {
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
        // A bound may be below minus infinity, where it is no number.
        store_shared(s_bound, max(value_of(least), kLeast).reshape({1}));
        store_shared(s_count, zeros(int32, {1}));
        sync();
        move(spread, value_of(keys), places, is_there && (keys > least || (keys == least && places <= last)),
             0);
      }
      sync();
      return select(taken >= k, s_bound.item(), bound);
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
