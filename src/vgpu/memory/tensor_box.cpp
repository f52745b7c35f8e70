// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/tensor_box.h"

#include <fmt/format.h>

#include <algorithm>

namespace imbrex::vgpu {

std::string TensorBox::text() const {
  std::string extents, place;
  const int count = mode == TileMode::kFourRows ? 5 : map.rank;
  for (int d = 0; d < map.rank; ++d)
    extents += fmt::format("{}{}", d == 0 ? "" : "x", map.box[static_cast<size_t>(d)]);
  for (int d = 0; d < count; ++d)
    place += fmt::format("{}{}", d == 0 ? "" : ", ", coordinates[static_cast<size_t>(d)]);
  if (mode == TileMode::kIm2col)
    return fmt::format("column of {} pixels with {} channels at {{{}}}", map.pixels, map.box[0], place);
  return fmt::format("box of {} elements at {{{}}}", extents, place);
}

uint64_t TensorBox::address() const {
  uint64_t address = map.address;
  for (size_t d = 1; d < static_cast<size_t>(map.rank); ++d)
    address += static_cast<uint64_t>(std::max(coordinates[d], 0)) * map.strides[d];
  return address;
}

uint64_t TensorBox::identity() const {
  uint64_t hash = map.address;
  const auto mix = [&](uint64_t value) { hash = (hash ^ value) * 0x9E3779B97F4A7C15u, hash ^= hash >> 29; };
  for (size_t d = 0; d < coordinates.size(); ++d) mix(static_cast<uint32_t>(coordinates[d]));
  for (int d = 0; d < map.rank; ++d) mix(map.box[static_cast<size_t>(d)]);
  for (const uint32_t offset : offsets) mix(offset);
  return hash | 1;
}

BoxTraffic TensorBox::traffic() const {
  constexpr uint64_t kSector = 32, kLine = 128;
  const auto eighths = static_cast<uint64_t>(facts(map.type).eighths_in_global);
  BoxTraffic traffic;
  for_each_row(0, [&](const BoxRow& row) {
    if (row.begin >= row.end) return;
    const auto at = [&](uint32_t element) {
      return row.global + static_cast<uint64_t>(coordinates[0] + int64_t{element}) * eighths / 8;
    };
    const uint64_t begin = at(row.begin), last = at(row.end) - 1;
    traffic.sectors += static_cast<int32_t>(last / kSector - begin / kSector) + 1;
    const bool cuts_first = begin % kSector != 0, cuts_last = (last + 1) % kSector != 0;
    traffic.partial_lines +=
        begin / kLine == last / kLine ? cuts_first || cuts_last : int{cuts_first} + int{cuts_last};
  });
  return traffic;
}

}  // namespace imbrex::vgpu
