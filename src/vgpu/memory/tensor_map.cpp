// SPDX-License-Identifier: Apache-2.0
#include "vgpu/memory/tensor_map.h"

#include <fmt/format.h>

#include <utility>

#include "imbrex/core/error.h"

namespace imbrex::vgpu {
namespace {

constexpr TensorMapTypeFacts kTypes[] = {
    {"uint8", 0, 1, 8, false},         {"uint16", 1, 2, 16, false},       {"uint32", 2, 4, 32, false},
    {"int32", 3, 4, 32, false},        {"uint64", 4, 8, 64, false},       {"int64", 5, 8, 64, false},
    {"float16", 6, 2, 16, true},       {"float32", 7, 4, 32, true},       {"float64", 9, 8, 64, true},
    {"bfloat16", 10, 2, 16, true},     {"float32_ftz", 8, 4, 32, true},   {"tfloat32", 11, 4, 32, true},
    {"tfloat32_ftz", 12, 4, 32, true}, {"16 packed u4", 13, 0, 4, false}, {"16 padded u4", 14, 1, 4, false},
    {"16 padded u6", 15, 1, 6, false},
};

// No driver writes this; it tells a map from bytes that never were one.
constexpr uint64_t kMark = 0x70616D2D7865726D;
constexpr int kMarkWord = 15;
// Of im2col maps: the corners of the pixel box lie where tiled maps have the box, in two's complement.
constexpr int kCornerWord = 7, kUpperCornerLow = 16, kPixelsLow = 32;
int corner_bits(int rank) { return rank == 3 ? 16 : rank == 4 ? 8 : 5; }

// Fields of the object, by word and lowest bit: where the driver has them, as far as that is known.
void put(TensorMap& map, int word, int low, int width, uint64_t value) {
  map.words[static_cast<size_t>(word)] |= (value & (width == 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1))
                                          << low;
}
uint64_t get(const TensorMap& map, int word, int low, int width) {
  const uint64_t bits = map.words[static_cast<size_t>(word)] >> low;
  return width == 64 ? bits : bits & ((uint64_t{1} << width) - 1);
}

// Place of per-dimension fields: word and bit.
struct FieldPlace {
  int word, low;
};
constexpr FieldPlace kStridePlaces[] = {{0, 0}, {1, 32}, {2, 0}, {2, 32}, {3, 0}};
constexpr FieldPlace kDimPlaces[] = {{4, 0}, {4, 32}, {5, 0}, {5, 32}, {6, 0}};
constexpr FieldPlace kBoxPlaces[] = {{6, 56}, {7, 0}, {7, 8}, {7, 16}, {7, 24}};

struct SwizzleCode {
  int mode, atomicity;
};
SwizzleCode code_of(Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::k32B:
      return {1, 0};
    case Swizzle::k64B:
      return {2, 0};
    case Swizzle::k128B:
      return {3, 0};
    case Swizzle::k128BAtom32B:
      return {3, 1};
    case Swizzle::k128BAtom32BFlip8B:
      return {3, 2};
    case Swizzle::k128BAtom64B:
      return {3, 3};
    default:
      return {0, 0};
  }
}
Swizzle swizzle_of(uint64_t mode, uint64_t atomicity) {
  static constexpr Swizzle kModes[] = {Swizzle::kNone, Swizzle::k32B, Swizzle::k64B, Swizzle::k128B};
  static constexpr Swizzle kAtoms[] = {Swizzle::k128B, Swizzle::k128BAtom32B, Swizzle::k128BAtom32BFlip8B,
                                       Swizzle::k128BAtom64B};
  return mode == 3 ? kAtoms[atomicity] : kModes[mode];
}

bool is_padded(TensorMapType type) {
  return type == TensorMapType::kPacked16U4Padded || type == TensorMapType::kPacked16U6Padded;
}

}  // namespace

const TensorMapTypeFacts& facts(TensorMapType type) { return kTypes[static_cast<size_t>(type)]; }

uint32_t TensorMapFields::row_bytes() const {
  const uint32_t bytes = facts(type).shared_bytes;
  return bytes == 0 ? box[0] / 2 : box[0] * bytes;
}

uint32_t TensorMapFields::transaction_bytes() const {
  return rows() * box[0] * facts(type).eighths_in_global / 8;
}

