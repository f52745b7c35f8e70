// SPDX-License-Identifier: Apache-2.0
// Hand-written Blackwell GEMM kernels in PTX, as text made for a tile size: C[m][n] = A[m][k] B[n][k]^T, f16
// in, f32 out. What they exercise is said at each of them.
#pragma once

#include <fmt/format.h>

#include <string>

namespace imbrex::vgpu {

struct GemmTile {
  int n = 256;  // columns of C; rows are 128
  int k = 64;   // one swizzle span: 16, 32 or 64
};

/// The instruction descriptor of f16 x f16 -> f32, both operands K-major.
inline uint32_t f16_instruction_descriptor(int m, int n) {
  return 1u << 4 | static_cast<uint32_t>(n / 8) << 17 | static_cast<uint32_t>(m / 16) << 24;
}

/// Everything but the start address of the K-major descriptor whose rows fill one swizzle span.
inline uint64_t k_major_descriptor(int row_bytes) {
  const uint64_t mode = row_bytes == 128 ? 2 : row_bytes == 64 ? 4 : 6;
  return uint64_t{1} << 16 | static_cast<uint64_t>(8 * row_bytes / 16) << 32 | uint64_t{1} << 46 | mode << 61;
}

/// cp.async into swizzled tiles, a block barrier, four warps; one thread issues the MMAs and commits to one
/// mbarrier. Parameters: a, b, c (u64), n, k (u32). Grid: (m / 128, n / tile.n).
inline std::string cp_async_gemm(const GemmTile& tile, bool wait_for_copies = true, bool proxy_fence = true) {
  const int row_bytes = tile.k * 2, chunks = row_bytes / 16;
  const int mask = row_bytes == 128 ? 7 : row_bytes == 64 ? 3 : 1;
  std::string text = R"(
.version 8.6
.target sm_100a
.address_size 64
.visible .entry gemm(.param .u64 a, .param .u64 b, .param .u64 c, .param .u32 n, .param .u32 k)
.reqntid 128
{
  .reg .pred %p<8>;
  .reg .b32 %r<64>;
  .reg .b64 %rd<32>;
  .reg .b32 %f<32>;
)";
  text += fmt::format("  .shared .align 1024 .b8 tile_a[{}];\n  .shared .align 1024 .b8 tile_b[{}];\n",
                      128 * row_bytes, tile.n * row_bytes);
  text += R"(
  .shared .align 8 .b64 done;
  .shared .align 4 .b32 taddr;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  ld.param.u64 %rd3, [c];
  ld.param.u32 %r1, [n];
  ld.param.u32 %r2, [k];
  mov.u32 %r3, %tid.x;
  shr.u32 %r4, %r3, 5;
  mov.u32 %r5, tile_a;
  mov.u32 %r6, tile_b;
  mov.u32 %r7, done;
  mov.u32 %r8, taddr;
  setp.ne.u32 %p1, %r3, 0;
  @%p1 bra skip_init;
  mbarrier.init.shared::cta.b64 [%r7], 1;
skip_init:
  setp.ne.u32 %p2, %r4, 0;
  @%p2 bra skip_alloc;
)";
  text += fmt::format("  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r8], {};\n",
                      tile.n < 32 ? 32 : tile.n);
  text += R"(
  tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
skip_alloc:
  bar.sync 0;
  ld.shared.u32 %r9, [%r8];
  mov.u32 %r10, %ctaid.x;
  mov.u32 %r11, %ctaid.y;
  mov.u32 %r12, 0;          // k offset
  mov.u32 %r13, 0;          // phase
loop:
)";
  // One operand: rows of `rows`, chunk ids tid, tid + 128, ...
  const auto copies = [&](const char* tile_base, int rows, const char* block, const char* pointer) {
    std::string out;
    for (int i = 0; i < rows * chunks / 128; ++i) {
      out += fmt::format("  add.u32 %r20, %r3, {};\n", i * 128);
      out += fmt::format("  shr.u32 %r21, %r20, {};\n", chunks == 8 ? 3 : chunks == 4 ? 2 : 1);  // row
      out += fmt::format("  and.b32 %r22, %r20, {};\n", chunks - 1);                             // chunk
      out += fmt::format("  shl.b32 %r23, %r20, 4;\n");  // linear offset
      out += fmt::format("  shr.u32 %r24, %r23, 7;\n  and.b32 %r24, %r24, {};\n  shl.b32 %r24, %r24, 4;\n",
                         mask);
      out += fmt::format("  xor.b32 %r23, %r23, %r24;\n  add.u32 %r23, %r23, {};\n", tile_base);
      out += fmt::format("  mad.lo.u32 %r25, {}, {}, %r21;\n", block, rows);  // row of the matrix
      out += fmt::format("  mul.wide.u32 %rd10, %r25, %r2;\n  shl.b64 %rd10, %rd10, 1;\n");
      out += fmt::format(
          "  shl.b32 %r26, %r22, 3;\n  add.u32 %r26, %r26, %r12;\n  mul.wide.u32 %rd11, %r26, 2;\n");
      out += fmt::format("  add.u64 %rd10, %rd10, %rd11;\n  add.u64 %rd10, %rd10, {};\n", pointer);
      out += fmt::format("  cp.async.cg.shared.global [%r23], [%rd10], 16;\n");
    }
    return out;
  };
  text += copies("%r5", 128, "%r10", "%rd1") + copies("%r6", tile.n, "%r11", "%rd2");
  if (wait_for_copies) text += "  cp.async.wait_all;\n";
  if (proxy_fence) text += "  fence.proxy.async;\n";
  text += "  bar.sync 0;\n  @%p1 bra wait;\n";
  for (int step = 0; step < tile.k / 16; ++step) {
    text += fmt::format("  add.u32 %r30, %r5, {0};\n  add.u32 %r31, %r6, {0};\n", step * 32);
    text += "  and.b32 %r30, %r30, 0x3FFFF;\n  and.b32 %r31, %r31, 0x3FFFF;\n";
    text += "  shr.u32 %r30, %r30, 4;\n  shr.u32 %r31, %r31, 4;\n";
    text += fmt::format(
        "  cvt.u64.u32 %rd20, %r30;\n  or.b64 %rd20, %rd20, {0};\n  cvt.u64.u32 %rd21, %r31;\n  or.b64 "
        "%rd21, %rd21, {0};\n",
        k_major_descriptor(row_bytes));
    text += step == 0 ? "  setp.ne.u32 %p3, %r12, 0;\n" : "  setp.eq.u32 %p3, %r3, %r3;\n";
    text += fmt::format("  tcgen05.mma.cta_group::1.kind::f16 [%r9], %rd20, %rd21, {}, %p3;\n",
                        f16_instruction_descriptor(128, tile.n));
  }
  text += R"(
  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r7];
