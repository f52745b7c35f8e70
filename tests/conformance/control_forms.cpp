// SPDX-License-Identifier: Apache-2.0
// Control flow, moves between registers, and special registers.
#include <fmt/format.h>

#include "families.h"

namespace imbrex::conformance {
namespace {

constexpr const char* kFamily = "control and registers";

// `body` has %r4 and %r5, random, and leaves %r10 and %rd10.
void add(Kernels& out, const std::string& name, const std::string& body, const std::string& outside = "",
         int threads = 64, int ctas = 2) {
  Frame frame{.threads = threads, .ctas = ctas, .in_stride = 16, .out_stride = 16};
  frame.body = "  mov.u32 %r10, 0;\n  mov.u64 %rd10, 0;\n" + load_registers(4, 4) + body +
               "  st.global.b32 [%out], %r10;\n  st.global.b64 [%out+8], %rd10;\n";
  Random random(name);
  MicroKernel kernel = make_kernel(kFamily, name, frame, random_bytes(frame.thread_count() * 16, random));
  if (!outside.empty()) kernel.ptx.insert(kernel.ptx.find(".visible .entry"), outside);
  out.push_back(std::move(kernel));
}

}  // namespace

void add_control(Kernels& out) {
  add(out, "bra: a loop of a different length in every lane",
      "  and.b32 %r6, %r4, 31;\nagain:\n  add.u32 %r10, %r10, %r6;\n  sub.u32 %r6, %r6, 1;\n  setp.ge.s32 "
      "%p1, %r6, 0;\n  @%p1 bra again;\n");
  add(out, "bra.uni",
      "  setp.lt.u32 %p1, %cta, 1;\n  @%p1 bra.uni first;\n  mov.u32 %r10, 7;\n  bra.uni after;\nfirst:\n  "
      "mov.u32 %r10, 9;\nafter:\n");
  add(out, "bra: branches in branches",
      "  and.b32 %r6, %r4, 1;\n  setp.eq.u32 %p1, %r6, 0;\n  and.b32 %r7, %r4, 2;\n  setp.eq.u32 %p2, %r7, "
      "0;\n  @%p1 bra a;\n  @%p2 bra b;\n  mov.u32 %r10, 1;\n  bra c;\nb:\n  mov.u32 %r10, 2;\n  bra "
      "c;\na:\n  @%p2 bra d;\n  mov.u32 %r10, 3;\n  bra c;\nd:\n  mov.u32 %r10, 4;\nc:\n  add.u32 %r10, "
      "%r10, 100;\n");
  add(out, "brx.idx",
      "  and.b32 %r6, %r4, 3;\n  targets: .branchtargets one, two, three, four;\n  brx.idx %r6, "
      "targets;\none:\n  mov.u32 %r10, 11;\n  bra end;\ntwo:\n  mov.u32 %r10, 22;\n  bra end;\nthree:\n  "
      "mov.u32 %r10, 33;\nfour:\n  add.u32 %r10, %r10, 44;\nend:\n");
  add(out, "brx.idx.uni",
      "  targets: .branchtargets one, two;\n  brx.idx.uni %cta, targets;\none:\n  mov.u32 %r10, 11;\n  bra "
      "end;\ntwo:\n  mov.u32 %r10, 22;\nend:\n");
  const std::string function =
      ".func (.reg .b32 %result) mix(.reg .b32 %a, .reg .b32 %b)\n{\n  .reg .pred %p;\n  setp.lt.u32 %p, %a, "
      "%b;\n  @%p bra less;\n  sub.u32 %result, %a, %b;\n  ret;\nless:\n  mul.lo.u32 %result, %a, 3;\n  "
      "ret.uni;\n}\n";
  add(out, "call", "  call (%r10), mix, (%r4, %r5);\n", function);
  add(out, "call.uni", "  call.uni (%r10), mix, (%r4, 1000);\n", function);
  const std::string with_params =
      ".func (.param .b64 r) wide(.param .b32 a)\n{\n  .reg .b32 %x;\n  .reg .b64 %y;\n  ld.param::func.b32 "
      "%x, "
      "[a];\n  mul.wide.s32 %y, %x, %x;\n  st.param::func.b64 [r], %y;\n  ret;\n}\n";
  add(out, "call with parameters",
      "  {\n  .param .b32 x;\n  .param .b64 y;\n  st.param.b32 [x], %r4;\n  call (y), wide, (x);\n  "
      "ld.param.b64 %rd10, [y];\n  }\n",
      with_params);
  add(out, "exit", "  and.b32 %r6, %r4, 1;\n  setp.eq.u32 %p1, %r6, 0;\n  @%p1 exit;\n  mov.u32 %r10, 5;\n");
  add(out, "ret", "  and.b32 %r6, %r4, 1;\n  setp.eq.u32 %p1, %r6, 0;\n  @%p1 ret;\n  mov.u32 %r10, 5;\n");
  add(out, "setp with two results",
      "  setp.lt.s32 %p3, %r6, 0;\n  setp.lt.and.s32 %p1|%p2, %r4, %r5, %p3;\n  @%p1 add.u32 %r10, %r10, "
      "1;\n  @%p2 add.u32 %r10, %r10, 2;\n  setp.gt.or.u32 %p1|%p2, %r4, %r5, !%p3;\n  @%p1 add.u32 %r10, "
      "%r10, 4;\n  @%p2 add.u32 %r10, %r10, 8;\n  setp.ne.xor.u64 %p1|%p2, %rd10, 1, %p3;\n  @%p1 add.u32 "
      "%r10, %r10, 16;\n  @%p2 add.u32 %r10, %r10, 32;\n");
  add(out, "logic of predicates",
      "  setp.lt.s32 %p1, %r4, 0;\n  setp.lt.s32 %p2, %r5, 0;\n  and.pred %p3, %p1, %p2;\n  or.pred %p4, "
      "%p1, %p2;\n  xor.pred %p5, %p1, %p2;\n  not.pred %p6, %p1;\n  mov.pred %p7, %p2;\n  selp.b32 %r20, 1, "
      "0, %p3;\n  selp.b32 %r21, 2, 0, %p4;\n  selp.b32 %r22, 4, 0, %p5;\n  selp.b32 %r23, 8, 0, %p6;\n  "
      "selp.b32 %r24, 16, 0, %p7;\n  add.u32 %r10, %r20, %r21;\n  add.u32 %r10, %r10, %r22;\n  add.u32 %r10, "
      "%r10, %r23;\n  add.u32 %r10, %r10, %r24;\n");
  for (const char* type : {"b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64", "f32", "f64"}) {
    const std::string t = type, r = t.ends_with("64") ? "%rd" : t.ends_with("32") ? "%r" : "%h";
    add(out, fmt::format("selp.{}", t),
        fmt::format(
            "  setp.lt.s32 %p1, %r4, 0;\n  cvt.u16.u32 %h20, %r5;\n  cvt.u16.u32 %h21, %r6;\n  mov.b32 %r20, "
            "%r5;\n  mov.b32 %r21, %r6;\n  mov.b64 %rd20, {{%r5,%r6}};\n  mov.b64 %rd21, {{%r6,%r5}};\n  "
            "selp.{0} {1}22, {1}20, {1}21, %p1;\n  mov.{0} {1}23, {1}22;\n  {2};\n",
            t, r,
            r == "%rd"  ? "mov.b64 %rd10, %rd23"
            : r == "%r" ? "mov.b32 %r10, %r23"
                        : "cvt.u32.u16 %r10, %h23"));
  }
  // Packing.
  add(out, "mov.b64 {b32, b32}",
      "  mov.b64 %rd10, {%r4,%r5};\n  mov.b64 {%r20,%r21}, %rd10;\n  xor.b32 %r10, %r20, %r21;\n");
  add(out, "mov.b32 {b16, b16}", "  mov.b32 {%h1,%h2}, %r4;\n  mov.b32 %r10, {%h2,%h1};\n");
  add(out, "mov.b64 {b16 x 4}",
      "  mov.b64 %rd11, {%r4,%r5};\n  mov.b64 {%h1,%h2,%h3,%h4}, %rd11;\n  mov.b64 %rd10, "
      "{%h3,%h1,%h4,%h2};\n");
  add(out, "mov.b32 {b8 x 4}",
      "  .reg .b8 %c<8>;\n  mov.b32 {%c1,%c2,%c3,%c4}, %r4;\n  mov.b32 %r10, {%c4,%c2,%c1,%c3};\n");
  add(out, "mov.b16 {b8, b8}",
      "  .reg .b8 %c<8>;\n  cvt.u16.u32 %h1, %r4;\n  mov.b16 {%c1,%c2}, %h1;\n  mov.b16 %h2, {%c2,%c1};\n  "
      "cvt.u32.u16 %r10, %h2;\n");
  add(out, "mov.b128 {b64, b64}",
      "  .reg .b128 %q<4>;\n  mov.b64 %rd11, {%r4,%r5};\n  mov.b64 %rd12, {%r6,%r7};\n  mov.b128 %q1, "
      "{%rd11,%rd12};\n  mov.b128 %q2, %q1;\n  mov.b128 {%rd13,%rd10}, %q2;\n");
  add(out, "mov.b64 {_, b32}", "  mov.b64 %rd11, {%r4,%r5};\n  mov.b64 {_,%r10}, %rd11;\n");
  // Special registers that both machines must agree on.
  for (const char* name : {"tid.x",
                           "tid.y",
                           "tid.z",
                           "ntid.x",
                           "ntid.y",
                           "ntid.z",
                           "ctaid.x",
                           "ctaid.y",
                           "ctaid.z",
                           "nctaid.x",
                           "nctaid.y",
                           "nctaid.z",
                           "laneid",
                           "lanemask_eq",
                           "lanemask_le",
                           "lanemask_lt",
                           "lanemask_ge",
                           "lanemask_gt",
                           "nwarpid",
                           "clusterid.x",
                           "nclusterid.x",
                           "cluster_ctaid.x",
                           "cluster_nctaid.x",
                           "cluster_ctarank",
                           "cluster_nctarank",
                           "total_smem_size",
                           "aggr_smem_size",
                           "dynamic_smem_size",
                           "reserved_smem_offset_begin",
                           "reserved_smem_offset_cap",
                           "reserved_smem_offset_0",
                           "reserved_smem_offset_1"})
    add(out, fmt::format("%{}", name),
        fmt::format("  mov.{} %r10, %{};\n", std::string(name).starts_with("reserved") ? "b32" : "u32",
                    name));
  for (int i = 0; i < 32; ++i)
    if (i != 0 && i != 6 && i != 10)
      add(out, fmt::format("%envreg{}", i), fmt::format("  mov.b32 %r10, %envreg{};\n", i));
  add(out, "%current_graph_exec", "  mov.u64 %rd10, %current_graph_exec;\n");
  add(out, "%warpid of one warp", "  mov.u32 %r10, %warpid;\n", "", 32, 1);
  add(out, "%is_explicit_cluster", "  mov.pred %p1, %is_explicit_cluster;\n  selp.b32 %r10, 1, 0, %p1;\n");
  add(out, "clocks go on",
      "  mov.u32 %r20, %clock;\n  mov.u64 %rd20, %clock64;\n  mov.u64 %rd21, %globaltimer;\n  mov.u32 %r22, "
      "%clock_hi;\n  mov.u32 %r23, %globaltimer_lo;\n  mov.u32 %r24, %globaltimer_hi;\n  nanosleep.u32 "
      "5000;\n  mov.u64 %rd22, %clock64;\n  mov.u64 %rd23, %globaltimer;\n  setp.ge.u64 %p1, %rd22, %rd20;\n "
      " setp.ge.u64 %p2, %rd23, %rd21;\n  selp.b32 %r10, 1, 0, %p1;\n  @%p2 add.u32 %r10, %r10, 2;\n");
  add(out, "%smid below %nsmid",
      "  mov.u32 %r20, %smid;\n  mov.u32 %r21, %nsmid;\n  setp.lt.u32 %p1, %r20, %r21;\n  selp.b32 %r10, 1, "
      "0, %p1;\n  mov.u64 %rd20, %gridid;\n");
}

}  // namespace imbrex::conformance
