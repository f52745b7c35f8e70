// SPDX-License-Identifier: Apache-2.0
// What bulk copies take in a replay: boxes out of line, beyond their tensor and to several CTAs.
#include <algorithm>

#include "timeline_kit.h"
#include "vgpu/memory/tensor_box.h"
#include "vgpu/timeline/sm_groups.h"
#include "vgpu/timeline/timeline_replay.h"

namespace imbrex::vgpu {
namespace {

double clocks_of(const std::vector<Recording>& clusters) {
  const Program program;
  ReplayContext context{.program = program, .model = cost_model(90), .rates = chip_rates(90), .sms = 132};
  context.groups = sm_groups(90, 132, 132);
  return static_cast<double>(replay(context, clusters).cycles);
}

/// A CTA whose warp hands over all of these, and waits for the last.
Recording cta_with(int64_t number, const std::vector<WorkDemand>& works) {
  Recording r;
  r.cluster = number;
  r.ctas = {number};
  r.warps.resize(1);
  for (const WorkDemand& demand : works) {
    r.warps[0].push_back({.kind = RecordedStep::Kind::kSubmit, .id = static_cast<int32_t>(r.works.size())});
    r.works.push_back({.demand = demand});
  }
  r.warps[0].push_back(
      {.kind = RecordedStep::Kind::kWaitWork, .id = static_cast<int32_t>(r.works.size()) - 1});
  return r;
}

constexpr int64_t kBytes = 16384;
constexpr int16_t kSectors = kBytes / 32;

/// All SMs at once, so many boxes each; `block` says which of the CTA and the box.
template <class Block>
double clocks_everywhere(int boxes, const WorkDemand& demand, Block&& block) {
  std::vector<Recording> ctas;
  for (int64_t cta = 0; cta < 132; ++cta) {
    std::vector<WorkDemand> works;
    for (int box = 0; box < boxes; ++box) {
      works.push_back(demand);
      works.back().block = works.back().address = block(cta, box);
    }
    ctas.push_back(cta_with(cta, works));
  }
  return clocks_of(ctas);
}
uint64_t all_the_same(int64_t, int box) { return static_cast<uint64_t>(box) + 1; }
uint64_t each_its_own(int64_t cta, int box) { return static_cast<uint64_t>(cta * 1000 + box) + 1; }

WorkDemand load(int16_t sectors, int16_t partial_lines = 0) {
  return {.kind = WorkDemand::Kind::kTmaLoad,
          .bytes = kBytes,
          .sectors = sectors,
          .partial_lines = partial_lines,
          .mapped = true};
}

TEST(Boxes, OutsideOfTheTensorAreAskedForByEachSm) {
  const double inside = clocks_everywhere(64, load(kSectors), all_the_same);
  const double outside = clocks_everywhere(64, load(0), all_the_same);
  const double apart = clocks_everywhere(64, load(kSectors), each_its_own);
  EXPECT_GT(outside, 1.5 * inside) << "which are served together";
  EXPECT_LT(outside, apart) << "which come from memory";
}

TEST(Boxes, WhoseRowsBeginWithinASectorAreServedOneByOne) {
  const double aligned = clocks_everywhere(64, load(kSectors), all_the_same);
  EXPECT_GT(clocks_everywhere(64, load(kSectors, 1), all_the_same), 1.5 * aligned);
}

TEST(Boxes, TellWhatTheyTouchOfMemory) {
  TensorBox box;
  box.map.type = TensorMapType::kFloat16;
  box.map.rank = 2;
  box.map.address = 1 << 20;
  box.map.dims = {256, 100};
  box.map.box = {64, 8};
  box.map.element_strides = {1, 1};
  const auto traffic = [&](uint64_t pitch, int32_t x, int32_t y) {
    box.map.strides[1] = pitch;
    box.coordinates = {x, y};
    const BoxTraffic t = box.traffic();
    return std::pair(t.sectors, t.partial_lines);
  };
  EXPECT_EQ(traffic(512, 64, 0), std::pair(8 * 4, 0));
  EXPECT_EQ(traffic(544, 64, 0), std::pair(8 * 4, 0)) << "rows begin with a sector";
  // Of rows 16 bytes further each time, every second one begins within a sector: five of them in two lines.
  EXPECT_EQ(traffic(528, 64, 0), std::pair(4 * 4 + 4 * 5, 8));
  EXPECT_EQ(traffic(512, 64, 98), std::pair(2 * 4, 0)) << "two rows inside";
  EXPECT_EQ(traffic(512, 252, 0), std::pair(8 * 1, 8)) << "eight bytes of each";
  EXPECT_EQ(traffic(512, 256, 0), std::pair(0, 0));
  EXPECT_EQ(traffic(512, 0, -8), std::pair(0, 0));
}

/// CTA 0 of a cluster asks for boxes that take its engine 500 clocks each, for itself and `others` more CTAs; the last CTA of the
/// cluster waits for the last of them.
double clocks_of_boxes(int boxes, int others) {
  Recording r;
  r.ctas = {0, 1, 2, 3};
  r.warps.resize(4);
  for (int box = 0; box < boxes; ++box)
    for (int of = 0; of <= others; ++of) {
      const auto work = static_cast<int32_t>(r.works.size());
      r.works.push_back({.demand = {.kind = WorkDemand::Kind::kTmaLoad,
                                    .bytes = 1024,
                                    .clocks = 500,
                                    .multicast = true,
                                    .repeated = of > 0,
                                    .block = static_cast<uint64_t>(box + 1),
                                    .address = static_cast<uint64_t>(box + 1)}});
      r.warps[0].push_back({.kind = RecordedStep::Kind::kSubmit, .id = work});
    }
  r.warps[3].push_back(
      {.kind = RecordedStep::Kind::kWaitWork, .id = static_cast<int32_t>(r.works.size()) - 1});
  return clocks_of({r});
}

TEST(Multicast, IsAskedForOnceWhoeverGetsIt) {
  // The engine has other things to do 500 clocks later, however many CTAs a box goes to, and all have it when the first has.
  const double alone = clocks_of_boxes(8, 0), all = clocks_of_boxes(8, 3);
  EXPECT_NEAR(clocks_of_boxes(9, 0) - alone, 500, 60);
  EXPECT_NEAR(clocks_of_boxes(9, 3) - all, 500, 200)
      << "each is told to the engine, too, which takes 40 clocks";
  EXPECT_GE(all, alone);
  EXPECT_LT(all, alone + 8 * 3 * 60);
  // From memory, not as if L2 had it.
  EXPECT_GT(clocks_of_boxes(1, 3), cost_model(90).hbm_latency + 500);
}

}  // namespace
}  // namespace imbrex::vgpu
