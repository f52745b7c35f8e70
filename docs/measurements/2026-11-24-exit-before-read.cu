// SPDX-License-Identifier: Apache-2.0
// A CTA starts bulk stores of all its shared memory and ends without waiting for their sources to have been read; the next
// CTA on the SM fills the same bytes. What arrived in global memory?
#include <cstdint>
#include <cstdio>
#include <cuda_runtime.h>

__device__ uint32_t word_of(uint32_t cta, uint32_t i) { return (cta * 2654435761u) ^ (i * 40503u + 17u); }

// kind 0: wait_group.read before the end; 1: no wait, group committed; 2: no wait, no commit.
__global__ void store_and_exit(uint32_t* out, int words, int pieces, int kind) {
  extern __shared__ __align__(128) uint32_t s[];
  // First foreign values, so that a stale read of what the CTA before left is seen, and a late read of what the next one writes.
  for (int i = threadIdx.x; i < words; i += blockDim.x) s[i] = 0xdead0000u + blockIdx.x;
  __syncthreads();
  for (int i = threadIdx.x; i < words; i += blockDim.x) s[i] = word_of(blockIdx.x, i);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    const uint32_t bytes = words * 4 / pieces;
    uint32_t from = (uint32_t)__cvta_generic_to_shared(s);
    uint64_t to = (uint64_t)(out + (size_t)blockIdx.x * words);
    for (int p = 0; p < pieces; ++p)
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to + (uint64_t)p * bytes), "r"(from + p * bytes), "r"(bytes)
                   : "memory");
    if (kind != 2) asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    if (kind == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  }
}
__global__ void check(const uint32_t* out, int words, int ctas, unsigned long long* wrong, uint32_t* example) {
  for (size_t k = blockIdx.x * (size_t)blockDim.x + threadIdx.x; k < (size_t)words * ctas; k += (size_t)gridDim.x * blockDim.x)
    if (out[k] != word_of(k / words, k % words)) {
      if (atomicAdd(wrong, 1ull) == 0) example[0] = k / words, example[1] = k % words, example[2] = out[k];
    }
}
int main() {
  const int ctas = 132 * 64;
  for (int kb : {8, 24, 56, 112, 224})
    for (int pieces : {1, 8, 64})
      for (int kind : {0, 1, 2}) {
        const int words = kb * 256;
        uint32_t *out, *example;
        unsigned long long* wrong;
        cudaMalloc(&out, (size_t)words * ctas * 4);
        cudaMallocManaged(&wrong, 8);
        cudaMallocManaged(&example, 12);
        *wrong = 0;
        cudaFuncSetAttribute(store_and_exit, cudaFuncAttributeMaxDynamicSharedMemorySize, kb * 1024);
        const int rounds = kb >= 112 ? 6 : 12;
        for (int round = 0; round < rounds; ++round) {
          cudaMemset(out, 0x5a, (size_t)words * ctas * 4);
          store_and_exit<<<ctas, 256, kb * 1024>>>(out, words, pieces, kind);
          check<<<264, 512>>>(out, words, ctas, wrong, example);
        }
        const cudaError_t status = cudaDeviceSynchronize();
        printf("exit kb %d pieces %d kind %d: %llu wrong of %llu", kb, pieces, kind, *wrong, (unsigned long long)words * ctas * rounds);
        if (*wrong) printf(" (cta %u word %u is %08x)", example[0], example[1], example[2]);
        printf(" %s\n", cudaGetErrorString(status));
        cudaFree(out), cudaFree(wrong), cudaFree(example);
      }
}
