// SPDX-License-Identifier: Apache-2.0
// tcgen05.cp: a source row goes to one lane, or to several. The destination's layout says which element
// belongs to a lane and column, the source's where it is, and together they must be a matrix that a
// descriptor reads.
#include <algorithm>

#include "layout/descriptors.h"
#include "layout/layout_data.h"

namespace imbrex::layout {
namespace {

struct ShapeFacts {
  TensorCopyShape shape;
  std::string_view name;
  int64_t rows, bytes;          // of the source
  int64_t first_lane;           // of row 0
  int64_t group, group_stride;  // row r lies in lane first_lane + r / group * group_stride + r % group
  std::vector<int64_t> copies;  // and in those so much further
};

const std::vector<ShapeFacts>& shapes() {
  using enum TensorCopyShape;
  static const std::vector<ShapeFacts> facts = {
      {k128x256b, "128x256b", 128, 32, 0, 128, 128, {0}},
      {k128x128b, "128x128b", 128, 16, 0, 128, 128, {0}},
      {k64x128b02_13, "64x128b.warpx2::02_13", 64, 16, 0, 64, 64, {0, 64}},
      {k64x128b01_23, "64x128b.warpx2::01_23", 64, 16, 0, 32, 64, {0, 32}},
      {k32x128b, "32x128b.warpx4", 32, 16, 0, 32, 32, {0, 32, 64, 96}},
      {k4x256b, "4x256b", 4, 32, 31, 1, 32, {0}},
  };
  return facts;
}

using Result = Described<TensorCopies>;
Result no(std::string why) { return {std::nullopt, std::move(why)}; }

/// Lanes of further copies of an element, from that of the first.
std::vector<int64_t> copy_lanes(const Layout& layout) {
  std::vector<int64_t> lanes{0};
  for (const Mode& mode : layout.replicas()) {
    std::vector<int64_t> more;
    for (int64_t lane : lanes)
      for (int64_t i = 0; i < mode.extent; ++i) more.push_back(lane + i * mode.stride);
    lanes = std::move(more);
  }
  std::sort(lanes.begin(), lanes.end());
  return lanes;
}

/// The bit at which the source holds what belongs to a lane and element column; -1: nothing belongs there.
struct Sources {
  int64_t lanes, columns;
  std::vector<int64_t> bits;
  int64_t& at(int64_t lane, int64_t column) { return bits[static_cast<size_t>(lane * columns + column)]; }
};

Sources sources_of(const Layout& shared, const Layout& tensor_memory) {
  const int64_t lanes = tensor_memory.lanes(), columns = tensor_memory.extent(Axis::kColumn);
  Sources sources{lanes, columns, std::vector<int64_t>(static_cast<size_t>(lanes * columns), -1)};
  const int64_t rows = shared.shape()[0], width = shared.shape()[1];
  std::vector<Coords> row_at, column_at;  // both maps are sums over the dimensions
  std::vector<int64_t> row_from, column_from;
  for (int64_t i = 0; i < rows; ++i) {
    row_at.push_back(tensor_memory.linear({i, 0}));
    row_from.push_back(shared.linear({i, 0})[Axis::kAddress]);
  }
  for (int64_t j = 0; j < width; ++j) {
    column_at.push_back(tensor_memory.linear({0, j}));
    column_from.push_back(shared.linear({0, j})[Axis::kAddress]);
  }
  for (size_t i = 0; i < row_at.size(); ++i)
    for (size_t j = 0; j < column_at.size(); ++j) {
      const Coords place = row_at[i] + column_at[j];
      sources.at(place[Axis::kLane], place[Axis::kColumn]) =
          (row_from[i] + column_from[j]) * shared.element_bits();
    }
  return sources;
}

std::vector<int64_t> lanes_of(const ShapeFacts& shape) {
  std::vector<int64_t> lanes;
  for (int64_t r = 0; r < shape.rows; ++r)
    lanes.push_back(r / shape.group * shape.group_stride + r % shape.group);
  return lanes;
}

/// Why the shape does not write this destination, whatever the source; empty when it does.
std::string refusal(const ShapeFacts& shape, const Layout& tensor_memory) {
  const int64_t columns = tensor_memory.extent(Axis::kColumn);
  if (copy_lanes(tensor_memory) != shape.copies) return "other copies of the elements are made";
  if (tensor_memory.lanes() - 1 != lanes_of(shape).back() + shape.copies.back())
    return "other lanes are used";
  if (columns * tensor_memory.element_bits() % (shape.bytes * 8) != 0)
    return fmt::format("{} elements along a lane are not a multiple of {} bytes", columns, shape.bytes);
  if (shape.rows * columns != tensor_memory.size())
    return fmt::format("{} rows of {} elements are not the whole", shape.rows, columns);
  return "";
}

Result describe(const ShapeFacts& shape, const Layout& shared, const Layout& tensor_memory,
                Sources& sources) {
  if (std::string why = refusal(shape, tensor_memory); !why.empty()) return no(std::move(why));
  const int64_t bits = tensor_memory.element_bits();
  const int64_t width = shape.bytes * 8 / bits;  // elements
  const std::vector<int64_t> lanes = lanes_of(shape);
  TensorCopies result{shape.shape, {}};
  for (int64_t first = 0; first < sources.columns; first += width) {
    const int64_t start = sources.at(0, first);
    std::vector<int64_t> rows, columns;
    for (int64_t lane : lanes) rows.push_back(sources.at(lane, first) - start);
    for (int64_t j = 0; j < width; ++j) columns.push_back(sources.at(0, first + j) - start);
    for (size_t r = 0; r < rows.size(); ++r)
      for (size_t j = 0; j < columns.size(); ++j) {
        const int64_t found = sources.at(lanes[r], first + static_cast<int64_t>(j));
        if (found < 0 || found != start + rows[r] + columns[j])
          return no(fmt::format("lane {}, element column {} holds no element of a matrix", lanes[r],
                                first + static_cast<int64_t>(j)));
      }
    Described<MatrixOperand> source =
        describe_matrix_rows(rows, columns, static_cast<int>(bits), shared.swizzle());
    if (!source) return no(source.error);
    if (start % 128 != 0) return no(fmt::format("a source starts at bit {}, not on 16 bytes", start));
    result.steps.push_back({first * bits / 32, start / 8, *source});
  }
  return {std::move(result), ""};
}

}  // namespace

std::string tensor_copy_refusal(const Layout& tensor_memory, int64_t first_lane) {
  std::string why = "no shape of tcgen05.cp makes it";
  for (const ShapeFacts& shape : shapes()) {
    if (shape.first_lane != first_lane) continue;
    const std::string reason = refusal(shape, tensor_memory);
    if (reason.empty()) return "";
    why += fmt::format("; {}: {}", shape.name, reason);
  }
  return why;
}

Result describe_tensor_copies(const Layout& shared, const Layout& tensor_memory, int64_t first_lane) {
  if (shared.rank() != 2 || shared.shape() != tensor_memory.shape())
    return no(
        fmt::format("{} is not copied to {}", shape_text(shared.shape()), shape_text(tensor_memory.shape())));
  for (const Layout* layout : {&shared, &tensor_memory})
    if (layout->element_bits() == 0 || layout->is_padded()) return no("a layout is not dense");
  if (!shared.replicas().empty() || shared.element_bits() != tensor_memory.element_bits())
    return no(fmt::format("elements are {} bits apart in shared and {} in tensor memory",
                          shared.element_bits(), tensor_memory.element_bits()));
  for (Axis axis : {Axis::kThread, Axis::kRegister, Axis::kCta})
    if (shared.uses(axis) || tensor_memory.uses(axis))
      return no(fmt::format("a layout moves along the {} axis", axis_name(axis)));
  Sources sources = sources_of(shared, tensor_memory);
  std::string why = "no shape of tcgen05.cp makes it";
  for (const ShapeFacts& shape : shapes()) {
    if (shape.first_lane != first_lane) continue;
    Result result = describe(shape, shared, tensor_memory, sources);
    if (result) return result;
    why += fmt::format("; {}: {}", shape.name, result.error);
  }
  return no(std::move(why));
}

}  // namespace imbrex::layout
