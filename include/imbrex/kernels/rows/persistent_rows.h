// SPDX-License-Identifier: Apache-2.0
// Kernels that add up something over all rows: a CTA takes many tiles of rows, one after the other, and writes its sum,
// one element for each column, once; another kernel adds up the sums of the CTAs, always in the same order.
#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include "imbrex/kernels/rows/row_tile.h"

namespace imbrex::kernels {

/// All tiles of a call, matrix by matrix, which the CTAs take in turn, and how the threads of a CTA share one: in slabs of
/// neighbouring columns, of which each thread has a vector.
///
/// Multiprocessors that memory serves sooner are ready sooner. The last CTAs (`late_ctas`, more than run at once) share the last
/// eighth of the tiles, and begin where others have ended. Which CTA has which tile is always the same, and so are its sums.
class PersistentRows {
 public:
  /// Of a multiprocessor, with as many registers as there are for them; a CTA has no more.
  static constexpr int kThreads = 512;

  static int threads(int columns, int bytes, int thread_bytes) {
    int count = columns / std::max(1, thread_bytes / bytes);
    while (count > kThreads) count /= 2;  // and not the most: all have as many vectors
    return std::max(count, 128);
  }
  static int rows(int columns, int bytes, int thread_bytes) {
    return std::max(1, threads(columns, bytes, thread_bytes) * (thread_bytes / bytes) / columns);
  }

  static constexpr int kLateShare = 8;  ///< late CTAs have one of so many tiles

  /// Whether rows of a tile this wide fit the registers, where there is shared memory for tiles that are ahead (`has_room`)
  /// and where there is none; else they are WideRows.
  static bool can_take(int columns, bool has_room) { return columns <= (has_room ? 8192 : 4096); }

  /// `bytes` of an element of x, `most_bytes` of the widest operand's. `is_one_matrix`: shape.matrices is 1, so that places
  /// cost no division.
  PersistentRows(const RowShape& shape, bool is_one_matrix, int bytes, int most_bytes, int thread_bytes,
                 const Int32& late_ctas)
      : threads_(threads(shape.tile_columns, bytes, thread_bytes)),
        tile_rows_(rows(shape.tile_columns, bytes, thread_bytes)),
        columns_(shape.tile_columns),
        is_one_matrix_(is_one_matrix),
        shape_(shape),
        tiles_(cdiv(shape.rows, tile_rows_)),
        count_(is_one_matrix ? tiles_ : shape.matrices * tiles_) {
    Int32 early_ctas = grid_dim.x - late_ctas;
    Int32 late = select(late_ctas > 0, count_ / kLateShare, 0);
    Int32 is_late = cast<int32>(block_idx.x >= early_ctas);
    first_ = block_idx.x + select(is_late != 0, count_ - late - early_ctas, 0);
    end_ = count_ - select(is_late != 0, 0, late);
    step_ = select(is_late != 0, late_ctas, early_ctas);
    constexpr int kVectorBytes = 16;
    vector_ = std::min(kVectorBytes / most_bytes, columns_ / per_row());
    warps(threads_ / 32);
    max_registers(65536 / kThreads);
  }

  int threads() const { return threads_; }
  int tile_rows() const { return tile_rows_; }
  int columns() const { return columns_; }
  int per_row() const { return threads_ / tile_rows_; }  ///< threads that share a row
  int warps_per_row() const { return std::max(1, per_row() / 32); }
  /// Whether registers are left for more than sums.
  bool are_few_columns() const { return columns_ / per_row() <= 16; }
  int slab_columns() const { return per_row() * vector_; }
  int slabs() const { return columns_ / slab_columns(); }
  Shape slab() const { return {tile_rows_, slab_columns()}; }
  /// Of a slab.
  layout::Layout layout() const {
    return layout::spatial({tile_rows_, per_row()}) * layout::local({1, vector_});
  }
  /// [rows, parts, count], parts a power of two. Each thread of a row has all of few parts; of more, each warp has them,
  /// neighbouring lanes those of a part.
  layout::Layout parts_layout(int parts, int count) const {
    using layout::Axis;
    if (has_all_parts(parts))
      return {{tile_rows_, parts, count},
              {{{tile_rows_, per_row(), Axis::kThread}},
               {{parts, count, Axis::kRegister}},
               {{count, 1, Axis::kRegister}}},
              {{per_row(), 1, Axis::kThread}}};
    const int of_lanes = std::min(parts, 32 / count), lanes = of_lanes * count;
    return {{tile_rows_, parts, count},
            {{{tile_rows_, per_row(), Axis::kThread}},
             {{parts / of_lanes, 1, Axis::kRegister}, {of_lanes, count, Axis::kThread}},
             {{count, 1, Axis::kThread}}},
            {{per_row() / lanes, lanes, Axis::kThread}}};
  }
  /// Adding up few parts takes no longer than exchanging them between lanes, and nothing waits for that.
  static bool has_all_parts(int parts) { return parts <= 8; }

