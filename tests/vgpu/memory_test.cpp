// SPDX-License-Identifier: Apache-2.0
// Memory: every space and width, generic addressing, and what is found wrong with accesses.
#include <fmt/format.h>

#include "imbrex/core/error.h"
#include "vgpu_testing.h"

namespace imbrex::vgpu {
namespace {

std::string kernel(const std::string& body, const std::string& before = "") {
  return fmt::format(R"(.version 8.6
.target sm_90a
.address_size 64
.file 1 "memory.cu"
{}
.visible .entry k(.param .u64 in, .param .u64 out)
{{
  .reg .pred %p, %q, %r;
  .reg .b16 %h, %g;
  .reg .b32 %t, %x, %y, %z, %w, %lane;
  .reg .b64 %in, %out, %A, %B, %C;
  .reg .b128 %Q;
  ld.param.u64 %in, [in];
  ld.param.u64 %out, [out];
  mov.u32 %t, %tid.x;
  mov.u32 %lane, %laneid;
  .loc 1 50 0
{}
  ret;
}}
)",
                     before, body);
}

struct Outcome {
  Report report;
  std::vector<uint32_t> out;
};

Outcome run(const std::string& text, const std::vector<uint32_t>& in, int64_t block = 32,
            Options options = {}, size_t words = 64) {
  options.target = "sm_90a";
  VirtualGpu gpu(options);
  const Function k = gpu.load_module(text, "memory.ptx").function("k");
  DeviceAddress from = to_device(gpu, in), to = to_device(gpu, std::vector<uint32_t>(words));
  void* arguments[] = {&from, &to};
  Outcome r;
  r.report = gpu.launch(k, {.grid = {1}, .block = {block}, .arguments = arguments});
  r.out = from_device<uint32_t>(gpu, to, words);
  return r;
}

TEST(Loads, EveryWidthAndSign) {
  const std::string body = R"(
  ld.global.u8 %x, [%in];
  st.global.u32 [%out], %x;
  ld.global.s8 %x, [%in];
  st.global.u32 [%out+4], %x;
  ld.global.u16 %x, [%in];
  st.global.u32 [%out+8], %x;
  ld.global.s16 %x, [%in];
  st.global.u32 [%out+12], %x;
  ld.global.s32 %A, [%in];
  st.global.u64 [%out+16], %A;
  ld.global.b16 %h, [%in+2];
  st.global.b16 [%out+24], %h;
  ld.global.u32 %x, [%in];
  st.global.u8 [%out+28], %x;
  ld.global.b64 %A, [%in];
  st.global.b64 [%out+32], %A;
  ld.global.b128 %Q, [%in];
  st.global.b128 [%out+48], %Q;)";
  const Outcome r = run(kernel(body), {0x8765F3F2, 0x11111111, 0x22222222, 0x33333333}, 1);
  ASSERT_TRUE(r.report.clean()) << r.report.format();
  EXPECT_EQ(r.out[0], 0xF2u);
  EXPECT_EQ(r.out[1], 0xFFFFFFF2u);
  EXPECT_EQ(r.out[2], 0xF3F2u);
  EXPECT_EQ(r.out[3], 0xFFFFF3F2u);
  EXPECT_EQ(r.out[4], 0x8765F3F2u);
  EXPECT_EQ(r.out[5], 0xFFFFFFFFu);
  EXPECT_EQ(r.out[6], 0x8765u);
  EXPECT_EQ(r.out[7], 0xF2u);
  EXPECT_EQ(r.out[8], 0x8765F3F2u);
  EXPECT_EQ(r.out[9], 0x11111111u);
  EXPECT_EQ(r.out[12], 0x8765F3F2u);
  EXPECT_EQ(r.out[15], 0x33333333u);
}

