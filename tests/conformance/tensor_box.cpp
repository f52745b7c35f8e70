// SPDX-License-Identifier: Apache-2.0
#include "tensor_box.h"

#include <algorithm>

namespace imbrex::conformance {
namespace {

constexpr const char* kTypeNames[] = {"u8",  "u16", "u32",  "s32",     "u64",  "s64",     "f16",
                                      "f32", "f64", "bf16", "f32.ftz", "tf32", "tf32.ftz"};
constexpr const char* kValues[] = {"", "", "", "", "", "", "f16", "f32", "f64", "bf16", "f32", "f32", "f32"};

}  // namespace

std::string describe(const Box& b) {
  std::string text =
      fmt::format("{} [{}] box [{}] at [{}]", kTypeNames[b.type], list(b.dims), list(b.box), list(b.at));
  if (b.swizzle != 0) text += fmt::format(" swizzle {}B", kSwizzleSpans[b.swizzle]);
  if (!b.element_strides.empty()) text += fmt::format(" element strides [{}]", list(b.element_strides));
  if (!b.strides_bytes.empty()) text += fmt::format(" strides [{}]", list(b.strides_bytes));
  if (b.nan) text += " NaN fill";
  if (b.tile_offset != 0) text += fmt::format(" shared +{}", b.tile_offset);
  return text;
}

MapSpec map_of(const Box& b, BoxSizes& sizes) {
  MapSpec map;
  map.type = b.type, map.dims = b.dims, map.box = b.box, map.element_strides = b.element_strides;
  map.swizzle = b.swizzle, map.fills_with_nan = b.nan;
  auto pitch = b.dims[0] * static_cast<uint64_t>(kTensorElementBytes[b.type]);
  int rows = 1;
  for (size_t d = 1; d < b.dims.size(); ++d) {
    pitch = (pitch + 15) / 16 * 16 + static_cast<uint64_t>(b.padding);
    if (!b.strides_bytes.empty()) pitch = b.strides_bytes[d - 1];
    map.strides_bytes.push_back(pitch);
    pitch *= b.dims[d];
    const uint32_t step = b.element_strides.empty() ? 1 : b.element_strides[d];
    rows *= static_cast<int>((b.box[d] + step - 1) / step);
  }
  sizes.tensor = static_cast<int64_t>((std::max<uint64_t>(pitch, 16) + 15) / 16 * 16);
  if (!b.strides_bytes.empty()) sizes.tensor = 8192;
  const int row = static_cast<int>(b.box[0]) * kTensorElementBytes[b.type];
  sizes.transaction = rows * row;
  const int row_pitch = b.swizzle == 0 ? row : std::max(row, kSwizzleSpans[b.swizzle]);
  sizes.footprint = b.tile_offset + ((rows - 1) * row_pitch + row + 127) / 128 * 128;
  return map;
}

std::vector<uint8_t> tensor_bytes(const Box& b, int64_t bytes, Random& random) {
  const std::string type = kValues[b.type];
  if (type.empty()) return random_bytes(bytes, random);
  std::vector<uint8_t> values;
  for (int64_t i = 0; i < bytes / kTensorElementBytes[b.type]; ++i)
    append_values(values, type, static_cast<Profile>(i % kProfiles), 1, random);
  values.resize(static_cast<size_t>(bytes));
  return values;
}

}  // namespace imbrex::conformance
