// SPDX-License-Identifier: Apache-2.0
// Predicted times of warps beside each other, of instructions of one warp that do not depend on each other, and of CTAs that
// wait for each other through global memory.
#include <fmt/format.h>

#include "timeline_kit.h"
#include "vgpu/timeline/chip_rates.h"

namespace imbrex::vgpu {
namespace {

/// `count` additions, each of what the one before gave, to register `f`.
std::string chain(int count, int f) {
  std::string body;
  for (int i = 0; i < count; ++i) body += fmt::format("  add.f32 %f{0}, %f{0}, %f{0};\n", f);
  return body;
}

double clocks(const std::string& body, const Asked& asked = {}) {
  return static_cast<double>(predict(body, asked).cycles - predict("", asked).cycles);
}

TEST(Warps, ChainsThatDoNotDependOnEachOtherOverlap) {
  // One behind the other in the PTX: the assembler mixes them.
  const double one = clocks(chain(100, 0));
  EXPECT_NEAR(one, 400, 20);
  EXPECT_NEAR(clocks(chain(100, 0) + chain(100, 1) + chain(100, 2)), one, 20);
  // Eight of them are as many instructions as a sub-partition issues in that time twice over.
  std::string eight;
  for (int f = 0; f < 8; ++f) eight += chain(100, f);
  EXPECT_NEAR(clocks(eight), 800, 20);
}

TEST(Warps, NothingMovesOverABranch) {
  EXPECT_NEAR(clocks(chain(100, 0) + "  bra NEXT;\nNEXT:\n" + chain(100, 1)), clocks(chain(200, 0)), 30);
}

TEST(Warps, ShareSubPartitionsEvenly) {
  // Four chains of independent additions keep a sub-partition busy: 400 clocks of its port.
  std::string body;
  for (int f = 0; f < 4; ++f) body += chain(100, f);
  const auto on_one_sm = [&](int64_t ctas, int64_t threads) {
    return clocks(body, {.ctas = ctas, .threads = threads, .sms = 1});
  };
  const double alone = on_one_sm(1, 32);
  EXPECT_NEAR(on_one_sm(4, 32), alone, 30) << "four CTAs of a warp: one in each";
  EXPECT_NEAR(on_one_sm(1, 128), alone, 30) << "four warps of a CTA";
  EXPECT_NEAR(on_one_sm(8, 32), 2 * alone, 60);
  // CTAs of three warps: the fourth sub-partition takes the next one's first.
  EXPECT_NEAR(on_one_sm(4, 96), 3 * alone, 90);
}

TEST(Warps, UnitsOfASubPartitionWorkBesideEachOther) {
  // Of four warps each: 50 special functions of 8 clocks, and 320 additions that the port issues in as many.
  std::string special, additions;
  for (int i = 0; i < 50; ++i) special += fmt::format("  ex2.approx.f32 %f{0}, %f{0};\n", i % 4);
  for (int f = 4; f < 8; ++f) additions += chain(80, f);
  const Asked four{.threads = 512, .sms = 1};
  const double slower = clocks(special, four);
  EXPECT_NEAR(slower, 4 * 50 * 8, 50);
  EXPECT_NEAR(clocks(additions, four), 4 * 320, 50);
  EXPECT_NEAR(clocks(special + additions, four), slower, 100);
}

// The last CTA works, then sets a word; the others wait for it.
std::string flag(const std::string& work, const std::string& poll = "ld.acquire.gpu.global.u32 %x, [%a];") {
  return fmt::format(R"(
  mov.u32 %i, %ctaid.x;
  setp.ne.u32 %p, %i, 0;
  @%p bra WAIT;
{}
  st.release.gpu.global.u32 [%a], 7;
  bra END;
WAIT:
  {}
  setp.ne.u32 %p, %x, 7;
  @%p bra WAIT;
END:
)",
                     work, poll);
}

TEST(Warps, WhoWaitsForAFlagGoesOnWhenItIsSet) {
  const ChipRates rates = chip_rates(90);
  const double work = 4000;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const Asked asked{.ctas = 2, .seed = seed, .checks = false};
    // docs/measurements/2026-11-23-waits.txt: 1594 clocks from turn to turn, with two fences and two barriers.
    EXPECT_NEAR(clocks(flag(chain(1000, 0)), asked) - work, 1594 - rates.far_fence, 100)
        << "however often it looked, seed " << seed;
  }
}

TEST(Warps, FlagsMayBeVolatile) {
  const Asked asked{.ctas = 3, .seed = 5, .checks = false};
  const std::string poll = "ld.volatile.global.u32 %x, [%a];";
  EXPECT_NEAR(clocks(flag(chain(2000, 0), poll), asked) - clocks(flag(chain(1000, 0), poll), asked), 4000,
              100);
}

TEST(Warps, LooksAtAWordThatNobodyWritesTakeTheirTime) {
  // One look behind the other, each with something between them that is not a loop's.
  std::string body;
  for (int i = 0; i < 4; ++i) body += "  ld.relaxed.gpu.global.u32 %x, [%a];\n  st.shared.u32 [%bar], %x;\n";
  EXPECT_GT(clocks(body, {.checks = false}), 200);
}

TEST(Warps, TheChipStartsCtasOneAfterTheOther) {
  // docs/measurements/2026-11-22-units.txt: 3.887 us for 4224 empty CTAs and 1.655 for 528.
  const auto cycles = [](int64_t ctas) {
    return static_cast<double>(predict("", {.ctas = ctas, .checks = false}).cycles);
  };
  EXPECT_NEAR(cycles(4224) - cycles(528), (3.887 - 1.655) * 1980, 300);
}