uint32_t TensorMapFields::row_pitch() const {
  const uint32_t span = vgpu::facts(swizzle).span;
  return row_bytes() < span ? span : row_bytes();
}

uint32_t TensorMapFields::rows() const {
  if (is_im2col) return pixels;
  uint32_t rows = 1;
  for (int d = 1; d < rank; ++d) rows *= count(d);
  return rows;
}

TensorMap encode(const TensorMapFields& f) {
  TensorMap map;
  put(map, 0, 0, 64, f.address);
  put(map, 1, 4, 3, static_cast<uint64_t>(f.rank - 1));
  put(map, 1, 7, 4, facts(f.type).replace_value);
  put(map, 1, 11, 2, static_cast<uint64_t>(f.interleave));
  const SwizzleCode swizzle = code_of(f.swizzle);
  put(map, 1, 13, 2, static_cast<uint64_t>(swizzle.mode));
  put(map, 1, 15, 1, f.fill_with_nan ? 1 : 0);
  put(map, 1, 17, 2, static_cast<uint64_t>(f.l2_promotion));
  put(map, 1, 19, 2, static_cast<uint64_t>(swizzle.atomicity));
  for (size_t d = 0; d < kMaxTensorRank; ++d) {
    // Dimensions beyond the rank are kept, zeros on the host: tensormap.replace may set the rank last.
    const auto less_one = [](uint64_t value) { return value == 0 ? 0 : value - 1; };
    if (d > 0) {
      // Sixteenths of up to 40 bits: 32 bits in the usual place, the rest above the last of them.
      put(map, kStridePlaces[d].word, kStridePlaces[d].low, 32, f.strides[d] / 16);
      put(map, 3, 32 + 4 * static_cast<int>(d - 1), 4, f.strides[d] / 16 >> 32);
    }
    put(map, kDimPlaces[d].word, kDimPlaces[d].low, 32, less_one(f.dims[d]));
    put(map, 6, 32 + 3 * static_cast<int>(d), 3, less_one(f.element_strides[d]));
    if (d == 0 || !f.is_im2col) put(map, kBoxPlaces[d].word, kBoxPlaces[d].low, 8, less_one(f.box[d]));
  }
  put(map, 8, 0, 64, f.transaction_bytes());
  put(map, 9, 0, 64, vgpu::facts(f.swizzle).period);
  if (f.is_im2col) {
    put(map, 1, 0, 1, 1);
    put(map, kCornerWord, kPixelsLow, 10, f.pixels - 1);
    const int bits = corner_bits(f.rank);
    for (int d = 0; d < f.rank - 2; ++d) {
      const auto i = static_cast<size_t>(d);
      put(map, kCornerWord, bits * d, bits, static_cast<uint32_t>(f.lower_corner[i]));
      put(map, kCornerWord, kUpperCornerLow + bits * d, bits, static_cast<uint32_t>(f.upper_corner[i]));
    }
  }
  put(map, kMarkWord, 0, 64, kMark);
  return map;
}

DecodedTensorMap decode_for_replace(const TensorMap& map) {
  TensorMap marked = map;
  if (map.words == TensorMap{}.words) put(marked, kMarkWord, 0, 64, kMark);
  return decode(marked);
}

