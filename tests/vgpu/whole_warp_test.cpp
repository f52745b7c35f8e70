// SPDX-License-Identifier: Apache-2.0
// Loads and stores of whole warps at once (insns/whole_warp.cpp) against those lane by lane (insns/load_store.cpp): the
// same results, findings and counts. Counting bank conflicts is what asks for single lanes.
#include <fmt/format.h>

#include <random>

#include "vgpu_testing.h"

namespace imbrex::vgpu {
namespace {

/// A kernel of two warps per CTA whose accesses are drawn at random: widths, vectors, steps between lanes, offsets,
/// with and without barriers between them, so that some race and some read what nobody wrote.
class RandomKernel {
 public:
  explicit RandomKernel(uint32_t seed) : random_(seed) {
    for (int i = 0; i < 40; ++i) add_statement(i + 1);
  }
  std::string text() const {
    return R"(.version 8.6
.target sm_90a
.address_size 64
.file 1 "random.cu"
.visible .entry k(.param .u64 buffer)
.reqntid 64
{
  .reg .pred %p, %odd;
  .reg .b32 %t, %lane, %s, %a, %c, %r<4>;
  .reg .b16 %h;
  .reg .b64 %data, %at, %w<2>;
  .shared .align 128 .b8 tile[4096];
  ld.param.u64 %data, [buffer];
  mov.u32 %t, %tid.x;
  mov.u32 %c, %ctaid.x;
  and.b32 %lane, %t, 31;
  mov.u32 %s, tile;
  and.b32 %a, %t, 1;
  setp.eq.u32 %odd, %a, 1;
  shl.b32 %r0, %t, 7;
  add.u32 %r1, %r0, 5;
  mul.lo.u32 %r2, %r1, 77;
  xor.b32 %r3, %r2, %r1;
  cvt.u64.u32 %w0, %r2;
  cvt.u64.u32 %w1, %r3;
  cvt.u16.u32 %h, %r3;
)" + body_ +
           "  ret;\n}\n";
  }

 private:
  uint32_t below(uint32_t end) { return random_() % end; }

  void add_statement(int line) {
    body_ += fmt::format("  .loc 1 {} 0\n", line);
    if (below(4) == 0) {
      body_ += below(3) == 0 ? "  bar.warp.sync 0xffffffff;\n" : "  bar.sync 0;\n";
      return;
    }
    struct Form {
      const char* words;
      const char* registers;
      uint32_t bytes;
    };
    static constexpr Form kForms[] = {
        {"u32", "%r1", 4},
        {"u8", "%r2", 1},
        {"u16", "%h", 2},
        {"u64", "%w0", 8},
        {"v2.u32", "{%r0, %r1}", 8},
        {"v4.u32", "{%r0, %r1, %r2, %r3}", 16},
        {"v2.u64", "{%w0, %w1}", 16},
    };
    const Form& form = kForms[below(std::size(kForms))];
    const bool is_shared = below(2) == 0, is_load = below(2) == 0;
    static constexpr uint32_t kSteps[] = {0, 1, 1, 1, 1, 2, 4, 8};
    const uint32_t step = form.bytes * kSteps[below(std::size(kSteps))];
    // Whose lanes: of the warp, of the CTA, of the grid; from where on.
    const uint32_t by = below(3), from = below(3) == 0 ? below(8) * 16 : below(4) * 128;
    body_ += fmt::format("  mul.lo.u32 %a, {}, {};\n", by == 0 ? "%lane" : "%t", step);
    if (by == 2) body_ += fmt::format("  mad.lo.u32 %a, %c, {}, %a;\n", is_shared ? 128 : 2048);
    const char* guard = below(6) == 0 ? "@%odd " : "";
    if (is_shared) {
      body_ += "  and.b32 %a, %a, 2047;\n  add.u32 %a, %a, %s;\n";
      body_ += is_load
                   ? fmt::format("  {}ld.shared.{} {}, [%a+{}];\n", guard, form.words, form.registers, from)
                   : fmt::format("  {}st.shared.{} [%a+{}], {};\n", guard, form.words, from, form.registers);
    } else {
      body_ += "  and.b32 %a, %a, 8191;\n  cvt.u64.u32 %at, %a;\n  add.u64 %at, %at, %data;\n";
      body_ += is_load
                   ? fmt::format("  {}ld.global.{} {}, [%at+{}];\n", guard, form.words, form.registers, from)
                   : fmt::format("  {}st.global.{} [%at+{}], {};\n", guard, form.words, from, form.registers);
    }
  }

  std::mt19937 random_;
  std::string body_;
};

struct Outcome {
  std::vector<uint8_t> memory;
  std::string findings;
  Statistics statistics;
};

Outcome run(const std::string& text, bool lane_by_lane, bool checked, uint64_t seed) {
  Options options{.target = "sm_90a", .seed = seed};
  options.host_threads = 1;  // what races on global memory leaves must not depend on the host
  options.max_findings = 1000;
  options.count_banks = lane_by_lane;
  if (!checked) options.checks = CheckSet::none();
  constexpr int64_t kBytes = 16384;
  VirtualGpu gpu(options);
  DeviceAddress data = gpu.allocate(kBytes);
  std::vector<uint8_t> bytes(kBytes);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 37 >> 3);
  gpu.copy_to_device(data, bytes.data(), kBytes);
  void* arguments[] = {&data};
  Report report = gpu.launch(gpu.load_module(text, "random.ptx").function("k"),
                             {.grid = {2}, .block = {64}, .arguments = arguments});
  Outcome outcome;
  outcome.memory.resize(kBytes);
  gpu.copy_from_device(outcome.memory.data(), data, kBytes);
  for (const Finding& finding : report.findings) outcome.findings += finding.format() + "\n";
  outcome.statistics = report.statistics;
  return outcome;
}

TEST(WholeWarp, AgreesWithLaneByLane) {
  int with_findings = 0, clean = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(fmt::format("kernel {}", seed));
    const std::string text = RandomKernel(seed).text();
    for (const bool checked : {true, false}) {
      const Outcome whole = run(text, false, checked, seed % 3), lanes = run(text, true, checked, seed % 3);
      ASSERT_TRUE(whole.memory == lanes.memory) << text;
      ASSERT_EQ(whole.findings, lanes.findings) << text;
      EXPECT_EQ(whole.statistics.instructions, lanes.statistics.instructions);
      EXPECT_EQ(whole.statistics.global_bytes_read, lanes.statistics.global_bytes_read);
      EXPECT_EQ(whole.statistics.global_bytes_written, lanes.statistics.global_bytes_written);
      EXPECT_EQ(whole.statistics.shared_bytes_read, lanes.statistics.shared_bytes_read);
      EXPECT_EQ(whole.statistics.shared_bytes_written, lanes.statistics.shared_bytes_written);
      if (checked) ++(whole.findings.empty() ? clean : with_findings);
    }
  }
  EXPECT_GT(with_findings, 5);
  RecordProperty("clean", clean);
}

}  // namespace
}  // namespace imbrex::vgpu
