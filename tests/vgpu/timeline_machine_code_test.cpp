// SPDX-License-Identifier: Apache-2.0
// Predictions that read machine code.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "../ptxas.h"
#include "imbrex/vgpu/timeline_assembler.h"
#include "ptx/machine_code.h"
#include "timeline_kit.h"
#include "vgpu/timeline/chip_rates.h"
#include "vgpu/timeline/machine_costs.h"
#include "vgpu/timeline/machine_issue.h"
#include "vgpu/timeline/replay_machine.h"

namespace imbrex::vgpu {
namespace {

/// A program of which only the lines of its instructions matter, and where its blocks end.
struct Lines {
  Program program;
  explicit Lines(std::vector<std::string> text) {
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i].back() == ':') continue;
      InstructionInfo info;
      info.ptx_line = static_cast<int>(i + 1);
      info.ends_block = text[i].find("bra") != std::string::npos;
      program.info.push_back(info);
    }
    program.text = std::make_shared<const std::vector<std::string>>(std::move(text));
  }
};

constexpr uint16_t kLoad = 0x181, kAdd = 0x010;

TEST(MachineCosts, ALoopThatWasCopiedCostsEachRoundItsShare) {
  const Lines loop({"mov", "LOOP:", "ld", "add", "bra"});
  ptx::MachineCode code{40, {{1, kAdd, 2, 0}}};
  for (int copy = 0; copy < 4; ++copy) {
    code.instructions.push_back({3, kLoad, 3, 1});
    code.instructions.push_back({4, kAdd, 1, 1});
    code.instructions.push_back({4, kAdd, 5, 1});
  }
  code.instructions.push_back({5, 0x147, 5, 1});
  const MachineCosts costs = machine_costs(loop.program, code);
  EXPECT_EQ(costs.registers, 40);
  ASSERT_EQ(costs.costs.size(), 4u);
  EXPECT_FLOAT_EQ(costs.costs[0].issue, 1);
  EXPECT_FLOAT_EQ(costs.costs[0].stall, 2);
  EXPECT_FLOAT_EQ(costs.costs[1].issue, 1);
  EXPECT_FLOAT_EQ(costs.costs[2].issue, 2);
  EXPECT_FLOAT_EQ(costs.costs[2].stall, 7);     // additions follow each other every other clock
  EXPECT_FLOAT_EQ(costs.costs[3].issue, 0.25);  // one branch for four rounds
}

TEST(MachineCosts, ReductionsOfAWarpTellHowOftenALoopWasCopied) {
  constexpr uint16_t kReduce = 0x1C4;
  const Lines loop({"LOOP:", "redux", "add", "bra"});
  ptx::MachineCode code{16, {}};
  for (int copy = 0; copy < 4; ++copy) code.instructions.push_back({2, kReduce, 2, 1});
  code.instructions.push_back({3, kAdd, 1, 1});
  code.instructions.push_back({4, 0x147, 5, 1});
  const MachineCosts costs = machine_costs(loop.program, code);
  EXPECT_FLOAT_EQ(costs.costs[0].issue, 1);
  EXPECT_FLOAT_EQ(costs.costs[0].shared, 2);
  EXPECT_FLOAT_EQ(costs.costs[1].issue, 0.25);
}

TEST(MachineCosts, WhatWasLiftedOutOfALoopOrMergedCostsNothingInIt) {
  const Lines loop({"LOOP:", "cvt", "ld", "add", "bra"});
  const ptx::MachineCode code{16, {{2, kAdd, 4, 0}, {3, kLoad, 2, 1}, {5, 0x147, 5, 1}}};
  const MachineCosts costs = machine_costs(loop.program, code);
  EXPECT_FLOAT_EQ(costs.costs[0].issue, 0);
  EXPECT_FLOAT_EQ(costs.costs[1].issue, 1);
  EXPECT_FLOAT_EQ(costs.costs[2].issue, 0);
}

