// SPDX-License-Identifier: Apache-2.0
// c[m, n] = a[m, k] b[n, k]^T on Hopper: one warp fetches tiles by tensor maps into four stages, two warpgroups multiply
// 64 x 128 each with wgmma. Any m and n; the tensor maps fill what lies outside with zeros.
#include "tma.cuh"

constexpr int kM = 128, kN = 128, kK = 64, kStages = 4;

struct Shared {
  alignas(1024) __half a[kStages][kM * kK];
  alignas(1024) __half b[kStages][kN * kK];
  uint64_t full[kStages], empty[kStages];
};

// Rows of 128 bytes, swizzled in groups of eight.
__device__ uint64_t descriptor(const void* p) {
  return (shared_address(p) & 0x3FFFF) >> 4 | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}

#define SUMS4(i) "+f"(sums[i]), "+f"(sums[i + 1]), "+f"(sums[i + 2]), "+f"(sums[i + 3])
#define SUMS16(i) SUMS4(i), SUMS4(i + 4), SUMS4(i + 8), SUMS4(i + 12)
__device__ void multiply(float (&sums)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, "
      "%46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, 1, 1, 1, 0, "
      "0;"
      : SUMS16(0), SUMS16(16), SUMS16(32), SUMS16(48)
      : "l"(a), "l"(b));
}

extern "C" __global__ void __launch_bounds__(384)
    matmul_wgmma(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float* c, int m, int n,
                 int k) {
  extern __shared__ uint8_t memory[];
  Shared& s = *reinterpret_cast<Shared*>((reinterpret_cast<uintptr_t>(memory) + 1023) & ~uintptr_t{1023});
  const int row0 = blockIdx.y * kM, column0 = blockIdx.x * kN, steps = (k + kK - 1) / kK;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&s.full[i], 1);
      barrier_init(&s.empty[i], 2);
    }
    barrier_inits_visible();
  }
  __syncthreads();
  const int group = threadIdx.x / 128;
  if (group == 2) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x % 128 != 0) return;
    for (int step = 0; step < steps; ++step) {
      const int stage = step % kStages;
      barrier_wait(&s.empty[stage], (step / kStages & 1) ^ 1);
      barrier_expect(&s.full[stage], sizeof s.a[0] + sizeof s.b[0]);
      fetch_tile(s.a[stage], &a, step * kK, row0, &s.full[stage]);
      fetch_tile(s.b[stage], &b, step * kK, column0, &s.full[stage]);
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  float sums[64] = {};
  for (int step = 0; step < steps; ++step) {
    const int stage = step % kStages;
    barrier_wait(&s.full[stage], step / kStages & 1);
    const uint64_t da = descriptor(s.a[stage] + group * 64 * kK), db = descriptor(s.b[stage]);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int i = 0; i < kK / 16; ++i) multiply(sums, da + i * 2, db + i * 2);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (threadIdx.x % 128 == 0) barrier_arrive(&s.empty[stage]);
  }
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int j = 0; j < 16; ++j)
    for (int i = 0; i < 4; ++i) {
      const int row = row0 + warp * 16 + i / 2 * 8 + lane / 4, column = column0 + j * 8 + lane % 4 * 2 + i % 2;
      if (row < m && column < n) c[static_cast<long>(row) * n + column] = sums[j * 4 + i];
    }
}
