// SPDX-License-Identifier: Apache-2.0
// Tensor copies and bulk copies: every byte against the closed formula of a box, plainly evaluated.
#include <bit>
#include <cstring>

#include "core/float_formats.h"
#include "register_kernel.h"
#include "vgpu/memory/tensor_map.h"

namespace imbrex::vgpu {
namespace {

// The rule of each swizzle on address bits, by driver enumeration.
uint32_t swizzled(TensorMapSwizzle mode, uint32_t a) {
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
uint32_t span_of(TensorMapSwizzle mode) {
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

constexpr uint32_t kTileBytes = 32768;

struct Tensor {
  std::vector<uint64_t> strides;  // of dimensions 1 ...
  std::vector<uint8_t> bytes;
};

Tensor make_tensor(const BoxCase& c) {
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
uint32_t for_each_element(const BoxCase& c, const Tensor& t, Body&& body, bool is_store = false) {
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

TensorMap map_of(const BoxCase& c, const Tensor& t, DeviceAddress address) {
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
std::string tma_kernel(const std::string& target, const std::string& middle) {
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

std::string wait_for(uint32_t bytes_expected_first, const std::string& copy) {
  return fmt::format(
      "  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], {};\n{}wait:\n"
      "  mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r11], 0;\n  @!%p3 bra wait;\n",
      bytes_expected_first, copy);
}

struct Outcome {
  Report report;
  std::vector<uint8_t> tile, buffer;
};

Outcome run(const std::string& target, const std::string& middle, const TensorMap& map,
            const std::vector<uint8_t>& tile, VirtualGpu& gpu, DeviceAddress buffer, size_t buffer_bytes) {
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

std::string coordinates(const BoxCase& c) {
  std::string text;
  for (size_t d = 0; d < c.at.size(); ++d) text += fmt::format("{}{}", d == 0 ? "" : ", ", c.at[d]);
  return text;
}

Outcome load(const BoxCase& c, const Tensor& t, const std::string& target, uint32_t bytes,
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

std::string text_of(const BoxCase& c) {
  std::string text = fmt::format("type {} swizzle {} at {{{}}} box", static_cast<int>(c.type),
                                 static_cast<int>(c.swizzle), coordinates(c));
  for (uint32_t b : c.box) text += fmt::format(" {}", b);
  return text;
}

void check_load(const BoxCase& c, const std::string& target = "sm_90a", uint64_t seed = 0) {
  SCOPED_TRACE(text_of(c));
  const Tensor t = make_tensor(c);
  std::vector<uint8_t> expected(kTileBytes, 0xEE);
  const uint32_t bytes = for_each_element(c, t, [&](uint32_t linear, int64_t source) {
    for (uint32_t b = 0; b < c.es; ++b) {
      const uint32_t at = swizzled(c.swizzle, c.tile_offset + linear + b);
      expected[at] = source >= 0 ? t.bytes[static_cast<size_t>(source) + b]
                     : c.nan     ? static_cast<uint8_t>(b % 2 == 0 ? 0xF7 : 0x7F)
                                 : uint8_t{0};
    }
  });
  const Outcome outcome = load(c, t, target, bytes, seed);
  ASSERT_TRUE(outcome.report.clean()) << outcome.report.format();
  ASSERT_EQ(outcome.tile, expected);
  EXPECT_EQ(outcome.report.statistics.tma_bytes_loaded, bytes);
}

TEST(TmaLoad, RanksOneToFive) {
  check_load({.dims = {64}, .box = {32}, .at = {16}});
  check_load({.dims = {64, 20}, .box = {32, 8}, .at = {8, 5}, .padding = 32});
  check_load({.dims = {32, 6, 5}, .box = {16, 4, 3}, .at = {8, 1, 2}});
  check_load({.dims = {16, 4, 3, 5}, .box = {8, 3, 2, 4}, .at = {0, 1, 1, 0}});
  check_load({.dims = {16, 4, 3, 5, 3}, .box = {16, 2, 2, 3, 2}, .at = {0, 2, 0, 1, 1}});
}

TEST(TmaLoad, EverySwizzleAndRowsNarrowerThanItsSpan) {
  for (uint32_t row : {16u, 48u, 64u, 128u})
    for (int mode = 0; mode <= 3; ++mode) {
      const auto swizzle = static_cast<TensorMapSwizzle>(mode);
      if (mode != 0 && row > span_of(swizzle)) continue;
      for (uint32_t offset : {0u, 128u, 640u})
        check_load({.dims = {128, 40},
                    .box = {row / 2, 20},
                    .at = {8, 3},
                    .swizzle = swizzle,
                    .tile_offset = offset});
    }
  for (int mode = 4; mode <= 6; ++mode)
    check_load(
        {.dims = {64, 40}, .box = {64, 20}, .at = {0, 3}, .swizzle = static_cast<TensorMapSwizzle>(mode)},
        "sm_100a");
}

TEST(TmaLoad, OutsideElementsAreFilled) {
  for (bool nan : {false, true})
    for (const std::vector<int>& at :
         {std::vector<int>{-8, -3}, {56, 15}, {0, 100}, {-64, 0}, {1 << 20, 0}, {0, -1000}, {8, -1}})
      for (TensorMapSwizzle swizzle : {TensorMapSwizzle::kNone, TensorMapSwizzle::k128B})
        check_load({.type = TensorMapType::kFloat16,
                    .dims = {64, 20},
                    .box = {64, 8},
                    .at = at,
                    .swizzle = swizzle,
                    .nan = nan});
  check_load({.type = TensorMapType::kFloat32,
              .es = 4,
              .dims = {30, 5},
              .box = {16, 4},
              .at = {24, 3},
              .nan = true});
}

TEST(TmaLoad, ElementStridesPackTheBox) {
  check_load({.dims = {64, 40}, .box = {32, 15}, .at = {0, 1}, .element_strides = {1, 4}});
  check_load({.dims = {16, 9, 12},
              .box = {16, 5, 7},
              .at = {0, 2, 1},
              .element_strides = {1, 2, 3},
              .swizzle = TensorMapSwizzle::k32B});
}

TEST(TmaLoad, ElementSizes) {
  check_load({.type = TensorMapType::kUInt8, .es = 1, .dims = {96, 10}, .box = {64, 5}, .at = {16, 2}});
  check_load({.type = TensorMapType::kInt32,
              .es = 4,
              .dims = {96, 10},
              .box = {32, 5},
              .at = {4, 2},
              .swizzle = TensorMapSwizzle::k128B});
  check_load({.type = TensorMapType::kFloat64,
              .es = 8,
              .dims = {20, 10},
              .box = {8, 5},
              .at = {2, 2},
              .swizzle = TensorMapSwizzle::k64B});
}

TEST(TmaLoad, SeedsChangeNothing) {
  for (uint64_t seed : {1, 2, 3})
    check_load({.dims = {64, 20}, .box = {32, 8}, .at = {8, 5}}, "sm_90a", seed);
}

TEST(TmaLoad, Tf32MapsRound) {
  BoxCase c{.type = TensorMapType::kTFloat32, .es = 4, .dims = {16}, .box = {16}, .at = {0}};
  Tensor t = make_tensor(c);
  // Recorded on an H200: halves go to even, subnormals stay on the grid, NaN and overflow.
  const uint32_t in[] = {0x3F800FFF, 0x3F801000, 0x3F803000, 0x00001FFF,
                         1,          0x7FC00001, 0x7F7FFFFF, 0x80000FFF};
  const uint32_t out[] = {0x3F800000, 0x3F800000, 0x3F804000, 0x00002000,
                          0,          0x7FFFE000, 0x7F800000, 0x80000000};
  std::memcpy(t.bytes.data(), in, sizeof in);
  const Outcome outcome = load(c, t, "sm_90a", 64);
  ASSERT_TRUE(outcome.report.clean()) << outcome.report.format();
  for (size_t i = 0; i < std::size(in); ++i) {
    uint32_t word;
    std::memcpy(&word, outcome.tile.data() + 4 * i, 4);
    EXPECT_EQ(word, out[i]) << i;
  }
}

TEST(TmaLoad, RulesThatEndTheKernel) {
  const auto first_kind = [](const BoxCase& c) {
    const Outcome outcome = load(c, make_tensor(c), "sm_90a", 64);
    EXPECT_FALSE(outcome.report.findings.empty());
    return outcome.report.findings.empty() ? FindingKind::kTrap : outcome.report.findings[0].kind;
  };
  EXPECT_EQ(first_kind({.dims = {64}, .box = {32}, .at = {1}}), FindingKind::kIllegalInstruction);
  EXPECT_EQ(first_kind({.dims = {64}, .box = {32}, .at = {-4}}), FindingKind::kIllegalInstruction);
  EXPECT_EQ(first_kind({.dims = {64}, .box = {32}, .at = {0}, .tile_offset = 16}), FindingKind::kMisaligned);
  EXPECT_EQ(first_kind({.dims = {64, 64},
                        .box = {64, 64},
                        .at = {0, 0},
                        .swizzle = TensorMapSwizzle::k128B,
                        .tile_offset = kTileBytes - 128}),
            FindingKind::kOutOfBounds);
}

TEST(TmaLoad, BytesAnnouncedThatNeverComeAreADeadlockWithNumbers) {
  BoxCase c{.dims = {64}, .box = {32}, .at = {0}};
  const Outcome outcome = load(c, make_tensor(c), "sm_90a", 64 + 4096);
  ASSERT_EQ(outcome.report.findings.size(), 1u);
  EXPECT_EQ(outcome.report.findings[0].kind, FindingKind::kDeadlock);
  EXPECT_NE(outcome.report.format().find("(pending 0 of 1 arrivals, 4096 bytes missing)"), std::string::npos)
      << outcome.report.format();
}

TEST(TmaLoad, Gather4) {
  BoxCase c{.dims = {64, 40}, .box = {32, 1}, .at = {8, 0}, .swizzle = TensorMapSwizzle::k64B};
  const Tensor t = make_tensor(c);
  const int rows[4] = {7, 39, 0, 50};  // the last one lies outside
  VirtualGpu gpu({.target = "sm_100a"});
  DeviceAddress address = to_device(gpu, t.bytes);
  const std::string copy = fmt::format(
      "  cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes [%r10], "
      "[%rd10, {{8, {}, {}, {}, {}}}], [%r11];\n",
      rows[0], rows[1], rows[2], rows[3]);
  const Outcome outcome = run("sm_100a", wait_for(256, copy), map_of(c, t, address),
                              std::vector<uint8_t>(kTileBytes, 0xEE), gpu, address, t.bytes.size());
  ASSERT_TRUE(outcome.report.clean()) << outcome.report.format();
  for (uint32_t r = 0; r < 4; ++r)
    for (uint32_t b = 0; b < 64; ++b) {
      const uint8_t expected = rows[r] < 40 ? t.bytes[static_cast<size_t>(rows[r]) * 128 + 16 + b] : 0;
      ASSERT_EQ(outcome.tile[swizzled(c.swizzle, r * 64 + b)], expected) << r << " " << b;
    }
}

// ---- stores and reductions
// ----------------------------------------------------------------------------------------

std::vector<uint8_t> random_tile() {
  std::vector<uint8_t> tile(kTileBytes);
  TestRandom random(11);
  for (uint8_t& b : tile) b = static_cast<uint8_t>(random.next() >> 8);
  return tile;
}

const std::string kFinish = "  cp.async.bulk.commit_group;\n  cp.async.bulk.wait_group 0;\n";

Outcome store(const BoxCase& c, const Tensor& t, const std::vector<uint8_t>& tile,
              const std::string& mnemonic, const std::string& finish = kFinish,
              const std::string& target = "sm_90a") {
  VirtualGpu gpu({.target = target});
  DeviceAddress address = to_device(gpu, t.bytes);
  const std::string middle = fmt::format("  add.u32 %r12, %r10, {};\n  {} [%rd10, {{{}}}], [%r12];\n",
                                         c.tile_offset, mnemonic, coordinates(c));
  return run(target, middle + finish, map_of(c, t, address), tile, gpu, address, t.bytes.size());
}

TEST(TmaStore, WritesWhatLiesInside) {
  for (TensorMapSwizzle swizzle :
       {TensorMapSwizzle::kNone, TensorMapSwizzle::k32B, TensorMapSwizzle::k64B, TensorMapSwizzle::k128B})
    for (const std::vector<int>& at : {std::vector<int>{0, 0}, {8, 3}, {56, 15}, {0, 40}}) {
      const BoxCase c{.dims = {60, 20},
                      .box = {swizzle == TensorMapSwizzle::k32B ? 16u : 32u, 8},
                      .at = at,
                      .swizzle = swizzle,
                      .tile_offset = 256};
      SCOPED_TRACE(text_of(c));
      const Tensor t = make_tensor(c);
      const std::vector<uint8_t> tile = random_tile();
      std::vector<uint8_t> expected = t.bytes;
      for_each_element(
          c, t,
          [&](uint32_t linear, int64_t to) {
            for (uint32_t b = 0; to >= 0 && b < c.es; ++b)
              expected[static_cast<size_t>(to) + b] = tile[swizzled(swizzle, c.tile_offset + linear + b)];
          },
          true);
      const Outcome outcome = store(c, t, tile, "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group");
      ASSERT_TRUE(outcome.report.clean()) << outcome.report.format();
      ASSERT_EQ(outcome.buffer, expected);
    }
}

TEST(TmaStore, NegativeCoordinatesEndTheKernel) {
  const BoxCase c{.dims = {60, 20}, .box = {32, 8}, .at = {-8, 0}};
  const Outcome outcome =
      store(c, make_tensor(c), random_tile(), "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group");
  ASSERT_FALSE(outcome.report.findings.empty());
  EXPECT_EQ(outcome.report.findings[0].kind, FindingKind::kIllegalInstruction);
}

/// A tensor store, `rest`, and the end of the kernel.
Report end_after_store(const std::string& rest, uint64_t seed = 0) {
  const BoxCase c{.dims = {60, 20}, .box = {32, 8}, .at = {0, 0}};
  const Tensor t = make_tensor(c);
  CheckSet checks = CheckSet::none();
  checks.async_lifetime = true;
  VirtualGpu gpu({.target = "sm_90a", .seed = seed, .checks = checks});
  DeviceAddress address = to_device(gpu, t.bytes);
  TensorMap map = map_of(c, t, address);
  const std::string text = R"(
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .align 64 .b8 map[128])
{
  .reg .pred %p;
  .reg .b64 %rd<4>;
  .reg .b32 %r<4>;
  .shared .align 128 .b8 tile[512];
  mov.b64 %rd1, map;
  cvta.param.u64 %rd1, %rd1;
  mov.u32 %r1, tile;
  cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {0, 0}], [%r1];
)" + rest + "  ret;\n}\n";
  void* arguments[] = {&map};
  return gpu.launch(gpu.load_module(text).function("k"), {.block = {1}, .arguments = arguments});
}

TEST(TmaStore, ExitBeforeTheSourceIsReadIsFound) {
  const Report report = end_after_store("  cp.async.bulk.commit_group;\n");
  ASSERT_FALSE(report.findings.empty());
  EXPECT_EQ(report.findings[0].kind, FindingKind::kAsyncInFlight);
  EXPECT_NE(report.findings[0].message.find("store of a box of 32x8 elements at {0, 0}"), std::string::npos)
      << report.findings[0].message;
}

TEST(TmaStore, ExitWithoutAWaitIsFoundHoweverEarlyTheSourceIsRead) {
  const std::string time = R"(
  mov.u32 %r2, 0;
AGAIN:
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p, %r2, 5000;
  @%p bra AGAIN;
)",
                    commit = "  cp.async.bulk.commit_group;\n", wait = "  cp.async.bulk.wait_group.read 0;\n",
                    loose = "  cp.async.bulk.wait_group.read 1;\n";
  for (uint64_t seed = 0; seed < 8; ++seed) {
    for (const std::string& rest :
         {commit + time, commit + time + loose, wait + commit + time, time + wait}) {
      const Report report = end_after_store(rest, seed);
      ASSERT_EQ(report.findings.size(), 1u) << report.format();
      EXPECT_EQ(report.findings[0].kind, FindingKind::kAsyncInFlight);
    }
    for (const std::string& rest :
         {commit + wait, commit + time + wait, commit + loose + wait, commit + commit + loose}) {
      const Report report = end_after_store(rest, seed);
      EXPECT_TRUE(report.clean()) << report.format();
    }
  }
}

TEST(TmaReduce, IntegersAndFloats) {
  const auto element = [](const std::vector<uint8_t>& bytes, size_t at) {
    uint32_t word;
    std::memcpy(&word, bytes.data() + at, 4);
    return word;
  };
  struct Op {
    const char* word;
    TensorMapType type;
    uint32_t (*apply)(uint32_t memory, uint32_t value);
  };
  const Op ops[] = {
      {"add", TensorMapType::kUInt32, [](uint32_t m, uint32_t v) { return m + v; }},
      {"min", TensorMapType::kInt32,
       [](uint32_t m, uint32_t v) { return static_cast<int32_t>(m) < static_cast<int32_t>(v) ? m : v; }},
      {"max", TensorMapType::kUInt32, [](uint32_t m, uint32_t v) { return m > v ? m : v; }},
      {"inc", TensorMapType::kUInt32, [](uint32_t m, uint32_t v) { return m >= v ? 0 : m + 1; }},
      {"dec", TensorMapType::kUInt32, [](uint32_t m, uint32_t v) { return m == 0 || m > v ? v : m - 1; }},
      {"and", TensorMapType::kUInt32, [](uint32_t m, uint32_t v) { return m & v; }},
      {"or", TensorMapType::kUInt32, [](uint32_t m, uint32_t v) { return m | v; }},
      {"xor", TensorMapType::kUInt32, [](uint32_t m, uint32_t v) { return m ^ v; }},
  };
  for (const Op& op : ops) {
    const BoxCase c{.type = op.type, .es = 4, .dims = {30, 20}, .box = {16, 8}, .at = {20, 15}};
    SCOPED_TRACE(op.word);
    const Tensor t = make_tensor(c);
    const std::vector<uint8_t> tile = random_tile();
    std::vector<uint8_t> expected = t.bytes;
    for_each_element(
        c, t,
        [&](uint32_t linear, int64_t to) {
          if (to < 0) return;
          const uint32_t result = op.apply(element(t.bytes, static_cast<size_t>(to)), element(tile, linear));
          std::memcpy(expected.data() + to, &result, 4);
        },
        true);
    const Outcome outcome =
        store(c, t, tile,
              fmt::format("cp.reduce.async.bulk.tensor.2d.global.shared::cta.{}.tile.bulk_group", op.word));
    ASSERT_TRUE(outcome.report.clean()) << outcome.report.format();
    ASSERT_EQ(outcome.buffer, expected);
  }
}

TEST(TmaReduce, SubnormalsGoWithTheMapsFtz) {
  for (TensorMapType type : {TensorMapType::kFloat32, TensorMapType::kFloat32Ftz, TensorMapType::kTFloat32}) {
    const BoxCase c{.type = type, .es = 4, .dims = {16}, .box = {16}, .at = {0}};
    Tensor t = make_tensor(c);
    const uint32_t memory[] = {3, 0x3F800000, 0x80000001, 0x7F800000},
                   values[] = {4, 0x3F800000, 0, 0xFF800000};
    std::memcpy(t.bytes.data(), memory, sizeof memory);
    std::vector<uint8_t> tile(kTileBytes, 0);
    std::memcpy(tile.data(), values, sizeof values);
    const Outcome outcome =
        store(c, t, tile, "cp.reduce.async.bulk.tensor.1d.global.shared::cta.add.bulk_group");
    ASSERT_TRUE(outcome.report.clean()) << outcome.report.format();
    uint32_t result[4];
    std::memcpy(result, outcome.buffer.data(), sizeof result);
    const bool ftz = type == TensorMapType::kFloat32Ftz;
    EXPECT_EQ(result[0], ftz ? 0u : 7u);
    EXPECT_EQ(result[1], 0x40000000u);
    EXPECT_EQ(result[2], ftz ? 0u : 0x80000001u);  // -0 + 0 is +0
    EXPECT_EQ(result[3], 0x7FFFFFFFu);
  }
}

// ---- bulk copies
// ----------------------------------------------------------------------------------------------------

TEST(BulkCopy, GlobalToSharedAndBack) {
  VirtualGpu gpu({.target = "sm_90a"});
  const std::vector<uint8_t> data = random_tile();
  DeviceAddress address = to_device(gpu, data);
  const std::string middle = wait_for(1024,
                                      "  add.u64 %rd12, %rd11, 4096;\n  add.u32 %r12, %r10, 32;\n"
                                      "  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                                      "[%r12], [%rd12], 1024, [%r11];\n") +
                             "  add.u32 %r12, %r10, 2048;\n  add.u64 %rd12, %rd11, 16;\n  "
                             "cp.async.bulk.global.shared::cta.bulk_group [%rd12], [%r12], 512;\n" +
                             kFinish;
  const std::vector<uint8_t> tile(kTileBytes, 0xEE);
  const Outcome outcome = run("sm_90a", middle, TensorMap{}, tile, gpu, address, data.size());
  ASSERT_TRUE(outcome.report.clean()) << outcome.report.format();
  for (size_t i = 0; i < kTileBytes; ++i) {
    ASSERT_EQ(outcome.tile[i], i >= 32 && i < 1056 ? data[4096 + i - 32] : 0xEE) << i;
    ASSERT_EQ(outcome.buffer[i], i >= 16 && i < 528 ? 0xEE : data[i]) << i;
  }
}

TEST(BulkCopy, ByteMask) {
  VirtualGpu gpu({.target = "sm_100a"});
  const std::vector<uint8_t> data = random_tile(), tile(kTileBytes, 0xEE);
  DeviceAddress address = to_device(gpu, data);
  const std::string middle =
      "  mov.b16 %h1, 0x8005;\n  cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd11], [%r10], 64, "
      "%h1;\n" +
      kFinish;
  const Outcome outcome = run("sm_100a", middle, TensorMap{}, tile, gpu, address, data.size());
  ASSERT_TRUE(outcome.report.clean()) << outcome.report.format();
  for (size_t i = 0; i < 64; ++i)
    EXPECT_EQ(outcome.buffer[i], i % 16 == 0 || i % 16 == 2 || i % 16 == 15 ? 0xEE : data[i]) << i;
}

TEST(BulkCopy, Reductions) {
  for (const char* type : {"f32", "u64", "f64"}) {
    VirtualGpu gpu({.target = "sm_90a"});
    std::vector<uint8_t> data(kTileBytes, 0), tile(kTileBytes, 0);
    const auto fill = [&](auto value) {
      for (size_t i = 0; i < kTileBytes / sizeof value; ++i) {
        const auto m = static_cast<decltype(value)>(i), v = static_cast<decltype(value)>(2 * i + 1);
        std::memcpy(data.data() + i * sizeof value, &m, sizeof value);
        std::memcpy(tile.data() + i * sizeof value, &v, sizeof value);
      }
    };
    const bool is_double = type[0] == 'f' && type[1] == '6';
    if (type[1] == '3')
      fill(1.0f);
    else if (is_double)
      fill(1.0);
    else
      fill(uint64_t{1});
    DeviceAddress address = to_device(gpu, data);
    const Outcome outcome =
        run("sm_90a",
            fmt::format("  cp.reduce.async.bulk.global.shared::cta.bulk_group.add.{} [%rd11], [%r10], 256;\n",
                        type) +
                kFinish,
            TensorMap{}, tile, gpu, address, data.size());
    ASSERT_TRUE(outcome.report.clean()) << outcome.report.format();
    const auto check = [&](auto value) {
      for (size_t i = 0; i < 512 / sizeof value; ++i) {
        std::memcpy(&value, outcome.buffer.data() + i * sizeof value, sizeof value);
        ASSERT_EQ(value, static_cast<decltype(value)>(i < 256 / sizeof value ? 3 * i + 1 : i))
            << type << " " << i;
      }
    };
    if (type[1] == '3')
      check(1.0f);
    else if (is_double)
      check(1.0);
    else
      check(uint64_t{1});
  }
}

TEST(BulkCopy, SizesAndAddressesAreChecked) {
  const auto first = [](const std::string& copy) {
    VirtualGpu gpu({.target = "sm_90a"});
    const std::vector<uint8_t> data = random_tile();
    DeviceAddress address = to_device(gpu, data);
    const Outcome outcome = run("sm_90a", copy + kFinish, TensorMap{}, data, gpu, address, data.size());
    EXPECT_FALSE(outcome.report.findings.empty());
    return outcome.report.findings.empty() ? FindingKind::kTrap : outcome.report.findings[0].kind;
  };
  EXPECT_EQ(first("  cp.async.bulk.global.shared::cta.bulk_group [%rd11], [%r10], 24;\n"),
            FindingKind::kIllegalInstruction);
  EXPECT_EQ(first("  cp.async.bulk.global.shared::cta.bulk_group [%rd11+8], [%r10], 16;\n"),
            FindingKind::kMisaligned);
  EXPECT_EQ(first("  cp.async.bulk.global.shared::cta.bulk_group [%rd11+32760], [%r10], 16;\n"),
            FindingKind::kMisaligned);
  EXPECT_EQ(first("  cp.async.bulk.global.shared::cta.bulk_group [%rd11+32768], [%r10], 16;\n"),
            FindingKind::kOutOfBounds);
}

// ---- the object
// -------------------------------------------------------------------------------------------------------

TEST(TensorMapObject, EncodesAsTheDriverDoes) {
  const uint64_t dims[] = {1000, 200, 30}, strides[] = {2048, 409600};
  const uint32_t box[] = {64, 128, 2}, element_strides[] = {1, 1, 2};
  TensorMapArguments a;
  a.type = TensorMapType::kBFloat16;
  a.address = 0x1234567890;
  a.dims = dims;
  a.strides_bytes = strides;
  a.box = box;
  a.element_strides = element_strides;
  a.swizzle = TensorMapSwizzle::k128B;
  a.l2_promotion = 2;
  const TensorMap map = encode_tensor_map(a);
  EXPECT_EQ(map.words[0], 0x1234567890u);
  EXPECT_EQ(map.words[1] & 0xFFFFFFFF, 2u << 4 | 10u << 7 | 3u << 13 | 2u << 17);
  EXPECT_EQ(map.words[1] >> 32, 2048u / 16);
  EXPECT_EQ(map.words[2] & 0xFFFFFFFF, 409600u / 16);
  EXPECT_EQ(map.words[4], 999u | uint64_t{199} << 32);
  EXPECT_EQ(map.words[5], 29u);
  EXPECT_EQ(map.words[6] >> 32 & 0x7FFF, 1u << 6);
  EXPECT_EQ(map.words[6] >> 56, 63u);
  EXPECT_EQ(map.words[7] & 0xFFFF, 127u | 1u << 8);
  EXPECT_EQ(map.words[8], 64u * 128 * 1 * 2);
  EXPECT_EQ(map.words[9], 1024u);
  const DecodedTensorMap decoded = decode(map);
  EXPECT_EQ(decoded.problem, "");
  EXPECT_EQ(decoded.fields.rank, 3);
  EXPECT_EQ(decoded.fields.type, TensorMapType::kBFloat16);
  EXPECT_EQ(decoded.fields.strides[2], 409600u);
  EXPECT_EQ(decoded.fields.dims[1], 200u);
  EXPECT_EQ(decoded.fields.box[1], 128u);
  EXPECT_EQ(decoded.fields.count(2), 1u);
  EXPECT_EQ(decode(TensorMap{}).problem, "these 128 bytes are no tensor map");
}

TEST(TensorMapObject, RefusesWhatTheDriverRefuses) {
  const auto why = [](auto change) {
    std::vector<uint64_t> dims{64, 64}, strides{128};
    std::vector<uint32_t> box{64, 8};
    TensorMapArguments a;
    a.address = 0x1000;
    change(a, dims, strides, box);
    a.dims = dims;
    a.strides_bytes = strides;
    a.box = box;
    try {
      encode_tensor_map(a);
    } catch (const std::exception& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  using V64 = std::vector<uint64_t>;
  using V32 = std::vector<uint32_t>;
  using A = TensorMapArguments;
  EXPECT_EQ(why([](A&, V64&, V64&, V32&) {}), "");
  EXPECT_NE(why([](A& a, V64&, V64&, V32&) { a.address = 8; }).find("multiple of 16"), std::string::npos);
  EXPECT_NE(why([](A&, V64&, V64& s, V32&) { s[0] = 72; }), "");
  EXPECT_NE(why([](A&, V64&, V64&, V32& b) { b[1] = 257; }), "");
  EXPECT_NE(why([](A&, V64&, V64&, V32& b) { b[0] = 4; }), "");
  EXPECT_NE(why([](A& a, V64&, V64&, V32&) { a.swizzle = TensorMapSwizzle::k64B; }), "");
  EXPECT_NE(why([](A&, V64& d, V64&, V32&) { d[1] = 0; }), "");
  EXPECT_NE(why([](A& a, V64&, V64&, V32&) { a.type = TensorMapType::kUInt16, a.fill_with_nan = true; }), "");
  EXPECT_NE(why([](A&, V64& d, V64&, V32&) { d.push_back(4); }), "");
}

}  // namespace
}  // namespace imbrex::vgpu
