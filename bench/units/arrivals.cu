// SPDX-License-Identifier: Apache-2.0
// What an arrival at an mbarrier of another CTA of the cluster costs the thread that makes it, by its semantics, and what waits
// for stores. To compile and run it: nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a -o arrivals bench/units/arrivals.cu && ./arrivals
#include "device.h"

enum Form { kLocal, kReleaseCluster, kReleaseCta, kRelaxedCluster };
static const char* const kNames[] = {"local", "release.cluster", "release.cta", "relaxed.cluster"};
enum Before { kNothing, kStoreShared, kStoreGlobal, kLoadShared };
static const char* const kBeforeNames[] = {"nothing", "st.shared", "st.global", "ld.shared"};

template <int FORM>
__device__ __forceinline__ void arrive(uint32_t bar) {
  if (FORM == kLocal) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(bar) : "memory");
  if (FORM == kReleaseCluster) asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
  if (FORM == kReleaseCta) asm volatile("mbarrier.arrive.release.cta.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
  if (FORM == kRelaxedCluster) asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(bar) : "memory");
}
template <int FORM, int BEFORE>
__global__ void __cluster_dims__(2) arrivals(int rounds, int per_round, long long* out, uint32_t* memory) {
  __shared__ uint64_t bar;
  __shared__ uint32_t words[64];
  uint32_t rank, there;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) bar_init(s32(&bar), 1000000);
  words[threadIdx.x] = threadIdx.x;
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(s32(&bar)), "r"(rank ^ 1));
  if (FORM == kLocal) there = s32(&bar);
  uint32_t sum = 0;
  if (threadIdx.x == 0) {
    for (int i = -4; i < rounds; ++i) {
      const long long t = clk();
      for (int j = 0; j < per_round; ++j) {
        if (BEFORE == kStoreShared) asm volatile("st.shared.u32 [%0], %1;" ::"r"(s32(words + j)), "r"(i) : "memory");
        if (BEFORE == kStoreGlobal) asm volatile("st.global.u32 [%0], %1;" ::"l"(memory + 64 * blockIdx.x + j), "r"(i) : "memory");
        if (BEFORE == kLoadShared) {
          uint32_t x;
          asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(s32(words + j)) : "memory");
          sum += x;
        }
        arrive<FORM>(there);
      }
      const long long e = clk();
      if (i >= 0) out[blockIdx.x * 64 + i] = e - t;
    }
  }
  if (sum == 12345) memory[0] = sum;
  __syncthreads();
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
template <int FORM, int BEFORE>
void run(long long* out, uint32_t* memory) {
  for (int ctas : {2, 132})
    for (int per_round : {1, 2, 4}) {
      long long host[16];
      arrivals<FORM, BEFORE><<<ctas, 64>>>(16, per_round, out, memory);
      CHECK(cudaDeviceSynchronize());
      CHECK(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost));
      std::sort(host, host + 16);
      say("arrival form=%s behind=%s ctas=%d in_a_row=%d clocks=%lld most=%lld", kNames[FORM], kBeforeNames[BEFORE], ctas, per_round, host[8], host[15]);
    }
}
template <int FORM>
void run_all(long long* out, uint32_t* memory) {
  run<FORM, kNothing>(out, memory);
  run<FORM, kStoreShared>(out, memory);
  run<FORM, kLoadShared>(out, memory);
  run<FORM, kStoreGlobal>(out, memory);
}
int main() {
  long long* out;
  uint32_t* memory;
  CHECK(cudaMalloc(&out, 132 * 64 * 8));
  CHECK(cudaMalloc(&memory, 132 * 64 * 4));
  run_all<kLocal>(out, memory);
  run_all<kReleaseCluster>(out, memory);
  run_all<kReleaseCta>(out, memory);
  run_all<kRelaxedCluster>(out, memory);
}
