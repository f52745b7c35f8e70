// SPDX-License-Identifier: Apache-2.0
#include "runtime/measure/unit_kernels.h"

#include <fmt/format.h>

namespace imbrex::runtime {

namespace {

std::string repeated(int times, const std::string& line) {
  std::string out;
  for (int i = 0; i < times; ++i) out += "  " + line + "\n";
  return out;
}

std::string product(int accumulator) {
  return fmt::format(
      "  mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {{%f{0}, %f{1}, %f{2}, %f{3}}}, {{%x, %x, %x, "
      "%x}}, "
      "{{%x, %x}}, {{%f{0}, %f{1}, %f{2}, %f{3}}};\n",
      4 * accumulator, 4 * accumulator + 1, 4 * accumulator + 2, 4 * accumulator + 3);
}

// Initialises two mbarriers for one arrival each.
const char* const kBarriers = R"(
  @%leader mbarrier.init.shared.b64 [bars], 1;
  @%leader mbarrier.init.shared.b64 [bars+8], 1;
  @%leader fence.mbarrier_init.release.cluster;
  bar.sync 0;
  mov.u32 %y, 0;
)";

}  // namespace

UnitKernel global_chase() {
  return {.target = "sm_80", .setup = "", .body = repeated(16, "ld.global.cg.u64 %at, [%at];"), .steps = 16};
}

UnitKernel shared_chase() {
  return {.target = "sm_80",
          .setup = "  mov.u32 %x, pad;\n  st.shared.u32 [pad], %x;\n  bar.sync 0;\n",
          .body = repeated(32, "ld.shared.u32 %x, [%x];"),
          .steps = 32};
}

UnitKernel dependent_fma() {
  return {
      .target = "sm_80", .setup = "", .body = repeated(64, "fma.rn.f32 %f0, %f0, %f0, %f0;"), .steps = 64};
}

UnitKernel special_functions() {
  std::string body;
  for (int i = 0; i < 64; ++i) body += fmt::format("  ex2.approx.ftz.f32 %f{0}, %f{0};\n", i % 16);
  return {.target = "sm_80", .setup = "", .body = body, .steps = 64};
}

UnitKernel cta_barriers() {
  return {.target = "sm_80", .setup = "", .body = repeated(16, "bar.sync 0;"), .steps = 16, .threads = 128};
}

UnitKernel dependent_products() {
  UnitKernel kernel{.target = "sm_80", .setup = "", .body = "", .steps = 16};
  for (int i = 0; i < kernel.steps; ++i) kernel.body += product(0);
  return kernel;
}

UnitKernel independent_products() {
  UnitKernel kernel{.target = "sm_80", .setup = "", .body = "", .steps = 16, .threads = 512};
  for (int i = 0; i < kernel.steps; ++i) kernel.body += product(i % 4);
  return kernel;
}

UnitKernel streaming_loads() {
  // %a: the thread's first byte; %s: bytes of all threads together, 16 for each.
  std::string body;
  for (int i = 0; i < 4; ++i)
    body += fmt::format(
        "  and.b64 %b, %a, %m;\n  add.u64 %b, %b, %at;\n"
        "  ld.global.cg.v4.u32 {{%r{0}, %r{1}, %r{2}, %r{3}}}, [%b];\n  add.u64 %a, %a, %s;\n",
        4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3);
  for (int i = 0; i < 16; ++i) body += fmt::format("  xor.b32 %x, %x, %r{};\n", i);
  return {.target = "sm_80",
          .setup = "",
          .body = body,
          .steps = 64,  // bytes of a thread
          .threads = 256,
          .ctas_per_sm = 8};
}

UnitKernel bulk_loads() {
  return {.target = "sm_90", .setup = kBarriers + std::string("  @!%leader bra DONE;\n"), .body = R"(
  mbarrier.arrive.expect_tx.shared.b64 _, [bars], 1024;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [pad], [%at], 1024, [bars];
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p, [bars], %y;
  @!%p bra WAIT;
  xor.b32 %y, %y, 1;
)"};
}

