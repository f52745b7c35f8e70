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

struct CrossEntropy {
  int thread_bytes = 64;  // of the logits, per thread

  static auto space() { return Space<CrossEntropy>().choose<&CrossEntropy::thread_bytes>({64, 32, 128}); }

  /// `is_flat`: rows are dense, follow each other, and 16 bytes do not divide them.
  void operator()(RowShape shape, bool is_whole, bool is_flat, Float32 gradient_scale, RowOperand logits,
                  Ptr<int32> target_ptr, bool has_loss, Ptr<float32> loss_ptr, bool has_gradient,
                  RowOperand gradient) const {
    constexpr float kLeast = -std::numeric_limits<float>::infinity();
    const RowTile tile(shape, logits.dtype.bytes(), is_whole, thread_bytes);
    const RowPlace at = tile.place_of_cta();
    const Int32& row = at.row;
    auto g_logits = logits.view(shape, 0);
    // The logits of the targets, before the gradient may take their place.
    RegisterTensor target =
        load_global(global_view(target_ptr, {shape.rows}), {row}, {tile.rows}, {.other = -1})
            .reshape({tile.rows, 1});
    auto counts = target >= 0;
    auto is_class = counts && target < shape.columns();
    auto rows = register_tensor(int32, {tile.rows, 1}, [&](auto i, auto) { return row + i; });
    RegisterTensor logit =
        gather(g_logits, {rows, target}, {tile.rows, 1}, {.other = kLeast, .mask = is_class}).to(float32);

    std::optional<FlatRow> flat;
    std::optional<RegisterTensor> edges;  // held, for the gradient may be written over them
    if (is_flat) {
      flat.emplace(tile, shape, row);
      edges.emplace(flat->load_edges(g_logits, kLeast).to(float32));
    }
    const TileRows values(tile, g_logits, row, kLeast);
    const RowExponents exponents =
        flat ? RowExponents::of(*flat, logits.dtype, logits.pointer, *edges) : RowExponents::of(tile, values);
    if (has_loss) {
      auto loss = log(exponents.sum) + exponents.maximum - logit;
      store_global(global_view(loss_ptr, {shape.rows}), select(counts, loss, 0.0f).reshape({tile.rows}),
                   {row});
    }
    if (has_gradient) {
      sync();  // the gradient may be written where the logits of the targets were read
      RegisterTensor scale = select(counts, gradient_scale / exponents.sum, 0.0f);
      auto g_gradient = gradient.view(shape, 0);
      const auto softmax = [&](const RegisterBase& x) {
        return (exp(x.to(float32) - exponents.maximum) * scale).to(gradient.dtype);
      };
      if (flat) {
        flat->each_part([&](const ScalarArg& unit) {
          store_global(flat->view(gradient.dtype, gradient.pointer),
                       softmax(flat->load(logits.dtype, logits.pointer, unit, kLeast)), {unit, 0});
        });
        flat->store_edges(g_gradient, softmax(*edges));
      } else {
        tile.each_part([&](const ScalarArg& column) {
          store_global(g_gradient, softmax(values.at(column)), {row, column});
        });
      }
      // Of the targets once more, so that no other element is compared with one.
      sync();
      auto of_targets = exp(logit - exponents.maximum) * scale - gradient_scale;
      scatter(g_gradient, of_targets.to(gradient.dtype), {rows, target}, {.mask = is_class});
    }
  }
};

}  // namespace kernels
}  // namespace imbrex
