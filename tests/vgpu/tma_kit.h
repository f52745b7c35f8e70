// SPDX-License-Identifier: Apache-2.0
// What the tests of tensor copies and bulk copies share: a box and its tensor, the closed formula of its bytes,
// and a kernel that copies it.
#pragma once

#include <bit>
#include <cstring>

#include "core/float_formats.h"
#include "register_kernel.h"

namespace imbrex::vgpu {

// The rule of each swizzle on address bits, by driver enumeration.
inline uint32_t swizzled(TensorMapSwizzle mode, uint32_t a) {
  switch (mode) {
    case TensorMapSwizzle::k32B:
      return a ^ (a >> 7 & 1) << 4;
    case TensorMapSwizzle::k64B:
      return a ^ (a >> 7 & 3) << 4;
    case TensorMapSwizzle::k128B:
      return a ^ (a >> 7 & 7) << 4;
    case TensorMapSwizzle::k128BAtom32B:
      return a ^ (a >> 7 & 3) << 5;
    case TensorMapSwizzle::k128BAtom32BFlip8B:
      return a ^ (a >> 7 & 3) << 5 ^ (a >> 7 & 1) << 3;
    case TensorMapSwizzle::k128BAtom64B:
      return a ^ (a >> 7 & 1) << 6;
    default:
      return a;
  }
}
inline uint32_t span_of(TensorMapSwizzle mode) {
  return mode == TensorMapSwizzle::kNone  ? 0
         : mode == TensorMapSwizzle::k32B ? 32
         : mode == TensorMapSwizzle::k64B ? 64
                                          : 128;
}

struct BoxCase {
  TensorMapType type = TensorMapType::kUInt16;
  uint32_t es = 2;
  std::vector<uint64_t> dims;
  std::vector<uint32_t> box;
  std::vector<int> at;
  std::vector<uint32_t> element_strides = {};
  TensorMapSwizzle swizzle = TensorMapSwizzle::kNone;
  bool nan = false;
  uint32_t tile_offset = 0;  // of the destination in the tile, a multiple of 128
  uint64_t padding = 0;      // bytes between rows beyond their elements
};

inline constexpr uint32_t kTileBytes = 32768;

struct Tensor {
  std::vector<uint64_t> strides;  // of dimensions 1 ...
  std::vector<uint8_t> bytes;
};

inline Tensor make_tensor(const BoxCase& c) {
  Tensor t;
  uint64_t pitch = c.dims[0] * c.es;
  for (size_t d = 1; d < c.dims.size(); ++d) {
    pitch = (pitch + 15) / 16 * 16 + c.padding;
    t.strides.push_back(pitch);
    pitch *= c.dims[d];
  }
  t.bytes.resize(std::max<uint64_t>(pitch, 16));
  TestRandom random(5);
  for (uint8_t& b : t.bytes) b = static_cast<uint8_t>(random.next() >> 8);
  return t;
}

// Calls body(linear shared offset, byte offset in the tensor or -1) for every element of the box, dimension 0
// fastest. Stores see dimension 0 end at a multiple of 16 bytes (`is_store`).
template <class Body>
inline uint32_t for_each_element(const BoxCase& c, const Tensor& t, Body&& body, bool is_store = false) {
  const size_t rank = c.dims.size();
  std::vector<uint32_t> count(rank);
  uint32_t total = 1;
  for (size_t d = 0; d < rank; ++d) {
    const uint32_t stride = d == 0 || c.element_strides.empty() ? 1 : c.element_strides[d];
    count[d] = (c.box[d] + stride - 1) / stride;
    total *= count[d];
  }
  const uint32_t pitch = std::max(count[0] * c.es, span_of(c.swizzle));
  std::vector<uint32_t> i(rank, 0);
  for (uint32_t n = 0; n < total; ++n) {
    bool inside = true;
    int64_t offset = 0;
    uint32_t row = 0;
    for (size_t d = rank; d-- > 1;) row = row * count[d] + i[d];
    for (size_t d = 0; d < rank; ++d) {
      const int64_t stride = d == 0 || c.element_strides.empty() ? 1 : c.element_strides[d];
      const int64_t g = c.at[d] + i[d] * stride;
      const uint64_t extent = d == 0 && is_store ? (c.dims[0] * c.es + 15) / 16 * 16 / c.es : c.dims[d];
      inside = inside && g >= 0 && g < static_cast<int64_t>(extent);
      offset += g * (d == 0 ? c.es : static_cast<int64_t>(t.strides[d - 1]));
    }
    body(row * pitch + i[0] * c.es, inside ? offset : -1);
    for (size_t d = 0; d < rank && ++i[d] == count[d]; ++d) i[d] = 0;
  }
  return total * c.es;
}

inline TensorMap map_of(const BoxCase& c, const Tensor& t, DeviceAddress address) {
  TensorMapArguments arguments;
  arguments.type = c.type;
  arguments.address = address;
  arguments.dims = c.dims;
  arguments.strides_bytes = t.strides;
  arguments.box = c.box;
  arguments.element_strides = c.element_strides;
  arguments.swizzle = c.swizzle;
  arguments.fill_with_nan = c.nan;
  return encode_tensor_map(arguments);
}

// A kernel whose thread 0 runs `middle`, between a fill of the tile from memory and a copy back. %r10 is the
// tile, %r11 the barrier, %rd10 the map, %rd11 a buffer.
inline std::string tma_kernel(const std::string& target, const std::string& middle) {
  return fmt::format(R"(
.version 9.0
.target {}
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 tile_in, .param .u64 tile_out, .param .u64 buffer)
.reqntid 128
{{
  .reg .pred %p<8>;
  .reg .b32 %r<32>;
  .reg .b64 %rd<32>;
  .reg .b16 %h<4>;
  .shared .align 1024 .b8 tile[{}];
  .shared .align 8 .b64 barrier;
  ld.param.u64 %rd1, [tile_in];
  ld.param.u64 %rd2, [tile_out];
  ld.param.u64 %rd11, [buffer];
  mov.b64 %rd10, map;
  cvta.param.u64 %rd10, %rd10;
  mov.u32 %r10, tile;
  mov.u32 %r11, barrier;
  mov.u32 %r1, %tid.x;
  shl.b32 %r2, %r1, 2;
fill:
  cvt.u64.u32 %rd3, %r2;
  add.u64 %rd4, %rd1, %rd3;
  ld.global.b32 %r3, [%rd4];
  add.u32 %r4, %r10, %r2;
  st.shared.b32 [%r4], %r3;
  add.u32 %r2, %r2, 512;
  setp.lt.u32 %p1, %r2, {};
  @%p1 bra fill;
  setp.ne.u32 %p2, %r1, 0;
  @%p2 bra ready;
  mbarrier.init.shared::cta.b64 [%r11], 1;
ready:
  fence.proxy.async;
  bar.sync 0;
  @%p2 bra done;
{}
done:
  bar.sync 0;
  shl.b32 %r2, %r1, 2;
drain:
  cvt.u64.u32 %rd3, %r2;
  add.u64 %rd4, %rd2, %rd3;
  add.u32 %r4, %r10, %r2;
  ld.shared.b32 %r3, [%r4];
  st.global.b32 [%rd4], %r3;
  add.u32 %r2, %r2, 512;
  setp.lt.u32 %p1, %r2, {};
  @%p1 bra drain;
  ret;
}}
)",
                     target, kTileBytes, kTileBytes, middle, kTileBytes);
}

