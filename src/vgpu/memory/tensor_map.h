// SPDX-License-Identifier: Apache-2.0
// Tensor maps: the 128-byte objects that tensor copies read, encoded as the driver does, and the walk over a
// box.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "imbrex/vgpu/virtual_gpu.h"
#include "vgpu/memory/swizzle.h"

namespace imbrex::vgpu {

inline constexpr int kMaxTensorRank = 5;
inline constexpr int64_t kTensorMapBytes = 128;

/// Facts of an element type of tensor maps.
struct TensorMapTypeFacts {
  const char* name;
  uint8_t replace_value;      // number in tensormap.replace .elemtype and in the encoded object
  uint8_t shared_bytes;       // of one element in shared memory; 0: half a byte
  uint8_t eighths_in_global;  // bytes of 8 elements in global memory
  bool is_float;
};
const TensorMapTypeFacts& facts(TensorMapType type);

/// A tensor map as fields. Entries from `rank` on are 1 (strides 0).
struct TensorMapFields {
  int rank = 1;
  TensorMapType type = TensorMapType::kFloat16;
  uint64_t address = 0;
  std::array<uint64_t, kMaxTensorRank> dims{1, 1, 1, 1, 1};
  std::array<uint64_t, kMaxTensorRank> strides{};  // bytes; strides[0] is not used
  std::array<uint32_t, kMaxTensorRank> box{1, 1, 1, 1, 1};
  std::array<uint32_t, kMaxTensorRank> element_strides{1, 1, 1, 1, 1};
  TensorMapInterleave interleave = TensorMapInterleave::kNone;
  Swizzle swizzle = Swizzle::kNone;
  int l2_promotion = 0;
  bool fill_with_nan = false;
  // im2col maps: box[0] counts the channels of a pixel; corners are of dimensions 1 ... rank - 2.
  bool is_im2col = false;
  uint32_t pixels = 1;
  std::array<int32_t, kMaxTensorRank - 2> lower_corner{}, upper_corner{};

