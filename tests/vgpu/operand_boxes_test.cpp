// SPDX-License-Identifier: Apache-2.0
// Faults of operands that show in what nobody reads: tiles of the wrong trip, and products of one sum that
// take a tile both ways.
#include <fmt/format.h>

#include "vgpu_testing.h"

namespace imbrex::vgpu {
namespace {

constexpr uint32_t kTile = 8192;  // 64 rows of 64 fp16
constexpr uint64_t descriptor(uint64_t start) {
  return start >> 4 | uint64_t{1} << 16 | uint64_t{64} << 32 | uint64_t{1} << 46 | uint64_t{2} << 61;
}
constexpr uint32_t kTransposeA = 1u << 15;

struct Case {
  uint32_t loaded_to = kTile;    // B of the second trip
  uint32_t read_from = kTile;    // in its product
  uint32_t turned = 0;           // bits of the first trip's second product
  uint32_t first_column = 0;     // of A in it, in bytes
  uint32_t adds = 1;             // to the product before it
  bool has_own_barrier = false;  // the second trip
  bool is_read_at_last = false;  // B of the second trip, by a thread
};

/// Two trips, each of which loads A and B. In the first, products with bytes 32 to 63 of A's rows and then
/// with `first_column` on; in the second one product.
Report run(const Case& c) {
  const std::string text =
      fmt::format(R"(.version 9.0
.target sm_100a
.address_size 64
.file 1 "boxes.cu"
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 a1, .param .u64 a2, .param .u64 b, .param .u64 a3,
                  .param .u64 b3, .param .u32 to, .param .u32 turned, .param .u32 adds)
.reqntid 32
{{
  .reg .pred %p, %first, %adds;
  .reg .b32 %t, %tile, %bar, %slot, %tmem, %idesc, %turned, %to, %next, %x;
  .reg .b64 %a1, %a2, %a3, %b, %b3, %map, %start;
  .shared .align 1024 .b8 tile[24576];
  .shared .align 8 .b64 barrier[3];
  .shared .align 4 .b32 slot;
  mov.b64 %map, map;
  cvta.param.u64 %map, %map;
  ld.param.u64 %a1, [a1];
  ld.param.u64 %a2, [a2];
  ld.param.u64 %a3, [a3];
  ld.param.u64 %b, [b];
  ld.param.u64 %b3, [b3];
  ld.param.u32 %to, [to];
  ld.param.u32 %turned, [turned];
  ld.param.u32 %x, [adds];
  setp.ne.u32 %adds, %x, 0;
  mov.u32 %tile, tile;
  mov.u32 %bar, barrier;
  mov.u32 %slot, slot;
  mov.u32 %t, %tid.x;
  setp.ne.u32 %first, %t, 0;
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%slot], 32;
  bar.sync 0;
  ld.shared.b32 %tmem, [%slot];
  @%first bra DONE;
  mbarrier.init.shared::cta.b64 [%bar], 1;
  mbarrier.init.shared::cta.b64 [%bar + 8], 1;
  mbarrier.init.shared::cta.b64 [%bar + 16], 1;
  fence.mbarrier_init.release.cluster;
  and.b32 %next, %tile, 0x3FFFF;
  shr.u32 %next, %next, 4;
  cvt.u64.u32 %start, %next;
  add.u64 %a1, %a1, %start;
  add.u64 %a2, %a2, %start;
  add.u64 %a3, %a3, %start;
  add.u64 %b, %b, %start;
  add.u64 %b3, %b3, %start;
  mov.u32 %idesc, 0x04040010;
  or.b32 %turned, %turned, %idesc;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 16384;
  cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%tile], [%map, {{0, 0}}], [%bar];
  add.u32 %next, %tile, 8192;
  cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%next], [%map, {{0, 64}}], [%bar];
LOADED:
  mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar], 0;
  @!%p bra LOADED;
  .loc 1 7 0
  tcgen05.mma.cta_group::1.kind::f16 [%tmem], %a1, %b, %idesc, 0;
  .loc 1 8 0
  tcgen05.mma.cta_group::1.kind::f16 [%tmem], %a2, %b, %turned, %adds;
  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bar + 8];
