// SPDX-License-Identifier: Apache-2.0
// Tensor loads: every byte against the closed formula of a box, plainly evaluated.
#include "tma_kit.h"

namespace imbrex::vgpu {
namespace {

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

}  // namespace
}  // namespace imbrex::vgpu
