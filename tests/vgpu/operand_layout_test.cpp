// SPDX-License-Identifier: Apache-2.0
// Matrix descriptors that disagree with how tensor copies wrote the data.
#include <fmt/format.h>

#include "vgpu_testing.h"

namespace imbrex::vgpu {
namespace {

constexpr uint64_t kStride = 64, kVersion = uint64_t{1} << 46;
constexpr uint64_t descriptor(uint64_t start, uint64_t stride, uint64_t swizzle, uint64_t base_offset = 0) {
  return start >> 4 | uint64_t{1} << 16 | stride << 32 | kVersion | base_offset << 49 | swizzle << 61;
}
constexpr uint64_t k128B = 2, k64B = 4;

struct Case {
  TensorMapSwizzle map = TensorMapSwizzle::k128B;
  uint64_t a = descriptor(0, kStride, k128B);  // from the start of the tile
  uint64_t b = descriptor(16384, kStride, k128B);
  int next_column = 0, next_row = 128;  // of the second box
  uint32_t transposed = 0;
};

/// 128x64 halves twice: a box of A at the start of the tile, one of B behind it, then one product 128x16x16.
Report run(const Case& c) {
  const std::string text = R"(.version 9.0
.target sm_100a
.address_size 64
.file 1 "layout.cu"
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 a, .param .u64 b, .param .u32 column, .param .u32 row,
                  .param .u32 idesc)
.reqntid 32
{
  .reg .pred %p, %first;
  .reg .b32 %t, %tile, %bar, %slot, %tmem, %idesc, %column, %row, %next;
  .reg .b64 %a, %b, %map, %start;
  .shared .align 1024 .b8 tile[32768];
  .shared .align 8 .b64 barrier[2];
  .shared .align 4 .b32 slot;
  mov.b64 %map, map;
  cvta.param.u64 %map, %map;
  ld.param.u64 %a, [a];
  ld.param.u64 %b, [b];
  ld.param.u32 %column, [column];
  ld.param.u32 %row, [row];
  ld.param.u32 %idesc, [idesc];
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
  fence.mbarrier_init.release.cluster;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 32768;
  .loc 1 5 0
  cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%tile], [%map, {0, 0}], [%bar];
  add.u32 %next, %tile, 16384;
  .loc 1 6 0
  cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes [%next], [%map, {%column, %row}], [%bar];
LOADED:
  mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar], 0;
  @!%p bra LOADED;
  and.b32 %next, %tile, 0x3FFFF;
  shr.u32 %next, %next, 4;
  cvt.u64.u32 %start, %next;
  add.u64 %a, %a, %start;
  add.u64 %b, %b, %start;
  .loc 1 9 0
  tcgen05.mma.cta_group::1.kind::f16 [%tmem], %a, %b, %idesc, 0;
  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bar + 8];
MULTIPLIED:
  mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar + 8], 0;
  @!%p bra MULTIPLIED;
  tcgen05.fence::after_thread_sync;
DONE:
  bar.warp.sync -1;
  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, 32;
  ret;
}
)";
  VirtualGpu gpu({.target = "sm_100a"});
  DeviceAddress data = gpu.allocate(256 * 256 * 2);
  gpu.fill16(data, 0x3C00, 256 * 256);
  const uint64_t dims[] = {256, 256}, strides[] = {512};
  const uint32_t box[] = {64, 128};
  TensorMap map = encode_tensor_map({.type = TensorMapType::kFloat16,
                                     .address = data,
                                     .dims = dims,
                                     .strides_bytes = strides,
                                     .box = box,
                                     .swizzle = c.map});
  uint64_t a = c.a, b = c.b;
  uint32_t column = static_cast<uint32_t>(c.next_column), row = static_cast<uint32_t>(c.next_row);
  uint32_t idesc = 0x08040010 | c.transposed;
  void* arguments[] = {&map, &a, &b, &column, &row, &idesc};
  return gpu.launch(gpu.load_module(text, "layout.ptx").function("k"),
                    {.block = {32}, .arguments = arguments});
}

::testing::AssertionResult disagrees(const Report& report, const std::string& words, int load = 5) {
  for (const Finding& f : report.findings)
    if (f.kind == FindingKind::kOperandLayout && f.place.line == 9 && f.other_place.line == load &&
        f.message.find(words) != std::string::npos)
      return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << report.format();
}

