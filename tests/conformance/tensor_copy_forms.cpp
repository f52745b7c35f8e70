// SPDX-License-Identifier: Apache-2.0
// Tensor copies between global and shared memory: boxes of one to five dimensions, swizzles, elements
// outside, element types and strides, multicast, reductions, prefetches, and tensor maps changed by the
// kernel.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "families.h"

namespace imbrex::conformance {
namespace {

constexpr const char* kFamily = "tensor copies";
constexpr const char* kTypeNames[] = {"u8",  "u16", "u32",  "s32",     "u64",  "s64",     "f16",
                                      "f32", "f64", "bf16", "f32.ftz", "tf32", "tf32.ftz"};
constexpr int kBytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
constexpr const char* kValues[] = {"", "", "", "", "", "", "f16", "f32", "f64", "bf16", "f32", "f32", "f32"};
constexpr int kSpans[] = {16, 32, 64, 128};

struct Box {
  int type = 1;
  std::vector<uint64_t> dims;
  std::vector<uint32_t> box;
  std::vector<int> at;
  std::vector<uint32_t> element_strides = {};
  int swizzle = 0;
  bool nan = false;
  int tile_offset = 0;
  int padding = 0;                           // bytes between rows beyond their elements
  std::vector<uint64_t> strides_bytes = {};  // instead of the dense ones
};

std::string list(const auto& values) { return fmt::format("{}", fmt::join(values, ",")); }

std::string describe(const Box& b) {
  std::string text =
      fmt::format("{} [{}] box [{}] at [{}]", kTypeNames[b.type], list(b.dims), list(b.box), list(b.at));
  if (b.swizzle != 0) text += fmt::format(" swizzle {}B", kSpans[b.swizzle]);
  if (!b.element_strides.empty()) text += fmt::format(" element strides [{}]", list(b.element_strides));
  if (!b.strides_bytes.empty()) text += fmt::format(" strides [{}]", list(b.strides_bytes));
  if (b.nan) text += " NaN fill";
  if (b.tile_offset != 0) text += fmt::format(" shared +{}", b.tile_offset);
  return text;
}

struct Sizes {
  int64_t tensor = 0;  // bytes of global memory
  int transaction = 0, footprint = 0;
};

MapSpec map_of(const Box& b, Sizes& sizes) {
  MapSpec map;
  map.type = b.type, map.dims = b.dims, map.box = b.box, map.element_strides = b.element_strides;
  map.swizzle = b.swizzle, map.fills_with_nan = b.nan;
  auto pitch = b.dims[0] * static_cast<uint64_t>(kBytes[b.type]);
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
  const int row = static_cast<int>(b.box[0]) * kBytes[b.type];
  sizes.transaction = rows * row;
  const int row_pitch = b.swizzle == 0 ? row : std::max(row, kSpans[b.swizzle]);
  sizes.footprint = b.tile_offset + ((rows - 1) * row_pitch + row + 127) / 128 * 128;
  return map;
}

// The tensor: special floating-point values where the type has some.
std::vector<uint8_t> tensor_bytes(const Box& b, int64_t bytes, Random& random) {
  const std::string type = kValues[b.type];
  if (type.empty()) return random_bytes(bytes, random);
  std::vector<uint8_t> values;
  for (int64_t i = 0; i < bytes / kBytes[b.type]; ++i)
    append_values(values, type, static_cast<Profile>(i % kProfiles), 1, random);
  values.resize(static_cast<size_t>(bytes));
  return values;
}

constexpr const char* kInitBarrier =
    "  setp.ne.u32 %p0, %thread, 0;\n"
    "  @%p0 bra ready;\n"
    "  mbarrier.init.shared::cta.b64 [%bar], 1;\n"
    "  fence.mbarrier_init.release.cluster;\n"
    "ready:\n"
    "  fence.proxy.async;\n"
    "  bar.sync 0;\n";

/// `insn` has {0} for the shared address, {1} for the tensor operand and {2} for the barrier.
void add_load(Kernels& out, const Box& b, const std::string& insn, const std::string& before = "") {
  const std::string plain = fmt::format(fmt::runtime(insn), "[d]", "[map]", "[bar]");
  const std::string name = plain + " " + describe(b);
  Sizes sizes;
  MapSpec map = map_of(b, sizes);
  Frame frame{.threads = 64, .tile_bytes = sizes.footprint, .maps = 1};
  map.offset = sizes.footprint;
  frame.body =
      fill_tile(frame, sizes.footprint) + kInitBarrier + "  @%p0 bra issued;\n" + before +
      fmt::format("  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {};\n", sizes.transaction) +
      fmt::format("  add.u32 %r0, %tile, {};\n  ", b.tile_offset) +
      fmt::format(fmt::runtime(insn), "[%r0]", fmt::format("[%map0, {{{}}}]", list(b.at)), "[%bar]") +
      ";\nissued:\n" + wait_parity("%bar", 0, "wait") + dump_tile(frame, sizes.footprint);
  Random random(name);
  std::vector<uint8_t> input = random_bytes(sizes.footprint, random);
  const std::vector<uint8_t> tensor = tensor_bytes(b, sizes.tensor, random);
  input.insert(input.end(), tensor.begin(), tensor.end());
  MicroKernel kernel = make_kernel(kFamily, name, frame, std::move(input), sizes.footprint);
  kernel.maps.push_back(std::move(map));
  out.push_back(std::move(kernel));
}

std::string load_insn(size_t rank, const std::string& extra = "", const std::string& tail = "") {
  return fmt::format(
      "cp.async.bulk.tensor.{}d.shared::cluster.global{}.mbarrier::complete_tx::bytes{} "
      "{{0}}, {{1}}, {{2}}{}",
      rank, extra, tail.empty() ? "" : ".L2::cache_hint", tail);
}

/// `insn` has {0} for the tensor operand and {1} for the shared address. The tensor, in the output, first
/// gets the values of the input.
void add_store(Kernels& out, const Box& b, const std::string& insn, const std::string& before = "") {
  const std::string plain = fmt::format(fmt::runtime(insn), "[map]", "[s]");
  const std::string name = plain + " " + describe(b);
  Sizes sizes;
  MapSpec map = map_of(b, sizes);
  map.is_on_output = true;
  Frame frame{.threads = 64, .tile_bytes = sizes.footprint, .maps = 1};
  frame.body = fill_tile(frame, sizes.footprint) +
               fmt::format(R"(  shl.b32 %r380, %thread, 2;
old:
  cvt.u64.u32 %rd60, %r380;
  add.u64 %rd61, %rd60, %ginput;
  ld.global.b32 %r381, [%rd61+{0}];
  add.u64 %rd61, %rd60, %goutput;
  st.global.b32 [%rd61], %r381;
  add.u32 %r380, %r380, 256;
  setp.lt.u32 %p29, %r380, {1};
  @%p29 bra old;
  fence.proxy.async;
  bar.sync 0;
  setp.ne.u32 %p0, %thread, 0;
  @%p0 bra done;
)",
                           sizes.footprint, sizes.tensor) +
               before + fmt::format("  add.u32 %r0, %tile, {};\n  ", b.tile_offset) +
               fmt::format(fmt::runtime(insn), fmt::format("[%map0, {{{}}}]", list(b.at)), "[%r0]") +
               ";\n  cp.async.bulk.commit_group;\n  cp.async.bulk.wait_group 0;\ndone:\n";
  Random random(name);
  std::vector<uint8_t> input = tensor_bytes(b, sizes.footprint, random);
  const std::vector<uint8_t> tensor = tensor_bytes(b, std::max<int64_t>(sizes.tensor, 256), random);
  input.insert(input.end(), tensor.begin(), tensor.end());
  input.resize(input.size() + 256);
  MicroKernel kernel = make_kernel(kFamily, name, frame, std::move(input),
                                   std::max<int64_t>((sizes.tensor + 255) / 256 * 256, 256));
  kernel.maps.push_back(std::move(map));
  out.push_back(std::move(kernel));
}

std::string store_insn(size_t rank, const std::string& extra = "", const std::string& tail = "") {
  return fmt::format("cp.async.bulk.tensor.{}d.global.shared::cta{}.bulk_group{} {{0}}, {{1}}{}", rank, extra,
                     tail.empty() ? "" : ".L2::cache_hint", tail);
}

// Boxes that loads and stores both try; coordinates are not negative.
std::vector<Box> common_boxes() {
  std::vector<Box> boxes{
      {.dims = {64}, .box = {32}, .at = {16}},
      {.dims = {64, 20}, .box = {32, 8}, .at = {8, 5}, .padding = 32},
      {.dims = {32, 6, 5}, .box = {16, 4, 3}, .at = {8, 1, 2}},
      {.dims = {16, 4, 3, 5}, .box = {8, 3, 2, 4}, .at = {0, 1, 1, 0}},
      {.dims = {16, 4, 3, 5, 3}, .box = {16, 2, 2, 3, 2}, .at = {0, 2, 0, 1, 1}},
      {.dims = {256, 3}, .box = {256, 2}, .at = {0, 1}},
      {.dims = {8, 300}, .box = {8, 256}, .at = {0, 40}},
      {.dims = {64, 20}, .box = {64, 8}, .at = {56, 15}},  // beyond both upper edges
      {.dims = {64, 20}, .box = {64, 8}, .at = {0, 100}},  // wholly outside
      {.dims = {30, 5}, .box = {16, 4}, .at = {24, 3}},    // an odd row length
      {.dims = {1, 1}, .box = {8, 8}, .at = {0, 0}},       // one element
      {.dims = {16, 6, 5}, .box = {8, 4, 4}, .at = {8, 4, 3}, .swizzle = 1},
  };
  for (uint32_t row : {16u, 32u, 48u, 64u, 96u, 128u})
    for (int swizzle = 0; swizzle <= 3; ++swizzle) {
      if (swizzle != 0 && static_cast<int>(row) > kSpans[swizzle]) continue;
      for (int offset : {0, 128, 640})
        boxes.push_back({.dims = {128, 40},
                         .box = {row / 2, 20},
                         .at = {8, 23},
                         .swizzle = swizzle,
                         .tile_offset = offset});
    }
  for (int type = 0; type <= 12; ++type) {
    const auto row = static_cast<uint32_t>(64 / kBytes[type]);
    boxes.push_back({.type = type,
                     .dims = {2 * row, 9},
                     .box = {row, 4},
                     .at = {static_cast<int>(row) / 2, 6},
                     .swizzle = 2});
    boxes.push_back({.type = type, .dims = {4 * row, 8}, .box = {row, 8}, .at = {static_cast<int>(row), 0}});
  }
  boxes.push_back({.dims = {64, 40}, .box = {32, 15}, .at = {0, 1}, .element_strides = {1, 4}});
  boxes.push_back({.dims = {64, 40}, .box = {32, 16}, .at = {0, 31}, .element_strides = {1, 8}});
  boxes.push_back({.dims = {64, 40}, .box = {32, 8}, .at = {0, 1}, .element_strides = {2, 1}});
  boxes.push_back(
      {.dims = {16, 9, 12}, .box = {16, 5, 7}, .at = {0, 2, 1}, .element_strides = {1, 2, 3}, .swizzle = 1});
  return boxes;
}

std::vector<Box> ragged_boxes() {
  std::vector<Box> boxes;
  for (int type : {0, 1, 2, 4, 6, 7, 8, 9})
    for (int missing : {1, 2, 3}) {
      const int per_chunk = 16 / kBytes[type];
      if (missing >= per_chunk) continue;
      const auto width = static_cast<uint64_t>(3 * per_chunk - missing);
      const auto box = static_cast<uint32_t>(4 * per_chunk);
      boxes.push_back({.type = type, .dims = {width}, .box = {box}, .at = {0}});
      boxes.push_back({.type = type,
                       .dims = {width, 5},
                       .box = {box, 4},
                       .at = {per_chunk, 2},
                       .swizzle = 2,
                       .strides_bytes = {80}});
      // The box ends first.
      boxes.push_back({.type = type,
                       .dims = {width, 5},
                       .box = {static_cast<uint32_t>(per_chunk), 2},
                       .at = {2 * per_chunk, 1},
                       .strides_bytes = {64}});
    }
  return boxes;
}

void add_loads(Kernels& out) {
  for (const Box& b : common_boxes()) add_load(out, b, load_insn(b.dims.size()));
  for (bool nan : {false, true})
    for (const std::vector<int>& at : {std::vector<int>{-8, -3},
                                       {56, 15},
                                       {-64, 0},
                                       {1 << 20, 0},
                                       {0, -1000},
                                       {8, -1},
                                       {-2147483647 - 1, 0},
                                       {2147483640, 2147483647},
                                       {0, -2147483647 - 1}})
      for (int swizzle : {0, 3})
        add_load(out, {.type = 6, .dims = {64, 20}, .box = {64, 8}, .at = at, .swizzle = swizzle, .nan = nan},
                 load_insn(2));
  for (int type : {6, 7, 8, 9, 10, 11, 12})
    add_load(out, {.type = type, .dims = {20, 5}, .box = {16, 4}, .at = {16, -2}, .nan = true}, load_insn(2));
  add_load(out, {.dims = {16, 6, 5}, .box = {8, 4, 4}, .at = {-8, -2, 3}}, load_insn(3));
  add_load(out, {.dims = {16, 4, 3, 5, 3}, .box = {16, 2, 2, 3, 2}, .at = {8, -1, 2, -2, 2}}, load_insn(5));
  add_load(out, {.dims = {64, 40}, .box = {32, 15}, .at = {0, -3}, .element_strides = {1, 2}}, load_insn(2));
  // Strides that repeat or overlap rows.
  add_load(out, {.dims = {64, 20}, .box = {32, 8}, .at = {8, 5}, .strides_bytes = {0}}, load_insn(2));
  add_load(out, {.dims = {64, 20}, .box = {32, 8}, .at = {8, 5}, .strides_bytes = {16}}, load_insn(2));
  add_load(out, {.dims = {64, 4, 4}, .box = {32, 4, 4}, .at = {8, 0, 0}, .strides_bytes = {512, 48}},
           load_insn(3));
  const std::string policy = "  createpolicy.fractional.L2::evict_last.b64 %rd0, 1.0;\n";
  for (const Box& b : common_boxes()) {
    if (b.type != 1 || b.tile_offset != 0 || b.swizzle > 1) continue;
    const size_t rank = b.dims.size();
    if (b.padding == 0 && rank == 2) continue;
    add_load(out, b, load_insn(rank, ".tile"));
    add_load(out, b, load_insn(rank, "", ", %rd0"), policy);
    add_load(out, b,
             fmt::format("cp.async.bulk.tensor.{}d.shared::cta.global.tile.mbarrier::complete_tx::bytes "
                         "{{0}}, {{1}}, {{2}}",
                         rank));
    // Prefetches change nothing that can be seen; the load behind them must still be right.
    add_load(out, b, load_insn(rank),
             fmt::format("  cp.async.bulk.prefetch.tensor.{}d.L2.global.tile [%map0, {{{}}}];\n", rank,
                         list(b.at)));
    add_load(
        out, b, load_insn(rank) + " ",
        policy + fmt::format(
                     "  cp.async.bulk.prefetch.tensor.{}d.L2.global.L2::cache_hint [%map0, {{{}}}], %rd0;\n",
                     rank, list(b.at)));
  }
  const Box small{.dims = {64, 20}, .box = {32, 8}, .at = {8, 5}};
  add_load(out, small, load_insn(2) + "    ",
           "  cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%map0, {8,5}];\n");
  add_load(out, small, load_insn(2) + "  ", "  prefetch.tensormap [%map0];\n");
  add_load(out, small, load_insn(2) + "   ", "  prefetch.param.tensormap [map0];\n");
}

void add_stores(Kernels& out) {
  for (const Box& b : common_boxes()) add_store(out, b, store_insn(b.dims.size()));
  const std::string policy = "  createpolicy.fractional.L2::evict_first.b64 %rd0, 1.0;\n";
  const Box small{.dims = {64, 20}, .box = {32, 8}, .at = {8, 5}};
  add_store(out, small, store_insn(2, ".tile"));
  // Rows that end within 16 bytes.
  for (const Box& b : ragged_boxes()) {
    add_store(out, b, store_insn(b.dims.size()));
    add_load(out, b, load_insn(b.dims.size()));
    if (b.type >= 2 && b.type != 5 && b.type != 8)
      add_store(out, b,
                fmt::format("cp.reduce.async.bulk.tensor.{}d.global.shared::cta.add.bulk_group {{0}}, {{1}}",
                            b.dims.size()));
  }
  add_store(out, small, store_insn(2, "", ", %rd0"), policy);
}

void add_reductions(Kernels& out) {
  struct Row {
    int type;
    std::vector<const char*> ops;
  };
  const Row rows[] = {
      {2, {"add", "min", "max", "inc", "dec", "and", "or", "xor"}},
      {3, {"add", "min", "max"}},
      {4, {"add", "min", "max", "and", "or", "xor"}},
      {5, {"min", "max"}},
      {6, {"add", "min", "max"}},
      {9, {"add", "min", "max"}},
      {7, {"add"}},
      {10, {"add"}},
      {11, {"add"}},
      {12, {"add"}},
  };
  for (const Row& row : rows)
    for (const char* op : row.ops) {
      const int elements = 64 / kBytes[row.type];
      const Box b{.type = row.type,
                  .dims = {static_cast<uint64_t>(2 * elements), 20},
                  .box = {static_cast<uint32_t>(elements), 8},
                  .at = {elements + elements / 2, 14},
                  .swizzle = 2};
      add_store(
          out, b,
          fmt::format("cp.reduce.async.bulk.tensor.2d.global.shared::cta.{}.bulk_group {{0}}, {{1}}", op));
    }
  for (const Box& b : common_boxes())
    if (b.type == 2 || (b.type == 1 && b.dims.size() != 2 && b.swizzle == 0)) {
      Box words = b;
      words.type = 2;
      add_store(
          out, words,
          fmt::format("cp.reduce.async.bulk.tensor.{}d.global.shared::cta.add.tile.bulk_group {{0}}, {{1}}",
                      b.dims.size()));
    }
  add_store(out, {.type = 2, .dims = {64, 20}, .box = {16, 8}, .at = {8, 5}},
            "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group.L2::cache_hint {0}, {1}, %rd0",
            "  createpolicy.fractional.L2::evict_first.b64 %rd0, 1.0;\n");
}

// Every CTA of a cluster gets the box that CTA `from` loads, where the mask says so.
void add_multicast(Kernels& out, int cluster, uint32_t mask, bool hinted) {
  const Box b{.dims = {64, 20}, .box = {32, 8}, .at = {8, 5}, .swizzle = 2};
  Sizes sizes;
  MapSpec map = map_of(b, sizes);
  Frame frame{.threads = 64, .ctas = cluster, .cluster = cluster, .tile_bytes = sizes.footprint, .maps = 1};
  const std::string name = fmt::format(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster{} "
      "cluster {} mask {:#x}",
      hinted ? ".L2::cache_hint" : "", cluster, mask);
  map.offset = int64_t{sizes.footprint} * cluster;
  frame.body =
      fill_tile(frame, sizes.footprint) + kInitBarrier +
      fmt::format(R"(  barrier.cluster.arrive.release.aligned;
  barrier.cluster.wait.acquire.aligned;
  mov.u32 %r1, %cluster_ctarank;
  mov.u32 %r2, {0};
  shr.u32 %r2, %r2, %r1;
  and.b32 %r2, %r2, 1;
  setp.eq.u32 %p1, %r2, 1;
  @%p0 bra issued;
  @%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {1};
  setp.ne.u32 %p2, %r1, 1;
  @%p2 bra issued;
  mov.u16 %h0, {0};
  createpolicy.fractional.L2::evict_last.b64 %rd0, 1.0;
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster{2} [%tile], [%map0, {{8,5}}], [%bar], %h0{3};
issued:
  bar.sync 0;
  @!%p1 bra waited;
)",
                  mask, sizes.transaction, hinted ? ".L2::cache_hint" : "", hinted ? ", %rd0" : "") +
      wait_parity("%bar", 0, "wait") +
      "waited:\n  barrier.cluster.arrive.release.aligned;\n  barrier.cluster.wait.acquire.aligned;\n" +
      dump_tile(frame, sizes.footprint);
  Random random(name);
  std::vector<uint8_t> input = random_bytes(map.offset + sizes.tensor, random);
  MicroKernel kernel = make_kernel(kFamily, name, frame, std::move(input), map.offset);
  kernel.maps.push_back(std::move(map));
  out.push_back(std::move(kernel));
}

