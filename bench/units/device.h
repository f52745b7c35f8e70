// SPDX-License-Identifier: Apache-2.0
// What the programs of this folder share: checked calls, clocks, barriers, bulk copies, and medians of what CTAs answer.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>
#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>
#define CHECK(x)                                                        \
  do {                                                                  \
    cudaError_t e_ = (x);                                               \
    if (e_ != cudaSuccess) {                                            \
      printf("FAILED line %d: %s\n", __LINE__, cudaGetErrorString(e_)); \
      fflush(stdout);                                                   \
      exit(1);                                                          \
    }                                                                   \
  } while (0)

__device__ __forceinline__ uint32_t s32(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ long long clk() {
  long long t;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(t)::"memory");
  return t;
}
__device__ __forceinline__ long long ns() {
  long long t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
  return t;
}
__device__ __forceinline__ void bar_init(uint32_t b, int n) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(b), "r"(n) : "memory");
}
__device__ __forceinline__ void bar_expect(uint32_t b, int n) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(b), "r"(n) : "memory");
}
__device__ __forceinline__ void bar_arrive(uint32_t b) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(b) : "memory");
}
__device__ __forceinline__ void bar_wait(uint32_t b, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\nW: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n@!p bra W;\n}" ::"r"(b),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void bulk_load(uint32_t dst, const void* src, int bytes, uint32_t bar) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
      "l"(src), "r"(bytes), "r"(bar)
      : "memory");
}
__device__ __forceinline__ void bulk_store(void* dst, uint32_t src, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(dst), "r"(src), "r"(bytes)
               : "memory");
}
// Reads other data into L2.
__global__ void flush(const uint4* from, size_t count, uint32_t* sink) {
  uint32_t s = 0;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
       i += (size_t)gridDim.x * blockDim.x) {
    const uint4 v = __ldcg(from + i);
    s ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  if (s == 0x5eed1234) *sink = s;
}
// A line of the answers.
static void say(const char* format, ...) {
  va_list list;
  va_start(list, format);
  vprintf(format, list);
  va_end(list);
  printf("\n");
  fflush(stdout);
}
inline double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}
// For each of `count` answers a CTA: the median over five launches by go(), after a first one, of the means over CTAs.
template <class Go>
std::vector<double> means(const long long* answers, int ctas, int count, Go&& go) {
  std::vector<std::vector<double>> all(count);
  for (int round = 0; round < 6; ++round) {
    go();
    CHECK(cudaDeviceSynchronize());
    if (round == 0) continue;
    std::vector<long long> got(ctas * count);
    CHECK(cudaMemcpy(got.data(), answers, got.size() * 8, cudaMemcpyDeviceToHost));
    for (int i = 0; i < count; ++i) {
      double sum = 0;
      for (int c = 0; c < ctas; ++c) sum += (double)got[c * count + i];
      all[i].push_back(sum / ctas);
    }
  }
  std::vector<double> result;
  for (const auto& each : all) result.push_back(median(each));
  return result;
}