TEST(Loads, Vectors) {
  const Outcome r = run(kernel(R"(
  ld.global.v4.u32 {%x, %y, %z, %w}, [%in];
  st.global.v4.u32 [%out], {%w, %z, %y, %x};
  ld.global.v2.u64 {%A, %B}, [%in];
  st.global.v2.u64 [%out+16], {%B, %A};
  ld.global.v2.u16 {%h, %g}, [%in];
  st.global.v2.u16 [%out+32], {%g, %h};)"),
                        {1, 2, 3, 4}, 1);
  ASSERT_TRUE(r.report.clean()) << r.report.format();
  EXPECT_EQ(std::vector<uint32_t>(r.out.begin(), r.out.begin() + 9),
            (std::vector<uint32_t>{4, 3, 2, 1, 3, 4, 1, 2, 0x00010000}));
}

TEST(Generic, OneInstructionReachesEverySpace) {
  const Outcome r = run(kernel(R"(
  .local .align 4 .b8 mine[8];
  st.shared.u32 [tile], 11;
  st.local.u32 [mine], 22;
  mov.u64 %A, tile;
  cvta.shared.u64 %A, %A;
  ld.u32 %x, [%A];
  st.global.u32 [%out], %x;
  mov.u64 %B, mine;
  cvta.local.u64 %B, %B;
  ld.u32 %x, [%B];
  st.global.u32 [%out+4], %x;
  mov.u64 %B, table;
  cvta.const.u64 %B, %B;
  ld.u32 %x, [%B+4];
  st.global.u32 [%out+8], %x;
  ld.u32 %x, [%in];
  st.global.u32 [%out+12], %x;
  isspacep.shared %p, %A;
  isspacep.global %q, %A;
  isspacep.global %r, %in;
  selp.u32 %x, 1, 0, %p;
  @%q add.u32 %x, %x, 10;
  @%r add.u32 %x, %x, 100;
  st.global.u32 [%out+16], %x;
  cvta.to.shared.u64 %B, %A;
  cvt.u32.u64 %y, %B;
  st.global.u32 [%out+20], %y;
  mov.u64 %C, variable;
  ld.global.u32 %x, [%C];
  st.global.u32 [%out+24], %x;
  ld.const.u32 %x, [table];
  st.global.u32 [%out+28], %x;)",
                               ".const .align 4 .u32 table[2] = {33, 44};\n"
                               ".global .align 4 .u32 variable = 66;\n"
                               ".shared .align 4 .u32 tile;"),
                        {55}, 1);
  ASSERT_TRUE(r.report.clean()) << r.report.format();
  // User data in shared memory starts at 0x400, as on the chip.
  EXPECT_EQ(std::vector<uint32_t>(r.out.begin(), r.out.begin() + 8),
            (std::vector<uint32_t>{11, 22, 44, 55, 101, 0x400, 66, 33}));
}

TEST(Shared, DynamicComesBehindStaticAlignedAsDeclared) {
  const std::string text =
      kernel(R"(
  mov.u32 %x, fixed;
  st.global.u32 [%out], %x;
  mov.u32 %x, dynamic;
  st.global.u32 [%out+4], %x;
  mov.u32 %y, %dynamic_smem_size;
  st.global.u32 [%out+8], %y;
  mov.u32 %y, %total_smem_size;
  st.global.u32 [%out+12], %y;
  st.shared.u32 [%x+2044], %y;)",
             ".shared .align 16 .b8 fixed[16];\n.extern .shared .align 1024 .b8 dynamic[];");
  VirtualGpu gpu({.target = "sm_90a"});
  Function k = gpu.load_module(text).function("k");
  DeviceAddress in = gpu.allocate(4), out = gpu.allocate(16);
  void* arguments[] = {&in, &out};
  EXPECT_THROW(gpu.launch(k, {.block = {1}, .dynamic_shared_bytes = 64 << 10, .arguments = arguments}),
               LaunchError);
  const Report report = gpu.launch(k, {.block = {1}, .dynamic_shared_bytes = 2048, .arguments = arguments});
  EXPECT_TRUE(report.clean()) << report.format();
  EXPECT_EQ(from_device<uint32_t>(gpu, out, 4), (std::vector<uint32_t>{0x400, 0x800, 2048, 3072}));
  k.set_max_dynamic_shared(200 << 10);
  EXPECT_TRUE(
      gpu.launch(k, {.block = {1}, .dynamic_shared_bytes = 200 << 10, .arguments = arguments}).clean());
}

