// SPDX-License-Identifier: Apache-2.0
// Tensor copies of the im2col modes: what a convolution needs. The reference is the convolution's own definition: output
// pixel (image, d, h, w) meets input pixel (image, d, h, w) * stride - padding + tap.
#include <gmock/gmock.h>

#include "imbrex/core/error.h"
#include "tma_kit.h"

namespace imbrex::vgpu {
namespace {

using testing::HasSubstr;

/// A convolution of 1 to 3 spatial dimensions, W first, all padded by (taps - 1) / 2, and the column to load.
struct Convolution {
  std::vector<int> extents;  // W, [H, [D]]
  int images = 2, channels = 32, taps = 3, stride = 1;
  int loaded_channels = 16, pixels = 64;
  int first_pixel = 0;  // of the output, row by row, image by image
  std::vector<int> tap;
  TensorMapSwizzle swizzle = TensorMapSwizzle::kNone;

  int padding() const { return (taps - 1) / 2; }
  int outputs(size_t d) const { return (extents[d] + 2 * padding() - taps) / stride + 1; }
};

struct Prepared {
  std::vector<uint16_t> values;
  std::vector<uint64_t> dims, strides;
  std::vector<int32_t> lower, upper;
  std::vector<uint32_t> element_strides;
  std::string place, offsets;
};

Prepared prepare(const Convolution& c) {
  Prepared p;
  p.dims = {static_cast<uint64_t>(c.channels)};
  p.element_strides = {1};
  int64_t count = c.channels;
  int pixel = c.first_pixel;
  p.place = "0";
  for (size_t d = 0; d < c.extents.size(); ++d) {
    p.dims.push_back(static_cast<uint64_t>(c.extents[d]));
    p.strides.push_back(static_cast<uint64_t>(2 * count));
    count *= c.extents[d];
    p.lower.push_back(-c.padding());
    p.upper.push_back(c.padding() - (c.taps - 1));
    p.element_strides.push_back(static_cast<uint32_t>(c.stride));
    p.place += fmt::format(", {}", pixel % c.outputs(d) * c.stride - c.padding());
    p.offsets += fmt::format("{}{}", d == 0 ? "" : ", ", c.tap[d]);
    pixel /= c.outputs(d);
  }
  p.dims.push_back(static_cast<uint64_t>(c.images));
  p.strides.push_back(static_cast<uint64_t>(2 * count));
  p.element_strides.push_back(1);
  p.place += fmt::format(", {}", pixel);
  TestRandom random(static_cast<uint32_t>(c.first_pixel + c.stride));
  p.values.resize(static_cast<size_t>(count * c.images));
  for (uint16_t& v : p.values) v = static_cast<uint16_t>(random.next() | 1);
  return p;
}

/// The value that channel `channel` of the column's pixel `index` has.
uint16_t expected(const Convolution& c, const Prepared& p, int index, int channel) {
  int pixel = c.first_pixel + index;
  int64_t at = channel, pitch = c.channels;
  for (size_t d = 0; d < c.extents.size(); ++d) {
    const int x = pixel % c.outputs(d) * c.stride - c.padding() + c.tap[d];
    pixel /= c.outputs(d);
    if (x < 0 || x >= c.extents[d]) return 0;
    at += x * pitch;
    pitch *= c.extents[d];
  }
  return pixel < c.images ? p.values[static_cast<size_t>(at + pixel * pitch)] : 0;
}

Im2colMapArguments map_arguments(const Convolution& c, const Prepared& p, DeviceAddress address) {
  Im2colMapArguments map;
  map.type = TensorMapType::kUInt16;
  map.address = address;
  map.dims = p.dims;
  map.strides_bytes = p.strides;
  map.lower_corner = p.lower;
  map.upper_corner = p.upper;
  map.channels = static_cast<uint32_t>(c.loaded_channels);
  map.pixels = static_cast<uint32_t>(c.pixels);
  map.element_strides = p.element_strides;
  map.swizzle = c.swizzle;
  return map;
}

Outcome load(const Convolution& c, const Prepared& p, const std::string& insn_end = "") {
  VirtualGpu gpu({.target = "sm_90a"});
  DeviceAddress address = to_device(gpu, p.values);
  const std::string end =
      insn_end.empty() ? fmt::format("[%rd10, {{{}}}], [%r11], {{{}}}", p.place, p.offsets) : insn_end;
  const std::string copy = fmt::format(
      "  cp.async.bulk.tensor.{}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r10], {};\n",
      p.dims.size(), end);
  return run("sm_90a", wait_for(static_cast<uint32_t>(c.pixels * c.loaded_channels * 2), copy),
             encode_tensor_map(map_arguments(c, p, address)), std::vector<uint8_t>(kTileBytes, 0xEE), gpu,
             address, 2);
}

void check(const Convolution& c) {
  const Prepared p = prepare(c);
  SCOPED_TRACE(fmt::format("at {} offsets {} stride {}", p.place, p.offsets, c.stride));
  const Outcome outcome = load(c, p);
  ASSERT_TRUE(outcome.report.clean()) << outcome.report.format();
  const auto pitch = std::max(static_cast<uint32_t>(2 * c.loaded_channels), span_of(c.swizzle));
  for (int i = 0; i < c.pixels; ++i)
    for (int channel = 0; channel < c.loaded_channels; ++channel) {
      const uint32_t at =
          swizzled(c.swizzle, static_cast<uint32_t>(i) * pitch + static_cast<uint32_t>(2 * channel));
      uint16_t got;
      std::memcpy(&got, &outcome.tile[at], 2);
      ASSERT_EQ(got, expected(c, p, i, channel)) << "pixel " << i << " channel " << channel;
    }
}

TEST(Im2col, ConvolutionsOfOneToThreeDimensions) {
  for (int stride : {1, 2})
    for (int first : {0, 5})
      for (int tap = 0; tap < 3; ++tap) {
        check({.extents = {11}, .stride = stride, .pixels = 16, .first_pixel = first, .tap = {tap}});
        check(
            {.extents = {7, 5}, .stride = stride, .pixels = 50, .first_pixel = first, .tap = {tap, 2 - tap}});
        check({.extents = {5, 4, 3},
               .stride = stride,
               .pixels = 100,
               .first_pixel = first,
               .tap = {tap, 1, 2 - tap}});
      }
}

TEST(Im2col, SwizzlesAndWiderFilters) {
  for (const TensorMapSwizzle swizzle :
       {TensorMapSwizzle::k32B, TensorMapSwizzle::k64B, TensorMapSwizzle::k128B})
    check({.extents = {9, 8},
           .channels = 64,
           .loaded_channels = 16,
           .first_pixel = 20,
           .tap = {0, 2},
           .swizzle = swizzle});
  check({.extents = {9, 8}, .taps = 7, .first_pixel = 3, .tap = {6, 0}});
  check({.extents = {9, 8}, .taps = 1, .first_pixel = 3, .tap = {0, 0}});
}

TEST(Im2col, ColumnsGoOnBehindTheLastImageWithZeros) {
  check({.extents = {4, 3}, .images = 1, .pixels = 64, .first_pixel = 6, .tap = {1, 1}});
}

TEST(Im2col, StoresWriteThePixelsOfTheBox) {
  const Convolution c{
      .extents = {6, 5}, .taps = 1, .loaded_channels = 8, .pixels = 40, .first_pixel = 7, .tap = {0, 0}};
  const Prepared p = prepare(c);
  VirtualGpu gpu({.target = "sm_90a"});
  DeviceAddress address = to_device(gpu, p.values);
  std::vector<uint8_t> tile(kTileBytes, 0xEE);
  for (size_t i = 0; i < 40 * 8; ++i)
    tile[2 * i] = static_cast<uint8_t>(i), tile[2 * i + 1] = static_cast<uint8_t>(i >> 8);
  const Outcome outcome = run(
      "sm_90a",
      fmt::format(
          "  cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [%rd10, {{{}}}], [%r10];\n"
          "  cp.async.bulk.commit_group;\n  cp.async.bulk.wait_group 0;\n",
          p.place),
      encode_tensor_map(map_arguments(c, p, address)), tile, gpu, address, p.values.size() * 2);
  ASSERT_TRUE(outcome.report.clean()) << outcome.report.format();
  for (int pixel = 0; pixel < 60; ++pixel)
    for (int channel = 0; channel < 32; ++channel) {
      const auto at = static_cast<size_t>(pixel * 32 + channel);
      uint16_t got;
      std::memcpy(&got, &outcome.buffer[2 * at], 2);
      const bool is_stored = pixel >= 7 && pixel < 47 && channel < 8;
      ASSERT_EQ(got, is_stored ? (pixel - 7) * 8 + channel : p.values[at]) << pixel << ", " << channel;
    }
}

TEST(Im2col, WrongCallsAreNamed) {
  const Convolution c{.extents = {6, 5}, .tap = {0, 0}};
  const Prepared p = prepare(c);
  EXPECT_THAT(load(c, p, "[%rd10, {0, 0, 0, 0}], [%r11], {256, 0}").report.format(),
              HasSubstr("im2col offset 256 of dimension 1 must lie in 0 ... 255"));
  EXPECT_THAT(load(c, p, "[%rd10, {4, 0, 0, 0}], [%r11], {0, 0}").report.format(),
              HasSubstr("coordinate 4 of dimension 0 is 8 bytes from the start"));
  VirtualGpu gpu({.target = "sm_90a"});
  DeviceAddress address = to_device(gpu, p.values);
  const TensorMap map = encode_tensor_map(map_arguments(c, p, address));
  const Outcome tile =
      run("sm_90a",
          wait_for(2048,
                   "  cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::"
                   "bytes [%r10], [%rd10, {0, 0, 0, 0}], [%r11];\n"),
          map, std::vector<uint8_t>(kTileBytes), gpu, address, 2);
  EXPECT_THAT(tile.report.format(),
              HasSubstr("the instruction is of the tile modes, the tensor map of the im2col modes"));
}

TEST(Im2col, WhatEndsTheKernelOnTheChipIsFound) {
  // Recorded on an H200: an illegal instruction.
  const Convolution c{.extents = {6, 5}, .tap = {0, 0}};
  const Prepared p = prepare(c);
  for (const char* place : {"0, -2, 0, 0", "0, 5, 0, 0", "0, 0, 4, 0"})
    EXPECT_THAT(load(c, p, fmt::format("[%rd10, {{{}}}], [%r11], {{0, 0}}", place)).report.format(),
                HasSubstr("is outside the pixel box, which goes from -1 to"));
  VirtualGpu gpu({.target = "sm_90a"});
  DeviceAddress address = to_device(gpu, p.values);
  const Outcome store =
      run("sm_90a",
          "  cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [%rd10, {0, 0, 0, 0}], "
          "[%r10];\n"
          "  cp.async.bulk.commit_group;\n  cp.async.bulk.wait_group 0;\n",
          encode_tensor_map(map_arguments(c, p, address)), std::vector<uint8_t>(kTileBytes), gpu, address, 2);
  EXPECT_THAT(store.report.format(),
              HasSubstr("the pixel box of dimension 1 goes from -1 to 4, beyond the tensor's 6 elements"));
}

// The words that driver 580 writes for this tensor on an H200; the address aside.
TEST(Im2col, TheEncoderWritesWhatTheDriverWrites) {
  const uint64_t dims[] = {64, 7, 6, 3, 2}, strides[] = {128, 896, 5376, 16128};
  const int32_t corners[] = {-1, -1, 0}, far[] = {-32768};
  Im2colMapArguments map;
  map.type = TensorMapType::kUInt16;
  map.channels = 64, map.pixels = 64;
  map.dims = std::span(dims).first(4), map.strides_bytes = std::span(strides).first(3);
  map.lower_corner = map.upper_corner = std::span(corners).first(2);
  TensorMap encoded = encode_tensor_map(map);
  EXPECT_EQ(encoded.words[1], 0x8000000b1u);
  EXPECT_EQ(encoded.words[7], 0x3fffffffffu);
  map.dims = dims, map.strides_bytes = strides, map.lower_corner = map.upper_corner = corners;
  encoded = encode_tensor_map(map);
  EXPECT_EQ(encoded.words[1], 0x8000000c1u);
  EXPECT_EQ(encoded.words[7], 0x3f03ff03ffu);
  map.dims = std::span(dims).first(3), map.strides_bytes = std::span(strides).first(2);
  map.lower_corner = far, map.upper_corner = std::span(corners).first(1);
  encoded = encode_tensor_map(map);
  EXPECT_EQ(encoded.words[1], 0x8000000a1u);
  EXPECT_EQ(encoded.words[7], 0x3fffff8000u);
}

std::string refusal(Im2colMapArguments map) {
  try {
    encode_tensor_map(map);
    return "";
  } catch (const Error& e) {
    return e.what();
  }
}

TEST(Im2col, TheEncoderRefusesWhatTheDriverRefuses) {
  const Convolution c{.extents = {6, 5}, .tap = {0, 0}};
  const Prepared p = prepare(c);
  const Im2colMapArguments good = map_arguments(c, p, 1 << 20);
  EXPECT_EQ(refusal(good), "");
  Im2colMapArguments map = good;
  map.channels = 257;
  EXPECT_THAT(refusal(map), HasSubstr("box extent 257 of dimension 0 must lie in 1 ... 256"));
  map.channels = 4;
  EXPECT_THAT(refusal(map), HasSubstr("inner box row of 8 bytes"));
  map = good, map.pixels = 1025;
  EXPECT_THAT(refusal(map), HasSubstr("1025 pixels per column must lie in 1 ... 1024"));
  const int32_t far[] = {0, -129};
  map = good, map.lower_corner = far;
  EXPECT_THAT(refusal(map),
              HasSubstr("lower corner -129 of the pixel box in dimension 2 must lie in -128 ... 127"));
  map = good, map.lower_corner = std::span(far, 1);
  EXPECT_THAT(refusal(map), HasSubstr("4 dimensions need corners of 2 numbers; given are 1 and 2"));
  const int32_t empty[] = {5, 0};
  map = good, map.lower_corner = empty;
  EXPECT_THAT(
      refusal(map),
      HasSubstr("the pixel box of dimension 1 goes from 5 to 4 (extent - 1 + upper corner): it is empty"));
  map = good, map.dims = std::span(p.dims).first(2), map.strides_bytes = std::span(p.strides).first(1);
  map.element_strides = {};
  EXPECT_THAT(refusal(map), HasSubstr("an im2col tensor has 3 to 5 dimensions, not 2"));
}

}  // namespace
}  // namespace imbrex::vgpu