inline std::string wait_for(uint32_t bytes_expected_first, const std::string& copy) {
  return fmt::format(
      "  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], {};\n{}wait:\n"
      "  mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r11], 0;\n  @!%p3 bra wait;\n",
      bytes_expected_first, copy);
}

struct Outcome {
  Report report;
  std::vector<uint8_t> tile, buffer;
};

inline Outcome run(const std::string& target, const std::string& middle, const TensorMap& map,
                   const std::vector<uint8_t>& tile, VirtualGpu& gpu, DeviceAddress buffer,
                   size_t buffer_bytes) {
  DeviceAddress in = to_device(gpu, tile), out = gpu.allocate(kTileBytes);
  TensorMap copy = map;
  void* arguments[] = {&copy, &in, &out, &buffer};
  Outcome outcome;
  outcome.report = gpu.launch(gpu.load_module(tma_kernel(target, middle), "tma.ptx").function("k"),
                              {.block = {128}, .arguments = arguments});
  outcome.tile = from_device<uint8_t>(gpu, out, kTileBytes);
  outcome.buffer = from_device<uint8_t>(gpu, buffer, buffer_bytes);
  return outcome;
}

inline std::string coordinates(const BoxCase& c) {
  std::string text;
  for (size_t d = 0; d < c.at.size(); ++d) text += fmt::format("{}{}", d == 0 ? "" : ", ", c.at[d]);
  return text;
}

inline Outcome load(const BoxCase& c, const Tensor& t, const std::string& target, uint32_t bytes,
                    uint64_t seed = 0) {
  VirtualGpu gpu({.target = target, .seed = seed});
  DeviceAddress address = to_device(gpu, t.bytes);
  const std::string copy = fmt::format(
      "  add.u32 %r12, %r10, {};\n  "
      "cp.async.bulk.tensor.{}d.shared::cluster.global.mbarrier::complete_tx::bytes [%r12], [%rd10, {{{}}}], "
      "[%r11];\n",
      c.tile_offset, c.dims.size(), coordinates(c));
  return run(target, wait_for(bytes, copy), map_of(c, t, address), std::vector<uint8_t>(kTileBytes, 0xEE),
             gpu, address, t.bytes.size());
}

inline std::string text_of(const BoxCase& c) {
  std::string text = fmt::format("type {} swizzle {} at {{{}}} box", static_cast<int>(c.type),
                                 static_cast<int>(c.swizzle), coordinates(c));
  for (uint32_t b : c.box) text += fmt::format(" {}", b);
  return text;
}

inline std::vector<uint8_t> random_tile() {
  std::vector<uint8_t> tile(kTileBytes);
  TestRandom random(11);
  for (uint8_t& b : tile) b = static_cast<uint8_t>(random.next() >> 8);
  return tile;
}

inline const std::string kFinish = "  cp.async.bulk.commit_group;\n  cp.async.bulk.wait_group 0;\n";

}  // namespace imbrex::vgpu