TEST(MachineCosts, InstructionsOfOneLineShareWhatWasMadeOfIt) {
  Lines line({"add"});
  line.program.info.push_back(line.program.info[0]);
  const ptx::MachineCode code{16, {{1, kLoad, 4, 0}}};
  const MachineCosts costs = machine_costs(line.program, code);
  EXPECT_FLOAT_EQ(costs.costs[0].issue, 0.5);
  EXPECT_FLOAT_EQ(costs.costs[1].stall, 2);
}

TEST(MachineCosts, NarrowUnitsAreBusyForLongerThanTheIssue) {
  constexpr uint16_t kFma = 0x023, kSelect = 0x008, kMultiply = 0x024, kExponential = 0x108,
                     kSetMaxRegisters = 0x1C8;
  const Lines lines({"fma", "sel", "mad", "ex2", "set"});
  const ptx::MachineCode code{16,
                              {{1, kFma, 1, 0},
                               {2, kSelect, 1, 0},
                               {3, kMultiply, 1, 0},
                               {4, kExponential, 1, 0},
                               {5, kSetMaxRegisters, 1, 0}}};
  const MachineCosts costs = machine_costs(lines.program, code);
  EXPECT_EQ(costs.costs[0].pipes, (PipeClocks{0, 0, 0}));
  EXPECT_EQ(costs.costs[1].pipes, (PipeClocks{2, 0, 0}));
  EXPECT_EQ(costs.costs[2].pipes, (PipeClocks{0, 2, 0}));
  EXPECT_EQ(costs.costs[3].pipes, (PipeClocks{0, 0, 8}));
  for (int i = 0; i < 4; ++i) {
    EXPECT_FLOAT_EQ(costs.costs[static_cast<size_t>(i)].issue, 1);
    EXPECT_FLOAT_EQ(costs.costs[static_cast<size_t>(i)].stall, 1);
  }
  EXPECT_GT(costs.costs[4].stall, 100);
}

TEST(MachineIssue, AWarpWaitsForUnitsAndForResults) {
  constexpr uint16_t kFma = 0x023, kExponential = 0x108, kBranch = 0x147;
  constexpr uint8_t kNone = 7;
  const ptx::MachineCode code{16,
                              {{1, kExponential, 1, 0, 0, 0},  // tells barrier 0 of its result
                               {2, kFma, 1, 0, 0, kNone},
                               {3, kExponential, 1, 0, 0, 1},  // the unit is free after 8 clocks
                               {4, kFma, 4, 0, 1, kNone},      // for the first one, which is there after 17
                               {5, kLoad, 1, 0, 0, 2},
                               {6, kFma, 1, 0, 4, kNone},          // for the load: not this warp's own time
                               {7, kExponential, 1, 0, 0, kNone},  // meanwhile the unit is free
                               {8, kBranch, 5, 0, 0, kNone},
                               {9, kExponential, 1, 0, 0, kNone}}};
  EXPECT_EQ(issue_clocks(code), (std::vector<float>{1, 1, 7, 12, 1, 1, 1, 5, 1}));
}

/// Sums of products that depend on each other, so that the assembler may not leave any out.
std::string chain(int count) {
  std::string body = "  mad.wide.u32 %b, %t, 4, %a;\n  ld.global.f32 %f0, [%b];\n";
  for (int i = 0; i < count; ++i) body += "  fma.rn.f32 %f0, %f0, %f0, %f0;\n";
  return body + "  st.global.f32 [%b], %f0;\n";
}

/// Clocks for each line of code, in the second round of that many lines by `warps` that are as far apart as they can be.
double fetched(int lines, int warps) {
  const ChipRates rates = chip_rates(90);
  CodeCache cache;
  std::vector<double> now(static_cast<size_t>(warps));
  double begin = 0;
  for (int i = 0; i < 3 * lines; ++i) {
    if (i == 2 * lines) begin = now[0];
    for (int warp = 0; warp < warps; ++warp) {
      const auto line = static_cast<uint16_t>((i + warp * lines / warps) % lines);
      double& at = now[static_cast<size_t>(warp)];
      at = std::max(at + 8, cache.fetch(at, &line, 1, rates.code_bytes / 128, rates.code_line));
    }
  }
  return (now[0] - begin) / lines;
}