MULTIPLIED:
  mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar + 8], 0;
  @!%p bra MULTIPLIED;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar + {0}], 16384;
  cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%tile], [%map, {{64, 0}}], [%bar + {0}];
  add.u32 %next, %tile, %to;
  .loc 1 12 0
  cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%next], [%map, {{64, 64}}], [%bar + {0}];
LOADED_AGAIN:
  mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar + {0}], {1};
  @!%p bra LOADED_AGAIN;
  .loc 1 14 0
  tcgen05.mma.cta_group::1.kind::f16 [%tmem], %a3, %b3, %idesc, 1;
  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bar + 8];
MULTIPLIED_AGAIN:
  mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar + 8], 1;
  @!%p bra MULTIPLIED_AGAIN;
  {2}ld.shared.b32 %x, [%next];
  tcgen05.fence::after_thread_sync;
DONE:
  bar.warp.sync -1;
  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, 32;
  ret;
}}
)",
                  c.has_own_barrier ? 16 : 0, c.has_own_barrier ? 0 : 1, c.is_read_at_last ? "" : "//");
  VirtualGpu gpu({.target = "sm_100a"});
  DeviceAddress data = gpu.allocate(128 * 128 * 2);
  gpu.fill16(data, 0x3C00, 128 * 128);
  const uint64_t dims[] = {128, 128}, strides[] = {256};
  const uint32_t box[] = {64, 64};
  TensorMap map = encode_tensor_map({.type = TensorMapType::kFloat16,
                                     .address = data,
                                     .dims = dims,
                                     .strides_bytes = strides,
                                     .box = box,
                                     .swizzle = TensorMapSwizzle::k128B});
  uint64_t a1 = descriptor(32), a2 = descriptor(c.first_column), a3 = descriptor(0), b = descriptor(kTile),
           b3 = descriptor(c.read_from);
  uint32_t to = c.loaded_to, turned = c.turned, adds = c.adds;
  void* arguments[] = {&map, &a1, &a2, &b, &a3, &b3, &to, &turned, &adds};
  return gpu.launch(gpu.load_module(text, "boxes.ptx").function("k"),
                    {.block = {32}, .arguments = arguments});
}

void expect_only(const Report& report, uint32_t line, const std::string& words) {
  ASSERT_EQ(report.findings.size(), 1u) << report.format();
  const Finding& finding = report.findings.front();
  EXPECT_EQ(finding.kind, FindingKind::kOperandLayout);
  EXPECT_EQ(finding.place.line, line);
  EXPECT_NE(finding.message.find(words), std::string::npos) << report.format();
}

TEST(OperandBoxes, TwoTripsAreSilent) {
  const Report same = run({}), moved = run({.loaded_to = 2 * kTile, .read_from = 2 * kTile});
  EXPECT_TRUE(same.clean()) << same.format();
  EXPECT_TRUE(moved.clean()) << moved.format();
}

TEST(OperandBoxes, TheTileOfTheTripBefore) { expect_only(run({.loaded_to = 2 * kTile}), 14, "never read"); }

TEST(OperandBoxes, OperandsThatAreKept) {
  // B stays for a second A, which came under a barrier of its own; what is loaded is read later.
  const Report kept = run({.loaded_to = 2 * kTile, .has_own_barrier = true});
  EXPECT_TRUE(kept.clean()) << kept.format();
  const Report later = run({.loaded_to = 2 * kTile, .is_read_at_last = true});
  EXPECT_TRUE(later.clean()) << later.format();
}

TEST(OperandBoxes, OneSumTakesATileBothWays) {
  expect_only(run({.turned = kTransposeA}), 8,
              "takes the rows of a loaded box for k, which a product before it");
}

TEST(OperandBoxes, TwoSumsMayTakeItBothWays) {
  const Report report = run({.turned = kTransposeA, .adds = 0});
  EXPECT_TRUE(report.clean()) << report.format();
}

TEST(OperandBoxes, ALineDoesNotGoOnInTheNextRow) {
  // Bytes 32 to 159 of rows of 128.
  const Report report = run({.turned = kTransposeA, .first_column = 32, .adds = 0});
  expect_only(report, 8, "behind row 0, byte 112 the same row's byte 128 was expected");
}

}  // namespace
}  // namespace imbrex::vgpu