TEST(OperandLayout, DescriptorsThatFitAreSilent) {
  for (const uint64_t step : {0, 32, 64, 96}) {
    const Report report =
        run({.a = descriptor(step, kStride, k128B), .b = descriptor(16384 + step, kStride, k128B)});
    EXPECT_TRUE(report.clean()) << report.format();
  }
  // Rows 64 to 127 of one box and 0 to 63 of the next, the tensor's following ones.
  const Report across = run({.a = descriptor(8192, kStride, k128B)});
  EXPECT_TRUE(across.clean()) << across.format();
}

TEST(OperandLayout, AnotherSwizzle) {
  const Report report = run({.a = descriptor(0, kStride, k64B)});
  EXPECT_TRUE(disagrees(report, "operand A"));
  EXPECT_NE(report.findings[0].facts[0].find("the descriptor's swizzle is 64B, the tensor map's 128B"),
            std::string::npos)
      << report.format();
  EXPECT_TRUE(disagrees(run({.b = descriptor(16384, kStride, k64B)}), "operand B", 6));
  EXPECT_TRUE(disagrees(run({.map = TensorMapSwizzle::kNone}), "operand A"));
}

TEST(OperandLayout, WrongStrideAndBaseOffset) {
  EXPECT_TRUE(disagrees(run({.a = descriptor(0, 32, k128B)}), "so row 8 was expected"));
  EXPECT_TRUE(disagrees(run({.a = descriptor(0, kStride, k128B, 1)}), "operand A"));
}

TEST(OperandLayout, ShiftedByALine) {
  // The last line is of the next box: of another column of the tensor.
  EXPECT_TRUE(disagrees(run({.a = descriptor(128, kStride, k128B), .next_column = 64}), "of another box", 6));
}

TEST(OperandLayout, TheOtherMajorness) {
  EXPECT_TRUE(disagrees(run({.transposed = 1u << 15}), "was expected"));
}

// ---- cp.async

/// One warp copies a 128x16 tile of A and a 32x16 tile of B behind it, chunk by chunk with the swizzle of 32
/// bytes, from matrices of `pitch` bytes a row; then one product 128x32x16. `gather`: rows of A in an order
/// that no tensor has.
Report run_copied(uint64_t a, uint64_t b, uint32_t idesc = 0x08080010, bool gather = false,
                  const std::string& row_offset = "mul.wide.u32 %wide, %row, 512;") {
  const std::string before = R"(.version 9.0
.target sm_100a
.address_size 64
.file 1 "layout.cu"
.visible .entry k(.param .u64 data_a, .param .u64 data_b, .param .u64 a, .param .u64 b, .param .u32 idesc,
                  .param .u32 scramble)
.reqntid 32
{
  .reg .pred %p, %first;
  .reg .b32 %t, %tile, %bar, %slot, %tmem, %idesc, %i, %row, %chunk, %to, %x, %scramble;
  .reg .b64 %a, %b, %start, %data_a, %data_b, %from, %wide;
  .shared .align 1024 .b8 tile[5120];
  .shared .align 8 .b64 barrier;
  .shared .align 4 .b32 slot;
  ld.param.u64 %data_a, [data_a];
  ld.param.u64 %data_b, [data_b];
  ld.param.u64 %a, [a];
  ld.param.u64 %b, [b];
  ld.param.u32 %idesc, [idesc];
  ld.param.u32 %scramble, [scramble];
  mov.u32 %tile, tile;
  mov.u32 %bar, barrier;
  mov.u32 %slot, slot;
  mov.u32 %t, %tid.x;
  setp.ne.u32 %first, %t, 0;
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%slot], 32;
  @!%first mbarrier.init.shared::cta.b64 [%bar], 1;
  mov.u32 %i, %t;
COPY:
  shr.u32 %row, %i, 1;
  and.b32 %chunk, %i, 1;
  shr.u32 %x, %row, 2;
  xor.b32 %x, %x, %chunk;
  and.b32 %x, %x, 1;
  mad.lo.u32 %to, %row, 32, %tile;
  mad.lo.u32 %to, %x, 16, %to;
  setp.ge.u32 %p, %row, 128;
  @%p sub.u32 %row, %row, 128;
  @!%p xor.b32 %row, %row, %scramble;
  mov.u64 %from, %data_a;
  @%p mov.u64 %from, %data_b;
)",
                    behind = R"(
  add.u64 %from, %from, %wide;
  mul.wide.u32 %wide, %chunk, 16;
  add.u64 %from, %from, %wide;
  .loc 1 5 0
  cp.async.cg.shared.global [%to], [%from], 16;
  add.u32 %i, %i, 32;
  setp.lt.u32 %p, %i, 320;
  @%p bra COPY;
  cp.async.wait_all;
  fence.proxy.async;
  bar.sync 0;
  ld.shared.b32 %tmem, [%slot];
  @%first bra DONE;
  and.b32 %x, %tile, 0x3FFFF;
  shr.u32 %x, %x, 4;
  cvt.u64.u32 %start, %x;
  add.u64 %a, %a, %start;
  add.u64 %b, %b, %start;
  .loc 1 9 0
  tcgen05.mma.cta_group::1.kind::f16 [%tmem], %a, %b, %idesc, 0;
  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%bar];