// ---- what is found wrong
// -----------------------------------------------------------------------------------------

Finding only_finding(const Outcome& r) {
  EXPECT_EQ(r.report.findings.size(), 1u) << r.report.format();
  return r.report.findings.empty() ? Finding{} : r.report.findings[0];
}

TEST(Findings, SharedMemoryOutOfBounds) {
  const Outcome r = run(
      kernel("  mad.lo.u32 %x, %t, 4, 1024;\n  st.shared.u32 [%x], %t;", ".shared .align 4 .b8 tile[64];"),
      {0});
  // The kernel never names `tile`, so it has no shared memory at all.
  const Finding f = only_finding(r);
  EXPECT_EQ(f.kind, FindingKind::kOutOfBounds);
  EXPECT_EQ(f.count, 32);
  EXPECT_EQ(f.message, "writes 4 bytes of shared memory at 0x400, outside [0x400, 0x400)");
  EXPECT_EQ(f.hint, "launch with dynamic_shared_bytes");
}

// As compilers with short pointers write them: Triton 3.9 the addresses of tensor maps.
TEST(Generic, AddressesOfParametersAndConstantsMayBe32BitsWide) {
  const Outcome r = run(kernel(R"(
  mov.b32 %x, out;
  ld.param.u64 %A, [%x];
  cvt.u64.u32 %B, %x;
  cvta.param.u64 %B, %B;
  ld.u64 %C, [%B];
  sub.u64 %C, %C, %A;
  cvt.u32.u64 %z, %C;
  st.global.u32 [%A], %z;
  mov.b32 %y, table;
  ld.const.u32 %z, [%y+8];
  st.global.u32 [%A+4], %z;
  cvt.u64.u32 %B, %y;
  cvta.const.u64 %B, %B;
  ld.u32 %z, [%B+4];
  st.global.u32 [%A+8], %z;)",
                               ".const .align 4 .u32 table[4] = {7, 8, 9, 10};"),
                        {0}, 1);
  ASSERT_TRUE(r.report.clean()) << r.report.format();
  EXPECT_THAT(std::span(r.out).first(3), testing::ElementsAre(0u, 9u, 8u));
}

// What libraries (cooperative groups) use of the memory that the system keeps is there for who asks where it lies, and zero.
TEST(Shared, WhatTheSystemKeepsIsThereForWhoAsks) {
  const std::string body = R"(
  atom.shared.add.u32 %y, [%x+4], 1;
  bar.sync 0;
  ld.shared.u32 %y, [%x+4];
  mad.wide.u32 %A, %t, 4, %out;
  st.global.u32 [%A], %y;)";
  const Outcome asked = run(kernel("  mov.u32 %x, %reserved_smem_offset_1;" + body), {0}, 64);
  ASSERT_TRUE(asked.report.clean()) << asked.report.format();
  EXPECT_THAT(asked.out, testing::Each(64u));
  ASSERT_FALSE(run(kernel("  mov.u32 %x, 0;" + body), {0}, 64).report.clean());
}

TEST(Findings, TheEndOfASharedArray) {
  const Outcome r = run(kernel("  mov.u32 %x, tile;\n  mad.lo.u32 %x, %t, 4, %x;\n  st.shared.u32 [%x], %t;",
                               ".shared .align 4 .b8 tile[64];"),
                        {0});
  const Finding f = only_finding(r);
  EXPECT_EQ(f.count, 16);
  EXPECT_EQ(f.actor.lane, 16);
  EXPECT_EQ(f.place.file, "memory.cu");
  EXPECT_EQ(f.place.line, 50);
  EXPECT_EQ(f.facts[0], "the CTA has 64 bytes: 64 static, 0 dynamic");
}

