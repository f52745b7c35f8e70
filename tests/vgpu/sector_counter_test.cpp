// SPDX-License-Identifier: Apache-2.0
// Sectors of global memory that single instructions touch, as counted while they run. What one request touches is
// tested in tests/analysis.
#include <fmt/format.h>

#include "vgpu_testing.h"

namespace imbrex::vgpu {
namespace {

/// Runs `body` by 64 threads of two CTAs; %t is the lane, %a the address of a buffer of 16 KiB.
std::vector<SectorUse> sectors(const std::string& body, bool count = true) {
  Options options{.target = "sm_90a"};
  options.count_sectors = count;
  options.checks.global_races = false;  // all warps write the same
  VirtualGpu gpu(options);
  const Module module = gpu.load_module(fmt::format(R"(.version 8.6
.target sm_90a
.address_size 64
.shared .align 16 .b8 tile[1024];
.visible .entry k(.param .u64 p)
{{
  .reg .pred %p;
  .reg .b32 %t, %x, %s, %r<4>;
  .reg .b64 %a, %b, %w;
  mov.u32 %t, %tid.x;
  and.b32 %t, %t, 31;
  mov.u32 %s, tile;
  ld.param.u64 %a, [p];
  mov.b32 %x, 0; mov.b32 %r0, 0; mov.b32 %r1, 0; mov.b32 %r2, 0; mov.b32 %r3, 0;
{}
  ret;
}}
)",
                                                    body),
                                        "sectors.ptx");
  DeviceAddress memory = to_device(gpu, std::vector<uint32_t>(4096, 1u));
  void* arguments[] = {&memory};
  return gpu.launch(module.function("k"), {.grid = {2}, .block = {64}, .arguments = arguments}).sectors;
}

/// One instruction by every lane, `step` bytes apart.
SectorUse strided(const std::string& instruction, int step) {
  const std::vector<SectorUse> uses =
      sectors(fmt::format("  mad.wide.u32 %b, %t, {}, %a;\n  {}", step, instruction));
  EXPECT_EQ(uses.size(), 1u);
  return uses.empty() ? SectorUse{} : uses[0];
}

/// Four warps execute it: two in each of two CTAs.
void expect(const SectorUse& use, GlobalAccess access, int bytes, int sectors, int ideal) {
  EXPECT_EQ(use.access, access) << name(use.access);
  EXPECT_EQ(use.bytes, bytes);
  EXPECT_EQ(use.requests, 4);
  EXPECT_EQ(use.sectors, 4 * sectors);
  EXPECT_EQ(use.ideal, 4 * ideal);
  EXPECT_EQ(use.bytes_asked, 4 * 32 * bytes);
}

TEST(SectorCounter, LoadsAndStores) {
  expect(strided("ld.global.b32 %x, [%b];", 4), GlobalAccess::kLoad, 4, 4, 4);
  expect(strided("ld.global.b32 %x, [%b];", 128), GlobalAccess::kLoad, 4, 32, 4);
  expect(strided("ld.global.b32 %x, [%b+4];", 4), GlobalAccess::kLoad, 4, 5, 4);
  expect(strided("ld.b32 %x, [%b];", 4), GlobalAccess::kLoad, 4, 4, 4);  // generic
  expect(strided("ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%b];", 16), GlobalAccess::kLoad, 16, 16, 16);
  expect(strided("st.global.b32 [%b], %x;", 8), GlobalAccess::kStore, 4, 8, 4);
}

TEST(SectorCounter, AtomicsAndAsyncCopies) {
  expect(strided("atom.global.add.u32 %x, [%b], 1;", 64), GlobalAccess::kAtomic, 4, 32, 4);
  expect(strided("red.global.add.u32 [%b], 1;", 0), GlobalAccess::kReduction, 4, 32, 1);
  expect(strided("mad.lo.u32 %s, %t, 16, %s;\n  cp.async.cg.shared.global [%s], [%b], 16;\n"
                 "  cp.async.wait_all;",
                 32),
         GlobalAccess::kAsyncCopy, 16, 32, 16);
}

TEST(SectorCounter, OnlyActiveLanesCount) {
  const std::vector<SectorUse> uses = sectors(R"(
  mad.wide.u32 %b, %t, 32, %a;
  setp.lt.u32 %p, %t, 3;
  @%p ld.global.b32 %x, [%b];
  setp.lt.u32 %p, %t, 0;
  @%p st.global.b32 [%b], %x;)");
  ASSERT_EQ(uses.size(), 1u);
  EXPECT_EQ(uses[0].requests, 4);
  EXPECT_EQ(uses[0].sectors, 4 * 3);
  EXPECT_EQ(uses[0].ideal, 4 * 1);
  EXPECT_EQ(uses[0].bytes_asked, 4 * 12);
}

TEST(SectorCounter, NothingElseIsCounted) {
  EXPECT_TRUE(
      sectors("  mad.lo.u32 %s, %t, 4, %s;\n  st.shared.b32 [%s], %x;\n  atom.shared.add.u32 %x, [%s], 1;")
          .empty());
  EXPECT_TRUE(sectors("  ld.global.b32 %x, [%a];", false).empty());
}

}  // namespace
}  // namespace imbrex::vgpu
