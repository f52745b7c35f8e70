// SPDX-License-Identifier: Apache-2.0
// How a matrix product begins on a Hopper chip: the pace of wgmma in its first microseconds, on few SMs and on all; and when the
// stages of a ring land that a tiled product loads, with and without multicast, from memory and from L2.
//   bench/units/generate && nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a -o ramp bench/units/ramp.cu -lcuda && ./ramp
#include <cuda_bf16.h>
#include <chrono>
#include <thread>

#include "device.h"
#include "wgmma.h"

extern __shared__ __align__(1024) char smem[];
constexpr int kStages = 4, kStageBytes = 48 * 1024, kNotes = 512, kRingNotes = 40;

__device__ __forceinline__ uint64_t desc(uint32_t at) {
  return (uint64_t)(at >> 4 & 0x3FFF) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
__global__ void fill_numbers(__nv_bfloat16* to, size_t count, int zeros) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count; i += (size_t)gridDim.x * blockDim.x) {
    uint64_t x = i * 0x9E3779B97F4A7C15ull;
    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9ull;
    to[i] = __float2bfloat16(zeros ? 0.f : ((int)(x >> 40 & 0xFFFF) + (int)(x >> 20 & 0xFFFF) - 65536) * (1.f / 20000));
  }
}

// ---- the pace of products: four wgmma of a stage by each of two warp groups
__global__ void __launch_bounds__(256, 1) pace(const uint4* data, int rounds, long long* notes, float* sink) {
  for (int i = threadIdx.x; i < kStages * kStageBytes / 16; i += 256) ((uint4*)(smem + 1024))[i] = data[i];
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  const int group = threadIdx.x / 128;
  const uint32_t base = s32(smem) + 1024;
  long long* out = notes + (size_t)blockIdx.x * (kNotes + 1) * 2;
  float d[128] = {};
  const bool is_first = threadIdx.x == 0;
  if (is_first) out[0] = clk(), out[1] = ns();
  for (int i = 0; i < rounds; ++i) {
    const uint32_t a = base + (i & 3) * kStageBytes + group * 8192, b = base + (i & 3) * kStageBytes + 16384;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int j = 0; j < 4; ++j) wgmma_ss_256(d, desc(a + j * 32), desc(b + j * 32));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    if (is_first && i < kNotes) out[2 * i + 2] = clk(), out[2 * i + 3] = ns();
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  float s = 0;
  for (int i = 0; i < 128; ++i) s += d[i];
  if (s == 12345.f) *sink = s;
}

// ---- a ring as hopper_matmul_h7 fills it: 128 rows of A, 256 of B, 64 columns a stage
__device__ __forceinline__ void load(const CUtensorMap& map, uint32_t dst, int x, int y, uint32_t bar, int mask) {
  if (mask)
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], "
        "[%4], %5;" ::"r"(dst), "l"(&map), "r"(x), "r"(y), "r"(bar), "h"((uint16_t)mask)
        : "memory");
  else
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(dst),
        "l"(&map), "r"(x), "r"(y), "r"(bar)
        : "memory");
}
__device__ __forceinline__ void remote_arrive(uint32_t bar, int rank) {
  asm volatile("{\n.reg .b32 r;\nmapa.shared::cluster.u32 r, %0, %1;\nmbarrier.arrive.release.cluster.shared::cluster.b64 _, [r];\n}" ::"r"(bar),
               "r"(rank)
               : "memory");
}
__global__ void __launch_bounds__(64, 1) ring(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, int tiles_n, int steps,
                                              int period, int cluster, long long* notes) {
  const uint32_t full = s32(smem), empty = full + 64, data = full + 1024;
  uint32_t rank = 0;
  // What is noted stays here until the end: fences and releases wait for stores to global memory.
  __shared__ long long kept[2 * (kRingNotes + 1)];
  if (threadIdx.x == 0) kept[0] = clk(), kept[1] = ns();
  if (cluster == 2) asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) bar_init(full + 8 * i, 1), bar_init(empty + 8 * i, cluster);
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
  }
  __syncthreads();
  if (cluster == 2) asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  const int pair = blockIdx.x / cluster, m = (pair / tiles_n * cluster + rank) * 128, n = pair % tiles_n * 256;
  if (threadIdx.x == 0) {
    for (int i = 0; i < steps; ++i) {
      const int s = i % kStages;
      if (i >= kStages) bar_wait(empty + 8 * s, (i / kStages - 1) & 1);
      bar_expect(full + 8 * s, kStageBytes);
      const uint32_t at = data + s * kStageBytes;
      load(a, at, i * 64, m, full + 8 * s, 0);
      if (cluster == 2) {
        load(b, at + 16384 + rank * 16384, i * 64, n + rank * 128, full + 8 * s, 3);
      } else {
        load(b, at + 16384, i * 64, n, full + 8 * s, 0);
        load(b, at + 32768, i * 64, n + 128, full + 8 * s, 0);
      }
    }
  } else if (threadIdx.x == 32) {
    long long next = 0;
    for (int i = 0; i < steps; ++i) {
      const int s = i % kStages;
      bar_wait(full + 8 * s, i / kStages & 1);
      if (i < kRingNotes) kept[2 * i + 2] = clk(), kept[2 * i + 3] = ns();
      next = max(next, clk()) + period;
      while (clk() < next) {}
      if (cluster == 2) {
        remote_arrive(empty + 8 * s, 0);
        remote_arrive(empty + 8 * s, 1);
      } else {
        bar_arrive(empty + 8 * s);
      }
    }
  }
  __syncthreads();
  if (cluster == 2) asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  for (int i = threadIdx.x; i < 2 * (kRingNotes + 1); i += 64) notes[(size_t)blockIdx.x * (kNotes + 1) * 2 + i] = kept[i];
}