TEST(Warps, AFenceWaitsForStores) {
  const std::string store = "  mad.wide.u32 %b, %t, 4, %a;\n  st.global.u32 [%b], %t;\n";
  const std::string after = chain(200, 0);  // until long after L2 has the stores
  const double without = clocks(store + "  fence.acq_rel.cta;\n" + after);
  const double with = clocks(store + "  fence.acq_rel.gpu;\n" + after);
  // 581 and 389 clocks instead of 10 (docs/measurements/2026-11-23-waits.txt).
  EXPECT_NEAR(with - without, 571, 60);
  EXPECT_NEAR(clocks("  fence.acq_rel.gpu;\n" + after) - clocks("  fence.acq_rel.cta;\n" + after), 379, 60);
}

TEST(Warps, ArrivalsAtAClustersBarrierReleaseStores) {
  const std::string store = "  mad.wide.u32 %b, %t, 4, %a;\n  st.global.u32 [%b], %t;\n";
  const auto barrier = [](const std::string& how) {
    return "  barrier.cluster.arrive" + how + ".aligned;\n  barrier.cluster.wait.aligned;\n" + chain(400, 0);
  };
  // 850 clocks behind stores and 350 else (docs/measurements/2026-11-23-instructions.md).
  EXPECT_NEAR(clocks(store + barrier("")) - clocks(store + barrier(".relaxed")), 500, 60);
  EXPECT_NEAR(clocks(barrier("")), clocks(barrier(".relaxed")), 1);
}

TEST(Warps, HalvesOfALineComeFromMemoryEachByItself) {
  // Rows of 64 bytes: the first halves of eight lines, and then the others.
  const std::string address =
      "  shr.u32 %x, %t, 2;\n  mad.wide.u32 %b, %x, 128, %a;\n  and.b32 %x, %t, 3;\n  mad.wide.u32 %b, %x, "
      "16, %b;\n";
  const std::string first = "  ld.global.cg.v4.f32 {%f0, %f1, %f2, %f3}, [%b];\n",
                    other = "  ld.global.cg.v4.f32 {%f4, %f5, %f6, %f7}, [%b+64];\n";
  EXPECT_EQ(predict(address + first).hbm_bytes, 512);
  EXPECT_EQ(predict(address + first + first).hbm_bytes, 512);
  EXPECT_EQ(predict(address + first + other).hbm_bytes, 1024);
}

TEST(Warps, LoadsBringTheSectorsThatTheyTouch) {
  // Four bytes a lane, one lane in each sector, and two.
  const auto loads = [](int stride) {
    return predict(fmt::format("  mad.wide.u32 %b, %t, {}, %a;\n  ld.global.cg.u32 %x, [%b];\n", stride))
        .hbm_bytes;
  };
  EXPECT_EQ(loads(32), 1024);
  EXPECT_EQ(loads(16), 512);
  EXPECT_EQ(loads(128), 1024);
}

TEST(Warps, SectorsThatAreWrittenInPartTakeLonger) {
  // A byte a lane: a sector, or the end of one and the beginning of the next, which is in every fourth warp in another line. A line that
  // gets sectors in part takes a sector more (docs/measurements/2026-11-25-pipes.md).
  const auto stores = [](int from) {
    std::string body = "  cvt.u64.u32 %b, %t;\n  add.s64 %b, %a, %b;\n";
    for (int i = 0; i < 100; ++i) body += fmt::format("  st.global.u8 [%b+{}], %t;\n", 4096 * i + from);
    return clocks(body, {.threads = 1024});
  };
  const double sector = 32 / chip_rates(90).store_bytes;
  EXPECT_NEAR(stores(1) - stores(0), 32 * 100 * (1 + 1.25 * chip_rates(90).partial_line_cost) * sector, 300);
}

TEST(Warps, StoresThatFillFewLinesTogetherAreGathered) {
  // 16 sectors of four lines in part, or 32 of eight, 20 or 40 clocks of the port: alone, and by stores that fill all or half of them.
  const auto stores = [](const std::string& type, int step, int count, int stride = 16) {
    std::string body =
        fmt::format("  .reg .b16 %h;\n  mad.wide.u32 %b, %t, {}, %a;\n  cvt.u16.u32 %h, %t;\n", stride);
    for (int i = 0; i < 50; ++i)
      for (int j = 0; j < count; ++j)
        body += fmt::format("  st.global.{} [%b+{}], {};\n", type, 65536 * i + step * j,
                            type == "u32" ? "%t" : "%h");
    return clocks(body, {.threads = 512});
  };
  const double each = 16 * 50 * 20;
  EXPECT_NEAR(stores("u32", 4, 1), each, 1000);
  EXPECT_NEAR(stores("u32", 4, 2), 2 * each, 1500);
  EXPECT_NEAR(stores("u32", 4, 4), each, 1000);
  EXPECT_NEAR(stores("u16", 2, 8), 8 * each, 6000);
  EXPECT_NEAR(stores("u32", 4, 8, 32), 8 * 2 * each, 12000) << "eight lines";
}

TEST(Warps, WhatWasStoredIsInL2) {
  // 64 lines, loaded by another warp than the one that stored them: from L2, not from memory.
  std::string store, load;
  for (int i = 0; i < 16; ++i) {
    store += fmt::format("  st.global.u32 [%b+{}], %t;\n", 128 * i);
    load += fmt::format("  ld.global.cg.u32 %x, [%b+{}];\n  add.u32 %y, %y, %x;\n", 128 * i);
  }
  const std::string address = "  mad.wide.u32 %b, %t, 4, %a;\n  mov.u32 %y, 0;\n";
  const Timeline both = predict(address + store + load);
  EXPECT_EQ(both.hbm_bytes, 0);
  EXPECT_GT(predict(address + load).hbm_bytes, 0);
}

}  // namespace
}  // namespace imbrex::vgpu
