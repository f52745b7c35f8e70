// SPDX-License-Identifier: Apache-2.0
// Softmax of rows of any length, forward and backward. (softmax.h has the simplest form.)
#pragma once

#include <limits>

#include "imbrex/kernels/rows/flat_tile.h"

namespace imbrex::kernels {

/// The maximum of each row and the sum of exp(x - maximum), in one pass: rows longer than a tile keep both for every
/// place of a vector in the tile, and bring them together at the end.
struct RowExponents {
  RegisterTensor maximum, sum;  // [rows, 1]

  static RowExponents of(const RowTile& tile, TileRows& values) {
    if (tile.is_whole()) {
      auto x = values.at(0);
      RegisterTensor maximum = max(x, {.axis = 1, .keep = true});
      RegisterTensor total = imbrex::sum(exp(x - maximum), {.axis = 1, .keep = true});
      return {maximum, total};
    }
    constexpr int kVector = 8;  // elements of a thread that lie side by side: their maximum costs no exchange
    const int vectors = tile.columns / kVector;
    RegisterTensor maximum = full(float32, {tile.rows, vectors, 1}, std::numeric_limits<float>::lowest()),
                   total = zeros(float32, {tile.rows, vectors, 1});
    tile.each_part([&](const ScalarArg& column) {
      auto x = values.at(column).reshape({tile.rows, vectors, kVector});
      RegisterTensor now = max(maximum, max(x, {.axis = 2, .keep = true}));
      total = total * exp(maximum - now) + imbrex::sum(exp(x - now), {.axis = 2, .keep = true});
      maximum = now;
    });
    RegisterTensor of_row = max(maximum, {.axis = 1, .keep = true});
    RegisterTensor total_of_row = imbrex::sum(total * exp(maximum - of_row), {.axis = 1, .keep = true});
    return {of_row.reshape({tile.rows, 1}), total_of_row.reshape({tile.rows, 1})};
  }

  /// Those of a row of a matrix at `pointer`, with its edges.
  static RowExponents of(const FlatRow& row, DataType dtype, const PtrArg& pointer,
                         const RegisterBase& edges) {
    constexpr float kLeast = -std::numeric_limits<float>::infinity();
    RegisterTensor maximum = full(float32, {row.units(), 1}, std::numeric_limits<float>::lowest()),
                   total = zeros(float32, {row.units(), 1});
    row.each_part([&](const ScalarArg& unit) {
      auto x = row.load(dtype, pointer, unit, kLeast).to(float32);
      RegisterTensor now = max(maximum, max(x, {.axis = 1, .keep = true}));
      total = total * exp(maximum - now) + imbrex::sum(exp(x - now), {.axis = 1, .keep = true});
      maximum = now;
    });
    RegisterTensor of_row =
        max(max(maximum, {.axis = 0, .keep = true}), max(edges, {.axis = 1, .keep = true}));
    RegisterTensor total_of_row = imbrex::sum(total * exp(maximum - of_row), {.axis = 0, .keep = true}) +
                                  imbrex::sum(exp(edges - of_row), {.axis = 1, .keep = true});
    return {of_row, total_of_row};
  }
};

struct SoftmaxRows {
  int thread_bytes = 64;  // of x, per thread

  static auto space() { return Space<SoftmaxRows>().choose<&SoftmaxRows::thread_bytes>({64, 32, 128}); }

  /// y = softmax of x along each row. `is_whole`: a row has no more columns than a tile. `is_flat`: rows are longer, dense,
  /// follow each other, and 16 bytes do not divide them.
  void operator()(RowShape shape, bool is_whole, bool is_flat, RowOperand x, RowOperand y) const {
    const RowTile tile(shape, x.dtype.bytes(), is_whole, thread_bytes);
    const RowPlace at = tile.place_of_cta();
    if (is_flat) return of_flat_rows(FlatRow(tile, shape, at.row), shape, x, y);
    TileRows values(tile, x, at, -std::numeric_limits<float>::infinity());
    const RowExponents exponents = RowExponents::of(tile, values);
    RegisterTensor scale = 1.0f / exponents.sum;
    tile.each_part([&](const ScalarArg& column) {
      store_tile(tile, y, at, column, exp(values.at(column) - exponents.maximum) * scale);
    });
  }

 private:
  static void of_flat_rows(const FlatRow& row, const RowShape& shape, const RowOperand& x,
                           const RowOperand& y) {
    constexpr float kLeast = -std::numeric_limits<float>::infinity();
    RegisterTensor edges = row.load_edges(x.view(shape, 0), kLeast).to(float32);
    const RowExponents exponents = RowExponents::of(row, x.dtype, x.pointer, edges);
    RegisterTensor scale = 1.0f / exponents.sum;
    const auto softmax = [&](const RegisterBase& values) {
      return (exp(values.to(float32) - exponents.maximum) * scale).to(y.dtype);
    };
    row.each_part([&](const ScalarArg& unit) {
      store_global(row.view(y.dtype, y.pointer), softmax(row.load(x.dtype, x.pointer, unit, kLeast)),
                   {unit, 0});
    });
    row.store_edges(y.view(shape, 0), softmax(edges));
  }
};

struct SoftmaxBackward {
  int thread_bytes = 32;  // of y, per thread

  static auto space() {
    return Space<SoftmaxBackward>().choose<&SoftmaxBackward::thread_bytes>({32, 64, 16});
  }

  /// dx = y * (dy - the sum of y * dy along the row).
  void operator()(RowShape shape, bool is_whole, RowOperand dy, RowOperand y, RowOperand dx) const {
    const RowTile tile(shape, y.dtype.bytes(), is_whole, thread_bytes);
    const RowPlace at = tile.place_of_cta();
    TileRows values(tile, y, at), gradients(tile, dy, at);
    RegisterTensor along =
        sum_of_rows(tile, [&](const ScalarArg& column) { return values.at(column) * gradients.at(column); });
    tile.each_part([&](const ScalarArg& column) {
      store_tile(tile, dx, at, column, values.at(column) * (gradients.at(column) - along));
    });
  }
};

}  // namespace imbrex::kernels