  /// [rows, least_columns], the least of a tile, which each warp of a row reads for itself.
  static constexpr int kLeastColumns = 32;
  layout::Layout least_layout() const {
    using layout::Axis;
    const int lanes = std::min(per_row(), kLeastColumns);
    return {{tile_rows_, kLeastColumns},
            {{{tile_rows_, per_row(), Axis::kThread}},
             {{kLeastColumns / lanes, 1, Axis::kRegister}, {lanes, 1, Axis::kThread}}},
            {{per_row() / lanes, lanes, Axis::kThread}}};
  }

  const RowShape& shape() const { return shape_; }
  /// The CTA's tiles: every step()th from first() on, up to end().
  const Int32& first() const { return first_; }
  const Int32& end() const { return end_; }
  const Int32& step() const { return step_; }
  RowPlace place(const ScalarArg& i) const {
    if (is_one_matrix_) return {i * tile_rows_, 0};
    const auto [matrix, tile] = fast_divmod(i, tiles_);
    return {tile * tile_rows_, matrix};
  }
  /// A variable for each slab.
  std::vector<RegisterTensor> zero_slabs() const {
    std::vector<RegisterTensor> all;
    for (int i = 0; i < slabs(); ++i) {
      all.emplace_back(zeros(float32, slab()));
      annotate_layout(all.back(), layout());
    }
    return all;
  }

 private:
  int threads_, tile_rows_, columns_, vector_;
  bool is_one_matrix_;
  const RowShape& shape_;
  Expr tiles_, count_;
  Int32 first_ = 0, end_ = 0, step_ = 0;
};

/// The CTA's tiles of some tensors, which a ring in shared memory gets long before they are needed. Where there is no room
/// for it, and where elements are too narrow to be copied, tiles are loaded when they are needed.
class AheadRows {
 public:
  /// Tiles of so many bytes that fit in `room`, a multiprocessor's, for CTAs of so many threads; 0: too few.
  static int stages(int tile_bytes, int threads, int room) {
    constexpr int kLeast = 3, kMost = 8;
    const int count = std::min(room / (PersistentRows::kThreads / threads) / tile_bytes, kMost);
    return count < kLeast ? 0 : count;
  }

  /// Whether elements can be copied so, of rows of which so many are neighbours: single ones of 16 bits cannot.
  static bool can_copy(DataType dtype, int unit, int column_unit) {
    return std::min(unit, column_unit) * dtype.bytes() >= 4;
  }

  /// `room`: bytes of a multiprocessor's shared memory for it.
  AheadRows(const PersistentRows& rows, const std::vector<const RowOperand*>& operands, int room)
      : rows_(rows), operands_(operands) {
    int stage_bytes = 0;
    bool can_be_copied = true;
    for (const RowOperand* operand : operands) {
      stage_bytes += rows.tile_rows() * rows.columns() * operand->dtype.bytes();
      can_be_copied =
          can_be_copied && can_copy(operand->dtype, operand->strides.unit, rows.shape().column_unit);
    }
    stages_ = can_be_copied ? stages(stage_bytes, rows.threads(), room) : 0;
    require(PersistentRows::can_take(rows.columns(), stages_ > 0),
            "tiles of {} columns leave no registers: take the kernel of wide rows", rows.columns());
    if (stages_ == 0) return;
    for (const RowOperand* operand : operands)
      ring_.push_back(shared_tensor(operand->dtype, {stages_, rows.tile_rows(), rows.columns()}));
    stage_.emplace(0);
    for (int i = 0; i < stages_ - 1; ++i) start(i, rows.first() + i * rows.step());
  }