UnitKernel barrier_handover() {
  // Warp 0 waits at the first barrier for warp 1, warp 1 at the second for warp 0.
  return {.target = "sm_90",
          .setup = kBarriers + std::string(R"(
  and.b32 %x, %id, 31;
  setp.ne.u32 %p, %x, 0;
  @%p bra DONE;
  setp.lt.u32 %first, %id, 32;
)"),
          .body = R"(
  @%first mbarrier.arrive.shared.b64 _, [bars+8];
  @%first bra FIRST;
SECOND:
  mbarrier.try_wait.parity.shared.b64 %p, [bars+8], %y;
  @!%p bra SECOND;
  mbarrier.arrive.shared.b64 _, [bars];
  bra NEXT;
FIRST:
  mbarrier.try_wait.parity.shared.b64 %p, [bars], %y;
  @!%p bra FIRST;
NEXT:
  xor.b32 %y, %y, 1;
)",
          .steps = 2,
          .threads = 64};
}

UnitKernel chain_writer() {
  return {.target = "sm_80",
          .setup = "  @!%leader bra DONE;\n  mov.u64 %a, %at;\n",
          .body =
              "  add.u64 %b, %a, %m;\n  setp.eq.u32 %p, %n, 1;\n  @%p mov.u64 %b, %at;\n"
              "  st.global.u64 [%a], %b;\n  mov.u64 %a, %b;\n"};
}

std::string ptx_of(const UnitKernel& kernel) {
  std::string ones, sum;
  for (int i = 0; i < 16; ++i) {
    ones += fmt::format("  mov.f32 %f{}, 0f3F800000;\n", i);
    if (i > 0) sum += fmt::format("  add.rn.f32 %f0, %f0, %f{};\n", i);
  }
  return fmt::format(R"(.version {}
.target {}
.address_size 64
.shared .align 128 .b8 pad[1024];
.shared .align 8 .b64 bars[2];
.visible .entry unit(.param .u64 data, .param .u64 out, .param .u32 n, .param .u32 mask)
{{
  .reg .pred %p, %leader, %first;
  .reg .b32 %id, %x, %y, %n, %t, %c, %r<16>;
  .reg .b64 %at, %out, %m, %a, %b, %s, %begin, %end;
  .reg .f32 %f<16>;
  ld.param.u64 %at, [data];
  ld.param.u64 %out, [out];
  ld.param.u32 %n, [n];
  ld.param.u32 %t, [mask];
  cvt.u64.u32 %m, %t;
  mov.u32 %id, %tid.x;
  mov.u32 %c, %ctaid.x;
  mov.u32 %t, %ntid.x;
  mad.lo.u32 %x, %c, %t, %id;
  mul.wide.u32 %a, %x, 16;
  mov.u32 %y, %nctaid.x;
  mul.lo.u32 %y, %y, %t;
  mul.wide.u32 %s, %y, 16;
  setp.eq.u32 %leader, %x, 0;
  mov.u32 %x, 0;
{}{}
  mov.u64 %begin, %clock64;
LOOP:
{}
  sub.u32 %n, %n, 1;
  setp.ne.u32 %p, %n, 0;
  @%p bra LOOP;
  mov.u64 %end, %clock64;
  // What was computed decides about a store that never happens, so that it must be computed.
{}  mov.b32 %t, %f0;
  xor.b32 %x, %x, %t;
  cvt.u32.u64 %t, %at;
  xor.b32 %x, %x, %t;
  setp.eq.u32 %p, %x, 305419897;
  @%p st.global.u32 [%out+8], %x;
  sub.u64 %end, %end, %begin;
  @%leader st.global.u64 [%out], %end;
DONE:
  ret;
}}
)",
                     kernel.target == "sm_80" ? "7.0" : "8.0", kernel.target, ones, kernel.setup, kernel.body,
                     sum);
}

}  // namespace imbrex::runtime