// A map is copied to shared memory, a field replaced, published, and used by a load.
void add_replace(Kernels& out, const std::string& field, const std::string& type, const std::string& value,
                 const Box& before, const Box& after, const std::string& scope = "gpu") {
  const std::string insn = fmt::format("tensormap.replace.tile.{}.shared::cta.b1024.{} [map], {}{}", field,
                                       type, value, scope == "gpu" ? "" : " scope " + scope);
  Sizes sizes, sizes_before;
  MapSpec map = map_of(before, sizes_before);
  map_of(after, sizes);
  const int tile = std::max(sizes.footprint, sizes_before.footprint);
  Frame frame{.threads = 64, .tile_bytes = tile + 128, .maps = 1};
  map.offset = tile;
  frame.body =
      fill_tile(frame, tile) + kInitBarrier +
      fmt::format(R"(  setp.ge.u32 %p1, %thread, 32;
  @%p1 bra copied;
  mad.wide.u32 %rd0, %lane, 4, %map0;
  ld.b32 %r0, [%rd0];
  mad.lo.u32 %r1, %lane, 4, %tile;
  st.shared.b32 [%r1+{0}], %r0;
  bar.warp.sync 0xffffffff;
  add.u32 %r2, %tile, {0};
  add.u64 %rd1, %goutput, {0};
  add.u64 %rd2, %ginput, {0};
  add.u64 %rd2, %rd2, 64;
  @%p0 bra replaced;
  tensormap.replace.tile.{1}.shared::cta.b1024.{2} [%r2], {3};
replaced:
  bar.warp.sync 0xffffffff;
  tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.{7}.sync.aligned [%rd1], [%r2], 128;
copied:
  bar.sync 0;
  add.u64 %rd1, %goutput, {0};
  @%p0 bra issued;
  fence.proxy.tensormap::generic.acquire.{7} [%rd1], 128;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {4};
  cp.async.bulk.tensor.{5}d.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%rd1, {{{6}}}], [%bar];
issued:
)",
                  tile, field, type, value, sizes.transaction, after.dims.size(), list(after.at), scope) +
      wait_parity("%bar", 0, "wait") + dump_tile(frame, tile) +
      // What the map's bytes are is the driver's affair, and they hold an address.
      fmt::format(
          "  bar.sync 0;\n  add.u64 %rd1, %goutput, {};\n  setp.lt.u32 %p1, %thread, 32;\n"
          "  mad.wide.u32 %rd0, %lane, 4, %rd1;\n  @%p1 st.global.b32 [%rd0], 0;\n",
          tile);
  Random random(insn);
  std::vector<uint8_t> input = random_bytes(tile, random);
  const std::vector<uint8_t> tensor = tensor_bytes(after, 16384, random);
  input.insert(input.end(), tensor.begin(), tensor.end());
  MicroKernel kernel = make_kernel(kFamily, insn, frame, std::move(input), tile + 128);
  kernel.maps.push_back(std::move(map));
  out.push_back(std::move(kernel));
}

