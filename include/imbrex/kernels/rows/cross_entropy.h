// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of rows of logits with the class of each, and its gradient, in one launch.
#pragma once

#include "imbrex/kernels/rows/softmax_rows.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

/// loss[i] = log(the sum of exp(logits[i, :])) - logits[i, target[i]], and its gradient
///
///   dlogits[i, j] = scale * (softmax(logits[i, :])[j] - (j == target[i] ? 1 : 0))
///
/// logits [rows, columns], float16, bfloat16 or float32, columns neighbours in memory, any number of them; target [rows],
/// int32, dense; loss [rows], float32, dense, or null; dlogits like logits, of any of these types, or null; it may be the
/// logits themselves. Rows whose target is negative count for nothing: their loss and gradient are 0. A target beyond the
/// columns has the loss of a logit of minus infinity. `scale` is what the loss is multiplied by afterwards: 1 / rows for
/// a mean. Otherwise as rms_norm(). The logits are read from memory once and, for the gradient, a second time, from the
/// L2 cache where the rows of all CTAs fit.
LaunchReport cross_entropy(const DeviceTensor& logits, const DeviceTensor& target, const DeviceTensor& loss,
                           const DeviceTensor& dlogits = {}, float scale = 1, const Stream& stream = {},
                           SourceLocation where = SourceLocation::current());

namespace kernels {

/// The logit of each row's target, and which rows count.
struct TargetLogits {
  RegisterTensor target, logit;  // [rows, 1]

  static TargetLogits of(const RowShape& shape, const GlobalTensor& logits, const Ptr<int32>& target_ptr,
                         const Int32& row, int rows) {
    RegisterTensor target =
        load_global(global_view(target_ptr, {shape.rows}), {row}, {rows}, {.other = -1}).reshape({rows, 1});
    auto row_of = register_tensor(int32, {rows, 1}, [&](auto i, auto) { return row + i; });
    auto own = gather(
        logits, {row_of, target}, {rows, 1},
        {.other = -std::numeric_limits<float>::infinity(), .mask = target >= 0 && target < shape.columns()});
    return {target, own.to(float32)};
  }
  RegisterValue counts() const { return target >= 0; }
};

struct CrossEntropy {
  int thread_bytes = 64;  // of the logits, per thread

  static auto space() { return Space<CrossEntropy>().choose<&CrossEntropy::thread_bytes>({64, 32, 128}); }

  void operator()(RowShape shape, bool is_whole, Float32 gradient_scale, RowOperand logits,
                  Ptr<int32> target_ptr, bool has_loss, Ptr<float32> loss_ptr, bool has_gradient,
                  RowOperand gradient) const {
    const RowTile tile(shape, logits.dtype.bytes(), is_whole, thread_bytes);
    const RowPlace at = tile.place_of_cta();
    const Int32& row = at.row;
    auto g_logits = logits.view(shape, 0);
    // The logits of the targets, before the gradient may take their place.
    const auto targets = TargetLogits::of(shape, g_logits, target_ptr, row, tile.rows);
    const TileRows values(tile, g_logits, row, -std::numeric_limits<float>::infinity());
    const RowExponents exponents = RowExponents::of(tile, values);
    if (has_loss) {
      auto loss = log(exponents.sum) + exponents.maximum - targets.logit;
      store_global(global_view(loss_ptr, {shape.rows}),
                   select(targets.counts(), loss, 0.0f).reshape({tile.rows}), {row});
    }
    if (has_gradient) {
      if (has_loss) sync();  // the gradient may be written where the logits of the targets were read
      RegisterTensor scale = select(targets.counts(), gradient_scale / exponents.sum, 0.0f);
      RegisterTensor of_target = select(targets.counts(), gradient_scale, 0.0f);
      auto g_gradient = gradient.view(shape, 0);
      tile.each_part([&](const ScalarArg& column) {
        auto is_target = register_tensor(int32, {1, tile.columns},
                                         [&](auto, auto j) { return column + j; }) == targets.target;
        auto softmax = exp(values.at(column) - exponents.maximum) * scale;
        store_global(g_gradient, (softmax - select(is_target, of_target, 0.0f)).to(gradient.dtype),
                     {row, column});
      });
    }
  }
};

/// The same of long rows, each by a cluster of CTAs that keep it in shared memory: it is read once. Clusters are persistent,
/// and load their next row while they work on one.
struct CrossEntropyOfClusters {
  static constexpr const char* target = "sm_90";
  static constexpr int kThreads = 256, kCtas = 2;  ///< of a CTA; CTAs of a multiprocessor
  static constexpr int kMostBytes = 2 * 20480;     ///< of a CTA's part of a row, of which there are two
  static constexpr int kMostCtas = 8;              ///< of a cluster

