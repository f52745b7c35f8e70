// SPDX-License-Identifier: Apache-2.0
#include "layout/memory.h"

#include "layout/layout_data.h"

namespace imbrex::layout {
namespace {

Mode address(int64_t extent, int64_t stride) { return {extent, stride, Axis::kAddress}; }
Mode lane(int64_t extent, int64_t stride) { return {extent, stride, Axis::kLane}; }
Mode column(int64_t extent, int64_t stride) { return {extent, stride, Axis::kColumn}; }
Mode cta(int64_t extent, int64_t stride) { return {extent, stride, Axis::kCta}; }

void check_bits(int bits) {
  if (bits < 1 || bits > 128) fail(fmt::format("elements of {} bits in memory", bits));
}

}  // namespace

Layout row_major(const Shape& shape, int element_bits) {
  check_bits(element_bits);
  return Layout(shape, dense_modes(shape, Axis::kAddress), {}, element_bits);
}

Layout padded_row_major(const Shape& shape, int element_bits, int64_t padding) {
  check_bits(element_bits);
  if (shape.empty() || padding < 0)
    fail(fmt::format("row-major {} with rows padded by {}", shape_text(shape), padding));
  Shape padded = shape;
  padded.back() += padding;
  std::vector<Modes> modes = dense_modes(padded, Axis::kAddress);
  modes.back() = {address(shape.back(), 1)};
  return Layout(shape, std::move(modes), {}, element_bits);
}

Layout operand_tile(const Shape& shape, int element_bits, Swizzle swizzle, int contiguous_dim) {
  check_bits(element_bits);
  if (shape.size() < 2 || (contiguous_dim != -1 && contiguous_dim != -2))
    fail(fmt::format("operand tile {} with contiguous dimension {}", shape_text(shape), contiguous_dim));
  size_t last = shape.size() - 1;
  size_t inner = contiguous_dim == -1 ? last : last - 1, outer = contiguous_dim == -1 ? last - 1 : last;
  if (128 % element_bits != 0)
    fail(fmt::format("operand tile of {}-bit elements, which do not divide 16 bytes", element_bits));
  int64_t span = swizzle.span_bytes() * 8 / element_bits;
  if (shape[inner] % span != 0)
    fail(fmt::format(
             "operand tile {}: {} elements of {} bits along dimension {} do not divide into rows of {} bytes",
             shape_text(shape), shape[inner], element_bits, inner, swizzle.span_bytes()),
         {}, "use a narrower swizzle or a larger tile");
  int64_t rows = shape[outer];
  Shape stages(shape.begin(), shape.begin() + static_cast<int64_t>(last) - 1);
  std::vector<Modes> modes = dense_modes(stages, Axis::kAddress);
  for (Modes& stage : modes)
    for (Mode& mode : stage) mode.stride *= rows * shape[inner];
  modes.resize(shape.size());
  modes[outer] = {address(rows, span)};
  modes[inner] = {address(shape[inner] / span, rows * span), address(span, 1)};
  return Layout(shape, std::move(modes), {}, element_bits, swizzle);
}

Layout accumulator(AccumulatorLayout kind, int64_t n, int element_bits) {
  if (element_bits != 16 && element_bits != 32)
    fail(fmt::format("accumulator of {}-bit elements", element_bits));
  int64_t parts = kind == AccumulatorLayout::kG                                    ? 4
                  : kind == AccumulatorLayout::kB || kind == AccumulatorLayout::kE ? 2
                                                                                   : 1;
  if (n < 1 || n % parts != 0) fail(fmt::format("accumulator with n = {} in {} parts", n, parts));
  int64_t step = 32 / element_bits;  // one element in every column, whatever its size
  Modes columns{lane(parts, 128 / parts), column(n / parts, step)};
  switch (kind) {
    case AccumulatorLayout::kD:
      return Layout({128, n}, {{lane(128, 1)}, columns}, {}, element_bits);
    case AccumulatorLayout::kF:
      return Layout({64, n}, {{lane(4, 32), lane(16, 1)}, columns}, {}, element_bits);
    case AccumulatorLayout::kA:
      return Layout({256, n}, {{cta(2, 1), lane(128, 1)}, columns}, {}, element_bits);
    case AccumulatorLayout::kB:
      return Layout({128, n}, {{cta(2, 1), lane(64, 1)}, columns}, {}, element_bits);
    case AccumulatorLayout::kE:
      return Layout({64, n}, {{lane(64, 1)}, columns}, {}, element_bits);
    case AccumulatorLayout::kG:
      return Layout({32, n}, {{lane(32, 1)}, columns}, {}, element_bits);
  }
  throw InternalError("unknown accumulator layout");
}

Layout tensor_memory_a(int64_t m, int64_t k, int element_bits, bool pair) {
  if (element_bits != 4 && element_bits != 8 && element_bits != 16 && element_bits != 32)
    fail(fmt::format("A in tensor memory with {}-bit elements", element_bits));
  if (k < 1 || k * element_bits % 32 != 0)
    fail(
        fmt::format("A in tensor memory: {} elements of {} bits do not fill whole columns", k, element_bits));
  Modes columns{column(k, 1)};
  if (m == 64 && !pair) return Layout({m, k}, {{lane(4, 32), lane(16, 1)}, columns}, {}, element_bits);
  if (m == 128 && !pair) return Layout({m, k}, {{lane(128, 1)}, columns}, {}, element_bits);
  if (m == 128) return Layout({m, k}, {{cta(2, 1), lane(64, 1)}, columns}, {lane(2, 64)}, element_bits);
  if (m == 256 && pair) return Layout({m, k}, {{cta(2, 1), lane(128, 1)}, columns}, {}, element_bits);
  fail(fmt::format("A in tensor memory with m = {} {}", m, pair ? "of a pair" : "of one CTA"));
}

namespace {

/// `block` repeated for more rows, side by side.
Layout row_blocks(int64_t rows, const Layout& block) {
  const int64_t per_column = 32 / block.element_bits();
  const int64_t stride = ceil_div(block.extent(Axis::kColumn), per_column) * per_column;
  Modes modes = block.modes(0);
  modes.insert(modes.begin(), column(rows / block.shape()[0], stride));
  return Layout({rows, block.shape()[1]}, {modes, block.modes(1)}, block.replicas(), block.element_bits());
}

}  // namespace

Layout accumulator_of_cta(int64_t rows, int64_t n, int element_bits, int64_t cta_group) {
  if (rows % 128 == 0) return row_blocks(rows, accumulator(AccumulatorLayout::kD, n, element_bits));
  // Of a pair with 64 rows each, two halves of the columns lie above one another, as E has them in one CTA.
  if (rows == 64)
    return accumulator(cta_group == 2 ? AccumulatorLayout::kE : AccumulatorLayout::kF, n, element_bits);
  fail(fmt::format("{} rows; an accumulator has 64 or a multiple of 128 in each CTA", rows), {},
       "change m, or split the product");
}

Layout operand_a_of_cta(int64_t rows, int64_t k, int element_bits, int64_t cta_group) {
  if (rows % 128 == 0) return row_blocks(rows, tensor_memory_a(128, k, element_bits));
  if (rows == 64 && cta_group == 2)  // both halves of the lanes hold the rows
    return Layout({64, k}, {{lane(64, 1)}, {column(k, 1)}}, {lane(2, 64)}, element_bits);
  return tensor_memory_a(rows, k, element_bits);
}

Layout scale_factors(int64_t rows, int64_t factors, bool pair_halves) {
  int64_t halves = pair_halves ? 2 : 1;
  if (rows < 1 || factors < 1 || (pair_halves && rows % 64 != 0))
    fail(fmt::format("scale factors {}x{}{}", rows, factors, pair_halves ? " in two halves" : ""));
  int64_t sets = ceil_div(factors, 4), row_columns = ceil_div(rows, 32 * halves);
  return Layout({rows, factors},
                {{lane(halves, 64), column(row_columns, 4), lane(32, 1)},
                 {column(sets, 4 * row_columns), column(4, 1)}},
                {lane(4 / halves, 32)}, 8);
}

}  // namespace imbrex::layout
