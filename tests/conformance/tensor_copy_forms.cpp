// SPDX-License-Identifier: Apache-2.0
// Tensor copies between global and shared memory: boxes of one to five dimensions, swizzles, elements
// outside, element types and strides, reductions, prefetches.
#include <algorithm>

#include "families.h"
#include "tensor_box.h"

namespace imbrex::conformance {
namespace {

/// `insn` has {0} for the shared address, {1} for the tensor operand and {2} for the barrier.
void add_load(Kernels& out, const Box& b, const std::string& insn, const std::string& before = "") {
  const std::string plain = fmt::format(fmt::runtime(insn), "[d]", "[map]", "[bar]");
  const std::string name = plain + " " + describe(b);
  BoxSizes sizes;
  MapSpec map = map_of(b, sizes);
  Frame frame{.threads = 64, .tile_bytes = sizes.footprint, .maps = 1};
  map.offset = sizes.footprint;
  frame.body =
      fill_tile(frame, sizes.footprint) + kInitCopyBarrier + "  @%p0 bra issued;\n" + before +
      fmt::format("  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], {};\n", sizes.transaction) +
      fmt::format("  add.u32 %r0, %tile, {};\n  ", b.tile_offset) +
      fmt::format(fmt::runtime(insn), "[%r0]", fmt::format("[%map0, {{{}}}]", list(b.at)), "[%bar]") +
      ";\nissued:\n" + wait_parity("%bar", 0, "wait") + dump_tile(frame, sizes.footprint);
  Random random(name);
  std::vector<uint8_t> input = random_bytes(sizes.footprint, random);
  const std::vector<uint8_t> tensor = tensor_bytes(b, sizes.tensor, random);
  input.insert(input.end(), tensor.begin(), tensor.end());
  MicroKernel kernel = make_kernel(kTensorCopies, name, frame, std::move(input), sizes.footprint);
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
  BoxSizes sizes;
  MapSpec map = map_of(b, sizes);
  map.is_on_output = true;
  Frame frame{.threads = 64, .tile_bytes = sizes.footprint, .maps = 1};
  frame.body = fill_tile(frame, sizes.footprint) + copy_input_to_output(sizes.footprint, sizes.tensor) +
               before + fmt::format("  add.u32 %r0, %tile, {};\n  ", b.tile_offset) +
               fmt::format(fmt::runtime(insn), fmt::format("[%map0, {{{}}}]", list(b.at)), "[%r0]") +
               ";\n  cp.async.bulk.commit_group;\n  cp.async.bulk.wait_group 0;\ndone:\n";
  Random random(name);
  std::vector<uint8_t> input = tensor_bytes(b, sizes.footprint, random);
  const std::vector<uint8_t> tensor = tensor_bytes(b, std::max<int64_t>(sizes.tensor, 256), random);
  input.insert(input.end(), tensor.begin(), tensor.end());
  input.resize(input.size() + 256);
  MicroKernel kernel = make_kernel(kTensorCopies, name, frame, std::move(input),
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
      if (swizzle != 0 && static_cast<int>(row) > kSwizzleSpans[swizzle]) continue;
      for (int offset : {0, 128, 640})
        boxes.push_back({.dims = {128, 40},
                         .box = {row / 2, 20},
                         .at = {8, 23},
                         .swizzle = swizzle,
                         .tile_offset = offset});
    }
  for (int type = 0; type <= 12; ++type) {
    const auto row = static_cast<uint32_t>(64 / kTensorElementBytes[type]);
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
      const int per_chunk = 16 / kTensorElementBytes[type];
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
    add_load(out, b, load_insn(rank, ".tile", ", %rd0"), policy);
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
  add_load(out, small, load_insn(2, ".tile", ", %rd0"), policy);
  for (const Box& b : common_boxes())
    if (b.dims.size() != 2 && b.type == 1 && b.tile_offset == 0) {
      add_store(out, b, store_insn(b.dims.size(), ".tile"));
      add_store(out, b, store_insn(b.dims.size(), ".tile", ", %rd0"), policy);
    }
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
      const int elements = 64 / kTensorElementBytes[row.type];
      const Box b{.type = row.type,
                  .dims = {static_cast<uint64_t>(2 * elements), 20},
                  .box = {static_cast<uint32_t>(elements), 8},
                  .at = {elements + elements / 2, 14},
                  .swizzle = 2};
      for (const char* mode : {"", ".tile"})
        add_store(
            out, b,
            fmt::format("cp.reduce.async.bulk.tensor.2d.global.shared::cta.{}{}.bulk_group {{0}}, {{1}}", op,
                        mode));
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

}  // namespace

void add_tensor_copies(Kernels& out) {
  add_loads(out);
  add_stores(out);
  add_reductions(out);
}

}  // namespace imbrex::conformance