  /// Waits for the first tile.
  void begin() const { wait(stages_ - 2); }
  /// Before tile i is computed with: the one behind it has arrived, and all threads are done with the one before it.
  void advance(const ScalarArg& i) {
    wait(stages_ - 3);
    if (!ring_.empty())
      start(select(*stage_ == 0, stages_ - 1, *stage_ - 1), i + (stages_ - 1) * rows_.step());
  }
  /// After tile i.
  void end() {
    if (!ring_.empty()) *stage_ = next_stage();
  }

  /// A slab of tensor j of tile i, the present one, or of the one behind it; float32.
  RegisterValue slab(size_t j, int number, const ScalarArg& i, bool is_next) const {
    return load(j, number * rows_.slab_columns(), rows_.slab_columns(), rows_.layout(), i, is_next);
  }
  /// The first columns of it.
  RegisterValue least_columns(size_t j, const ScalarArg& i, bool is_next) const {
    return load(j, 0, PersistentRows::kLeastColumns, rows_.least_layout(), i, is_next);
  }

 private:
  RegisterValue load(size_t j, int column, int columns, const layout::Layout& layout, const ScalarArg& i,
                     bool is_next) const {
    const Shape shape{rows_.tile_rows(), columns};
    if (ring_.empty()) {
      const RowPlace at = rows_.place(i);
      RegisterValue values =
          load_global(operands_[j]->view(rows_.shape(), at.matrix), {at.row, column}, shape);
      annotate_layout(values, layout);
      return values.to(float32);
    }
    const Expr stage = is_next ? next_stage() : *stage_ + 0;
    RegisterValue values = load_shared(ring_[j][stage].slice({0, column}, shape));
    annotate_layout(values, layout);
    return values.to(float32);
  }
  Expr next_stage() const { return select(*stage_ == stages_ - 1, 0, *stage_ + 1); }
  void wait(int pending) const {
    if (!ring_.empty()) copy_async_wait_group(pending);
    sync();
  }
  /// Copies tile i, if there is one.
  void start(const ScalarArg& stage, const ScalarArg& i) {
    if (auto is_there = when(i < rows_.end())) {
      const RowPlace at = rows_.place(i);
      for (size_t j = 0; j < ring_.size(); ++j)
        copy_async(operands_[j]->view(rows_.shape(), at.matrix), ring_[j][stage], {at.row, 0});
    }
    copy_async_commit_group();  // of nothing too: what is waited for is a number of groups
  }

  const PersistentRows& rows_;
  std::vector<const RowOperand*> operands_;
  int stages_ = 0;
  std::vector<SharedTensor> ring_;  // of each tensor; none where the tiles are loaded when they are needed
  std::optional<Int32> stage_;      // of the present tile
};

/// Adds to each of the sums the tile, or the product of both tiles; the first ones are the sums.
struct Term {
  TileArg tile;
  std::optional<TileArg> times = {};
};
inline void add_terms(std::vector<RegisterTensor>& sums, const std::vector<Term>& terms) {
  const bool are_first = sums.empty();
  for (size_t i = 0; i < terms.size(); ++i) {
    const auto& [tile, times] = terms[i];
    if (are_first)
      sums.emplace_back(times ? tile * *times : RegisterValue(tile.handle));
    else
      sums[i] = times ? fma(tile, *times, sums[i]) : tile + sums[i];
  }
}

/// Sums along the rows of a tile, of two or four tensors at once: warps leave theirs in shared memory, and after the sync() of
/// the next tile each warp adds up what those of its row left. So a tile costs one barrier, and no thread waits for it while
/// it could compute.
class RowSums {
 public:
  RowSums(const PersistentRows& rows, int count)
      : rows_(rows),
        count_(count),
        parts_(static_cast<int>(std::bit_ceil(static_cast<unsigned>(rows.warps_per_row())))) {
    if (rows.warps_per_row() > 1) {
      const Shape shape{2, rows.tile_rows(), parts_, count};
      s_parts_.emplace(shared_tensor(float32, shape));
      if (parts_ != rows.warps_per_row()) store_shared(*s_parts_, zeros(float32, shape));
    }
    for (int i = 0; i < count && !s_parts_; ++i) {
      ready_.emplace_back(zeros(float32, {rows.tile_rows(), 1}));
      next_.emplace_back(zeros(float32, {rows.tile_rows(), 1}));
    }
  }
  /// Of the next tile: each a slab, whose columns are to be added up.
  void put(const std::vector<RegisterTensor>& terms) {
    if (!s_parts_) {
      for (size_t i = 0; i < terms.size(); ++i) next_[i] = sum(terms[i], {.axis = 1, .keep = true});
      return;
    }
    // Lanes exchange one tensor for another, until each has a quarter, or half, of the lanes' numbers of one of them.
    std::vector<RegisterValue> left;
    for (const RegisterTensor& term : terms) left.push_back(of_lanes(term));
    int lanes = kWarp;
    for (size_t n = terms.size() / 2; n >= 1; n /= 2) {
      lanes /= 2;
      std::vector<RegisterValue> merged;
      for (size_t i = 0; i < n; ++i) merged.push_back(merge(left[i], left[i + n], lanes));
      left.swap(merged);
    }
    const int rows = rows_.tile_rows(), warps = rows_.warps_per_row();
    store_shared((*s_parts_)[1 - slot_].slice({0, 0, 0}, {rows, warps, count_}),
                 sum(left[0].reshape({rows, warps, count_, lanes}), {.axis = 3}));
  }
  /// Of the present one, each [rows, 1].
  std::vector<RegisterTensor> get() const {
    std::vector<RegisterTensor> all;
    if (!s_parts_) {
      for (const RegisterTensor& sum : ready_) all.emplace_back(sum);
      return all;
    }
    auto parts = load_shared((*s_parts_)[slot_]);
    annotate_layout(parts, rows_.parts_layout(parts_, count_));
    auto sums = sum(parts, {.axis = 1});
    for (int i = 0; i < count_; ++i) {
      if (PersistentRows::has_all_parts(parts_)) {
        all.emplace_back(sums.slice({0, i}, {rows_.tile_rows(), 1}));
        continue;
      }
      auto is_it = register_tensor(boolean, {1, count_}, [&](auto, auto j) { return j == i; });
      all.emplace_back(sum(select(is_it, sums, 0.0f), {.axis = 1, .keep = true}));
    }
    return all;
  }
  /// The next tile is the present one.
  void advance() {
    if (s_parts_) slot_ = 1 - slot_;
    for (size_t i = 0; i < ready_.size(); ++i) ready_[i] = next_[i];
  }

