// SPDX-License-Identifier: Apache-2.0
// Tensor stores and reductions.
#include "tma_kit.h"

namespace imbrex::vgpu {
namespace {

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

}  // namespace
}  // namespace imbrex::vgpu