TEST(CodeCache, HoldsWhatWasMeasured) {
  // docs/measurements/2026-11-25-fetch.txt, the slowest round of each where warps are apart: 8.0, 8.0; 16.0, 18.9; 32.4; 64.1.
  EXPECT_NEAR(fetched(128, 1), 8, 0.1);
  EXPECT_NEAR(fetched(224, 1), 8, 0.1);
  EXPECT_NEAR(fetched(384, 1), 16, 0.1);
  EXPECT_NEAR(fetched(768, 1), 16, 0.1);
  EXPECT_NEAR(fetched(768, 2), 32, 0.5);
  EXPECT_NEAR(fetched(1024, 4), 64, 1);
}

TEST(CodeCache, LinesOnTheirWayAreThereForAll) {
  CodeCache cache;
  const std::vector<uint16_t> lines{5, 6, 7};
  EXPECT_EQ(cache.fetch(100, lines.data(), 3, 256, 16), 148);
  EXPECT_EQ(cache.fetch(110, lines.data(), 2, 256, 16), 132) << "asked for by another warp";
  EXPECT_EQ(cache.fetch(500, lines.data(), 3, 256, 16), 500);
}

TEST(MachineCosts, TellInWhichLinesOfCodeAnInstructionLies) {
  const Lines block({"add", "ld"});
  ptx::MachineCode code{16, {}};
  for (int i = 0; i < 20; ++i)
    code.instructions.push_back({i == 3 || i == 17 ? 2 : 1, i == 3 ? kLoad : kAdd, 1, 0});
  const MachineCosts costs = machine_costs(block.program, code);
  EXPECT_EQ(costs.code_lines, 3u);
  const auto lines_of = [&](size_t i) {
    const auto begin = costs.code.begin() + costs.costs[i].code;
    return std::vector<uint16_t>(begin, begin + costs.costs[i].code_count);
  };
  EXPECT_EQ(lines_of(0), (std::vector<uint16_t>{0, 1, 2}));
  EXPECT_EQ(lines_of(1), (std::vector<uint16_t>{0, 2}));
}

std::string assembled(const std::string& ptx, const std::string&, const std::string& target) {
  const std::string file =
      (std::filesystem::temp_directory_path() / ("imbrex_timeline_" + std::to_string(getpid()) + ".cubin"))
          .string();
  ptxas_says(ptx, "-lineinfo -arch=" + target, file);
  std::stringstream cubin;
  cubin << std::ifstream(file, std::ios::binary).rdbuf();
  std::filesystem::remove(file);
  return cubin.str();
}

class TimelineMachineCode : public testing::Test {
 protected:
  void TearDown() override { set_timeline_assembler(nullptr); }
};

TEST_F(TimelineMachineCode, IsAskedForOnceAndPredictionsOfPtxStandWhereThereIsNone) {
  const int64_t of_ptx = predict(chain(64)).cycles;
  int asked = 0;
  set_timeline_assembler([&](const std::string& ptx, const std::string& kernel, const std::string& target) {
    ++asked;
    EXPECT_NE(ptx.find("fma.rn.f32"), std::string::npos);
    EXPECT_EQ(kernel, "k");
    EXPECT_EQ(target, "sm_90a");
    return std::string("no cubin");
  });
  EXPECT_EQ(predict(chain(64)).cycles, of_ptx);
  EXPECT_EQ(asked, 1);
}