wait:
  mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r7], %r13;
  @!%p4 bra wait;
  xor.b32 %r13, %r13, 1;
)";
  text += fmt::format("  add.u32 %r12, %r12, {};\n", tile.k);
  text += R"(
  setp.lt.u32 %p5, %r12, %r2;
  @%p5 bra loop;
  tcgen05.fence::after_thread_sync;
  shl.b32 %r40, %r4, 21;    // lane of the warp's quarter
  add.u32 %r40, %r40, %r9;
  mad.lo.u32 %r41, %r10, 128, %r3;
  mul.wide.u32 %rd12, %r41, %r1;
)";
  text += fmt::format("  mul.lo.u32 %r42, %r11, {};\n  cvt.u64.u32 %rd13, %r42;\n", tile.n);
  text += "  add.u64 %rd12, %rd12, %rd13;\n  shl.b64 %rd12, %rd12, 2;\n  add.u64 %rd12, %rd12, %rd3;\n";
  for (int column = 0; column < tile.n; column += 8) {
    text += fmt::format("  add.u32 %r43, %r40, {};\n", column);
    text += "  tcgen05.ld.sync.aligned.32x32b.x8.b32 {%f0, %f1, %f2, %f3, %f4, %f5, %f6, %f7}, [%r43];\n";
    text += "  tcgen05.wait::ld.sync.aligned;\n";
    for (int i = 0; i < 8; ++i)
      text += fmt::format("  st.global.b32 [%rd12+{}], %f{};\n", (column + i) * 4, i);
  }
  text += "  tcgen05.fence::before_thread_sync;\n  bar.sync 0;\n  @%p2 bra end;\n";
  text += fmt::format("  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r9, {};\nend:\n  ret;\n}}\n",
                      tile.n < 32 ? 32 : tile.n);
  return text;
}