TEST(Findings, Misaligned) {
  const Finding f = only_finding(run(kernel("  ld.global.u32 %x, [%in+2];"), {1, 2}, 1));
  EXPECT_EQ(f.kind, FindingKind::kMisaligned);
  EXPECT_NE(f.message.find("reads 4 bytes of global memory"), std::string::npos);
  EXPECT_NE(f.message.find("which is not a multiple of 4"), std::string::npos);
}

// %x is written in lanes 0 to 4 only, %z in all.
constexpr const char* kHalfWritten = R"(
  mad.wide.u32 %out, %t, 4, %out;
  mov.u32 %z, 7;
  setp.lt.u32 %p, %t, 5;
  @%p mov.u32 %x, 1;
)";

TEST(Findings, UninitializedRegisterStandsWhereItIsRead) {
  const Finding f =
      only_finding(run(kernel(std::string(kHalfWritten) +
                              "  add.u32 %y, %x, %x;\n  neg.s32 %y, %y;\n  st.global.u32 [%out], %y;"),
                       {0}));
  EXPECT_EQ(f.kind, FindingKind::kUninitializedRead);
  EXPECT_EQ(f.message, "reads a register that was never written in lanes 0xffffffe0");
  EXPECT_EQ(f.place.ptx, "add.u32 %y, %x, %x;");
  ASSERT_EQ(f.facts.size(), 1u);
  EXPECT_NE(f.facts[0].find("what is computed from it is used at memory.cu:50"), std::string::npos)
      << f.facts[0];
  EXPECT_NE(f.facts[0].find("st.global.u32 [%out], %y;"), std::string::npos) << f.facts[0];
}

TEST(Findings, UninitializedRegistersMayBeComputedWithInVain) {
  for (const std::string body : {
           "  add.u32 %y, %x, %x;",                                                // never used
           "  add.u32 %y, %x, 1;\n  @%p st.global.u32 [%out], %y;",                // used where it is good
           "  selp.b32 %y, %x, %z, %p;\n  st.global.u32 [%out], %y;",              // chosen where it is good
           "  shfl.sync.idx.b32 %y, %x, 3, 31, -1;\n  st.global.u32 [%out], %y;",  // taken from a good lane
           "  setp.eq.u32 %q, %x, 1;\n  and.pred %q, %q, %p;\n  @%q st.global.u32 [%out], %z;",  // decided by
                                                                                                 // %p
           "  mov.b64 %A, {%z, %x};\n  mov.b64 {%y, _}, %A;\n  st.global.u32 [%out], %y;",  // the good half
           "  prmt.b32 %y, %z, %x, 0x1000;\n  st.global.u32 [%out], %y;",                   // the good bytes
           "  prmt.b32 %y, %z, %x, 0x3214;\n  shr.u32 %y, %y, 8;\n  st.global.u32 [%out], %y;",
           "  prmt.b32 %y, %z, %x, 0x4321;\n  and.b32 %y, %y, 0xFFFFFF;\n  st.global.u32 [%out], %y;",
           "  prmt.b32 %y, %z, %x, 0x4321;\n  mov.b32 %x, %y;\n  st.global.u8 [%out], %x;",
           "  .reg .b16 %half<3>;\n  mov.b32 {_, %half1}, %z;\n  mov.b32 %x, {%half1, %half2};\n  add.f16x2 "
           "%y, %z, %x;\n"
           "  mov.b32 {%half0, _}, %y;\n  st.global.b16 [%out], %half0;",
           "  .reg .b16 %half;\n  .reg .f32 %real<2>;\n  mov.f32 %real1, 0f3F800000;\n"
           "  cvt.rn.satfinite.e4m3x2.f32 %half, %real0, %real1;\n  st.global.b8 [%out], %half;",
       }) {
    const Report report = run(kernel(kHalfWritten + body), {0}).report;
    EXPECT_TRUE(report.clean()) << body << report.format();
  }
}