DecodedTensorMap decode(const TensorMap& map) {
  DecodedTensorMap out;
  if (get(map, kMarkWord, 0, 64) != kMark) {
    out.problem = "these 128 bytes are no tensor map";
    return out;
  }
  TensorMapFields& f = out.fields;
  f.address = get(map, 0, 0, 64);
  f.rank = static_cast<int>(get(map, 1, 4, 3)) + 1;
  if (f.rank > kMaxTensorRank) {
    out.problem = fmt::format("the tensor map has rank {}", f.rank);
    return out;
  }
  f.is_im2col = f.rank >= 3 && get(map, 1, 0, 1) != 0;
  for (size_t t = 0; t < std::size(kTypes); ++t)
    if (kTypes[t].replace_value == get(map, 1, 7, 4)) f.type = static_cast<TensorMapType>(t);
  f.interleave = static_cast<TensorMapInterleave>(get(map, 1, 11, 2));
  f.swizzle = swizzle_of(get(map, 1, 13, 2), get(map, 1, 19, 2));
  f.fill_with_nan = get(map, 1, 15, 1) != 0;
  f.l2_promotion = static_cast<int>(get(map, 1, 17, 2));
  for (size_t d = 0; d < kMaxTensorRank; ++d) {
    if (d > 0)
      f.strides[d] = (get(map, kStridePlaces[d].word, kStridePlaces[d].low, 32) |
                      get(map, 3, 32 + 4 * static_cast<int>(d - 1), 4) << 32) *
                     16;
    f.dims[d] = get(map, kDimPlaces[d].word, kDimPlaces[d].low, 32) + 1;
    f.element_strides[d] = static_cast<uint32_t>(get(map, 6, 32 + 3 * static_cast<int>(d), 3)) + 1;
    if (d == 0 || !f.is_im2col)
      f.box[d] = static_cast<uint32_t>(get(map, kBoxPlaces[d].word, kBoxPlaces[d].low, 8)) + 1;
  }
  if (f.is_im2col) {
    f.pixels = static_cast<uint32_t>(get(map, kCornerWord, kPixelsLow, 10)) + 1;
    const int bits = corner_bits(f.rank);
    const auto corner = [&](int low) {
      const auto value = static_cast<int32_t>(get(map, kCornerWord, low, bits));
      return value >> (bits - 1) != 0 ? value - (1 << bits) : value;
    };
    for (int d = 0; d < f.rank - 2; ++d) {
      f.lower_corner[static_cast<size_t>(d)] = corner(bits * d);
      f.upper_corner[static_cast<size_t>(d)] = corner(kUpperCornerLow + bits * d);
    }
  }
  if (f.interleave != TensorMapInterleave::kNone) out.problem = "interleaved tensor maps are not modelled";
  return out;
}

std::string refuse(const TensorMapFields& f) {
  if (f.rank < 1 || f.rank > kMaxTensorRank) return fmt::format("rank {} must lie in 1 ... 5", f.rank);
  if (f.interleave != TensorMapInterleave::kNone)
    return f.rank < 3 ? "interleaved tensors have at least three dimensions"
                      : "interleaved tensor maps are not modelled by the virtual GPU";
  const TensorMapTypeFacts& type = facts(f.type);
  const bool padded = is_padded(f.type);
  const uint64_t alignment = padded ? 32 : 16;
  if (f.address % alignment != 0)
    return fmt::format("global address {:#x} must be a multiple of {}", f.address, alignment);
  const uint32_t span = vgpu::facts(f.swizzle).span;
  for (size_t d = 0; d < static_cast<size_t>(f.rank); ++d) {
    if (f.dims[d] < 1 || f.dims[d] > uint64_t{1} << 32)
      return fmt::format("extent {} of dimension {} must lie in 1 ... 2^32", f.dims[d], d);
    if (d > 0 && (f.strides[d] % alignment != 0 || f.strides[d] >= uint64_t{1} << 40))
      return fmt::format("stride {} bytes of dimension {} must be a multiple of {} below 2^40", f.strides[d],
                         d, alignment);
    if (f.box[d] < 1 || f.box[d] > 256)
      return fmt::format("box extent {} of dimension {} must lie in 1 ... 256", f.box[d], d);
    if (f.element_strides[d] < 1 || f.element_strides[d] > 8)
      return fmt::format("element stride {} of dimension {} must lie in 1 ... 8", f.element_strides[d], d);
  }
  if (padded && f.dims[0] % 128 != 0)
    return fmt::format("dimension 0 of a padded type has {} elements, must be a multiple of 128", f.dims[0]);
  if (padded && f.box[0] != 128)
    return fmt::format("the box of a padded type is 128 elements wide, not {}", f.box[0]);
  if (f.type == TensorMapType::kPacked16U4 && f.dims[0] % 2 != 0)
    return fmt::format("dimension 0 of a packed 4-bit type has {} elements, must be even", f.dims[0]);
  if (f.row_bytes() % 16 != 0)
    return fmt::format("inner box row of {} bytes ({} elements of {}) must be a multiple of 16",
                       f.row_bytes(), f.box[0], type.name);
  if (span != 0 && f.row_bytes() > span)
    return fmt::format("inner box row of {} bytes is wider than the {}-byte swizzle", f.row_bytes(), span);
  if (f.fill_with_nan && !type.is_float)
    return fmt::format("elements of {} cannot be filled with NaN", type.name);
  if (f.is_im2col) {
    if (f.rank < 3) return fmt::format("an im2col tensor has 3 to 5 dimensions, not {}", f.rank);
    if (f.pixels < 1 || f.pixels > 1024)
      return fmt::format("{} pixels per column must lie in 1 ... 1024", f.pixels);
    const int32_t limit = im2col_limit(f.rank);
    for (size_t d = 0; d < static_cast<size_t>(f.rank - 2); ++d)
      for (const auto& [corner, name] : {std::pair(f.lower_corner[d], "lower"), {f.upper_corner[d], "upper"}})
        if (corner < -limit || corner >= limit)
          return fmt::format("{} corner {} of the pixel box in dimension {} must lie in {} ... {}", name,
                             corner, d + 1, -limit, limit - 1);
    for (size_t d = 1; d < static_cast<size_t>(f.rank - 1); ++d)
      if (f.last_pixel(d) < f.first_pixel(d))
        return fmt::format(
            "the pixel box of dimension {} goes from {} to {} (extent - 1 + upper corner): it is empty", d,
            f.first_pixel(d), f.last_pixel(d));
  }
  if (f.footprint() > 228 * 1024)
    return fmt::format("a box of {} bytes does not fit into shared memory", f.footprint());
  return "";
}

