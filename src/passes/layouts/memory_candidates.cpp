// SPDX-License-Identifier: Apache-2.0
// Layouts worth trying for a tensor in shared or tensor memory.
#include <algorithm>
#include <numeric>

#include "imbrex/core/error.h"
#include "layout/memory.h"
#include "layout/queries.h"
#include "passes/layouts/layout_inference.h"

namespace imbrex::passes {
namespace {

using layout::Axis;
using layout::Layout;
using layout::Modes;
using layout::Shape;
using layout::Swizzle;

/// Tiles of boxes with dimension `inner` contiguous and `outer` as rows; the others are stages.
std::optional<Layout> tile(const Shape& shape, int bits, Swizzle swizzle, size_t outer, size_t inner) {
  if (128 % bits != 0 || shape[inner] * bits % (swizzle.span_bytes() * 8) != 0) return std::nullopt;
  std::vector<int> order;
  for (size_t d = 0; d < shape.size(); ++d)
    if (d != outer && d != inner) order.push_back(static_cast<int>(d));
  order.push_back(static_cast<int>(outer));
  order.push_back(static_cast<int>(inner));
  Shape permuted;
  std::vector<int> back(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    permuted.push_back(shape[static_cast<size_t>(order[i])]);
    back[static_cast<size_t>(order[i])] = static_cast<int>(i);
  }
  return layout::operand_tile(permuted, bits, swizzle).permute(back);
}

std::vector<Layout> tiles(const Shape& shape, int bits, bool for_matrices) {
  std::vector<Layout> result;
  for (size_t inner = shape.size(); inner-- > 0;)
    for (size_t outer = shape.size(); outer-- > 0;) {
      if (inner == outer) continue;
      std::vector<Swizzle::Mode> modes = {Swizzle::k128B, Swizzle::k64B, Swizzle::k32B};
      if (for_matrices && bits == 32) modes.push_back(Swizzle::k128BAtom32B);
      if (for_matrices) modes.push_back(Swizzle::kNone);
      for (Swizzle::Mode mode : modes)
        if (std::optional<Layout> found = tile(shape, bits, {mode}, outer, inner)) result.push_back(*found);
    }
  return result;
}

std::vector<Layout> shared_candidates(const Shape& shape, int bits, bool for_matrices) {
  // Elements that lie across bytes fill no atom of a swizzle.
  if (layout::crosses_bytes(bits) && !for_matrices) return {layout::row_major(shape, bits)};
  std::vector<Layout> result = tiles(shape, bits, for_matrices);
  const Layout plain = layout::row_major(shape, bits);
  result.insert(for_matrices ? result.end() : result.begin(), plain);
  // Rows further apart by one element, or by one vector, start at other banks.
  if (!for_matrices && shape.size() > 1 && bits >= 8)
    for (int64_t padding : {128 / bits, 32 / bits})
      if (padding > 0) result.push_back(layout::padded_row_major(shape, bits, padding));
  // Elements of less than a byte may also lie 16 to 16 bytes, for TMA and the tensor core.
  if (bits < 8 && for_matrices)
    for (Layout& padded : tiles(shape, 8, true)) result.push_back(std::move(padded));
  return result;
}

std::vector<Layout> tensor_memory_candidates(const Shape& shape, int bits) {
  const int64_t rows = shape[shape.size() - 2], columns = shape.back();
  // Ways to put the rows on lanes, and how many parts of the columns lie above one another.
  struct Lanes {
    Modes modes;
    int64_t column_parts = 1;
    Modes replicas = {};
  };
  std::vector<Lanes> choices;
  if (rows == 64) {
    choices.push_back({{{4, 32, Axis::kLane}, {16, 1, Axis::kLane}}});
    if (columns % 2 == 0) choices.push_back({{{64, 1, Axis::kLane}}, 2});
    choices.push_back({{{64, 1, Axis::kLane}}, 1, {{2, 64, Axis::kLane}}});
  }
  if (rows <= 128) choices.push_back({{{rows, 1, Axis::kLane}}});
  if (rows == 32) choices.push_back({{{32, 1, Axis::kLane}}, 1, {{4, 32, Axis::kLane}}});
  // More rows than lanes: blocks of 128 side by side. The stride is made good below.
  if (rows > 128 && rows % 128 == 0)
    choices.push_back({{{rows / 128, 0, Axis::kColumn}, {128, 1, Axis::kLane}}});

  std::vector<Layout> result;
  const auto add = [&](Modes row_modes, Modes column_modes, const Modes& replicas, int element_bits,
                       int64_t stride) {
    std::vector<Modes> modes(shape.size());
    modes[shape.size() - 1] = std::move(column_modes);
    modes[shape.size() - 2] = std::move(row_modes);
    for (size_t d = shape.size() - 2; d-- > 0;) {
      modes[d] = {{shape[d], stride, Axis::kColumn}};
      stride *= shape[d];
    }
    Layout candidate(shape, std::move(modes), replicas, element_bits);
    if (std::find(result.begin(), result.end(), candidate) == result.end())
      result.push_back(std::move(candidate));
  };
  const auto add_all = [&](int element_bits, std::initializer_list<int64_t> steps) {
    for (const Lanes& lanes : choices)
      for (int64_t step : steps) {
        const int64_t part = columns / lanes.column_parts;
        const int64_t per_column = std::max(1, 32 / element_bits);
        int64_t stride = (part * step + per_column - 1) / per_column * per_column;
        Modes row_modes = lanes.modes;
        if (row_modes.front().axis == Axis::kColumn) {
          row_modes.front().stride = stride;
          stride *= row_modes.front().extent;
        }
        add(row_modes, {{lanes.column_parts, 64, Axis::kLane}, {part, step, Axis::kColumn}}, lanes.replicas,
            element_bits, stride);
      }
  };
  if (bits != 6) add_all(bits, {1, int64_t{32} / bits});  // packed, and one element a column
  if (bits < 8) add_all(8, {1});                          // a byte each
  if (bits == 8 && rows % 32 == 0 && columns % 4 == 0)    // scale factors
    add({{rows / 32, 4, Axis::kColumn}, {32, 1, Axis::kLane}},
        {{columns / 4, rows / 8, Axis::kColumn}, {4, 1, Axis::kColumn}}, {{4, 32, Axis::kLane}}, 8,
        rows / 32 * columns);
  return result;
}

}  // namespace

std::vector<Layout> memory_candidates(const ir::Value& root, bool for_matrices) {
  const ir::Type& type = root.type;
  if (type.layout) {
    const Layout& given = *type.layout;
    return {given.element_bits() ? given : given.with_element_bits(type.dtype.bits())};
  }
  if (type.kind == ir::TypeKind::kTensorMemory)
    return tensor_memory_candidates(type.shape, type.dtype.bits());
  return shared_candidates(type.shape, type.dtype.bits(), for_matrices);
}

}  // namespace imbrex::passes
