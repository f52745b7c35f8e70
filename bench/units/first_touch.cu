// SPDX-License-Identifier: Apache-2.0
// What a launch's first accesses wait for when L2 holds other data: pages that were not touched, parameters, tensor maps, code.
//   nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a -o first_touch bench/units/first_touch.cu -lcuda && ./first_touch
// Clocks of an SM: mean over the CTAs, one on each SM, and the largest; medians of 7 launches.
#include "device.h"

#include <string>

extern __shared__ __align__(1024) char smem[];
constexpr size_t kPage = size_t{2} << 20;
constexpr int kSteps = 8;

__device__ __forceinline__ uint32_t load(const char* p) {
  uint32_t x;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}
__device__ __forceinline__ void copy_map(uint32_t dst, const CUtensorMap* map, int x, int y, uint32_t bar) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(dst),
      "l"(map), "r"(x), "r"(y), "r"(bar)
      : "memory");
}

// A chain of loads by one thread: word 0 of each place; the next place is `stride` bytes further.
__global__ void chain(const char* base, size_t of_cta, size_t stride, long long* out) {
  if (threadIdx.x != 0) return;
  const char* at = base + blockIdx.x * of_cta;
  for (int i = 0; i < kSteps; ++i) {
    const long long t = clk();
    const uint32_t x = load(at);  // 0
    at += stride + x;
    asm volatile("" ::"l"(at) : "memory");
    if (x == 77) return;
    out[blockIdx.x * kSteps + i] = clk() - t;
  }
}
// Bulk copies of 16 KiB, one after the other; with `touch`, a load of the last line of the CTA's part comes before the first.
// `ahead` copies are asked for together, each with a barrier of its own.
__global__ void copies(const char* base, size_t of_cta, size_t stride, int touch, int together, long long* out) {
  const uint32_t bars = s32(smem), data = s32(smem) + 1024;
  if (threadIdx.x != 0) return;
  for (int i = 0; i < kSteps; ++i) bar_init(bars + 8 * i, 1);
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
  const char* at = base + blockIdx.x * of_cta;
  if (touch && load(at + of_cta - 128) == 77) return;
  long long t = clk();
  for (int i = 0; i < kSteps; i += together) {
    t = clk();
    for (int j = i; j < i + together; ++j) {
      bar_expect(bars + 8 * j, 16384);
      bulk_load(data + 16384 * j, at + j * stride, 16384, bars + 8 * j);
    }
    for (int j = i; j < i + together; ++j) {
      bar_wait(bars + 8 * j, 0);
      out[blockIdx.x * kSteps + j] = clk() - t;
    }
  }
}
// The same by tensor maps: boxes of 64 x 128 halves of a matrix of `columns`; CTA i copies the rows 128 (i % rows_of) and columns 64 j
// and on. prefetch: 0: none, 1: prefetch.tensormap right before, 2: and 1000 clocks of waiting.
__global__ void maps(const __grid_constant__ CUtensorMap map, const CUtensorMap* other, int use_other, int rows_of,
                     int prefetch, int together, long long* out) {
  const uint32_t bars = s32(smem), data = s32(smem) + 1024;
  if (threadIdx.x != 0) return;
  const CUtensorMap* m = use_other ? other : &map;
  if (prefetch) asm volatile("prefetch.tensormap [%0];" ::"l"(m) : "memory");
  for (int i = 0; i < kSteps; ++i) bar_init(bars + 8 * i, 1);
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
  if (prefetch == 2) {
    const long long t = clk();
    while (clk() - t < 1000) {
    }
  }
  long long t = clk();
  for (int i = 0; i < kSteps; i += together) {
    t = clk();
    for (int j = i; j < i + together; ++j) {
      bar_expect(bars + 8 * j, 16384);
      copy_map(data + 16384 * j, m, 64 * j, 128 * (blockIdx.x % rows_of), bars + 8 * j);
    }
    for (int j = i; j < i + together; ++j) {
      bar_wait(bars + 8 * j, 0);
      out[blockIdx.x * kSteps + j] = clk() - t;
    }
  }
}
// From a CTA's first instruction to its parameter, and to a second of them 4 KiB further on.
struct Much {
  int word[960];
};
__global__ void parameters(const __grid_constant__ Much much, int far, long long* out) {
  if (threadIdx.x != 0) return;
  const long long t0 = clk();
  int x = far;
  asm volatile("" : "+r"(x));
  const long long t1 = clk();
  int y = much.word[far];
  asm volatile("" : "+r"(y));
  const long long t2 = clk();
  int z = much.word[far + 16];
  asm volatile("" : "+r"(z));
  out[blockIdx.x * kSteps] = t1 - t0 + (x == 77);
  out[blockIdx.x * kSteps + 1] = t2 - t1 + (y == 77);
  out[blockIdx.x * kSteps + 2] = clk() - t2 + (z == 77);
}
// Reads `bytes` in all by all SMs, 16 bytes a thread and load, four loads in flight: from the first start to the last end.
__global__ void stream(const uint4* from, size_t vectors, uint32_t* sink, long long* out) {
  const long long begin = ns();
  uint32_t s = 0;
  const size_t all = gridDim.x * (size_t)blockDim.x;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < vectors; i += 4 * all) {
    uint4 v[4] = {};
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (i + j * all < vectors) v[j] = __ldcg(from + i + j * all);
#pragma unroll
    for (int j = 0; j < 4; ++j) s ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  if (s == 0x5eed1234) *sink = s;
  __syncthreads();
  if (threadIdx.x == 0) {
    out[2 * blockIdx.x] = begin;
    out[2 * blockIdx.x + 1] = ns();
  }
}
// Writes as many.
__global__ void fill(uint4* to, size_t vectors, long long* out) {
  const long long begin = ns();
  const size_t all = gridDim.x * (size_t)blockDim.x;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < vectors; i += all) to[i] = make_uint4(i, 1, 2, 3);
  __syncthreads();
  if (threadIdx.x == 0) {
    out[2 * blockIdx.x] = begin;
    out[2 * blockIdx.x + 1] = ns();
  }
}