namespace {

[[noreturn]] void fail(const std::string& why) { throw LaunchError({{}, "tensor map: " + why, {}, ""}); }

/// What tiled and im2col maps have in common.
template <class Arguments>
TensorMapFields common_fields(const Arguments& a) {
  TensorMapFields f;
  f.rank = static_cast<int>(a.dims.size());
  if (f.rank < 1 || f.rank > kMaxTensorRank) fail(fmt::format("rank {} must lie in 1 ... 5", a.dims.size()));
  const size_t rank = a.dims.size();
  if (a.strides_bytes.size() + 1 != rank || (!a.element_strides.empty() && a.element_strides.size() != rank))
    fail(fmt::format("{} dimensions need {} strides and {} element strides (or none); given are {} and {}",
                     rank, rank - 1, rank, a.strides_bytes.size(), a.element_strides.size()));
  f.type = a.type;
  f.address = a.address;
  for (size_t d = 0; d < rank; ++d) {
    f.dims[d] = a.dims[d];
    if (d > 0) f.strides[d] = a.strides_bytes[d - 1];
    // Without interleave the element stride of dimension 0 has no effect.
    if (d > 0 && !a.element_strides.empty()) f.element_strides[d] = a.element_strides[d];
  }
  f.interleave = a.interleave;
  static constexpr Swizzle kSwizzles[] = {Swizzle::kNone,        Swizzle::k32B,
                                          Swizzle::k64B,         Swizzle::k128B,
                                          Swizzle::k128BAtom32B, Swizzle::k128BAtom32BFlip8B,
                                          Swizzle::k128BAtom64B};
  f.swizzle = kSwizzles[static_cast<size_t>(a.swizzle)];
  f.l2_promotion = a.l2_promotion;
  f.fill_with_nan = a.fill_with_nan;
  return f;
}

}  // namespace

TensorMap encode_tensor_map(const TensorMapArguments& a) {
  TensorMapFields f = common_fields(a);
  if (a.box.size() != a.dims.size())
    fail(fmt::format("{} dimensions need {} box extents; given are {}", f.rank, f.rank, a.box.size()));
  for (size_t d = 0; d < a.box.size(); ++d) f.box[d] = a.box[d];
  if (const std::string why = refuse(f); !why.empty()) fail(why);
  return encode(f);
}

TensorMap encode_tensor_map(const Im2colMapArguments& a) {
  TensorMapFields f = common_fields(a);
  if (f.rank < 3) fail(fmt::format("an im2col tensor has 3 to 5 dimensions, not {}", f.rank));
  const size_t corners = a.dims.size() - 2;
  if (a.lower_corner.size() != corners || a.upper_corner.size() != corners)
    fail(fmt::format("{} dimensions need corners of {} numbers; given are {} and {}", f.rank, corners,
                     a.lower_corner.size(), a.upper_corner.size()));
  f.is_im2col = true;
  f.box[0] = a.channels;
  f.pixels = a.pixels;
  for (size_t d = 0; d < corners; ++d)
    f.lower_corner[d] = a.lower_corner[d], f.upper_corner[d] = a.upper_corner[d];
  if (const std::string why = refuse(f); !why.empty()) fail(why);
  return encode(f);
}

}  // namespace imbrex::vgpu
