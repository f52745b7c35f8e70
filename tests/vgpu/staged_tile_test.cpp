// SPDX-License-Identifier: Apache-2.0
// Tensor stores whose swizzle is not the one with which threads staged the tile.
#include <fmt/format.h>

#include "vgpu_testing.h"

namespace imbrex::vgpu {
namespace {

/// Registers "%x0, %x1, ...".
std::string list(const char* name, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += fmt::format("{}{}{}", i == 0 ? "" : ", ", name, i);
  return text;
}

/// A warp loads 32 lanes of 16 columns of tensor memory to %f0 ..., `compute` makes %g0 ... of them, which
/// are stored as fp16 in rows of 32 bytes with the swizzle of 32 bytes, line 3, then by TMA, line 5.
/// `exchange`: what becomes of the packed pairs %h0 ... before they are stored as %s0 ....
Report run(TensorMapSwizzle swizzle, const std::string& compute, const std::string& exchange = "") {
  std::string packs, stored = exchange;
  for (int i = 0; i < 8; ++i) {
    packs += fmt::format("  cvt.rn.f16x2.f32 %h{}, %g{}, %g{};\n", i, 2 * i + 1, 2 * i);
    if (exchange.empty()) stored += fmt::format("  mov.b32 %s{}, %h{};\n", i, i);
  }
  const std::string text = fmt::format(R"(.version 9.0
.target sm_100a
.address_size 64
.file 1 "staged.cu"
.visible .entry k(.param .align 64 .b8 map[128], .param .f32 bias)
.reqntid 32
{{
  .reg .pred %p, %first;
  .reg .b32 %t, %tile, %slot, %tmem, %row, %x, %to0, %to1, %u<16>, %h<8>, %s<8>;
  .reg .f32 %f<16>, %g<16>, %sum, %bias;
  .reg .b64 %map;
  .shared .align 1024 .b8 tile[1024];
  .shared .align 4 .b32 slot;
  mov.b64 %map, map;
  cvta.param.u64 %map, %map;
  ld.param.f32 %bias, [bias];
  mov.u32 %tile, tile;
  mov.u32 %slot, slot;
  mov.u32 %t, %tid.x;
  setp.eq.u32 %first, %t, 0;
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%slot], 32;
  bar.sync 0;
  ld.shared.b32 %tmem, [%slot];
  {}
  tcgen05.st.sync.aligned.32x32b.x16.b32 [%tmem], {{{}}};
  tcgen05.wait::st.sync.aligned;
  tcgen05.ld.sync.aligned.32x32b.x16.b32 {{{}}}, [%tmem];
  tcgen05.wait::ld.sync.aligned;
{}{}
  shl.b32 %row, %t, 5;
  shr.u32 %x, %t, 2;
  and.b32 %x, %x, 1;
  setp.ne.u32 %p, %x, 0;
{}
  shl.b32 %x, %x, 4;
  add.u32 %to0, %tile, %row;
  xor.b32 %to0, %to0, %x;
  xor.b32 %to1, %to0, 16;
  .loc 1 3 0
  st.shared.v4.b32 [%to0], {{%s0, %s1, %s2, %s3}};
  st.shared.v4.b32 [%to1], {{%s4, %s5, %s6, %s7}};
  fence.proxy.async.shared::cta;
  bar.sync 0;
  .loc 1 5 0
  @%first cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%map, {{0, 0}}], [%tile];
  @%first cp.async.bulk.commit_group;
  @%first cp.async.bulk.wait_group 0;
  bar.sync 0;
  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, 32;
  ret;
}}
)",
                                       [] {
                                         std::string moves;
                                         for (int i = 0; i < 16; ++i)
                                           moves += fmt::format("mov.b32 %u{}, {};\n  ", i, 0x3F800000 + i);
                                         return moves;
                                       }(),
                                       list("%u", 16), list("%f", 16), compute, packs, stored);
  VirtualGpu gpu({.target = "sm_100a"});
  DeviceAddress data = gpu.allocate(32 * 32);
  const uint64_t dims[] = {16, 32}, strides[] = {32};
  const uint32_t box[] = {16, 32};
  TensorMap map = encode_tensor_map({.type = TensorMapType::kFloat16,
                                     .address = data,
                                     .dims = dims,
                                     .strides_bytes = strides,
                                     .box = box,
                                     .swizzle = swizzle});
  float bias = 2;
  void* arguments[] = {&map, &bias};
  return gpu.launch(gpu.load_module(text, "staged.ptx").function("k"),
                    {.block = {32}, .arguments = arguments});
}

/// The same instruction for every column; {0} is its number.
std::string each(const std::string& text) {
  std::string all;
  for (int i = 0; i < 16; ++i) all += "  " + fmt::format(fmt::runtime(text), i) + "\n";
  return all;
}
const std::string kCopy = each("mov.b32 %g{0}, %f{0};"),
                  kBias = each("fma.rn.f32 %g{0}, %f{0}, %bias, %bias;"),
                  kRowSum = "  add.rn.f32 %sum, %f0, %f1;\n" + each("mul.rn.f32 %g{0}, %f{0}, %sum;");

TEST(StagedTile, TheSameSwizzleIsSilent) {
  for (const std::string& compute : {kCopy, kBias, kRowSum}) {
    const Report report = run(TensorMapSwizzle::k32B, compute);
    EXPECT_TRUE(report.clean()) << report.format();
  }
}

TEST(StagedTile, AnotherSwizzle) {
  for (const std::string& compute : {kCopy, kBias}) {
    const Report report = run(TensorMapSwizzle::kNone, compute);
    ASSERT_EQ(report.findings.size(), 1u) << report.format();
    const Finding& finding = report.findings.front();
    EXPECT_EQ(finding.kind, FindingKind::kOperandLayout);
    EXPECT_EQ(finding.place.line, 5u);
    EXPECT_EQ(finding.other_place.line, 3u);
    EXPECT_NE(finding.message.find("threads have written it with that of 32B"), std::string::npos)
        << report.format();
  }
}

TEST(StagedTile, ValuesOfSeveralColumnsAreOfNone) {
  const Report report = run(TensorMapSwizzle::kNone, kRowSum);
  EXPECT_TRUE(report.clean()) << report.format();
}

TEST(StagedTile, LanesMayExchangeWhatTheyStore) {
  // Every second group of four lanes stores its halves the other way round: without a swizzle, that is right.
  std::string exchange;
  for (int i = 0; i < 8; ++i)
    exchange += fmt::format("  selp.b32 %s{}, %h{}, %h{}, %p;\n", i, (i + 4) % 8, i);
  const Report report = run(TensorMapSwizzle::kNone, kCopy, exchange);
  EXPECT_TRUE(report.clean()) << report.format();
}

}  // namespace
}  // namespace imbrex::vgpu