void add_replacements(Kernels& out) {
  const Box box{.type = 6, .dims = {64, 20}, .box = {32, 8}, .at = {48, 5}};
  const auto changed = [&](auto&& change) {
    Box after = box;
    change(after);
    return after;
  };
  add_replace(out, "global_address", "b64", "%rd2", box, box);
  for (const char* scope : {"cta", "cluster", "sys"})
    add_replace(out, "global_stride", "b64", "0, 256", box, box, scope);
  add_replace(out, "rank", "b32", "0", box,
              changed([](Box& b) { b.dims = {64}, b.box = {32}, b.at = {48}; }));
  add_replace(out, "box_dim", "b32", "1, 3", box, changed([](Box& b) { b.box = {32, 3}; }));
  add_replace(out, "global_dim", "b32", "0, 56", box, changed([](Box& b) { b.dims = {56, 20}; }));
  add_replace(out, "global_dim", "b32", "1, 7", box, changed([](Box& b) { b.dims = {64, 7}; }));
  add_replace(out, "global_stride", "b64", "0, 256", box, box);
  add_replace(out, "element_stride", "b32", "1, 3", box, changed([](Box& b) { b.element_strides = {1, 3}; }));
  add_replace(out, "swizzle_mode", "b32", "2", box, changed([](Box& b) { b.swizzle = 2; }));
  add_replace(out, "fill_mode", "b32", "1", box, box);
  add_replace(out, "elemtype", "b32", "10", box, box);
  add_replace(out, "interleave_layout", "b32", "0", box, box);
}

}  // namespace

void add_tensor_copies(Kernels& out) {
  add_loads(out);
  add_stores(out);
  add_reductions(out);
  add_multicast(out, 2, 0x3, false);
  add_multicast(out, 2, 0x1, false);
  add_multicast(out, 4, 0xB, false);
  add_multicast(out, 8, 0xA5, true);
  add_replacements(out);
}

}  // namespace imbrex::conformance
