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

}  // namespace imbrex::vgpu
