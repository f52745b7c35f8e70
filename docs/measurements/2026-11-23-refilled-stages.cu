// SPDX-License-Identifier: Apache-2.0
// Does a refill by the asynchronous proxy overwrite what threads still read, when only an mbarrier or a barrier lies
// between the two? Counts words that belong to a later or an earlier round.
#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

enum Read { kLd32, kLd128, kLdmatrix, kReads };
enum Release { kAll, kElected, kBarThenOne, kBarOnly, kAllRelaxed, kReleases };
enum Fence { kNone, kReader, kProducer, kFences };
enum Refill { kBulkGlobal, kTensor, kBulkShared, kStAsync, kRefills };
constexpr int kWords = 4096, kStageBytes = kWords * 4, kConsumers = 256, kPerThread = 16;

struct Params {
  const uint32_t* source;
  unsigned long long* out;  // later, earlier, other, clocks
  int refill, stages, tiles, rounds, conflict, noise, jitter;
};

__device__ __forceinline__ uint32_t smem(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void init(uint32_t bar, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void wait(uint32_t bar, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\nL_%=:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra L_%=;\n}" ::"r"(bar),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void arrive(uint32_t bar) {
  asm volatile("{\n.reg .b64 s;\nmbarrier.arrive.shared::cta.b64 s, [%0];\n}" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void arrive_relaxed(uint32_t bar) {
  asm volatile("{\n.reg .b64 s;\nmbarrier.arrive.relaxed.cta.shared::cta.b64 s, [%0];\n}" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void expect(uint32_t bar, uint32_t bytes) {
  asm volatile("{\n.reg .b64 s;\nmbarrier.arrive.expect_tx.shared::cta.b64 s, [%0], %1;\n}" ::"r"(bar), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ __forceinline__ void bar(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

template <int kRead, int kWhen, int kRelease, int kFence>
__global__ void __launch_bounds__(416) war(const __grid_constant__ CUtensorMap map, const Params p) {
  extern __shared__ __align__(1024) uint32_t stage_base[];
  __shared__ __align__(8) uint64_t bars[16];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const uint32_t full = smem(bars), empty = full + 64, ring = smem(stage_base);
  const int S = p.stages;
  uint32_t* own = stage_base + S * kWords;  // tiles in shared memory, for refills from there; else 4 KB for noise
  if (threadIdx.x == 0) {
    for (int s = 0; s < S; ++s) {
      init(full + 8 * s, 1);
      init(empty + 8 * s, kRelease == kAll || kRelease == kAllRelaxed ? kConsumers : kRelease == kElected ? 8 : 1);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if (p.refill == kBulkShared)
    for (int i = threadIdx.x; i < p.tiles * kWords; i += blockDim.x) own[i] = p.source[i];
  proxy_fence();
  __syncthreads();
  const int R = p.rounds;
  if (warp == 8) {  // producer
    auto issue = [&](int r) {
      const int s = r % S;
      const uint32_t dst = ring + s * kStageBytes, b = full + 8 * s;
      const int tile = r % p.tiles;
      uint32_t rank, far_dst, far_b;
      asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
      asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(far_dst) : "r"(dst), "r"(rank));
      asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(far_b) : "r"(b), "r"(rank));
      if (p.refill == kStAsync) {
        if (lane == 0) expect(b, kStageBytes);
        __syncwarp();
        for (int i = lane; i < kWords / 4; i += 32) {
          const uint32_t v = tile * 0x10000u + i * 4;
          asm volatile(
              "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                  far_dst + i * 16),
              "r"(v), "r"(v + 1), "r"(v + 2), "r"(v + 3), "r"(far_b)
              : "memory");
        }
        return;
      }
      if (lane != 0) return;
      expect(b, kStageBytes);
      if (p.refill == kBulkGlobal)
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(dst),
            "l"(p.source + (size_t)tile * kWords), "r"(kStageBytes), "r"(b)
            : "memory");
      else if (p.refill == kTensor)
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::
                "r"(dst),
            "l"(&map), "r"(0), "r"(tile * 16), "r"(b)
            : "memory");
      else
        asm volatile(
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(far_dst),
            "r"(smem(own + tile * kWords)), "r"(kStageBytes), "r"(far_b)
            : "memory");
    };
    for (int r = 0; r < S && r < R; ++r) issue(r);
    for (int r = S; r < R; ++r) {
      if constexpr (kRelease == kBarOnly)
        bar(1, kConsumers + 32);
      else
        wait(empty + 8 * (r % S), (r / S - 1) & 1);
      if constexpr (kFence == kProducer) proxy_fence();
      issue(r);
    }
    return;
  }
  if (warp > 8) {  // noise: conflicting loads, on other bytes than those of the ring
    if (!p.noise) return;
    uint32_t sum = 0;
    volatile uint64_t* bars_v = bars;
    const uint32_t at = smem(own) + lane * 128;
    for (int i = 0; i < R * p.noise; ++i) {
      uint32_t v;
      asm volatile("ld.shared.b32 %0, [%1];" : "=r"(v) : "r"(at + (i & 31) * 4));
      sum += v;
    }
    if (sum == 0x12345u) p.out[3] = bars_v[15];
    return;
  }
  unsigned later = 0, earlier = 0, other = 0;
  const long long begin = clock64();
  uint32_t random = threadIdx.x / 32 * 7919u + blockIdx.x * 104729u + 1;
  for (int r = 0; r < R; ++r) {
    const int s = r % S;
    const uint32_t base = ring + s * kStageBytes;
    uint32_t value[kPerThread], index[kPerThread];
    if constexpr (kRead == kLd32) {
#pragma unroll
      for (int k = 0; k < kPerThread; ++k)
        index[k] = p.conflict ? lane * 128 + warp * 16 + k : (warp * 16 + k) * 32 + lane;
    } else if constexpr (kRead == kLd128) {
#pragma unroll
      for (int k = 0; k < kPerThread; ++k)
        index[k] = 4 * (p.conflict ? lane * 32 + warp * 4 + k / 4 : (warp * 4 + k / 4) * 32 + lane) + k % 4;
    } else {
#pragma unroll
      for (int k = 0; k < kPerThread; ++k) {
        const int l = 8 * (k % 4) + lane / 4;
        index[k] = 4 * (p.conflict ? l * 32 + warp * 4 + k / 4 : (warp * 4 + k / 4) * 32 + l) + lane % 4;
      }
    }
    wait(full + 8 * s, r / S & 1);
    if (p.jitter) {
      random = random * 1664525u + 1013904223u;
      if ((random >> 28) == 0) __nanosleep(random >> 16 & 1023);
    }
    if constexpr (kRead == kLd32) {
#pragma unroll
      for (int k = 0; k < kPerThread; ++k)
        asm volatile("ld.shared.b32 %0, [%1];" : "=r"(value[k]) : "r"(base + index[k] * 4) : "memory");
    } else if constexpr (kRead == kLd128) {
#pragma unroll
      for (int k = 0; k < kPerThread; k += 4)
        asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(value[k]), "=r"(value[k + 1]), "=r"(value[k + 2]), "=r"(value[k + 3])
                     : "r"(base + index[k] * 4)
                     : "memory");
    } else {
#pragma unroll
      for (int k = 0; k < kPerThread; k += 4) {
        const uint32_t row = p.conflict ? lane * 32 + warp * 4 + k / 4 : (warp * 4 + k / 4) * 32 + lane;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(value[k]), "=r"(value[k + 1]), "=r"(value[k + 2]), "=r"(value[k + 3])
                     : "r"(base + row * 16)
                     : "memory");
      }
    }
    const uint32_t expected = r % p.tiles * 0x10000u;
    const uint32_t next = (r + S) % p.tiles, last = (r + p.tiles * 4 - S) % p.tiles;
    auto judge = [&] {
#pragma unroll
      for (int k = 0; k < kPerThread; ++k) {
        if (value[k] == expected + index[k]) continue;
        if (value[k] == next * 0x10000u + index[k]) ++later;
        else if (value[k] == last * 0x10000u + index[k]) ++earlier;
        else ++other;
      }
    };
    uint32_t zero = 0;
    if constexpr (kWhen == 0) {
      uint32_t all = 0;
#pragma unroll
      for (int k = 0; k < kPerThread; ++k) all |= value[k];
      zero = all >> 31;  // never set, which the compiler does not know
    }
    if constexpr (kFence == kReader) proxy_fence();
    if constexpr (kRelease == kAll) arrive(empty + 8 * s + zero);
    if constexpr (kRelease == kAllRelaxed) arrive_relaxed(empty + 8 * s + zero);
    if constexpr (kRelease == kElected) {
      __syncwarp();
      if (lane == 0) arrive(empty + 8 * s + zero);
    }
    if constexpr (kRelease == kBarThenOne) {
      bar(1 + zero, kConsumers);
      if (threadIdx.x == 0) arrive(empty + 8 * s);
    }
    if constexpr (kRelease == kBarOnly)
      if (r < R - S) bar(1 + zero, kConsumers + 32);
    judge();
  }
  const long long took = clock64() - begin;
  if (later) atomicAdd(p.out, (unsigned long long)later);
  if (earlier) atomicAdd(p.out + 1, (unsigned long long)earlier);
  if (other) atomicAdd(p.out + 2, (unsigned long long)other);
  if (threadIdx.x == 0 && blockIdx.x == 0) p.out[3] = took;
}

#define CHECK(call)                                                                      \
  do {                                                                                   \
    const cudaError_t e = (call);                                                        \
    if (e != cudaSuccess) {                                                              \
      printf("FAILED %s line %d: %s\n", #call, __LINE__, cudaGetErrorString(e));         \
      fflush(stdout);                                                                    \
      exit(1);                                                                           \
    }                                                                                    \
  } while (0)

struct Row {
  unsigned long long wrong[4];
};
static const char* reads[] = {"ld32", "ld128", "ldmatrix"};
static const char* whens[] = {"used_before", "used_after"};
static const char* releases[] = {"all", "elected", "bar+one", "bar_only", "all_relaxed"};
static const char* fences[] = {"none", "reader", "producer"};
static const char* refills[] = {"bulk_global", "tensor", "bulk_shared", "st_async"};

static uint32_t* source;
static unsigned long long* out;
static CUtensorMap map;
static int rounds = 4000, blocks = 132, only = -1, cluster = 0;
static unsigned long long total[kReads][2][kReleases][kFences][kRefills][3];

template <int kRead, int kWhen, int kRelease, int kFence>
void run() {
  auto kernel = war<kRead, kWhen, kRelease, kFence>;
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024));
  for (int refill = 0; refill < kRefills; ++refill) {
    if (only >= 0 && refill != only) continue;
    for (int stages : {1, 4})
      for (int conflict : {0, 1})
        for (int noise : {0, 1}) {
          Params p{source, out, refill, stages, refill == kBulkShared ? 6 : 64, rounds, conflict, noise * 16, noise};
          CHECK(cudaMemset(out, 0, 32));
          const int bytes = stages * kStageBytes + (refill == kBulkShared ? 6 * kStageBytes : kStageBytes);
          cudaLaunchConfig_t config{};
          config.gridDim = dim3(blocks * (bytes < 100 * 1024 ? 2 : 1));
          config.blockDim = dim3(416);
          config.dynamicSmemBytes = bytes;
          cudaLaunchAttribute attribute{};
          attribute.id = cudaLaunchAttributeClusterDimension;
          attribute.val.clusterDim = {(unsigned)cluster, 1, 1};
          config.attrs = &attribute;
          config.numAttrs = cluster > 0 ? 1 : 0;
          CHECK(cudaLaunchKernelEx(&config, kernel, map, p));
          CHECK(cudaDeviceSynchronize());
          unsigned long long got[4];
          CHECK(cudaMemcpy(got, out, 32, cudaMemcpyDeviceToHost));
          for (int i = 0; i < 3; ++i) total[kRead][kWhen][kRelease][kFence][refill][i] += got[i];
          printf("%s %s %s fence=%s %s stages=%d conflict=%d noise=%d: later %llu earlier %llu other %llu clocks/round %.0f\n",
                 reads[kRead], whens[kWhen], releases[kRelease], fences[kFence], refills[refill], stages, conflict,
                 noise, got[0], got[1], got[2], double(got[3]) / rounds);
          fflush(stdout);
        }
  }
  fprintf(stderr, "SUM %s %s %s fence=%s:", reads[kRead], whens[kWhen], releases[kRelease], fences[kFence]);
  for (int d = 0; d < kRefills; ++d) {
    const auto& t = total[kRead][kWhen][kRelease][kFence][d];
    fprintf(stderr, " %s %llu/%llu/%llu", refills[d], t[0], t[1], t[2]);
  }
  fprintf(stderr, "\n");
}
template <int kRead, int kWhen, int kRelease>
void run_fences() {
  run<kRead, kWhen, kRelease, kNone>();
  run<kRead, kWhen, kRelease, kReader>();
  run<kRead, kWhen, kRelease, kProducer>();
}
template <int kRead, int kWhen>
void run_releases() {
  run_fences<kRead, kWhen, kAll>();
  run_fences<kRead, kWhen, kElected>();
  run_fences<kRead, kWhen, kBarThenOne>();
  run_fences<kRead, kWhen, kBarOnly>();
  run_fences<kRead, kWhen, kAllRelaxed>();
}

int main(int argc, char** argv) {
  if (argc > 1) rounds = atoi(argv[1]);
  if (argc > 2) blocks = atoi(argv[2]);
  if (argc > 3) only = atoi(argv[3]);
  if (argc > 4) cluster = atoi(argv[4]);
  std::vector<uint32_t> host(64 * kWords);
  for (int t = 0; t < 64; ++t)
    for (int i = 0; i < kWords; ++i) host[(size_t)t * kWords + i] = t * 0x10000u + i;
  CHECK(cudaMalloc(&source, host.size() * 4));
  CHECK(cudaMalloc(&out, 32));
  CHECK(cudaMemcpy(source, host.data(), host.size() * 4, cudaMemcpyHostToDevice));
  void* encode = nullptr;
  cudaDriverEntryPointQueryResult q;
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &encode, 12000, cudaEnableDefault, &q));
  const cuuint64_t dims[] = {256, 64 * 16}, strides[] = {1024};
  const cuuint32_t box[] = {256, 16}, steps[] = {1, 1};
  const CUresult made = ((decltype(&cuTensorMapEncodeTiled))encode)(
      &map, CU_TENSOR_MAP_DATA_TYPE_UINT32, 2, source, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (made != CUDA_SUCCESS) { printf("FAILED encode %d\n", made); return 1; }
  run_releases<kLd32, 0>();
  run_releases<kLd32, 1>();
  run_releases<kLd128, 0>();
  run_releases<kLd128, 1>();
  run_releases<kLdmatrix, 0>();
  run_releases<kLdmatrix, 1>();
  fprintf(stderr, "finished: %d rounds, %d CTAs\n", rounds, blocks);
}
