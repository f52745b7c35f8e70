// SPDX-License-Identifier: Apache-2.0
// TMA boxes. A box is dense in shared memory, its map dimensions nested fastest first; whatever of a tile is
// not dense within one box becomes a loop over boxes.
#include <algorithm>

#include "layout/descriptors.h"
#include "layout/layout_data.h"

namespace imbrex::layout {
namespace {

constexpr int64_t kMaxBoxExtent = 256;
constexpr size_t kMaxRank = 5;

using Result = Described<TmaBoxes>;
Result no(std::string why) { return {std::nullopt, std::move(why)}; }

int64_t largest_divisor_up_to(int64_t value, int64_t limit) {
  for (int64_t divisor = std::min(value, limit); divisor > 1; --divisor)
    if (value % divisor == 0) return divisor;
  return 1;
}

}  // namespace

Described<TmaBoxes> describe_tma_boxes(const Layout& tile, int contiguous_dim) {
  int rank = tile.rank();
  int inner = contiguous_dim < 0 ? rank + contiguous_dim : contiguous_dim;
  if (inner < 0 || inner >= rank)
    return no(fmt::format("shape {} has no dimension {}", shape_text(tile.shape()), contiguous_dim));
  if (static_cast<size_t>(rank) > kMaxRank)
    return no(fmt::format("{} dimensions, a tensor map has at most {}", rank, kMaxRank));
  if (tile.element_bits() == 0 || tile.is_padded() || !tile.replicas().empty())
    return no("it is not a dense layout of shared memory");
  for (Axis axis : kAxes)
    if (axis != Axis::kAddress && tile.uses(axis))
      return no(fmt::format("it moves along the {} axis, not in shared memory", axis_name(axis)));

  int64_t bits = tile.element_bits();
  const Shape& shape = tile.shape();
  auto extent_of = [&](int d) { return shape[static_cast<size_t>(d)]; };

  // The contiguous dimension: its innermost run, at most one swizzle row.
  const Modes& inner_modes = tile.modes(inner);
  if (!inner_modes.empty() && inner_modes.back().stride != 1)
    return no(fmt::format("dimension {}, contiguous in global memory, has stride {} in shared memory", inner,
                          inner_modes.back().stride));
  int64_t run = inner_modes.empty() ? 1 : inner_modes.back().extent;
  int64_t limit = kMaxBoxExtent;
  if (tile.swizzle()) limit = std::min(limit, tile.swizzle().span_bytes() * 8 / bits);
  run = largest_divisor_up_to(run, limit);
  if (run * bits % 128 != 0)
    return no(fmt::format("runs of {} elements of {} bits along dimension {} are not a multiple of 16 bytes",
                          run, bits, inner));

  TmaBoxes result;
  result.swizzle = tile.swizzle();
  Shape box(shape.size(), 1);
  box[static_cast<size_t>(inner)] = run;
  result.dims.push_back(inner);
  // Narrow boxes with a swizzle have rows of a whole span, padding at the end.
  int64_t pitch = tile.swizzle() ? tile.swizzle().span_bytes() * 8 / bits : run;
  std::vector<int> rest;
  for (int d = rank; d-- > 0;)
    if (d != inner) rest.push_back(d);
  for (bool found = true; found;) {
    found = false;
    for (size_t i = 0; i < rest.size() && !found; ++i) {
      const Modes& modes = tile.modes(rest[i]);
      if (modes.empty() || modes.back().stride != pitch) continue;
      int64_t extent = largest_divisor_up_to(modes.back().extent, kMaxBoxExtent);
      box[static_cast<size_t>(rest[i])] = extent;
      pitch *= extent;
      result.dims.push_back(rest[i]);
      rest.erase(rest.begin() + static_cast<int64_t>(i));
      found = true;
    }
  }
  result.dims.insert(result.dims.end(), rest.begin(), rest.end());
  for (int d : result.dims) result.box.push_back(box[static_cast<size_t>(d)]);

  Shape counts;
  for (int d = 0; d < rank; ++d) counts.push_back(extent_of(d) / box[static_cast<size_t>(d)]);
  Index at(shape.size(), 0);
  do {
    TmaBox copy;
    for (size_t d = 0; d < at.size(); ++d) copy.start.push_back(at[d] * box[d]);
    int64_t offset_bits = tile.linear(copy.start)[Axis::kAddress] * bits;
    if (offset_bits % (128 * 8) != 0)
      return no(fmt::format("the box at [{}] would start at byte {}, not a multiple of 128",
                            fmt::join(copy.start, ", "), offset_bits / 8));
    copy.offset_bytes = offset_bits / 8;
    result.boxes.push_back(std::move(copy));
  } while (next_index(at, counts));
  return {std::move(result), ""};
}

}  // namespace imbrex::layout
