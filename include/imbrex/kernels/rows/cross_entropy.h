// SPDX-License-Identifier: Apache-2.0
// Cross-entropy of rows of logits with the class of each, and its gradient, in one launch.
#pragma once

#include "imbrex/kernels/rows/held_row.h"
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
    TileRows values(tile, logits, at, kLeast);
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
        return exp(x.to(float32) - exponents.maximum) * scale;
      };
      if (flat) {
        flat->each_part([&](const ScalarArg& unit) {
          store_global(flat->view(gradient.dtype, gradient.pointer),
                       softmax(flat->load(logits.dtype, logits.pointer, unit, kLeast)).to(gradient.dtype),
                       {unit, 0});
        });
        flat->store_edges(g_gradient, softmax(*edges).to(gradient.dtype));
      } else {
        tile.each_part([&](const ScalarArg& column) {
          store_tile(tile, gradient, at, column, softmax(values.at(column)));
        });
      }
      // Of the targets once more, so that no other element is compared with one.
      sync();
      auto of_targets = exp(logit - exponents.maximum) * scale - gradient_scale;
      scatter(g_gradient, of_targets.to(gradient.dtype), {rows, target}, {.mask = is_class});
    }
  }
};

/// The loss and the gradient of rows that clusters hold in shared memory: logits are read once.
struct HeldCrossEntropy {
  static constexpr const char* target = "sm_90";

  /// Of `ctas` CTAs each has tile_columns of a row; see HeldParts. Logits and gradient are dense and begin at multiples of 16
  /// bytes.
  void operator()(RowShape shape, int ctas, Float32 gradient_scale, DataType dtype, Ptr<> logits_ptr,
                  Ptr<int32> target_ptr, bool has_loss, Ptr<float32> loss_ptr, DataType gradient_type,
                  Ptr<> gradient_ptr) const {
    constexpr float kLeast = -std::numeric_limits<float>::infinity();
    const HeldRow held(shape, ctas, dtype, logits_ptr);
    const Int32& row = held.row();
    // The logit of the target, before the gradient may take its place.
    RegisterTensor target = load_global(global_view(target_ptr, {shape.rows}), {row}, {1}).reshape({1, 1});
    auto counts = target >= 0;
    auto is_class = counts && target < shape.columns();
    RegisterTensor logit = gather(global_view(logits_ptr, dtype, {shape.rows, shape.columns()}),
                                  {row, target}, {1, 1}, {.other = kLeast, .mask = is_class})
                               .to(float32);
    const HeldExponents exponents = HeldExponents::of(held, ctas);
    if (has_loss) {
      auto loss = select(counts, log(exponents.sum) + exponents.maximum - logit, 0.0f);
      if (auto first = when(held.rank() == 0))
        store_global(global_view(loss_ptr, {shape.rows}), loss.reshape({1}), {row});
    }
    RegisterTensor scale = select(counts, gradient_scale / exponents.sum, 0.0f);
    const auto softmax = [&](const RegisterBase& x) {
      return (exp(x - exponents.maximum) * scale).to(gradient_type);
    };
    const GlobalTensor units = held.flat().view(gradient_type, gradient_ptr),
                       matrix = global_view(gradient_ptr, gradient_type, {shape.rows, shape.columns()});
    for (int i = 0; i < held.slabs(); ++i) store_global(units, softmax(held.slab(i)), {held.unit_of(i), 0});
    if (auto first = when(held.rank() == 0)) held.flat().store_edges(matrix, softmax(held.edges()));
    // Of the target once more, so that no other element is compared with it.
    sync();
    auto of_target = exp(logit - exponents.maximum) * scale - gradient_scale;
    scatter(matrix, of_target.to(gradient_type), {row, target}, {.mask = is_class && held.has(target)});
  }
};

}  // namespace kernels
}  // namespace imbrex