TEST(Findings, UninitializedRegistersAreFoundWhereverTheyGetOut) {
  for (const std::string body : {
           "  selp.b32 %y, %z, %x, %p;\n  st.global.u32 [%out], %y;",
           "  shfl.sync.idx.b32 %y, %x, 5, 31, -1;\n  st.global.u32 [%out], %y;",
           "  setp.eq.u32 %q, %x, 1;\n  or.pred %q, %q, %p;\n  @%q st.global.u32 [%out], %z;\n  selp.u32 %y, "
           "1, 0, %q;\n"
           "  st.global.u32 [%out+4], %y;",
           "  mov.b64 %A, {%z, %x};\n  mov.b64 {_, %y}, %A;\n  st.global.u32 [%out], %y;",
           "  prmt.b32 %y, %z, %x, 0x4321;\n  st.global.u32 [%out], %y;",
           "  prmt.b32 %y, %z, %x, 0x4321;\n  shr.u32 %y, %y, 24;\n  st.global.u8 [%out], %y;",
           "  prmt.b32 %y, %z, %x, 0x3214;\n  mov.b32 %x, %y;\n  st.global.u8 [%out], %x;",
           "  prmt.b32 %y, %z, %x, 0x4321;\n  shr.s32 %y, %y, 8;\n  prmt.b32 %y, %y, %z, 0x7773;\n"
           "  st.global.u32 [%out], %y;",
           "  .reg .b16 %half<3>;\n  mov.b32 {_, %half1}, %z;\n  mov.b32 %x, {%half1, %half2};\n  add.f16x2 "
           "%y, %z, %x;\n"
           "  mov.b32 {_, %half0}, %y;\n  st.global.b16 [%out], %half0;",
           "  .reg .b16 %half;\n  .reg .f32 %real<2>;\n  mov.f32 %real1, 0f3F800000;\n"
           "  cvt.rn.satfinite.e4m3x2.f32 %half, %real0, %real1;\n  st.global.b16 [%out], %half;",
           "  .reg .pred %unset;\n  mov.b32 %y, 5;\n  @%unset mov.b32 %y, %z;\n  st.global.u32 [%out], %y;",
           "  setp.eq.u32 %q, %x, 1;\n  vote.sync.ballot.b32 %y, %q, -1;",
           "  mul.wide.u32 %A, %x, 4;\n  add.u64 %A, %A, %in;\n  and.b64 %A, %A, -4;\n  prefetch.global.L1 "
           "[%A];\n"
           "  red.shared.add.u32 [sink], %x;",
       }) {
    const Report report = run(kernel(kHalfWritten + body, ".shared .align 4 .b32 sink;"), {0}).report;
    EXPECT_TRUE(std::ranges::any_of(
        report.findings, [](const Finding& f) { return f.kind == FindingKind::kUninitializedRead; }))
        << body << report.format();
  }
}

// A guard that was never written holds one value or the other: both are tried.
TEST(Findings, UninitializedGuardsAreFoundWhicheverWayTheyRead) {
  for (const std::string guard : {"@%q", "@!%q"}) {
    for (const std::string& body : {
             guard + " st.global.u32 [%out], %z;",
             guard + " bra over;\n  st.global.u32 [%out], %z;\nover:",
             "  mov.u32 %y, 5;\n  " + guard + " mov.u32 %y, %z;\n  st.global.u32 [%out], %y;",
         }) {
      for (const std::string before :
           {"", "  @%p setp.eq.u32 %q, %z, 7;\n", "  @%p setp.ne.u32 %q, %z, 7;\n"}) {
        const Finding f = only_finding(run(kernel(kHalfWritten + before + "  " + body), {0}));
        EXPECT_EQ(f.kind, FindingKind::kUninitializedRead) << before << body;
        EXPECT_EQ(f.message, fmt::format("reads a register that was never written in lanes 0x{:08x}",
                                         before.empty() ? 0xFFFFFFFFu : 0xFFFFFFE0u))
            << before << body;
      }
      // Only lanes that come there judge it; and what it decides in vain is nobody's business.
      const std::string within = "  @!%p bra past;\n  setp.eq.u32 %q, %z, 7;\n  " + body + "\npast:";
      EXPECT_TRUE(run(kernel(kHalfWritten + within), {0}).report.clean()) << within;
      const std::string vain = "  " + guard + " mov.u32 %y, %z;";
      EXPECT_TRUE(run(kernel(kHalfWritten + vain), {0}).report.clean()) << vain;
    }
  }
}

