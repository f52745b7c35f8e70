// SPDX-License-Identifier: Apache-2.0
// Asynchronous reductions in global memory by several clusters, on several host threads: none is lost, and
// their order depends on the seed alone.
#include <fmt/format.h>

#include "vgpu_testing.h"

namespace imbrex::vgpu {
namespace {

constexpr int64_t kCtas = 24;
constexpr uint32_t kRounds = 12;

/// Every CTA adds fractions of its own to 32 floats at `out`, by bulk reductions; then ones to the 32 words
/// behind them, even CTAs by bulk reductions and odd ones by their threads' atomics.
std::string kernel() {
  return fmt::format(R"(.version 8.6
.target sm_90a
.address_size 64
.shared .align 16 .b32 fractions[32];
.shared .align 16 .b32 ones[32];
.visible .entry k(.param .u64 out)
{{
  .reg .pred %p, %q;
  .reg .b32 %lane, %cta, %x, %y, %at;
  .reg .f32 %f;
  .reg .b64 %base, %A;
  ld.param.u64 %base, [out];
  mov.u32 %lane, %tid.x;
  mov.u32 %cta, %ctaid.x;
  shl.b32 %at, %lane, 2;
  mad.lo.u32 %x, %cta, 977, %lane;
  cvt.rn.f32.u32 %f, %x;
  mul.f32 %f, %f, 0f3EAAAAAB;
  mov.u32 %x, fractions;
  add.u32 %x, %x, %at;
  st.shared.f32 [%x], %f;
  mov.u32 %x, ones;
  add.u32 %x, %x, %at;
  mov.u32 %y, 1;
  st.shared.u32 [%x], %y;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  and.b32 %y, %cta, 1;
  setp.eq.u32 %p, %y, 1;
  setp.ne.u32 %q, %lane, 0;
  mov.u32 %y, 0;
  @%q bra threads;
next:
  mov.u32 %x, fractions;
  cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%base], [%x], 128;
  add.u64 %A, %base, 128;
  mov.u32 %x, ones;
  @!%p cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%A], [%x], 128;
  cp.async.bulk.commit_group;
  add.u32 %y, %y, 1;
  setp.lt.u32 %q, %y, {0};
  @%q bra next;
  cp.async.bulk.wait_group 0;
threads:
  cvt.u64.u32 %A, %at;
  add.u64 %A, %base, %A;
  mov.u32 %y, 0;
again:
  @%p red.global.add.u32 [%A+128], 1;
  add.u32 %y, %y, 1;
  setp.lt.u32 %q, %y, {0};
  @%q bra again;
  ret;
}}
)",
                     kRounds);
}

TEST(ReductionOrder, IsTheSameOnAnyNumberOfThreads) {
  for (const uint64_t seed : {0, 1, 2}) {
    std::vector<uint32_t> first;
    for (const int threads : {1, 2, 5}) {
      VirtualGpu gpu({.target = "sm_90a", .num_sms = 1, .host_threads = threads, .seed = seed});
      const Function k = gpu.load_module(kernel(), "test.ptx").function("k");
      DeviceAddress out = to_device(gpu, std::vector<uint32_t>(64));
      void* arguments[] = {&out};
      const Report report = gpu.launch(k, {.grid = {kCtas}, .block = {32}, .arguments = arguments});
      ASSERT_TRUE(report.clean()) << report.format();
      const std::vector<uint32_t> got = from_device<uint32_t>(gpu, out, 64);
      for (size_t i = 32; i < 64; ++i)
        ASSERT_EQ(got[i], kCtas * kRounds) << threads << " threads, word " << i;
      if (first.empty()) first = got;
      EXPECT_EQ(got, first) << "seed " << seed << ", " << threads << " threads";
    }
  }
}

}  // namespace
}  // namespace imbrex::vgpu