/// TMA into a ring of stages, warp-specialised: warp 0 loads, warp 1 issues MMAs, all four store the result.
/// With `pair` two CTAs share a tile of 256 rows: each loads its half of both operands and signals CTA 0,
/// whose thread issues the MMAs for both and commits to both. With `steal` the clusters go on with tiles that
/// cluster launch control hands them. Parameters: maps a, b (boxes of 128 or tile.n rows, or tile.n / 2, by
/// 64), c (u64), n (u32), k (u32). Grid: (m / 128, n / tile.n); tile index by %ctaid.
inline std::string tma_gemm(const GemmTile& tile, int stages, bool pair, bool steal) {
  const int a_bytes = 128 * 128, b_rows = pair ? tile.n / 2 : tile.n, b_bytes = b_rows * 128;
  const int stage_bytes = a_bytes + b_bytes, m = pair ? 256 : 128, group = pair ? 2 : 1;
  std::string t = fmt::format(R"(
.version 9.0
.target sm_100a
.address_size 64
.visible .entry gemm(.param .align 64 .b8 map_a[128], .param .align 64 .b8 map_b[128], .param .u64 c, .param .u32 n, .param .u32 k)
.reqntid 128
{}
{{
  .reg .pred %p<16>;
  .reg .b16 %h<4>;
  .reg .b32 %r<80>;
  .reg .b64 %rd<40>;
  .reg .b128 %q<2>;
  .reg .b32 %f<32>;
  .shared .align 1024 .b8 ring[{}];
  .shared .align 16 .b8 response[16];
  .shared .align 8 .b64 full[{}];
  .shared .align 8 .b64 empty[{}];
  .shared .align 8 .b64 flush;
  .shared .align 8 .b64 answered;
  .shared .align 4 .b32 taddr;
)",
                              pair ? ".reqnctapercluster 2, 1, 1" : "", stage_bytes * stages, stages, stages);
  t += R"(
  mov.b64 %rd1, map_a;
  cvta.param.u64 %rd1, %rd1;
  mov.b64 %rd2, map_b;
  cvta.param.u64 %rd2, %rd2;
  ld.param.u64 %rd3, [c];
  ld.param.u32 %r1, [n];
  ld.param.u32 %r2, [k];
  mov.u32 %r3, %tid.x;
  shr.u32 %r4, %r3, 5;
  and.b32 %r5, %r3, 31;
  mov.u32 %r6, ring;
  mov.u32 %r7, full;
  mov.u32 %r8, empty;
  mov.u32 %r9, flush;
  mov.u32 %r10, taddr;
  mov.u32 %r11, answered;
  mov.u32 %r12, response;
  mov.u32 %r13, %cluster_ctarank;
  setp.ne.u32 %p1, %r3, 0;
  @%p1 bra inited;
)";
  for (int i = 0; i < stages; ++i)
    t += fmt::format(
        "  mbarrier.init.shared::cta.b64 [%r7+{0}], 1;\n  mbarrier.init.shared::cta.b64 [%r8+{0}], 1;\n",
        8 * i);
  t += "  mbarrier.init.shared::cta.b64 [%r9], 1;\n  mbarrier.init.shared::cta.b64 [%r11], 1;\n"
       "  fence.mbarrier_init.release.cluster;\ninited:\n  setp.ne.u32 %p2, %r4, 0;\n  @%p2 bra allocated;\n";
  t += fmt::format(
      "  tcgen05.alloc.cta_group::{0}.sync.aligned.shared::cta.b32 [%r10], {1};\n"
      "  tcgen05.relinquish_alloc_permit.cta_group::{0}.sync.aligned;\nallocated:\n  bar.sync 0;\n",
      group, tile.n);
  const std::string cluster_sync = "  barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;\n";
  if (pair) t += cluster_sync;
  t += R"(
  ld.shared.u32 %r14, [%r10];
  mov.u32 %r15, %ctaid.x;
  mov.u32 %r16, %ctaid.y;
  mov.u32 %r17, 0;           // stage of the producer or consumer
  mov.u32 %r18, 0;           // its phase
  mov.u32 %r19, 0;           // phase of the tile: flush and answered
  div.u32 %r20, %r2, 64;     // K steps
next_tile:
)";
  if (steal) {
    t += "  @%p1 bra asked;\n  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r11], 16;\nasked:\n";
    // One thread of the cluster asks; every CTA has announced its response by then.
    if (pair) t += cluster_sync;
    t += "  or.b32 %r40, %r3, %r13;\n  setp.ne.u32 %p3, %r40, 0;\n  @%p3 bra requested;\n";
    t += fmt::format(
        "  clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes{}.b128 [%r12], "
        "[%r11];\n",
        pair ? ".multicast::cluster::all" : "");
    t += "requested:\n";
  }
  // Warp 0, lane 0: the loads of this CTA.
  t += R"(
  setp.eq.u32 %p4, %r5, 0;
  setp.eq.u32 %p5, %r4, 0;
  setp.eq.u32 %p6, %r4, 1;
  and.pred %p5, %p5, %p4;
  and.pred %p6, %p6, %p4;
  @!%p5 bra not_loading;
  mul.lo.u32 %r41, %r15, 128;
)";
  t += fmt::format("  mul.lo.u32 %r42, %r16, {};\n", tile.n);
  if (pair) t += fmt::format("  mad.lo.u32 %r42, %r13, {}, %r42;\n", b_rows);
  t += "  mov.u32 %r43, 0;\nload:\n  xor.b32 %r44, %r18, 1;\n  shl.b32 %r45, %r17, 3;\n  add.u32 %r46, %r8, "
       "%r45;\n"
       "wait_empty:\n  mbarrier.try_wait.parity.shared::cta.b64 %p7, [%r46], %r44;\n  @!%p7 bra wait_empty;\n"
       "  add.u32 %r47, %r7, %r45;\n";
  // CTA 0 expects the bytes of both.
  t += fmt::format(
      "  setp.eq.u32 %p8, %r13, 0;\n  @%p8 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r47], {};\n",
      stage_bytes * group);
  if (pair) t += "  and.b32 %r47, %r47, 0xFEFFFFFF;\n";
  t += fmt::format("  mad.lo.u32 %r48, %r17, {}, %r6;\n  add.u32 %r49, %r48, {};\n  shl.b32 %r50, %r43, 6;\n",
                   stage_bytes, a_bytes);
  const std::string suffix = pair ? ".cta_group::2" : "";
  t += fmt::format(
      "  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes{0} [%r48], [%rd1, "
      "{{%r50, %r41}}], [%r47];\n"
      "  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes{0} [%r49], [%rd2, "
      "{{%r50, %r42}}], [%r47];\n",
      suffix);
  const std::string advance = fmt::format(
      "  add.u32 %r17, %r17, 1;\n  setp.eq.u32 %p9, %r17, {};\n  @%p9 xor.b32 %r18, %r18, 1;\n"
      "  @%p9 mov.u32 %r17, 0;\n  add.u32 %r43, %r43, 1;\n  setp.lt.u32 %p9, %r43, %r20;\n",
      stages);
  t += advance + "  @%p9 bra load;\nnot_loading:\n";
  // Warp 1, lane 0, of CTA 0: the MMAs.
  if (pair) t += "  setp.eq.u32 %p10, %r13, 0;\n  and.pred %p6, %p6, %p10;\n";
  t += "  @!%p6 bra not_multiplying;\n  mov.u32 %r43, 0;\nmultiply:\n  shl.b32 %r45, %r17, 3;\n  add.u32 "
       "%r46, %r7, %r45;\n"
       "wait_full:\n  mbarrier.try_wait.parity.shared::cta.b64 %p7, [%r46], %r18;\n  @!%p7 bra wait_full;\n"
       "  tcgen05.fence::after_thread_sync;\n";
  t += fmt::format("  mad.lo.u32 %r48, %r17, {}, %r6;\n  add.u32 %r49, %r48, {};\n", stage_bytes, a_bytes);
  for (int step = 0; step < 4; ++step) {
    t += fmt::format("  add.u32 %r51, %r48, {0};\n  add.u32 %r52, %r49, {0};\n", step * 32);
    t += "  and.b32 %r51, %r51, 0x3FFFF;\n  and.b32 %r52, %r52, 0x3FFFF;\n  shr.u32 %r51, %r51, 4;\n  "
         "shr.u32 %r52, %r52, 4;\n";
    t += fmt::format(
        "  cvt.u64.u32 %rd10, %r51;\n  or.b64 %rd10, %rd10, {0};\n  cvt.u64.u32 %rd11, %r52;\n  or.b64 "
        "%rd11, %rd11, {0};\n",
        k_major_descriptor(128));
    t += step == 0 ? "  setp.ne.u32 %p11, %r43, 0;\n" : "";
    t += fmt::format("  tcgen05.mma.cta_group::{}.kind::f16 [%r14], %rd10, %rd11, {}, {};\n", group,
                     f16_instruction_descriptor(m, tile.n), step == 0 ? "%p11" : "1");
  }
  const std::string commit =
      pair ? "  tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 "
             "[{}], %h1;\n"
           : "  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [{}];\n";
  t += "  mov.b16 %h1, 3;\n  add.u32 %r46, %r8, %r45;\n" + fmt::format(fmt::runtime(commit), "%r46");
  t += advance + "  @%p9 bra multiply;\n" + fmt::format(fmt::runtime(commit), "%r9") + "not_multiplying:\n";
  // Everybody: the result.
  t += R"(