TEST(Findings, UninitializedSharedMemory) {
  const Outcome r = run(kernel(R"(
  mov.u32 %x, tile;
  mad.lo.u32 %x, %t, 4, %x;
  setp.ne.u32 %p, %t, 9;
  @%p st.shared.u32 [%x], %t;
  bar.sync 0;
  ld.shared.u32 %y, [%x];
  add.u32 %y, %y, 1;
  mad.wide.u32 %out, %t, 4, %out;
  st.global.u32 [%out], %y;)",
                               ".shared .align 4 .b8 tile[128];"),
                        {0});
  const Finding f = only_finding(r);
  EXPECT_EQ(f.kind, FindingKind::kUninitializedRead);
  EXPECT_EQ(f.actor.lane, 9);
  EXPECT_EQ(f.address, 0x424u);
  EXPECT_EQ(f.message, "reads 4 bytes of shared memory at 0x424 of which not all have been written");
  EXPECT_EQ(f.place.ptx, "ld.shared.u32 %y, [%x];");
  ASSERT_EQ(f.facts.size(), 1u) << f.format();
  EXPECT_NE(f.facts[0].find("st.global.u32 [%out], %y;"), std::string::npos) << f.facts[0];
}

TEST(Findings, UnwrittenMemoryMayBeLoadedInVain) {
  // Bytes 0 to 1 of every word are written.
  const std::string half_written = R"(
  mov.u32 %x, tile;
  mad.lo.u32 %x, %t, 8, %x;
  st.shared.u16 [%x], %t;
  bar.warp.sync -1;
  mad.wide.u32 %out, %t, 4, %out;
)";
  const auto found = [&](const std::string& body) {
    const Report report = run(kernel(half_written + body, ".shared .align 8 .b8 tile[256];"), {0}).report;
    for (const Finding& f : report.findings) EXPECT_EQ(f.kind, FindingKind::kUninitializedRead) << f.format();
    return !report.findings.empty();
  };
  for (const char* body :
       {"  ld.shared.u32 %y, [%x];",  // never used
        "  ld.shared.u32 %y, [%x];\n  and.b32 %y, %y, 0xFFFF;\n  st.global.u32 [%out], %y;",
        "  ld.shared.u32 %y, [%x];\n  st.global.u16 [%out], %y;",
        "  ld.shared.u16 %y, [%x];\n  st.global.u32 [%out], %y;",
        "  ld.shared.v2.u32 {%y, %z}, [%x];\n  st.global.u16 [%out], %y;",
        "  ld.shared.u64 %A, [%x];\n  cvt.u32.u64 %y, %A;\n  mov.b64 {%y, _}, %A;\n"
        "  st.global.u16 [%out], %y;"})
    EXPECT_FALSE(found(body)) << body;
  for (const char* body :
       {"  ld.shared.u32 %y, [%x];\n  st.global.u32 [%out], %y;",
        "  ld.shared.s16 %y, [%x+2];\n  shr.u32 %y, %y, 16;\n"
        "  st.global.u32 [%out], %y;",
        "  ld.shared.v2.u32 {%y, %z}, [%x];\n  st.global.u8 [%out], %z;",
        "  ld.shared.u64 %A, [%x];\n  mov.b64 {_, %z}, %A;\n  st.global.u32 [%out], %z;",
        "  ld.shared.u32 %y, [%x+4];\n  setp.ne.u32 %p, %y, 0;\n  @%p st.shared.u32 [%x], 0;"})
    EXPECT_TRUE(found(body)) << body;
}