static long long* notes_d;
static int sms;
static std::vector<long long> notes;
static void fetch() {
  CHECK(cudaDeviceSynchronize());
  notes.resize((size_t)sms * (kNotes + 1) * 2);
  CHECK(cudaMemcpy(notes.data(), notes_d, notes.size() * 8, cudaMemcpyDeviceToHost));
}
/// Clocks since each SM's start at some rounds: the mean and the most; and the nanoseconds since the first SM's.
static void tell(int on, std::initializer_list<int> rounds) {
  long long begin = notes[1];
  for (int c = 0; c < on; ++c) begin = std::min(begin, notes[(size_t)c * (kNotes + 1) * 2 + 1]);
  for (int r : rounds) {
    double sum = 0, most = 0, time = 0;
    for (int c = 0; c < on; ++c) {
      const long long* at = &notes[(size_t)c * (kNotes + 1) * 2];
      sum += at[2 * r] - at[0];
      most = std::max<double>(most, at[2 * r] - at[0]);
      time = std::max<double>(time, at[2 * r + 1] - begin);
    }
    printf(" %d:%.0f/%.0f/%.0fns", r, sum / on, most, time);
  }
  say("");
}
int main(int argc, char** argv) {
  const bool once = argc > 1;
  CHECK(cudaSetDevice(0));
  cudaDeviceProp prop;
  CHECK(cudaGetDeviceProperties(&prop, 0));
  sms = prop.multiProcessorCount;
  CHECK(cudaMalloc(&notes_d, (size_t)sms * (kNotes + 1) * 16));
  __nv_bfloat16* data;
  const size_t count = 8192ull * 4096;
  CHECK(cudaMalloc(&data, 2 * count * 2));
  char* other;
  uint32_t* sink;
  const size_t flushed = once ? 1 << 20 : 128 << 20;
  CHECK(cudaMalloc(&other, flushed));
  CHECK(cudaMalloc(&sink, 64));
  CHECK(cudaMemset(other, 0, flushed));
  const int bytes = 1024 + kStages * kStageBytes;
  CHECK(cudaFuncSetAttribute(pace, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  CHECK(cudaFuncSetAttribute(ring, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  cudaEvent_t e0, e1;
  CHECK(cudaEventCreate(&e0));
  CHECK(cudaEventCreate(&e1));
  const auto rest = [&] {
    CHECK(cudaDeviceSynchronize());
    if (!once) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  };
  float ms = 0;
  if (!once)
    for (int zeros : {0, 1}) {
      fill_numbers<<<4 * sms, 256>>>(data, count, zeros);
      for (int on : {1, sms})
        for (int turn = 0; turn < 2; ++turn) {
          rest();
          flush<<<4 * sms, 512>>>((const uint4*)other, flushed / 16, sink);
          CHECK(cudaEventRecord(e0));
          pace<<<on, 256, bytes>>>((const uint4*)data, kNotes, notes_d, (float*)sink);
          CHECK(cudaEventRecord(e1));
          fetch();
          CHECK(cudaEventElapsedTime(&ms, e0, e1));
          printf("pace zeros=%d sms=%d turn=%d us=%.2f", zeros, on, turn, ms * 1e3);
          tell(on, {1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 511});
        }
    }
  fill_numbers<<<4 * sms, 256>>>(data, 2 * count, 0);
  const auto map_of = [&](const void* at, int rows, int columns) {
    CUtensorMap map;
    const cuuint64_t dims[] = {(cuuint64_t)columns, (cuuint64_t)rows}, strides[] = {(cuuint64_t)columns * 2};
    const cuuint32_t box[] = {64, 128}, steps[] = {1, 1};
    if (cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void*)at, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                               CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
      say("FAILED: a tensor map"), exit(1);
    return map;
  };
  struct Shape {
    int m, n, k;
  };
  for (const Shape s : {Shape{2048, 2048, 2048}, {1024, 1024, 1024}, {256, 256, 2048}})
    for (int cluster : {1, 2})
      for (int period : {0, 1024})
        for (int cold : {1, 0})
          for (int turn = 0; turn < (once ? 1 : 3); ++turn) {
            const CUtensorMap a = map_of(data, s.m, s.k), b = map_of(data + (size_t)s.m * s.k, s.n, s.k);
            const int ctas = s.m / 128 * (s.n / 256);
            rest();
            if (cold && !once) flush<<<4 * sms, 512>>>((const uint4*)other, flushed / 16, sink);
            cudaLaunchConfig_t config = {};
            config.gridDim = ctas;
            config.blockDim = 64;
            config.dynamicSmemBytes = bytes;
            cudaLaunchAttribute attribute;
            attribute.id = cudaLaunchAttributeClusterDimension;
            attribute.val.clusterDim.x = cluster;
            attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
            config.attrs = &attribute;
            config.numAttrs = 1;
            CHECK(cudaEventRecord(e0));
            CHECK(cudaLaunchKernelEx(&config, ring, a, b, s.n / 256, s.k / 64, period, cluster, notes_d));
            CHECK(cudaEventRecord(e1));
            fetch();
            CHECK(cudaEventElapsedTime(&ms, e0, e1));
            printf("ring m=%d n=%d k=%d cluster=%d period=%d cold=%d turn=%d us=%.2f", s.m, s.n, s.k, cluster, period, cold, turn, ms * 1e3);
            if (once)
              say("");
            else
              tell(ctas, {1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32});
          }
}
