// SPDX-License-Identifier: Apache-2.0
// Tensor copies of the im2col modes: columns of pixels of 3- to 5-dimensional tensors, padding around the images,
// offsets of a filter's taps, strides, swizzles, element types; stores without offsets; prefetches.
#include <algorithm>

#include "families.h"
#include "tensor_box.h"

namespace imbrex::conformance {
namespace {

constexpr const char* kFamily = "im2col copies";

struct Column {
  std::vector<uint64_t> dims;  // channels, W, [H, [D,]] images
  uint32_t channels = 8, pixels = 16;
  std::vector<int> lower, upper;
  std::vector<int> at;
  std::vector<int> offsets;
  std::vector<uint32_t> element_strides = {};
  int type = 1, swizzle = 0;
  bool nan = false;
};

std::string text_of(const Column& c) {
  std::string text =
      fmt::format("type {} [{}] {} channels of {} pixels in [{}] to [{}] at [{}]", c.type, list(c.dims),
                  c.channels, c.pixels, list(c.lower), list(c.upper), list(c.at));
  if (c.swizzle != 0) text += fmt::format(" swizzle {}B", kSwizzleSpans[c.swizzle]);
  if (!c.element_strides.empty()) text += fmt::format(" element strides [{}]", list(c.element_strides));
  if (c.nan) text += " NaN fill";
  return text;
}

int64_t tensor_size(const Column& c) {
  int64_t bytes = kTensorElementBytes[c.type];
  for (uint64_t extent : c.dims) bytes *= static_cast<int64_t>(extent);
  return bytes;
}
int row_bytes(const Column& c) { return static_cast<int>(c.channels) * kTensorElementBytes[c.type]; }
int footprint(const Column& c) {
  const int pitch = c.swizzle == 0 ? row_bytes(c) : std::max(row_bytes(c), kSwizzleSpans[c.swizzle]);
  return (static_cast<int>(c.pixels) * pitch + 127) / 128 * 128;
}

MapSpec map_of(const Column& c) {
  MapSpec map;
  map.type = c.type, map.dims = c.dims, map.box = {c.channels}, map.element_strides = c.element_strides;
  map.swizzle = c.swizzle, map.fills_with_nan = c.nan;
  map.pixels = c.pixels, map.lower_corner = c.lower, map.upper_corner = c.upper;
  auto pitch = static_cast<uint64_t>(kTensorElementBytes[c.type]);
  for (size_t d = 0; d + 1 < c.dims.size(); ++d) map.strides_bytes.push_back(pitch *= c.dims[d]);
  return map;
}

std::vector<uint8_t> values(const Column& c, int64_t bytes, Random& random) {
  Box as_box;
  as_box.type = c.type;
  return tensor_bytes(as_box, bytes, random);
}

void add_load(Kernels& out, const Column& c, const std::string& before = "", const std::string& tail = "") {
  const std::string insn =
      fmt::format("cp.async.bulk.tensor.{}d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes{}",
                  c.dims.size(), tail);
  const std::string name =
      fmt::format("{}{} {{{}}} {}", before.empty() ? "" : "prefetch, ", insn, list(c.offsets), text_of(c));
  const int tile = footprint(c);
  Frame frame{.threads = 64, .tile_bytes = tile, .maps = 1};
  frame.body =
      fill_tile(frame, tile) + kInitCopyBarrier + "  @%p0 bra issued;\n" + before +
      fmt::format("  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {};\n",
                  static_cast<int>(c.pixels) * row_bytes(c)) +
      fmt::format("  mov.u16 %h0, {};\n", c.offsets[0]) +
      (tail.empty() ? "" : "  createpolicy.fractional.L2::evict_first.b64 %rd0, 1.0;\n") +
      fmt::format(
          "  {} [%tile], [%map0, {{{}}}], [%bar], {{%h0{}}}{};\nissued:\n", insn, list(c.at),
          c.offsets.size() == 1 ? "" : ", " + list(std::vector<int>(c.offsets.begin() + 1, c.offsets.end())),
          tail.empty() ? "" : ", %rd0") +
      wait_parity("%bar", 0, "wait") + dump_tile(frame, tile);
  Random random(name);
  std::vector<uint8_t> input = random_bytes(tile, random);
  const std::vector<uint8_t> tensor = values(c, tensor_size(c), random);
  input.insert(input.end(), tensor.begin(), tensor.end());
  MicroKernel kernel = make_kernel(kFamily, name, frame, std::move(input), tile);
  kernel.maps.push_back(map_of(c));
  kernel.maps[0].offset = tile;
  out.push_back(std::move(kernel));
}

/// The tensor, in the output, first gets the values of the input. `insn` is all before the operands.
void add_store(Kernels& out, const Column& c, const std::string& insn) {
  const std::string name = insn + " " + text_of(c);
  const int tile = footprint(c);
  const int64_t tensor = (tensor_size(c) + 255) / 256 * 256;
  Frame frame{.threads = 64, .tile_bytes = tile, .maps = 1};
  frame.body = fill_tile(frame, tile) + copy_input_to_output(tile, tensor) +
               fmt::format(R"(  {0} [%map0, {{{1}}}], [%tile];
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group 0;
done:
)",
                           insn, list(c.at));
  Random random(name);
  std::vector<uint8_t> input = values(c, tile, random);
  const std::vector<uint8_t> old = values(c, tensor, random);
  input.insert(input.end(), old.begin(), old.end());
  MicroKernel kernel = make_kernel(kFamily, name, frame, std::move(input), tensor);
  kernel.maps.push_back(map_of(c));
  kernel.maps[0].is_on_output = true;
  out.push_back(std::move(kernel));
}

}  // namespace

