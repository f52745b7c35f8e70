// SPDX-License-Identifier: Apache-2.0
// Kernels that add up something over all rows: a CTA takes many tiles of rows, one after the other, and writes its sum,
// one element for each column, once; another kernel adds up the sums of the CTAs, always in the same order.
#pragma once

#include <algorithm>
#include <vector>

#include "imbrex/kernels/rows/row_tile.h"

namespace imbrex::kernels {

/// All tiles of a call, matrix by matrix, which the CTAs take in turn.
class PersistentRows {
 public:
  static constexpr int kWide = 8192;  ///< wider tiles leave no registers for what can be elsewhere
  /// Of a multiprocessor, with as many registers as there are for them; a CTA has no more.
  static constexpr int kThreads = 512;
  static RowTile tile(const RowShape& shape, int bytes, int thread_bytes) {
    return RowTile(shape, bytes, thread_bytes, kThreads);
  }

  PersistentRows(const RowTile& tile, const RowShape& shape)
      : tile_(tile), shape_(shape), tiles_(tile.count()), count_(shape.matrices * tiles_) {
    max_registers(65536 / kThreads);
  }
  const RowTile& tile() const { return tile_; }
  const RowShape& shape() const { return shape_; }
  const Expr& count() const { return count_; }
  RowPlace place(const ScalarArg& i) const {
    const auto [matrix, tile] = fast_divmod(i, tiles_);
    return {tile * tile_.rows, matrix};
  }

 private:
  const RowTile& tile_;
  const RowShape& shape_;
  Expr tiles_, count_;
};

/// The CTA's tiles of some tensors, which a ring in shared memory gets long before they are needed: a row's sums are
/// waited for, and that time is to be filled with loads.
class AheadRows {
 public:
  AheadRows(const PersistentRows& rows, const std::vector<const RowOperand*>& operands)
      : rows_(rows), operands_(operands) {
    constexpr int kRoom = 152 * 1024, kMostStages = 8;  // bytes of a multiprocessor of sm_80
    if (rows.tile().columns > PersistentRows::kWide) return;
    int stage_bytes = 0;
    for (const RowOperand* operand : operands) {
      stage_bytes += rows.tile().rows * rows.tile().columns * operand->dtype.bytes();
      // Single elements of 16 bits cannot be copied.
      if (std::min(operand->strides.unit, rows.shape().column_unit) * operand->dtype.bytes() < 4) return;
    }
    stages_ = std::min((kRoom * rows.tile().threads() / PersistentRows::kThreads) / stage_bytes, kMostStages);
    if (stages_ < 2) return;
    for (const RowOperand* operand : operands)
      ring_.push_back(shared_tensor(operand->dtype, {stages_, rows.tile().rows, rows.tile().columns}));
    stage_.emplace(stages_ - 1);
    for (int i = 0; i < stages_ - 1; ++i) start(i, block_idx.x + i * grid_dim.x);
  }

  /// Goes on to tile i; the next one is tile i + grid_dim.x.
  void take(const ScalarArg& i) {
    if (ring_.empty()) {
      place_.emplace(rows_.place(i));
      loaded_.clear();
      // All before the first is used; of wide tiles, which leave no registers for it, each when it is used.
      if (rows_.tile().columns <= PersistentRows::kWide)
        for (size_t j = 0; j < operands_.size(); ++j) loaded_.push_back(load(j));
      return;
    }
    copy_async_wait_group(stages_ - 2);
    sync();  // all threads' copies of this tile have arrived, and all threads have read the tile before
    start(*stage_, i + (stages_ - 1) * grid_dim.x);
    *stage_ = select(*stage_ == stages_ - 1, 0, *stage_ + 1);
  }
  /// That tile of tensor j, as float32.
  RegisterValue operator[](size_t j) const {
    if (!ring_.empty()) return load_shared(ring_[j][*stage_]).to(float32);
    return loaded_.empty() ? load(j).to(float32) : loaded_[j].to(float32);
  }

 private:
  RegisterValue load(size_t j) const {
    return load_global(operands_[j]->view(rows_.shape(), place_->matrix), {place_->row, 0},
                       {rows_.tile().rows, rows_.tile().columns});
  }
  /// Copies tile i, if there is one.
  void start(const ScalarArg& stage, const ScalarArg& i) {
    if (auto is_there = when(i < rows_.count())) {
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
  std::optional<Int32> stage_;      // of the tile
  std::optional<RowPlace> place_;   // of it, without a ring
  std::vector<RegisterTensor> loaded_;  // then
};

/// A factor for each column, loaded once; where a thread has many columns, for every tile.
class ColumnFactors {
 public:
  ColumnFactors(const ColumnOperand& operand, const RowTile& tile, const RowShape& shape)
      : operand_(operand), tile_(tile), shape_(shape) {
    if (tile.columns <= PersistentRows::kWide) held_.emplace(load());
  }
  RegisterValue operator()() const { return held_ ? RegisterValue(held_->handle()) : load(); }

 private:
  RegisterValue load() const { return operand_.load(shape_, 0, tile_.columns); }
  const ColumnOperand& operand_;
  const RowTile& tile_;
  const RowShape& shape_;
  std::optional<RegisterTensor> held_;
};

/// A CTA's sum over its rows, one element for each column; of wide tiles, which leave no registers for it, in shared
/// memory.
class ColumnSum {
 public:
  explicit ColumnSum(const RowTile& tile) {
    const Shape shape{tile.rows, tile.columns};
    if (tile.columns <= PersistentRows::kWide) {
      registers_.emplace(zeros(float32, shape));
    } else {
      shared_.emplace(shared_tensor(float32, shape));
      store_shared(*shared_, zeros(float32, shape));
    }
  }
  void add(const RegisterBase& values) {
    if (registers_)
      *registers_ += values;
    else
      store_shared(*shared_, load_shared(*shared_) + values);
  }
  /// Adds a * b.
  void add_product(const RegisterBase& a, const RegisterBase& b) {
    if (registers_)
      *registers_ = fma(a, b, *registers_);
    else
      add(a * b);
  }
  /// Stores it as row block_idx.x of parts [ctas, columns].
  void store(const RowShape& shape, const Ptr<float32>& parts_ptr) const {
    if (shared_) sync();
    auto all = registers_ ? RegisterValue(registers_->handle()) : load_shared(*shared_);
    store_global(global_view(parts_ptr, {grid_dim.x, shape.columns()}), sum(all, {.axis = 0, .keep = true}),
                 {block_idx.x, 0});
  }

 private:
  std::optional<RegisterTensor> registers_;
  std::optional<SharedTensor> shared_;
};

/// y[j] = the sum of parts[:, j].
struct SumOfParts {
  int columns = 32, rows = 32;  // of a tile

  void operator()(Int32 parts, Int32 column_units, int column_unit, Ptr<float32> parts_ptr, DataType dtype,
                  Ptr<> y_ptr) const {
    auto size = column_units * column_unit;
    grid(cdiv(size, columns));
    warps(8);
    auto g_parts = global_view(parts_ptr, {parts, size});
    Int32 column = block_idx.x * columns;
    RegisterTensor total = zeros(float32, {rows, columns});
    for (Int32 row : range(0, parts, rows, {.unroll = 2}))
      total += load_global(g_parts, {row, column}, {rows, columns});
    store_global(global_view(y_ptr, dtype, {size}), sum(total, {.axis = 0}).to(dtype), {column});
  }
};

}  // namespace imbrex::kernels