static char* memory;
static size_t memory_bytes = size_t{3} << 30;
static char* other;
static uint32_t* sink;
static long long* answers;

static void cold(bool is_cold) {
  if (is_cold) flush<<<528, 512>>>((const uint4*)other, (size_t{128} << 20) / 16, sink);
}
template <class Go>
static void steps(const char* what, int ctas, int count, bool is_cold, Go&& go) {
  std::vector<std::vector<double>> means(count), most(count);
  for (int round = 0; round < 8; ++round) {
    CHECK(cudaMemset(answers, 0, ctas * kSteps * 8));
    cold(is_cold);
    go();
    CHECK(cudaDeviceSynchronize());
    if (round == 0) continue;
    std::vector<long long> got(ctas * kSteps);
    CHECK(cudaMemcpy(got.data(), answers, got.size() * 8, cudaMemcpyDeviceToHost));
    for (int i = 0; i < count; ++i) {
      double sum = 0, top = 0;
      for (int c = 0; c < ctas; ++c) {
        sum += got[c * kSteps + i];
        top = std::max(top, (double)got[c * kSteps + i]);
      }
      means[i].push_back(sum / ctas);
      most[i].push_back(top);
    }
  }
  const auto median = [](std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
  };
  std::string line = what;
  char text[64];
  snprintf(text, sizeof text, ", %d CTAs, %s:", ctas, is_cold ? "cold" : "warm");
  line += text;
  for (int i = 0; i < count; ++i) {
    snprintf(text, sizeof text, " %.0f/%.0f", median(means[i]), median(most[i]));
    line += text;
  }
  say("%s", line.c_str());
}
template <class Go>
static void spans(const char* what, int ctas, size_t bytes, Go&& go) {
  std::vector<double> inside, events;
  cudaEvent_t e[2];
  for (auto& each : e) CHECK(cudaEventCreate(&each));
  for (int round = 0; round < 8; ++round) {
    cold(true);
    CHECK(cudaEventRecord(e[0]));
    go();
    CHECK(cudaEventRecord(e[1]));
    CHECK(cudaDeviceSynchronize());
    if (round == 0) continue;
    std::vector<long long> got(2 * ctas);
    CHECK(cudaMemcpy(got.data(), answers, got.size() * 8, cudaMemcpyDeviceToHost));
    long long first = got[0], last = 0;
    for (int c = 0; c < ctas; ++c) {
      first = std::min(first, got[2 * c]);
      last = std::max(last, got[2 * c + 1]);
    }
    float ms;
    CHECK(cudaEventElapsedTime(&ms, e[0], e[1]));
    inside.push_back(last - first);
    events.push_back(1e6 * ms);
  }
  std::sort(inside.begin(), inside.end());
  std::sort(events.begin(), events.end());
  say("%s, %d CTAs, %zu KiB: %.0f ns inside, %.0f between events", what, ctas, bytes >> 10, inside[3], events[3]);
}

