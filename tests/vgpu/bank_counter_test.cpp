// SPDX-License-Identifier: Apache-2.0
// Bank conflicts of single instructions, as counted while they run.
#include <fmt/format.h>

#include "vgpu_testing.h"

namespace imbrex::vgpu {
namespace {

/// Runs `body` by 64 threads of two CTAs with a tile of 8 KiB at %tile; %t is the thread.
std::vector<BankUse> banks(const std::string& body, bool count = true) {
  Options options{.target = "sm_90a"};
  options.count_banks = count;
  VirtualGpu gpu(options);
  const Module module = gpu.load_module(fmt::format(R"(.version 8.6
.target sm_90a
.address_size 64
.shared .align 1024 .b8 tile[8192];
.visible .entry k()
{{
  .reg .pred %p;
  .reg .b32 %t, %x, %a, %tile, %r<4>;
  .reg .b64 %d<2>;
  mov.u32 %t, %tid.x;
  and.b32 %t, %t, 31;
  mov.u32 %tile, tile;
  mov.b32 %x, 0; mov.b32 %r0, 0; mov.b32 %r1, 0; mov.b32 %r2, 0; mov.b32 %r3, 0;
  mov.b64 %d0, 0; mov.b64 %d1, 0;
{}
  ret;
}}
)",
                                                    body),
                                        "banks.ptx");
  return gpu.launch(module.function("k"), {.grid = {2}, .block = {64}}).banks;
}

/// One store of each thread to byte t * step, `form` and its operand as in PTX.
BankUse strided(const std::string& form, const std::string& value, int step) {
  const std::vector<BankUse> uses =
      banks(fmt::format("  mad.lo.u32 %a, %t, {}, %tile;\n  st.shared.{} [%a], {};", step, form, value));
  EXPECT_EQ(uses.size(), 1u);
  return uses.empty() ? BankUse{} : uses[0];
}

void expect(const BankUse& use, int bytes, int wavefronts, int ideal, int degree) {
  EXPECT_EQ(use.bytes, bytes);
  EXPECT_EQ(use.accesses, 4);  // two warps in each of two CTAs
  EXPECT_EQ(use.wavefronts, 4 * wavefronts);
  EXPECT_EQ(use.ideal, 4 * ideal);
  EXPECT_EQ(use.degree, degree);
}

TEST(BankCounter, Strides) {
  expect(strided("b32", "%x", 4), 4, 1, 1, 1);
  expect(strided("b32", "%x", 8), 4, 2, 1, 2);
  expect(strided("b32", "%x", 128), 4, 32, 1, 32);
  expect(strided("b32", "%x", 132), 4, 1, 1, 1);  // padded by a word
  expect(strided("v2.b32", "{%r0, %r1}", 8), 8, 2, 2, 1);
  expect(strided("v4.b32", "{%r0, %r1, %r2, %r3}", 16), 16, 4, 4, 1);
  expect(strided("v4.b32", "{%r0, %r1, %r2, %r3}", 128), 16, 32, 4, 8);
  expect(strided("b8", "%x", 1), 1, 1, 1, 1);
}

TEST(BankCounter, LanesThatReadOneWordShareIt) {
  const std::vector<BankUse> uses = banks("  ld.shared.b32 %x, [%tile];");
  ASSERT_EQ(uses.size(), 1u);
  expect(uses[0], 4, 1, 1, 1);
  EXPECT_FALSE(uses[0].writes);
  EXPECT_EQ(uses[0].place.ptx, "ld.shared.b32 %x, [%tile];");
}

TEST(BankCounter, OnlyActiveLanesMeet) {
  // Lanes 0 ... 3 of a 32-way conflict.
  const std::vector<BankUse> uses =
      banks("  mad.lo.u32 %a, %t, 128, %tile;\n  setp.lt.u32 %p, %t, 4;\n  @%p st.shared.b32 [%a], %x;");
  ASSERT_EQ(uses.size(), 1u);
  expect(uses[0], 4, 4, 1, 4);
}

TEST(BankCounter, MatricesTakeAPhaseEach) {
  const auto matrices = [&](int pitch) {
    return banks(
        fmt::format("  mad.lo.u32 %a, %t, {}, %tile;\n"
                    "  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r0, %r1, %r2, %r3}}, [%a];\n"
                    "  stmatrix.sync.aligned.m8n8.x2.shared.b16 [%a], {{%r0, %r1}};",
                    pitch));
  };
  const std::vector<BankUse> rows = matrices(128);
  ASSERT_EQ(rows.size(), 2u);
  expect(rows[0], 16, 32, 4, 8);
  expect(rows[1], 16, 16, 2, 8);
  EXPECT_TRUE(rows[1].writes);
  const std::vector<BankUse> padded = matrices(144);
  expect(padded[0], 16, 4, 4, 1);
  expect(padded[1], 16, 2, 2, 1);
}

TEST(BankCounter, GlobalMemoryAndSilence) {
  EXPECT_TRUE(banks("  st.shared.b32 [%tile], %x;", false).empty());
  EXPECT_TRUE(banks("  mov.b32 %x, 1;").empty());
}

}  // namespace
}  // namespace imbrex::vgpu