 private:
  static constexpr int kWarp = 32;

  /// What each lane has of the sum, [rows, warps, 32].
  RegisterValue of_lanes(const RegisterBase& term) const {
    const int rows = rows_.tile_rows(), threads = rows_.per_row();
    return sum(term.reshape({rows, threads, rows_.slab_columns() / threads}), {.axis = 2})
        .reshape({rows, threads / kWarp, kWarp});
  }
  /// The sums of two lanes `mask` apart, of `a` in the lower one and of `b` in the upper one.
  static RegisterValue merge(const RegisterBase& a, const RegisterBase& b, int mask) {
    auto is_upper =
        register_tensor(boolean, {1, 1, kWarp}, [&](auto, auto, auto lane) { return (lane & mask) != 0; });
    return select(is_upper, b, a) + exchange(select(is_upper, a, b), 2, mask);
  }

  const PersistentRows& rows_;
  int count_, parts_;
  std::optional<SharedTensor> s_parts_;  // [slot, row, warp, sum]
  Int32 slot_ = 0;
  std::vector<RegisterTensor> ready_, next_;
};

/// A factor for each column, loaded once; where a thread has many columns, for every tile.
class ColumnFactors {
 public:
  ColumnFactors(const ColumnOperand& operand, const PersistentRows& rows) : operand_(operand), rows_(rows) {
    if (!rows.are_few_columns()) return;
    for (int i = 0; i < rows.slabs(); ++i) held_.emplace_back(load(i));
  }
  RegisterValue slab(int i) const {
    return held_.empty() ? load(i) : RegisterValue(held_[static_cast<size_t>(i)].handle());
  }

 private:
  RegisterValue load(int i) const {
    return operand_.load(rows_.shape(), i * rows_.slab_columns(), rows_.slab_columns());
  }
  const ColumnOperand& operand_;
  const PersistentRows& rows_;
  std::vector<RegisterTensor> held_;
};

/// A CTA's sum over its rows, one element for each column.
class ColumnSum {
 public:
  explicit ColumnSum(const PersistentRows& rows) : rows_(rows), slabs_(rows.zero_slabs()) {}
  void add(int slab, const RegisterBase& values) { slabs_[static_cast<size_t>(slab)] += values; }
  /// Adds a * b.
  void add_product(int slab, const RegisterBase& a, const RegisterBase& b) {
    RegisterTensor& total = slabs_[static_cast<size_t>(slab)];
    total = fma(a, b, total);
  }
  /// Stores it as row block_idx.x of parts [ctas, columns].
  void store(const Ptr<float32>& parts_ptr) const {
    auto g_parts = global_view(parts_ptr, {grid_dim.x, rows_.shape().columns()});
    for (int i = 0; i < rows_.slabs(); ++i)
      store_global(g_parts, sum(slabs_[static_cast<size_t>(i)], {.axis = 0, .keep = true}),
                   {block_idx.x, i * rows_.slab_columns()});
  }