// Lanes 5 to 31 store %x without having written it.
constexpr const char* kStoredUnwritten = R"(
  mov.u32 %y, tile;
  mad.lo.u32 %y, %t, 4, %y;
  st.shared.u32 [%y], %x;
  bar.sync 0;
)";

TEST(Findings, UnwrittenValuesGoThroughSharedMemory) {
  const auto run_with = [&](const std::string& body) {
    return run(kernel(std::string(kHalfWritten) + kStoredUnwritten + body,
                      ".shared .align 16 .b8 tile[128];"),
               {0})
        .report;
  };
  for (
      const std::string body : {
          "",                                                            // never loaded
          "  ld.shared.u32 %y, [%y];\n  add.u32 %y, %y, 1;",             // never used
          "  ld.shared.u32 %y, [%y];\n  @%p st.global.u32 [%out], %y;",  // used where it is good
          "  st.shared.u32 [%y], %z;\n  ld.shared.u32 %y, [%y];\n  st.global.u32 [%out], %y;",  // overwritten
          "  ld.shared.u32 %y, [tile];\n  st.global.u32 [%out], %y;",  // of a good lane
      }) {
    const Report report = run_with(body);
    EXPECT_TRUE(report.clean()) << body << report.format();
  }
  for (const std::string body : {
           "  ld.shared.u32 %y, [%y];\n  st.global.u32 [%out], %y;",
           "  ld.shared.u32 %y, [%y];\n  setp.ne.u32 %q, %y, 0;\n  @%q bra DONE;\n  st.global.u32 [%out], "
           "%z;\nDONE:",
           "  ld.shared.u32 %y, [tile+124];\n  and.b32 %y, %y, 4;\n  cvt.u64.u32 %A, %y;\n"
           "  add.u64 %A, %A, %in;\n  ld.global.u32 %y, [%A];\n  st.global.u32 [%out], %y;",
           "  ld.shared.v4.u32 {_, _, _, %z}, [tile+112];\n  st.global.u32 [%out], %z;",
       }) {
    const Report report = run_with(body);
    ASSERT_EQ(report.findings.size(), 1u) << body << report.format();
    const Finding& f = report.findings[0];
    EXPECT_EQ(f.kind, FindingKind::kUninitializedRead) << f.format();
    EXPECT_EQ(f.place.ptx, "st.shared.u32 [%y], %x;") << "where the register is read";
    ASSERT_EQ(f.facts.size(), 2u) << f.format();
    EXPECT_NE(f.facts[0].find("stored at memory.cu:50"), std::string::npos) << f.facts[0];
    EXPECT_NE(f.facts[1].find("what is computed from it is used at memory.cu:50"), std::string::npos)
        << f.facts[1];
  }
}

TEST(Findings, UnwrittenValuesThatAreStoredAreToldWhereOthersThanLoadsReadThem) {
  const Report report =
      run(kernel(std::string(kHalfWritten) + kStoredUnwritten + "  atom.shared.add.u32 %y, [%y], 1;",
                 ".shared .align 16 .b8 tile[128];"),
          {0})
          .report;
  ASSERT_EQ(report.findings.size(), 1u) << report.format();
  const Finding& f = report.findings[0];
  EXPECT_EQ(f.kind, FindingKind::kUninitializedRead);
  EXPECT_EQ(f.place.ptx, "atom.shared.add.u32 %y, [%y], 1;");
  ASSERT_EQ(f.facts.size(), 1u) << f.format();
  EXPECT_NE(f.facts[0].find("has no value: it comes from a register that was never written"),
            std::string::npos)
      << f.facts[0];
}

