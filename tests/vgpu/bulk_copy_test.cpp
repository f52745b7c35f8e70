// SPDX-License-Identifier: Apache-2.0
// Bulk copies and reductions.
#include "tma_kit.h"

namespace imbrex::vgpu {
namespace {

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

}  // namespace
}  // namespace imbrex::vgpu