void add_im2col(Kernels& out) {
  // W only: a filter of 3 with padding 1 has the corners -1 and -1.
  const Column line{.dims = {16, 9, 5}, .lower = {-1}, .upper = {-1}, .at = {0, -1, 0}, .offsets = {0}};
  const Column plane{.dims = {16, 7, 6, 3},
                     .pixels = 64,
                     .lower = {-1, -1},
                     .upper = {-1, -1},
                     .at = {8, -1, -1, 0},
                     .offsets = {0, 0}};
  const Column volume{.dims = {16, 5, 4, 3, 4},
                      .pixels = 100,
                      .lower = {-1, 0, -2},
                      .upper = {-1, -1, 0},
                      .at = {0, 2, 1, -1, 1},
                      .offsets = {0, 0, 0}};
  for (int tap = 0; tap < 3; ++tap) {
    Column c = line;
    c.offsets = {tap};
    add_load(out, c);
    c.at = {8, 3, 1};  // begins within a row
    add_load(out, c);
    for (int row = 0; row < 3; ++row) {
      Column p = plane;
      p.offsets = {tap, row};
      add_load(out, p);
      p.at = {0, 2, 3, 1};
      add_load(out, p);
      Column v = volume;
      v.offsets = {tap, row, 2 - tap};
      add_load(out, v);
    }
  }
  // Beyond the last image; before the first; channels beyond the tensor's. (A start outside the box ends the kernel.)
  for (const std::vector<int>& at :
       {std::vector{0, 4, 4, 2}, {0, 4, 4, -1}, {0, 0, 0, 5}, {16, 0, 0, 0}, {-8, 0, 0, 0}, {8, 5, 4, 0}}) {
    Column c = plane;
    c.at = at;
    c.channels = 16;
    add_load(out, c);
  }
  // Boxes: smaller and larger than the image, one pixel. (Empty ones are refused.)
  for (const auto& [lower, upper] : {std::pair<std::vector<int>, std::vector<int>>{{2, 1}, {-2, -2}},
                                     {{0, 0}, {0, 0}},
                                     {{-3, -3}, {3, 2}},
                                     {{3, 3}, {-3, -2}},
                                     {{0, 0}, {-6, -5}},
                                     {{0, 2}, {0, -3}}}) {
    Column c = plane;
    c.lower = lower, c.upper = upper;
    c.at = {0, lower[0], lower[1], 0};
    c.offsets = {1, 1};
    add_load(out, c);
  }
  // Strides from pixel to pixel, of the images too.
  for (const std::vector<uint32_t>& strides : {std::vector<uint32_t>{1, 2, 1, 1},
                                               {1, 1, 2, 1},
                                               {1, 2, 2, 1},
                                               {1, 3, 2, 1},
                                               {2, 1, 1, 1},
                                               {1, 1, 1, 2},
                                               {1, 8, 5, 1}})
    for (int start : {-1, 0}) {
      Column c = plane;
      c.element_strides = strides;
      c.at = {0, start, -1, 0};
      c.offsets = {1, 0};
      add_load(out, c);
    }
  // Large offsets.
  for (const std::vector<int>& offsets : {std::vector{255, 0}, {0, 255}, {7, 3}, {128, 128}}) {
    Column c = plane;
    c.offsets = offsets;
    add_load(out, c);
  }
  Column far = line;
  far.offsets = {65535};
  add_load(out, far);
  far.lower = {-32768}, far.upper = {32767}, far.at = {0, 0, 0}, far.offsets = {0};
  add_load(out, far);
  Column edge = volume;
  edge.lower = {-16, -16, -16}, edge.upper = {15, 15, 15}, edge.offsets = {31, 17, 16}, edge.pixels = 256;
  edge.at = {0, -16, -16, -16, 0};
  add_load(out, edge);
  // Swizzles, channels, many pixels.
  for (int swizzle = 0; swizzle <= 3; ++swizzle)
    for (uint32_t channels : {8u, 16u, 32u, 64u}) {
      if (swizzle != 0 && static_cast<int>(channels) * 2 > kSwizzleSpans[swizzle]) continue;
      Column c = plane;
      c.dims[0] = 64, c.channels = channels, c.swizzle = swizzle, c.pixels = 50;
      c.at = {0, -1, 2, 1};
      add_load(out, c);
    }
  for (uint32_t pixels : {1u, 7u, 256u, 1024u}) {
    Column c = plane;
    c.pixels = pixels;
    add_load(out, c);
  }
  for (int type = 0; type <= 12; ++type) {
    Column c = plane;
    c.type = type, c.channels = static_cast<uint32_t>(16 / kTensorElementBytes[type]) * 2, c.at[0] = 0;
    c.dims[0] = 32, c.swizzle = 1;
    add_load(out, c);
    if (type >= 6 && type <= 10) c.nan = true, add_load(out, c);
  }
  add_load(out, plane, "", ".L2::cache_hint");
  add_load(out, plane, "  cp.async.bulk.prefetch.tensor.4d.L2.global.im2col [%map0, {8,-1,-1,0}], {1,2};\n");
  // Stores. (A pixel box that reaches beyond the tensor ends the kernel.)
  for (Column c : {line, plane, volume}) {
    const std::string store =
        fmt::format("cp.async.bulk.tensor.{}d.global.shared::cta.im2col_no_offs.bulk_group", c.dims.size());
    c.at.back() = 2;
    for (size_t d = 1; d + 1 < c.dims.size(); ++d) c.lower[d - 1] = 0, c.upper[d - 1] = 0, c.at[d] = 1;
    c.swizzle = 1;
    add_store(out, c, store);
    c.type = 2, c.channels = 4, c.at[0] = 4;
    for (const char* op : {"add", "max", "xor"})
      add_store(out, c,
                fmt::format("cp.reduce.async.bulk.tensor.{}d.global.shared::cta.{}.im2col_no_offs.bulk_group",
                            c.dims.size(), op));
  }
}

}  // namespace imbrex::conformance