TEST(Findings, UnwrittenValuesGoThroughLocalMemory) {
  for (const bool used : {false, true}) {
    const Report report = run(kernel(std::string(kHalfWritten) +
                                     "  .local .align 4 .b8 mine[8];\n  st.local.u32 [mine], %x;\n"
                                     "  ld.local.u32 %y, [mine];\n" +
                                     (used ? "  st.global.u32 [%out], %y;" : "  st.local.u32 [mine+4], %y;")),
                              {0})
                              .report;
    EXPECT_EQ(report.findings.size(), used ? 1u : 0u) << report.format();
  }
}

TEST(Findings, UninitializedLocalMemory) {
  const Finding f = only_finding(run(kernel("  .local .align 4 .b8 mine[8];\n  ld.local.u32 %x, [mine+4];\n"
                                            "  st.global.u32 [%out], %x;"),
                                     {0}, 1));
  EXPECT_EQ(f.kind, FindingKind::kUninitializedRead);
  EXPECT_NE(f.message.find("of local memory"), std::string::npos);
}

TEST(Findings, UseAfterFree) {
  VirtualGpu gpu({.target = "sm_90a"});
  const Function k = gpu.load_module(kernel("  st.global.u32 [%out], %t;")).function("k");
  DeviceAddress in = gpu.allocate(4), out = gpu.allocate(4);
  gpu.free(out);
  EXPECT_THROW(gpu.free(out), LaunchError);
  void* arguments[] = {&in, &out};
  const Report report = gpu.launch(k, {.block = {1}, .arguments = arguments});
  ASSERT_EQ(report.findings.size(), 1u);
  EXPECT_EQ(report.findings[0].kind, FindingKind::kUseAfterFree);
}

TEST(Findings, WritingToConstantMemory) {
  const Outcome r = run(
      kernel("  mov.u64 %A, table;\n  st.global.u32 [%A], %t;", ".const .align 4 .u32 table = 1;"), {0}, 1);
  EXPECT_EQ(only_finding(r).kind, FindingKind::kIllegalInstruction);
}

TEST(Findings, MemorySafetyHoldsWithoutCheckers) {
  Options options;
  options.checks = CheckSet::none();
  const Outcome r =
      run(kernel("  mov.u64 %A, 0x123456789;\n  st.global.u32 [%A], %t;\n  ld.global.u32 %x, [%A];\n"
                 "  st.global.u32 [%out], %x;"),
          {0}, 32, options);
  EXPECT_TRUE(r.report.completed);
  EXPECT_EQ(r.report.findings.size(), 2u) << r.report.format();
  EXPECT_EQ(r.out[0], 0u);
}

TEST(Findings, OfTheHostsCalls) {
  VirtualGpu gpu({.target = "sm_90a"});
  const DeviceAddress a = gpu.allocate(100);
  char buffer[200] = {};
  EXPECT_THROW(gpu.copy_to_device(a, buffer, 101), LaunchError);
  EXPECT_THROW(gpu.copy_from_device(buffer, a + 50, 51), LaunchError);
  EXPECT_NO_THROW(gpu.copy_from_device(buffer, a + 50, 50));
  EXPECT_THROW(VirtualGpu({.target = "sm_35"}), LaunchError);
  try {
    gpu.load_module(kernel("")).function("kk");
    FAIL();
  } catch (const LaunchError& e) {
    EXPECT_NE(std::string(e.what()).find("did you mean 'k'?"), std::string::npos) << e.what();
  }
}

TEST(Loading, AnInstructionThatIsNotModelledIsNamedWithItsLine) {
  VirtualGpu gpu({.target = "sm_90a"});
  try {
    gpu.load_module(kernel("  st.shared.u32 [%x], %t;\n  multimem.st.weak.global.u32 [%in], %t;"), "m.ptx");
    FAIL();
  } catch (const CompileError& e) {
    const std::string what = e.what();
    EXPECT_NE(what.find("m.ptx:19"), std::string::npos) << what;
    EXPECT_NE(what.find("multimem.st"), std::string::npos) << what;
    EXPECT_NE(what.find("from memory.cu:50"), std::string::npos) << what;
  }
}

}  // namespace
}  // namespace imbrex::vgpu