  /// CTAs for rows of so many bytes.
  static int ctas_for(int64_t bytes) {
    return static_cast<int>(std::bit_ceil(static_cast<uint64_t>((bytes + kMostBytes - 1) / kMostBytes)));
  }
  /// The width of a CTA's part: a multiple of what its threads take at a time.
  static int tile_columns_of(int64_t columns, int ctas) {
    const int64_t units = int64_t{ctas} * kStep;
    return static_cast<int>((columns + units - 1) / units * kStep);
  }

  void operator()(RowShape shape, int ctas, Int32 clusters, Float32 gradient_scale, RowOperand logits,
                  Ptr<int32> target_ptr, bool has_loss, Ptr<float32> loss_ptr, RowOperand gradient) const {
    constexpr int kStages = 2;
    const int steps = shape.tile_columns / kStep;
    grid(clusters * ctas);
    cluster(ctas);
    warps(kThreads / 32);
    max_registers(65536 / (kCtas * kThreads));
    Int32 rank = cluster_rank(), first = rank * shape.tile_columns, first_row = block_idx.x / ctas;
    auto g_logits = logits.view(shape, 0), g_gradient = gradient.view(shape, 0);
    auto s_parts = shared_tensor(logits.dtype, {kStages, steps, 1, kStep});
    auto s_maxima = shared_tensor(float32, {kStages, ctas, 1}),
         s_sums = shared_tensor(float32, {kStages, ctas, 1});
    const auto start = [&](const ScalarArg& stage, const ScalarArg& row) {
      if (auto is_there = when(row < shape.rows))
        for (auto i : range(steps)) copy_async(g_logits, s_parts[stage][i], {row, first + i * kStep});
      copy_async_commit_group();
    };
    cluster_sync();  // all CTAs have started
    Int32 stage = 0;
    start(0, first_row);
    for (Int32 row : range(first_row, shape.rows, clusters)) {
      const auto targets = TargetLogits::of(shape, g_logits, target_ptr, row, 1);
      copy_async_wait_group(0);
      sync();  // all threads' copies have arrived, and all have read the row before
      start(1 - stage, row + clusters);
      const auto columns_of = [&](const ScalarArg& i) {
        Expr column = first + i * kStep;
        return register_tensor(int32, {1, kStep}, [&](auto, auto j) { return column + j; });
      };
      const auto values = [&](const ScalarArg& i) {  // beyond the row the least number
        return select(columns_of(i) < shape.columns(), load_shared(s_parts[stage][i]).to(float32),
                      std::numeric_limits<float>::lowest());
      };
      RegisterTensor most = values(0);
      for (auto i : range(1, steps)) most = max(most, values(i));
      RegisterTensor maximum = max(most, {.axis = 1, .keep = true});
      RegisterTensor sums = exp(values(0) - maximum);
      for (auto i : range(1, steps)) sums += exp(values(i) - maximum);
      RegisterTensor total = sum(sums, {.axis = 1, .keep = true});
      if (ctas > 1) {
        for (int cta = 0; cta < ctas; ++cta) {
          store_remote_shared(s_maxima[stage].slice({rank, 0}, {1, 1}), maximum, cta);
          store_remote_shared(s_sums[stage].slice({rank, 0}, {1, 1}), total, cta);
        }
        cluster_sync();  // all parts are here; the logits of the targets have been read
        auto maxima = load_shared(s_maxima[stage]);
        maximum = max(maxima, {.axis = 0, .keep = true});
        total = sum(load_shared(s_sums[stage]) * exp(maxima - maximum), {.axis = 0, .keep = true});
      } else {
        sync();
      }
      if (has_loss)
        if (auto one = when(rank == 0))
          store_global(global_view(loss_ptr, {shape.rows}),
                       select(targets.counts(), log(total) + maximum - targets.logit, 0.0f).reshape({1}),
                       {row});
      RegisterTensor scale = select(targets.counts(), gradient_scale / total, 0.0f);
      RegisterTensor of_target = select(targets.counts(), gradient_scale, 0.0f);
      for (auto i : range(steps)) {
        auto softmax = exp(values(i) - maximum) * scale;
        store_global(g_gradient,
                     (softmax - select(columns_of(i) == targets.target, of_target, 0.0f)).to(gradient.dtype),
                     {row, first + i * kStep});
      }
      stage = 1 - stage;
    }
    cluster_sync();  // no CTA exits while another may still write to it
  }

 private:
  static constexpr int kStep = 8 * kThreads;
};

}  // namespace kernels
}  // namespace imbrex