  /// First and last pixel of the pixel box in dimension d.
  int64_t first_pixel(size_t d) const { return lower_corner[d - 1]; }
  int64_t last_pixel(size_t d) const { return static_cast<int64_t>(dims[d]) - 1 + upper_corner[d - 1]; }
  /// Elements of dimension d that a box holds.
  uint32_t count(int d) const {
    const auto i = static_cast<size_t>(d);
    return d == 0 ? box[0] : (box[i] + element_strides[i] - 1) / element_strides[i];
  }
  /// Bytes of one inner row of a box in shared memory, and the distance of two rows (the swizzle's span where
  /// a row is narrower).
  uint32_t row_bytes() const;
  uint32_t row_pitch() const;
  /// Rows of a box.
  uint32_t rows() const;
  /// Bytes that complete on a barrier (padding is not counted: so DeepGEMM and Triton announce them), and
  /// bytes from the first to the last of a box in shared memory.
  uint32_t transaction_bytes() const;
  uint32_t footprint() const { return (rows() - 1) * row_pitch() + row_bytes(); }
};

TensorMap encode(const TensorMapFields& fields);

/// `problem` is "" when the words are a tensor map.
struct DecodedTensorMap {
  TensorMapFields fields;
  std::string problem;
};
DecodedTensorMap decode(const TensorMap& map);
/// As decode(), but 128 zero bytes are a map too: kernels that make one with tensormap.replace start from there.
DecodedTensorMap decode_for_replace(const TensorMap& map);

/// Why the driver refuses such a map; "" when it does not.
std::string refuse(const TensorMapFields& fields);

/// Which values corners of the pixel box may have, and offsets of the instruction: -limit ... limit - 1, and 0 ... 2
/// limit - 1.
constexpr int32_t im2col_limit(int rank) { return rank == 3 ? 1 << 15 : rank == 4 ? 1 << 7 : 1 << 4; }

/// One inner row of a box: where it lies in shared memory (linear, before the swizzle), the global address of
/// the element at coordinate 0 of dimension 0, and which of its elements are inside the tensor.
struct BoxRow {
  uint32_t shared = 0;
  uint64_t global = 0;
  uint32_t begin = 0, end = 0;  // elements [begin, end) of the row are inside; empty where begin == end
};

/// Calls body(const BoxRow&) for every row of the box at `coordinates`, in the order of shared memory.
template <class Body>
void for_each_row(const TensorMapFields& map, const std::array<int32_t, kMaxTensorRank>& coordinates,
                  uint32_t shared, Body&& body);

/// The same for the pixels of an im2col copy.
template <class Body>
void for_each_pixel(const TensorMapFields& map, const std::array<int32_t, kMaxTensorRank>& coordinates,
                    const std::array<uint32_t, kMaxTensorRank - 2>& offsets, uint32_t shared, Body&& body);

template <class Body>
void for_each_row(const TensorMapFields& map, const std::array<int32_t, kMaxTensorRank>& coordinates,
                  uint32_t shared, Body&& body) {
  const uint32_t rows = map.rows();
  const auto first = static_cast<int64_t>(coordinates[0]);
  const auto extent = static_cast<int64_t>(map.dims[0]);
  const int64_t inner = map.box[0];
  BoxRow row;
  const int64_t begin = first < 0 ? -first : 0;
  const int64_t end = extent - first < inner ? extent - first : inner;
  std::array<uint32_t, kMaxTensorRank> index{};
  for (uint32_t r = 0; r < rows; ++r) {
    bool inside = begin < end;
    row.global = map.address;
    for (int d = 1; d < map.rank; ++d) {
      const auto i = static_cast<size_t>(d);
      const int64_t g = coordinates[i] + static_cast<int64_t>(index[i]) * map.element_strides[i];
      inside = inside && g >= 0 && g < static_cast<int64_t>(map.dims[i]);
      row.global += static_cast<uint64_t>(g) * map.strides[i];
    }
    row.shared = shared + r * map.row_pitch();
    row.begin = inside ? static_cast<uint32_t>(begin) : 0;
    row.end = inside ? static_cast<uint32_t>(end) : 0;
    body(static_cast<const BoxRow&>(row));
    for (int d = 1; d < map.rank && ++index[static_cast<size_t>(d)] == map.count(d); ++d)
      index[static_cast<size_t>(d)] = 0;
  }
}

template <class Body>
void for_each_pixel(const TensorMapFields& map, const std::array<int32_t, kMaxTensorRank>& coordinates,
                    const std::array<uint32_t, kMaxTensorRank - 2>& offsets, uint32_t shared, Body&& body) {
  const auto first = static_cast<int64_t>(coordinates[0]);
  const auto extent = static_cast<int64_t>(map.dims[0]);
  const int64_t channels = map.box[0];
  const int64_t begin = first < 0 ? -first : 0;
  const int64_t end = extent - first < channels ? extent - first : channels;
  const auto images = static_cast<size_t>(map.rank - 1);
  std::array<int64_t, kMaxTensorRank> at{};
  for (size_t d = 1; d <= images; ++d) at[d] = coordinates[d];
  for (uint32_t p = 0; p < map.pixels; ++p) {
    BoxRow row;
    row.global = map.address;
    bool inside = begin < end;
    for (size_t d = 1; d <= images; ++d) {
      const int64_t g = at[d] + (d < images ? static_cast<int64_t>(offsets[d - 1]) : 0);
      inside = inside && g >= 0 && g < static_cast<int64_t>(map.dims[d]);
      row.global += static_cast<uint64_t>(g) * map.strides[d];
    }
    row.shared = shared + p * map.row_pitch();
    row.begin = inside ? static_cast<uint32_t>(begin) : 0;
    row.end = inside ? static_cast<uint32_t>(end) : 0;
    body(static_cast<const BoxRow&>(row));
    size_t d = 1;
    for (; d < images; ++d) {
      at[d] += map.element_strides[d];
      if (at[d] <= map.last_pixel(d)) break;
      at[d] = map.first_pixel(d);
    }
    if (d == images) at[images] += map.element_strides[images];
  }
}

}  // namespace imbrex::vgpu