TEST_F(TimelineMachineCode, SaysWhatIsIssuedAndHowLongItTakes) {
  IMBREX_NEEDS_PTXAS();
  // Nothing is added, which the assembler leaves out, and PTX does not show.
  std::string body = "  mad.wide.u32 %b, %t, 4, %a;\n  ld.global.u32 %x, [%b];\n";
  for (int i = 0; i < 256; ++i) body += "  add.u32 %x, %x, 0;\n";
  body += "  st.global.u32 [%b], %x;\n";
  const Timeline of_ptx = predict(body), longer = predict(chain(256));
  set_timeline_assembler(assembled);
  const Timeline of_code = predict(body), longer_of_code = predict(chain(256));
  EXPECT_GT(of_ptx.cycles - of_code.cycles, 256 * 3);
  EXPECT_NEAR(static_cast<double>(longer_of_code.cycles), static_cast<double>(longer.cycles), 100);
}

TEST_F(TimelineMachineCode, WarpsWaitForUnitsThatOthersKeepForAPartOfTheTime) {
  IMBREX_NEEDS_PTXAS();
  set_timeline_assembler(assembled);
  const auto clocks = [](const std::string& body, int64_t warps) {
    return static_cast<double>(predict(body, {.threads = 32 * warps, .sms = 1, .checks = false}).cycles);
  };
  const std::string begin = "  mad.wide.u32 %b, %t, 4, %a;\n  ld.global.f32 %f0, [%b];\n",
                    end = "  st.global.f32 [%b], %f0;\n";
  const auto piece = [&](const std::string& text, int64_t warps) {
    std::string body;
    for (int i = 0; i < 20; ++i) body += text;
    return (clocks(begin + body + body + end, warps) - clocks(begin + body + end, warps)) / 20;
  };
  // docs/measurements/2026-11-25-fetch.txt: 153 clocks of a warp where each sub-partition has one, 170 where it has eight.
  std::string shuffles;
  for (int i = 0; i < 5; ++i)
    shuffles += "  shfl.sync.bfly.b32 %f1, %f0, 1, 31, -1;\n  fma.rn.f32 %f0, %f0, 0f3F7FFFF0, %f1;\n";
  EXPECT_NEAR(piece(shuffles, 32) / piece(shuffles, 4), 170. / 153, 0.08);
}

TEST_F(TimelineMachineCode, CodeThatAnSmDoesNotHoldIsFetchedInEachRound) {
  IMBREX_NEEDS_PTXAS();
  set_timeline_assembler(assembled);
  // Eight chains, so that a warp can issue in each clock, in a loop that the assembler does not copy.
  const auto of_a_line = [](int count) {
    const auto cycles = [&](int rounds) {
      std::string body = "  mad.wide.u32 %b, %t, 4, %a;\n";
      for (int f = 0; f < 8; ++f) body += fmt::format("  ld.global.f32 %f{}, [%b+{}];\n", f, 4 * f);
      body += fmt::format("  mul.lo.u32 %i, %t, 0;\n  add.u32 %x, %i, {};\nLOOP:\n", rounds);
      for (int i = 0; i < count; ++i)
        body += fmt::format("  fma.rn.f32 %f{0}, %f{0}, %f{0}, %f{0};\n", i % 8);
      body += "  add.u32 %i, %i, 1;\n  setp.lt.u32 %p, %i, %x;\n  @%p bra LOOP;\n";
      for (int f = 0; f < 8; ++f) body += fmt::format("  st.global.f32 [%b+{}], %f{};\n", 4 * f, f);
      return predict(body, {.threads = 128, .sms = 1, .checks = false}).cycles;
    };
    return static_cast<double>(cycles(8) - cycles(4)) / (4 * count / 8);
  };
  // docs/measurements/2026-11-25-fetch.txt: 8.0 and 16.0 (one SM), 18.8 (all of them).
  EXPECT_NEAR(of_a_line(1600), 8, 1);
  EXPECT_NEAR(of_a_line(4000), 16, 1);
}

}  // namespace
}  // namespace imbrex::vgpu