MULTIPLIED:
  mbarrier.try_wait.parity.shared::cta.b64 %p, [%bar], 0;
  @!%p bra MULTIPLIED;
  tcgen05.fence::after_thread_sync;
DONE:
  bar.warp.sync -1;
  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, 32;
  ret;
}
)";
  VirtualGpu gpu({.target = "sm_100a"});
  DeviceAddress data_a = gpu.allocate(256 * 512), data_b = gpu.allocate(256 * 512);
  gpu.fill16(data_a, 0x3C00, 256 * 256);
  gpu.fill16(data_b, 0x3C00, 256 * 256);
  uint32_t scramble = gather ? 5 : 0;
  void* arguments[] = {&data_a, &data_b, &a, &b, &idesc, &scramble};
  return gpu.launch(gpu.load_module(before + row_offset + behind, "layout.ptx").function("k"),
                    {.block = {32}, .arguments = arguments});
}

TEST(CopiedOperand, DescriptorsThatFitAreSilent) {
  constexpr uint64_t k32B = 6, kRows = 16;
  for (const bool gather : {false, true}) {
    const Report report =
        run_copied(descriptor(0, kRows, k32B), descriptor(4096, kRows, k32B), 0x08080010, gather);
    EXPECT_TRUE(report.clean()) << report.format();
  }
}

TEST(CopiedOperand, RowsThatFollowOneAnotherInGlobalMemoryAreNoLongRow) {
  // Two blocks of 64 rows of 32 bytes, as of two heads of an attention: in memory two long rows.
  constexpr uint64_t k32B = 6, kRows = 16;
  const Report report =
      run_copied(descriptor(0, kRows, k32B), descriptor(4096, kRows, k32B), 0x08080010, false,
                 "shr.u32 %x, %row, 6; mad.lo.u32 %x, %x, 32, %row; mul.wide.u32 %wide, %x, 32;");
  EXPECT_TRUE(report.clean()) << report.format();
}

/// Rows of 32 bytes whose next one in global memory is the one `1 << bits` rows further.
Report run_taking_turns(int bits) {
  constexpr uint64_t k32B = 6, kRows = 16;
  const std::string row_offset = fmt::format(
      "and.b32 %x, %row, {}; mul.lo.u32 %x, %x, 96; shr.u32 %row, %row, {}; add.u32 %x, %x, %row;"
      "mul.wide.u32 %wide, %x, 32;",
      (1 << bits) - 1, bits);
  return run_copied(descriptor(0, kRows, k32B), descriptor(4096, kRows, k32B), 0x08080010, false, row_offset);
}

TEST(CopiedOperand, RowsThatTakeTurnsInGlobalMemoryAreNoLongRows) {
  // As pages of one row of a cache can lie: in memory 2 or 4 long rows.
  for (const int bits : {1, 2}) {
    const Report report = run_taking_turns(bits);
    EXPECT_TRUE(report.clean()) << report.format();
  }
}

TEST(CopiedOperand, LongRowsGoOnBehindGroupsOfEight) {
  // Eight or sixteen rows whose parts of 32 bytes lie one behind the other, read as if they were more rows.
  for (const int bits : {3, 4}) EXPECT_TRUE(disagrees(run_taking_turns(bits), "a tile that cp.async copied"));
}

TEST(CopiedOperand, DescriptorsThatDoNot) {
  constexpr uint64_t k32B = 6, kRows = 16;
  const uint64_t a = descriptor(0, kRows, k32B), b = descriptor(4096, kRows, k32B);
  EXPECT_TRUE(disagrees(run_copied(descriptor(0, kRows, k32B, 1), b), "a tile that cp.async copied"));
  EXPECT_TRUE(disagrees(run_copied(descriptor(0, 8, k32B), b), "operand A"));
  EXPECT_TRUE(disagrees(run_copied(descriptor(128, kRows, k32B), b), "operand A"));
  EXPECT_TRUE(disagrees(run_copied(a, descriptor(4096, 8, k32B)), "operand B"));
  EXPECT_TRUE(disagrees(run_copied(a, b, 0x08080010 | 1u << 15), "operand A"));
}

}  // namespace
}  // namespace imbrex::vgpu