wait_flush:
  mbarrier.try_wait.parity.shared::cta.b64 %p7, [%r9], %r19;
  @!%p7 bra wait_flush;
  bar.warp.sync 0xFFFFFFFF;
  tcgen05.fence::after_thread_sync;
  shl.b32 %r53, %r4, 21;
  add.u32 %r53, %r53, %r14;
  mad.lo.u32 %r54, %r15, 128, %r3;
  mul.wide.u32 %rd12, %r54, %r1;
)";
  t += fmt::format("  mul.lo.u32 %r55, %r16, {};\n  cvt.u64.u32 %rd13, %r55;\n", tile.n);
  t += "  add.u64 %rd12, %rd12, %rd13;\n  shl.b64 %rd12, %rd12, 2;\n  add.u64 %rd12, %rd12, %rd3;\n";
  for (int column = 0; column < tile.n; column += 16) {
    t += fmt::format("  add.u32 %r56, %r53, {};\n", column);
    t += "  tcgen05.ld.sync.aligned.32x32b.x16.b32 {%f0";
    for (int i = 1; i < 16; ++i) t += fmt::format(", %f{}", i);
    t += "}, [%r56];\n  tcgen05.wait::ld.sync.aligned;\n";
    for (int i = 0; i < 16; i += 4)
      t += fmt::format("  st.global.v4.b32 [%rd12+{}], {{%f{}, %f{}, %f{}, %f{}}};\n", (column + i) * 4, i,
                       i + 1, i + 2, i + 3);
  }
  t += "  tcgen05.fence::before_thread_sync;\n" + (pair ? cluster_sync : "  bar.sync 0;\n");
  if (steal) {
    t += R"(
wait_answer:
  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p7, [%r11], %r19;
  @!%p7 bra wait_answer;
  ld.shared.b128 %q0, [%r12];
  clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p12, %q0;
  @!%p12 bra finished;
  clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r60, %r61, %r62, _}, %q0;
  add.u32 %r15, %r60, %r13;
  mov.u32 %r16, %r61;
  xor.b32 %r19, %r19, 1;
  fence.proxy.async;
)";
    t += pair ? cluster_sync : "  bar.sync 0;\n";
    // The stage and phase of the loader and the multiplier go on; those of the other threads are not used.
    t += "  bra next_tile;\nfinished:\n";
  }
  t += pair ? cluster_sync : "  bar.sync 0;\n";
  t += fmt::format(
      "  @%p2 bra end;\n  tcgen05.dealloc.cta_group::{}.sync.aligned.b32 %r14, {};\nend:\n  ret;\n}}\n",
      group, tile.n);
  return t;
}

}  // namespace imbrex::vgpu
