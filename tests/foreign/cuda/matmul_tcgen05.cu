// SPDX-License-Identifier: Apache-2.0
// c[m, n] = a[m, k] b[n, k]^T on Blackwell: one thread fetches tiles by tensor maps, one issues tcgen05.mma into tensor
// memory, four warps read the sums out. Any m and n.
#include "tma.cuh"

constexpr int kM = 128, kN = 128, kK = 64, kStages = 3;

struct Shared {
  alignas(1024) __half a[kStages][kM * kK];
  alignas(1024) __half b[kStages][kN * kK];
  uint64_t full[kStages], empty[kStages], done;
  uint32_t tensor_memory;
};

// Rows of 128 bytes, swizzled in groups of eight.
__device__ uint64_t descriptor(const void* p) {
  return (shared_address(p) & 0x3FFFF) >> 4 | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 | uint64_t{1} << 46 |
         uint64_t{2} << 61;
}
__device__ void commit(uint64_t* barrier) {
  asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
                   shared_address(barrier))
               : "memory");
}

extern "C" __global__ void __launch_bounds__(128)
    matmul_tcgen05(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float* c, int m, int n,
                   int k) {
  extern __shared__ uint8_t memory[];
  Shared& s = *reinterpret_cast<Shared*>((reinterpret_cast<uintptr_t>(memory) + 1023) & ~uintptr_t{1023});
  const int row0 = blockIdx.y * kM, column0 = blockIdx.x * kN, steps = (k + kK - 1) / kK;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (warp == 0) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 128;" ::"r"(
                     shared_address(&s.tensor_memory))
                 : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
  }
  if (threadIdx.x == 32) {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&s.full[i], 1);
      barrier_init(&s.empty[i], 1);
    }
    barrier_init(&s.done, 1);
    barrier_inits_visible();
  }
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  const uint32_t sums = s.tensor_memory;
  if (threadIdx.x == 0) {
    for (int step = 0; step < steps; ++step) {
      const int stage = step % kStages;
      barrier_wait(&s.empty[stage], (step / kStages & 1) ^ 1);
      barrier_expect(&s.full[stage], sizeof s.a[0] + sizeof s.b[0]);
      fetch_tile(s.a[stage], &a, step * kK, row0, &s.full[stage]);
      fetch_tile(s.b[stage], &b, step * kK, column0, &s.full[stage]);
    }
  } else if (threadIdx.x == 32) {
    const uint32_t shape = 1 << 4 | kN / 8 << 17 | kM / 16 << 24;  // fp16 in, fp32 sums
    for (int step = 0; step < steps; ++step) {
      const int stage = step % kStages;
      barrier_wait(&s.full[stage], step / kStages & 1);
      asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
      const uint64_t da = descriptor(s.a[stage]), db = descriptor(s.b[stage]);
      for (int i = 0; i < kK / 16; ++i)
        asm volatile(
            "{\n"
            ".reg .pred add;\n"
            "setp.ne.u32 add, %4, 0;\n"
            "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, add;\n"
            "}" ::"r"(sums),
            "l"(da + i * 2), "l"(db + i * 2), "r"(shape), "r"(step + i)
            : "memory");
      commit(&s.empty[stage]);
    }
    commit(&s.done);
  }
  __syncwarp();
  barrier_wait(&s.done, 0);
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  const int row = row0 + warp * 32 + lane;
  for (int j = 0; j < kN; j += 8) {
    float v[8];
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
                 : "=f"(v[0]), "=f"(v[1]), "=f"(v[2]), "=f"(v[3]), "=f"(v[4]), "=f"(v[5]), "=f"(v[6]), "=f"(v[7])
                 : "r"(sums + (warp * 32 << 16) + j));
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
    for (int i = 0; i < 8; ++i)
      if (row < m && column0 + j + i < n) c[static_cast<long>(row) * n + column0 + j + i] = v[i];
  }
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  if (warp == 0) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 128;" ::"r"(sums));
}
