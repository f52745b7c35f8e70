// SPDX-License-Identifier: Apache-2.0
// Atomics and reductions of every kind, scopes, fences, volatile and cache-hinted accesses.
#include <cuda/atomic>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

__global__ void atomics(int* i, unsigned* u, unsigned long long* l, float* f, double* d, __half2* h, __nv_bfloat162* b) {
  int x = threadIdx.x;
  __shared__ int cell;
  if (x == 0) cell = 0;
  __syncthreads();
  atomicAdd(&cell, x);
  atomicMin(&cell, x);
  u[x] = atomicInc(u, 7) + atomicDec(u + 1, 9) + atomicExch(u + 2, x) + atomicCAS(u + 3, 1, x);
  atomicAnd(u + 4, x);
  atomicOr(u + 5, x);
  atomicXor(u + 6, x);
  l[x] = atomicAdd(l, 1ull) + atomicMax(l + 1, 5ull) + atomicCAS(l + 2, 3ull, 4ull);
  atomicAdd(f, 1.5f);
  d[x] = atomicAdd(d, 2.5);
  atomicAdd_block(i + 1, 3);
  atomicAdd_system(i + 2, 3);
  h[x] = atomicAdd(h, h[1]);
  b[x] = atomicAdd(b, b[1]);
}

__global__ void ordered(cuda::atomic<int, cuda::thread_scope_device>* flag, int* data, const float4* vec, float4* out) {
  if (threadIdx.x == 0) {
    data[0] = 42;
    flag->store(1, cuda::memory_order_release);
  }
  while (flag->load(cuda::memory_order_acquire) == 0) {
  }
  flag->fetch_add(1, cuda::memory_order_acq_rel);
  __threadfence();
  __threadfence_block();
  __threadfence_system();
  out[threadIdx.x] = __ldg(vec + threadIdx.x);
  out[threadIdx.x + 32] = __ldcg(vec + threadIdx.x);
  __stcs(out + 64 + threadIdx.x, __ldcs(vec + 64));
  *reinterpret_cast<volatile int*>(data + 1) = *reinterpret_cast<volatile int*>(data + 2);
}