static CUtensorMap matrix(char* at, int rows, int columns) {
  CUtensorMap map;
  const cuuint64_t dims[] = {(cuuint64_t)columns, (cuuint64_t)rows}, strides[] = {(cuuint64_t)columns * 2};
  const cuuint32_t box[] = {64, 128}, one[] = {1, 1};
  if (cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, at, dims, strides, box, one,
                             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
    say("FAILED: a tensor map");
  return map;
}

int main() {
  CHECK(cudaMalloc(&memory, memory_bytes));
  CHECK(cudaMalloc(&other, size_t{128} << 20));
  CHECK(cudaMalloc(&sink, 64));
  CHECK(cudaMalloc(&answers, size_t{1} << 20));
  CHECK(cudaMemset(memory, 0, memory_bytes));
  CHECK(cudaMemset(other, 1, size_t{128} << 20));
  constexpr int kShared = 1024 + 16384 * kSteps;
  CHECK(cudaFuncSetAttribute(copies, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
  CHECK(cudaFuncSetAttribute(maps, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
  for (const bool is_cold : {true, false})
    for (const int ctas : {1, 132}) {
      steps("loads, all in one page", ctas, kSteps, is_cold, [&] { chain<<<ctas, 32>>>(memory, 4096, 256, answers); });
      steps("loads, a page each time, the CTAs' own", ctas, ctas == 1 ? kSteps : 3, is_cold,
            [&] { chain<<<ctas, 32>>>(memory, ctas == 1 ? 0 : kPage, ctas == 1 ? kPage : 132 * kPage, answers); });
      steps("loads, a page each time, all CTAs the same", ctas, kSteps, is_cold,
            [&] { chain<<<ctas, 32>>>(memory, 1024, kPage, answers); });
      steps("copies, side by side", ctas, kSteps, is_cold,
            [&] { copies<<<ctas, 32, kShared>>>(memory, 16384 * kSteps, 16384, 0, 1, answers); });
      steps("copies, side by side, touched", ctas, kSteps, is_cold,
            [&] { copies<<<ctas, 32, kShared>>>(memory, 16384 * kSteps, 16384, 1, 1, answers); });
      steps("copies, a page for each CTA", ctas, kSteps, is_cold,
            [&] { copies<<<ctas, 32, kShared>>>(memory, kPage, 16384, 0, 1, answers); });
      steps("copies, a page for each CTA, touched", ctas, kSteps, is_cold,
            [&] { copies<<<ctas, 32, kShared>>>(memory, kPage, 16384, 1, 1, answers); });
      for (const int together : {2, 4, 8})
        steps(together == 2 ? "copies, two together" : together == 4 ? "copies, four together" : "copies, eight together", ctas,
              kSteps, is_cold, [&] { copies<<<ctas, 32, kShared>>>(memory, 16384 * kSteps, 16384, 0, together, answers); });
      const CUtensorMap map = matrix(memory, 132 * 128, 64 * kSteps);
      CUtensorMap* far = (CUtensorMap*)(memory + memory_bytes - kPage);
      CHECK(cudaMemcpy(far, &map, sizeof map, cudaMemcpyHostToDevice));
      for (const int prefetch : {0, 1, 2})
        steps(prefetch == 0   ? "map, parameter"
              : prefetch == 1 ? "map, parameter, prefetched"
                              : "map, parameter, prefetched 1000 clocks before",
              ctas, kSteps, is_cold,
              [&] { maps<<<ctas, 32, kShared>>>(map, far, 0, 132, prefetch, 1, answers); });
      steps("map, in memory", ctas, kSteps, is_cold,
            [&] { maps<<<ctas, 32, kShared>>>(map, far, 1, 132, 0, 1, answers); });
      steps("map, parameter, four together", ctas, kSteps, is_cold,
            [&] { maps<<<ctas, 32, kShared>>>(map, far, 0, 132, 1, 4, answers); });
      steps("map, parameter, four together, 8 CTAs the same rows", ctas, kSteps, is_cold,
            [&] { maps<<<ctas, 32, kShared>>>(map, far, 0, 16, 1, 4, answers); });
      steps("parameters", ctas, 3, is_cold, [&] { parameters<<<ctas, 32>>>(Much{}, 512, answers); });
    }
  for (const size_t kib : {64, 256, 1024, 4096, 16384, 65536}) {
    const size_t bytes = kib << 10;
    for (const int ctas : {132, 528})
      spans("reading", ctas, bytes, [&] { stream<<<ctas, 256>>>((const uint4*)memory, bytes / 16, sink, answers); });
    spans("writing", 528, bytes, [&] { fill<<<528, 256>>>((uint4*)memory, bytes / 16, answers); });
  }
  return 0;
}