 private:
  const PersistentRows& rows_;
  std::vector<RegisterTensor> slabs_;
};

/// Rows that are too wide for a thread's registers, which CTAs take in turn: tiles are read where they are used, sums are
/// in shared memory.
class WideRows {
 public:
  /// Sets grid, warps and registers.
  WideRows(const RowShape& shape, const Int32& ctas, int bytes, int thread_bytes)
      : shape_(shape),
        tile_(shape, bytes, thread_bytes, PersistentRows::kThreads),
        tiles_(tile_.count()),
        count_(shape.matrices * tiles_) {
    grid(ctas);
    max_registers(65536 / PersistentRows::kThreads);
  }
  const RowTile& tile() const { return tile_; }
  const Expr& count() const { return count_; }
  RowPlace place(const ScalarArg& i) const {
    const auto [matrix, tile] = fast_divmod(i, tiles_);
    return {tile * tile_.rows, matrix};
  }
  RegisterValue load(const RowOperand& from, const RowPlace& at) const {
    return load_global(from.view(shape_, at.matrix), {at.row, 0}, {tile_.rows, tile_.columns}).to(float32);
  }
  RegisterValue load(const ColumnOperand& from) const { return from.load(shape_, 0, tile_.columns); }
  SharedTensor sum_of_columns() const {
    SharedTensor sums = shared_tensor(float32, {tile_.rows, tile_.columns});
    store_shared(sums, zeros(float32, {tile_.rows, tile_.columns}));
    return sums;
  }
  static void add(const SharedTensor& sums, const RegisterBase& values) {
    store_shared(sums, load_shared(sums) + values);
  }
  /// Stores them as row block_idx.x of parts [ctas, columns].
  void store(const SharedTensor& sums, const Ptr<float32>& parts_ptr) const {
    sync();
    store_global(global_view(parts_ptr, {grid_dim.x, shape_.columns()}),
                 sum(load_shared(sums), {.axis = 0, .keep = true}), {block_idx.x, 0});
  }

 private:
  const RowShape& shape_;
  RowTile tile_;
  Expr tiles_, count_;
};

/// y[j] = the sum of parts[:, j], for one or two tensors of parts.
template <bool kOverlaps>
struct SumsOfPartsOf {
  static constexpr const char* target = kOverlaps ? "sm_90" : "sm_80";
  int columns = 32, rows = 128;  // of a tile

  void operator()(Int32 parts, Int32 column_units, int column_unit, int tensors, Ptr<float32> parts_ptr,
                  DataType dtype, Ptr<> y_ptr, Ptr<float32> more_parts_ptr, DataType more_dtype,
                  Ptr<> more_y_ptr) const {
    auto size = column_units * column_unit;
    grid(cdiv(size, columns), tensors);
    warps(8);
    if (kOverlaps) griddepcontrol::wait();
    Int32 column = block_idx.x * columns;
    const auto add_up = [&](const Ptr<float32>& from, DataType type, const Ptr<>& to) {
      auto g_parts = global_view(from, {parts, size});
      RegisterTensor total = zeros(float32, {rows, columns});
      for (Int32 row : range(0, parts, rows)) total += load_global(g_parts, {row, column}, {rows, columns});
      store_global(global_view(to, type, {size}), sum(total, {.axis = 0}).to(type), {column});
    };
    if (tensors == 1) return add_up(parts_ptr, dtype, y_ptr);
    if (auto first = when(block_idx.y == 0)) add_up(parts_ptr, dtype, y_ptr);
    if (auto second = otherwise()) add_up(more_parts_ptr, more_dtype, more_y_ptr);
  }
};
using SumsOfParts = SumsOfPartsOf<false>;
using HopperSumsOfParts = SumsOfPartsOf<true>;

}  // namespace imbrex::kernels
