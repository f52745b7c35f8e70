// SPDX-License-Identifier: Apache-2.0
// Rows that no thread's registers could hold, held in the shared memory of a cluster's CTAs: each CTA has a part, which it reads
// from memory once and computes with as often as it likes. While a CTA waits for its part, another one of the multiprocessor
// computes with its own.
#pragma once

#include <limits>

#include "imbrex/kernels/rows/row_tile.h"

namespace imbrex::kernels {

/// How the CTAs of a cluster share a row.
struct HeldParts {
  static constexpr int kThreads = 512;
  static constexpr int kMostCtas = 8;  ///< of a cluster, on every chip that has them
  static constexpr int64_t kSlab = int64_t{kThreads} * FlatRow::kUnit;

  int ctas, columns;  ///< of a part: some slabs

  /// For rows of so many columns, where a CTA has so many bytes of shared memory: no CTAs where they do not fit.
  static HeldParts of(int64_t columns, int bytes, int64_t shared_bytes) {
    constexpr int64_t kForSums = 4096, kCtasOfMultiprocessor = 2;
    const int64_t room = (shared_bytes - kForSums) / kCtasOfMultiprocessor / bytes / kSlab * kSlab;
    if (room == 0) return {0, 0};
    const int64_t ctas = (columns + room - 1) / room;
    if (ctas > kMostCtas) return {0, 0};
    const int64_t part = (columns + ctas - 1) / ctas;
    return {static_cast<int>(ctas), static_cast<int>((part + kSlab - 1) / kSlab * kSlab)};
  }
};

/// A row of a dense matrix that begins at a multiple of 16 bytes. All CTAs of the cluster have the same row.
class HeldRow {
 public:
  /// Sets grid, cluster and warps, and starts to read; `pointer` is that of the matrix.
  HeldRow(const RowShape& shape, int ctas, DataType dtype, const Ptr<>& pointer)
      : ctas_(ctas),
        slabs_(static_cast<int>(shape.tile_columns / HeldParts::kSlab)),
        row_(block_idx.x / ctas),
        rank_(block_idx.x - row_ * ctas),
        flat_(shape.tile_columns / FlatRow::kUnit, shape, row_),
        begin_(flat_.first() + rank_ * flat_.units()),
        edges_(begin_edges(shape, ctas, dtype, pointer)),
        s_units_(shared_tensor(dtype, {flat_.units(), FlatRow::kUnit})) {
    const GlobalTensor units = flat_.view(dtype, pointer);
    for (int i = 0; i < slabs_; ++i) {
      copy_async(units, s_slab(i), {begin_ + i * HeldParts::kThreads, 0});
      copy_async_commit_group();
    }
  }

  const Int32& row() const { return row_; }
  /// The CTA's number in the cluster.
  const Int32& rank() const { return rank_; }
  const FlatRow& flat() const { return flat_; }
  int slabs() const { return slabs_; }
  /// Waits until a slab has arrived; after those before it.
  void wait_for(int slab) const {
    copy_async_wait_group(slabs_ - 1 - slab);
    sync();
  }
  /// A slab, [threads, 8]; what is beyond the row is 0.
  RegisterValue slab(int i) const {
    RegisterValue loaded = load_shared(s_slab(i));
    annotate_layout(loaded, layout::spatial({HeldParts::kThreads, 1}) * layout::local({1, FlatRow::kUnit}));
    return loaded.to(float32);
  }
  /// Whether its units are in the row, [threads, 1].
  RegisterValue is_in_row(int i) const {
    const Expr left = flat_.last() - begin_ - i * HeldParts::kThreads;
    return register_tensor(boolean, {HeldParts::kThreads, 1}, [&](auto unit, auto) { return unit < left; });
  }
  /// Where the slab begins among the units of the matrix.
  Expr unit_of(int i) const { return begin_ + i * HeldParts::kThreads; }
  /// What lies before and behind the units, [1, 16], which the first CTA has; minus infinity elsewhere.
  const RegisterTensor& edges() const { return edges_; }
  /// Whether the CTA has this column of the row, [1, 1].
  RegisterValue has(const RegisterBase& column) const {
    auto place = column - flat_.head();
    auto is_edge = place < 0 || place >= (flat_.last() - flat_.first()) * FlatRow::kUnit;
    return select(is_edge, 0, place / (flat_.units() * FlatRow::kUnit)) == rank_;
  }

 private:
  RegisterTensor begin_edges(const RowShape& shape, int ctas, DataType dtype, const Ptr<>& pointer) const {
    grid(shape.rows * ctas);
    if (ctas > 1) cluster(ctas);
    warps(HeldParts::kThreads / 32);
    constexpr float kLeast = -std::numeric_limits<float>::infinity();
    auto matrix = global_view(pointer, dtype, {shape.rows, shape.columns()});
    auto loaded = flat_.load_edges(matrix, kLeast).to(float32);
    return RegisterTensor(select(full(boolean, {1, 2 * FlatRow::kUnit}, rank_ == 0), loaded, kLeast));
  }
  SharedTensor s_slab(int i) const {
    return s_units_.slice({i * HeldParts::kThreads, 0}, {HeldParts::kThreads, FlatRow::kUnit});
  }

  int ctas_, slabs_;
  Int32 row_, rank_;
  FlatRow flat_;
  Int32 begin_;
  RegisterTensor edges_;
  SharedTensor s_units_;
};

/// The maximum of a held row and the sum of exp(x - maximum), [1, 1], the same in all CTAs of the cluster.
struct HeldExponents {
  RegisterTensor maximum, sum;

  static HeldExponents of(const HeldRow& row, int ctas) {
    constexpr float kLowest = std::numeric_limits<float>::lowest();
    SharedTensor s_parts = shared_tensor(float32, {ctas, 2});
    RegisterTensor maximum = full(float32, {HeldParts::kThreads, 1}, kLowest),
                   total = zeros(float32, {HeldParts::kThreads, 1});
    for (int i = 0; i < row.slabs(); ++i) {
      row.wait_for(i);
      auto x = row.slab(i);
      auto in_row = row.is_in_row(i);
      RegisterTensor now = max(maximum, select(in_row, max(x, {.axis = 1, .keep = true}), kLowest));
      total = total * exp(maximum - now) +
              select(in_row, imbrex::sum(exp(x - now), {.axis = 1, .keep = true}), 0.0f);
      maximum = now;
    }
    RegisterTensor of_part =
        max(max(maximum, {.axis = 0, .keep = true}), max(row.edges(), {.axis = 1, .keep = true}));
    RegisterTensor total_of_part = imbrex::sum(total * exp(maximum - of_part), {.axis = 0, .keep = true}) +
                                   imbrex::sum(exp(row.edges() - of_part), {.axis = 1, .keep = true});
    if (ctas == 1) return {of_part, total_of_part};
    cluster_sync();  // all CTAs have begun
    for (int i = 0; i < ctas; ++i) {
      const SharedTensor place = s_parts[row.rank()];
      store_remote_shared(place.slice({0}, {1}), of_part.reshape({1}), i);
      store_remote_shared(place.slice({1}, {1}), total_of_part.reshape({1}), i);
    }
    cluster_sync();
    auto parts = load_shared(s_parts);
    auto maxima = parts.slice({0, 0}, {ctas, 1}), totals = parts.slice({0, 1}, {ctas, 1});
    RegisterTensor of_row = max(maxima, {.axis = 0, .keep = true});
    RegisterTensor total_of_row = imbrex::sum(totals * exp(maxima - of_row), {.axis = 0, .keep = true});
    return {of_row, total_of_row};
  }
};

}  // namespace imbrex::kernels
