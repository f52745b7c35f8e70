// SPDX-License-Identifier: Apache-2.0
// c[m, n] = a[m, k] b[k, n] in fp16 with fp32 sums: cp.async into three swizzled stages, ldmatrix, mma.sync.
// Tiles of 64 x 64 x 32, four warps of 32 x 32. k and n multiples of 8, m any.
#include <cuda_fp16.h>
#include <cuda_pipeline_primitives.h>

constexpr int kM = 64, kN = 64, kK = 32, kStages = 3;

// Chunks of 16 bytes of a row are permuted so that eight rows of one column lie in different banks.
__device__ __half* a_at(__half* tile, int row, int chunk) { return tile + row * kK + (chunk ^ (row / 2 % 4)) * 8; }
__device__ __half* b_at(__half* tile, int row, int chunk) { return tile + row * kN + (chunk ^ (row % 8)) * 8; }

__device__ void load_matrices(unsigned (&r)[4], const __half* at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(at)))
               : "memory");
}
__device__ void load_matrices_transposed(unsigned (&r)[4], const __half* at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(at)))
               : "memory");
}
__device__ void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
               "{%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

extern "C" __global__ void __launch_bounds__(128) matmul_mma(const __half* a, const __half* b, float* c, int m, int n,
                                                             int k) {
  __shared__ alignas(128) __half as[kStages][kM * kK], bs[kStages][kK * kN];
  const int row0 = blockIdx.y * kM, column0 = blockIdx.x * kN, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int steps = (k + kK - 1) / kK;
  const auto fetch = [&](int step) {
    if (step < steps) {
      for (int i = threadIdx.x; i < kM * kK / 8; i += 128) {
        const int row = i / (kK / 8), chunk = i % (kK / 8), from_k = step * kK + chunk * 8;
        const bool inside = row0 + row < m && from_k < k;
        __pipeline_memcpy_async(a_at(as[step % kStages], row, chunk),
                                inside ? a + static_cast<long>(row0 + row) * k + from_k : a, 16, inside ? 0 : 16);
      }
      for (int i = threadIdx.x; i < kK * kN / 8; i += 128) {
        const int row = i / (kN / 8), chunk = i % (kN / 8), column = column0 + chunk * 8;
        const bool inside = step * kK + row < k && column < n;
        __pipeline_memcpy_async(b_at(bs[step % kStages], row, chunk),
                                inside ? b + static_cast<long>(step * kK + row) * n + column : b, 16, inside ? 0 : 16);
      }
    }
    __pipeline_commit();
  };
  float sums[2][4][4] = {};
  for (int s = 0; s < kStages - 1; ++s) fetch(s);
  const int warp_row = warp / 2 * 32, warp_column = warp % 2 * 32;
  for (int step = 0; step < steps; ++step) {
    __pipeline_wait_prior(kStages - 2);
    __syncthreads();
    fetch(step + kStages - 1);
    for (int kk = 0; kk < kK; kk += 16) {
      unsigned fa[2][4], fb[2][4];
      for (int i = 0; i < 2; ++i)
        load_matrices(fa[i], a_at(as[step % kStages], warp_row + i * 16 + lane % 16, kk / 8 + lane / 16));
      for (int j = 0; j < 2; ++j)
        load_matrices_transposed(fb[j], b_at(bs[step % kStages], kk + lane % 16, warp_column / 8 + j * 2 + lane / 16));
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 4; ++j) multiply(sums[i][j], fa[i], fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]);
    }
  }
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 4; ++j)
      for (int h = 0; h < 2; ++h) {
        const int row = row0 + warp_row + i * 16 + h * 8 + lane / 4, column = column0 + warp_column + j * 8 + lane % 4 * 2;
        if (row < m && column < n)
          *reinterpret_cast<float2*>(c + static_cast<long>(row) * n + column) = make_float2(sums[i][j][h * 2], sums[i][j][h * 2 + 1]);
      }
}
