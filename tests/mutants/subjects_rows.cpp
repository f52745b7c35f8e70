// SPDX-License-Identifier: Apache-2.0
// Subjects of the mutation suite that work row by row: gradients of norms, whose tiles a ring holds and whose sums warps
// exchange; and tiles that move as spans.
#include "imbrex/kernels/rows/norm_rows.h"
#include "imbrex/kernels/rows/softmax_rows.h"
#include "mutants/subject.h"

namespace imbrex::mutants {
namespace {

/// Two warps have a row of 1000 columns, a CTA two rows; three stages serve five tiles.
Subject norm_gradient() {
  const int rows = 9, columns = 1000, unit = 8, tile_columns = 1024, ctas = 1;
  constexpr int kTileBytes = 2 * tile_columns * (2 + 2), kCtas = 4, kStages = 3;
  const auto tensor = in(float16, {rows, columns});
  return make_subject("norm-gradient", 1, kernels::LayerNormBackward(), 1, rows, columns / unit, unit,
                      tile_columns, 0, true, false, ctas, 0, kTileBytes * kCtas * kStages, 0.5f, float16,
                      tensor, unit, columns / unit, 0, float16, tensor, unit, columns / unit, 0, float16,
                      in(float16, {columns}), true, float16, out(float16, {rows, columns}), unit,
                      columns / unit, 0, true, out(float32, {ctas, columns}), true,
                      out(float32, {ctas, columns}));
}

/// Tiles of eight rows; the last one has fewer and ends within a vector.
Subject span() {
  const int rows = 13, columns = 75, tile_columns = 128, span_rows = 8;
  return make_subject("span", 1, kernels::SoftmaxRows(), 1, rows, columns, 1, tile_columns, span_rows, true,
                      false, float16, in(float16, {rows, columns}), 1, columns, 0, float16,
                      out(float16, {rows, columns}), 1, columns, 0);
}

}  // namespace

std::vector<Subject> row_subjects() {
  std::vector<Subject> all;
  for (const auto make : {norm_gradient, span}) {
    // Beside an element lie others, and of the columns beyond a row nothing is read.
    all.push_back(make());
    all.back().left_out = {"store-shared-plus-16", "store-shared-plus-4096", "load-shared-plus-8192"};
  }
  return all;
}

}  // namespace imbrex::mutants
