// SPDX-License-Identifier: Apache-2.0
// What instructions cost that the machine code makes many of, or that threads contend for: divisions and roots, loads from shared
// memory, atomics, and the first tensor copies of a launch.
//   nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a -o instructions bench/units/instructions.cu && ./instructions
// What an H200 answered: docs/measurements/2026-11-23-instructions.md.
#include "device.h"

extern __shared__ __align__(1024) char smem[];
constexpr int kRounds = 64;

// Eight instructions a round: each depends on the one before (`kIsChain`) or each on the same one of the round before.
// Divisors are near 1, so that values stay ordinary numbers.
#define ARITHMETIC(NAME, TYPE, CODE, LETTER)                                                         \
  template <bool kIsChain>                                                                           \
  __global__ void NAME(long long* out, const double* from, uint32_t* sink) {                         \
    TYPE x[8], by = (TYPE)from[threadIdx.x % 8 + 8];                                                 \
    for (int i = 0; i < 8; ++i) x[i] = (TYPE)from[i] + (TYPE)threadIdx.x;                            \
    __syncthreads();                                                                                 \
    const long long t = clk();                                                                       \
    for (int r = 0; r < kRounds; ++r) {                                                              \
      _Pragma("unroll") for (int i = 0; i < 8;                                                       \
                             ++i) asm volatile(CODE : "+" LETTER(x[kIsChain ? 0 : i]) : LETTER(by)); \
    }                                                                                                \
    TYPE sum = 0; /* a branch on what was computed: the clock is read behind it */                   \
    for (int i = 0; i < 8; ++i) sum = sum + x[i];                                                    \
    if (sum == (TYPE)123457) {                                                                       \
      *sink = 1;                                                                                     \
      return;                                                                                        \
    }                                                                                                \
    __syncthreads();                                                                                 \
    if (threadIdx.x == 0) out[blockIdx.x] = clk() - t;                                               \
  }
ARITHMETIC(fma_f32, float, "fma.rn.f32 %0, %0, %1, %1;", "f")
ARITHMETIC(div_rn_f32, float, "div.rn.f32 %0, %0, %1;", "f")
ARITHMETIC(div_full_f32, float, "div.full.f32 %0, %0, %1;", "f")
ARITHMETIC(rcp_rn_f32, float, "rcp.rn.f32 %0, %0;// %1", "f")
ARITHMETIC(rcp_approx_f32, float, "rcp.approx.ftz.f32 %0, %0;// %1", "f")
ARITHMETIC(sqrt_rn_f32, float, "sqrt.rn.f32 %0, %0;// %1", "f")
ARITHMETIC(ex2_approx_f32, float, "ex2.approx.ftz.f32 %0, %0;// %1", "f")
ARITHMETIC(ex2_approx_f32_denormal, float, "ex2.approx.f32 %0, %0;// %1", "f")
ARITHMETIC(div_rn_f64, double, "div.rn.f64 %0, %0, %1;", "d")
ARITHMETIC(div_u32, uint32_t, "div.u32 %0, %0, %1;", "r")
ARITHMETIC(div_s32, int32_t, "div.s32 %0, %0, %1;", "r")
ARITHMETIC(rem_u32, uint32_t, "rem.u32 %0, %0, %1;", "r")
ARITHMETIC(div_u64, uint64_t, "div.u64 %0, %0, %1;", "l")
ARITHMETIC(mul_u32, uint32_t, "mad.lo.u32 %0, %0, %1, %1;", "r")
ARITHMETIC(mul_u64, uint64_t, "mad.lo.u64 %0, %0, %1, %1;", "l")
ARITHMETIC(shfl, uint32_t, "shfl.sync.bfly.b32 %0, %0, 1, 31, -1;// %1", "r")

// Loads from shared memory and atomics: `pattern` gives each thread its word.
__device__ __forceinline__ uint32_t word(int pattern, int lane, uint32_t& seed) {
  seed = seed * 1664525u + 1013904223u;
  const uint32_t random = seed >> 12;
  switch (pattern) {
    case 0:
      return lane;  // side by side
    case 1:
      return 0;  // the same for all
    case 2:
      return lane * 32;  // one bank
    case 3:
      return random % 256;  // keys of a histogram
    case 4:
      return random % 32;
    case 5:
      return lane / 2;  // two lanes each
    default:
      return random % 4096;
  }
}
enum Access { kLoad4, kLoad16, kMatrix, kAtomic, kAtomicResult, kAtomicFloat, kGlobalRed, kGlobalAtomic };
template <Access kAccess>
__global__ void accesses(long long* out, uint32_t* global, int pattern, int spread, int step,
                         uint32_t* sink) {
  for (int i = threadIdx.x; i < 16384; i += blockDim.x) ((uint32_t*)smem)[i] = 0;
  uint32_t at[8], seed = threadIdx.x * 7919 + blockIdx.x * 104729 + 1, got = 0;
  for (int i = 0; i < 8; ++i) at[i] = word(pattern, threadIdx.x % 32, seed) * 4;
  const uint32_t base = s32(smem) + (kAccess <= kMatrix ? threadIdx.x / 32 * 512 % 16384 : 0);
  uint32_t* to = global + (size_t)blockIdx.x * spread;
  __syncthreads();
  const long long t = clk();
  for (int r = 0; r < kRounds; ++r) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      uint32_t a = 0, b = 0, c = 0, d = 0;
      const uint32_t p = base + at[i];
      if (kAccess == kLoad4) asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(a) : "r"(p) : "memory");
      if (kAccess == kLoad16)
        asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                     : "r"(base + at[i] * 4)
                     : "memory");
      if (kAccess == kMatrix)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                     : "r"(base + at[i] * 4)
                     : "memory");
      if (kAccess == kAtomic) asm volatile("red.shared.add.u32 [%0], 1;" ::"r"(p) : "memory");
      if (kAccess == kAtomicResult)
        asm volatile("atom.shared.add.u32 %0, [%1], 3;" : "=r"(a) : "r"(p) : "memory");
      if (kAccess == kAtomicFloat) asm volatile("red.shared.add.f32 [%0], 0f3F800000;" ::"r"(p) : "memory");
      if (kAccess == kGlobalRed) asm volatile("red.global.add.u32 [%0], 1;" ::"l"(to + at[i] / 4) : "memory");
      if (kAccess == kGlobalAtomic)
        asm volatile("atom.global.add.u32 %0, [%1], 3;" : "=r"(a) : "l"(to + at[i] / 4) : "memory");
      got ^= a ^ b ^ c ^ d;
      at[i] += step;  // 0, which the compiler does not know
    }
  }
  if (got == 0x5eed1234) {
    *sink = got;
    return;
  }
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = clk() - t;
}
__global__ void shared_latency(long long* out, uint32_t* sink) {  // each word holds its row's address
  uint32_t p = s32(smem);
  if (threadIdx.x < 4) ((uint32_t*)smem)[threadIdx.x] = p;
  __syncwarp();
  const long long t = clk();
  for (int i = 0; i < 512; ++i) asm volatile("ld.volatile.shared.u32 %0, [%0];" : "+r"(p)::"memory");
  if (p == 1) {
    *sink = p;
    return;
  }
  const long long u = clk();
  for (int i = 0; i < 512; ++i)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%0];" : "+r"(p)::"memory");
  if (p == 1) {
    *sink = p;
    return;
  }
  const long long v = clk();
  out[0] = u - t;
  out[1] = v - u;
}

// A launch's first copies: by `maps` tensor maps in turn, each map's first one and then its second; with `ahead` clocks between
// the prefetch of the maps and the first copy (-1: no prefetch). Without maps by cp.async.bulk.
__global__ void first_copies(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b,
                             const char* src, int kind, int ahead, long long* out) {
  const uint32_t bar = s32(smem), data = s32(smem) + 1024;
  if (threadIdx.x != 0) return;
  if (ahead >= 0) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&a) : "memory");
    asm volatile("prefetch.tensormap [%0];" ::"l"(&b) : "memory");
    const long long s = clk();
    while (clk() - s < ahead) {
    }
  }
  bar_init(bar, 1);
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
  for (int i = 0; i < 6; ++i) {
    const long long t = clk();
    bar_expect(bar, 16384);
    const int row = (blockIdx.x * 6 + i) * 128;
    if (kind == 0)
      bulk_load(data, src + (size_t)row * 128, 16384, bar);
    else if (kind == 1 || i % 2 == 0)
      asm volatile(
          "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
          "%3}], [%4];" ::"r"(data),
          "l"(&a), "r"(0), "r"(row), "r"(bar)
          : "memory");
    else
      asm volatile(
          "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
          "%3}], [%4];" ::"r"(data),
          "l"(&b), "r"(0), "r"(row), "r"(bar)
          : "memory");
    bar_wait(bar, i & 1);
    out[8 * blockIdx.x + i] = clk() - t;
  }
}
__global__ void first_loads(const char* src, long long* out) {
  if (threadIdx.x != 0) return;
  for (int i = 0; i < 6; ++i) {
    const long long t = clk();
    uint32_t v;
    asm volatile("ld.global.cg.u32 %0, [%1];"
                 : "=r"(v)
                 : "l"(src + (size_t)(blockIdx.x * 6 + i) * 16384)
                 : "memory");
    out[8 * blockIdx.x + 6] = v;
    out[8 * blockIdx.x + i] = clk() - t;
  }
}

int main() {
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  const int sms = properties.multiProcessorCount;
  say("device %s, %d SMs", properties.name, sms);
  long long *out_d, out_h[4096];
  uint32_t *sink, *global;
  char *src, *cold;
  double *from_d, from_h[16];
  CHECK(cudaMalloc(&out_d, sizeof out_h));
  CHECK(cudaMalloc(&sink, 4));
  CHECK(cudaMalloc(&global, 64 << 20));
  CHECK(cudaMalloc(&src, 256 << 20));
  CHECK(cudaMalloc(&cold, 256 << 20));
  CHECK(cudaMalloc(&from_d, sizeof from_h));
  CHECK(cudaMemset(global, 0, 64 << 20));
  CHECK(cudaMemset(src, 0, 256 << 20));
  for (int i = 0; i < 16; ++i) from_h[i] = i < 8 ? 1e6 + 1234.56 * i : 1.0 + 0.01 * (i - 7);
  CHECK(cudaMemcpy(from_d, from_h, sizeof from_h, cudaMemcpyHostToDevice));
  const auto fetch = [&] {
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(out_h, out_d, sizeof out_h, cudaMemcpyDeviceToHost));
  };
#define SAY_ARITHMETIC(NAME)                                                                              \
  {                                                                                                       \
    NAME<true><<<1, 32>>>(out_d, from_d, sink);                                                           \
    NAME<true><<<1, 32>>>(out_d, from_d, sink);                                                           \
    fetch();                                                                                              \
    const double chain = out_h[0] / (8.0 * kRounds);                                                      \
    NAME<false><<<1, 32>>>(out_d, from_d, sink);                                                          \
    NAME<false><<<1, 32>>>(out_d, from_d, sink);                                                          \
    fetch();                                                                                              \
    const double alone = out_h[0] / (8.0 * kRounds);                                                      \
    NAME<false><<<1, 512>>>(out_d, from_d, sink);                                                         \
    NAME<false><<<1, 512>>>(out_d, from_d, sink);                                                         \
    fetch();                                                                                              \
    say("arithmetic %s latency=%.1f one_warp_independent=%.2f sub_partition_per_warp=%.2f", #NAME, chain, \
        alone, out_h[0] / (8.0 * kRounds * 4));                                                           \
  }
  SAY_ARITHMETIC(fma_f32)
  SAY_ARITHMETIC(div_rn_f32)
  SAY_ARITHMETIC(div_full_f32)
  SAY_ARITHMETIC(rcp_rn_f32) SAY_ARITHMETIC(rcp_approx_f32) SAY_ARITHMETIC(sqrt_rn_f32)
      SAY_ARITHMETIC(ex2_approx_f32) SAY_ARITHMETIC(ex2_approx_f32_denormal) SAY_ARITHMETIC(div_rn_f64)
          SAY_ARITHMETIC(div_u32) SAY_ARITHMETIC(div_s32) SAY_ARITHMETIC(rem_u32) SAY_ARITHMETIC(div_u64)
              SAY_ARITHMETIC(mul_u32) SAY_ARITHMETIC(mul_u64) SAY_ARITHMETIC(shfl)

                  const char* const patterns[] = {"side_by_side", "same",  "one_bank",   "random_256",
                                                  "random_32",    "pairs", "random_4096"};
  shared_latency<<<1, 32, 65536>>>(out_d, sink);
  fetch();
  say("shared_latency ld=%.1f ldmatrix=%.1f", out_h[0] / 512.0, out_h[1] / 512.0);
#define SAY_ACCESSES(ACCESS, SPREAD)                                                                         \
  {                                                                                                          \
    CHECK(cudaFuncSetAttribute(accesses<ACCESS>, cudaFuncAttributeMaxDynamicSharedMemorySize, 131072));      \
    for (int ctas : {1, sms})                                                                                \
      for (int threads : {32, 512})                                                                          \
        for (int pattern = 0; pattern < 7; ++pattern) {                                                      \
          if (ACCESS <= kMatrix && pattern != 0 && (pattern != 2 || ACCESS != kLoad4)) continue;             \
          if (ACCESS < kGlobalRed && ctas > 1) continue;                                                     \
          for (int i = 0; i < 2; ++i)                                                                        \
            accesses<ACCESS><<<ctas, threads, 131072>>>(out_d, global, pattern, SPREAD, 0, sink);            \
          fetch();                                                                                           \
          double mean = 0;                                                                                   \
          for (int i = 0; i < ctas; ++i) mean += out_h[i] / (double)ctas;                                    \
          say("accesses %s spread=%d ctas=%d warps=%d pattern=%s clocks_per_warp_instruction=%.2f", #ACCESS, \
              SPREAD, ctas, threads / 32, patterns[pattern], mean / (8.0 * kRounds * (threads / 32)));       \
        }                                                                                                    \
  }
  SAY_ACCESSES(kLoad4, 0)
  SAY_ACCESSES(kLoad16, 0)
  SAY_ACCESSES(kMatrix, 0)
  SAY_ACCESSES(kAtomic, 0) SAY_ACCESSES(kAtomicResult, 0) SAY_ACCESSES(kAtomicFloat, 0)
      SAY_ACCESSES(kGlobalRed, 0) SAY_ACCESSES(kGlobalRed, 8192) SAY_ACCESSES(kGlobalAtomic, 0)
          SAY_ACCESSES(kGlobalAtomic, 8192)

              using Encode =
                  CUresult(*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                              const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  void* entry;
  cudaDriverEntryPointQueryResult found;
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
  CUtensorMap maps[2];
  const cuuint64_t size[2] = {64, 1u << 20}, stride[1] = {128};
  const cuuint32_t box[2] = {64, 128}, steps[2] = {1, 1};
  for (CUtensorMap& map : maps)
    if (((Encode)entry)(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, src, size, stride, box, steps,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                        CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
      say("FAILED encode");
      return 1;
    }
  const auto say_copies = [&](const char* what, int ctas, int is_cold, int ahead, auto&& launch) {
    double mean[6] = {};
    constexpr int kTimes = 5;
    for (int i = 0; i < kTimes + 1; ++i) {
      if (is_cold) flush<<<4 * sms, 512>>>((const uint4*)cold, (256u << 20) / 16, sink);
      launch();
      fetch();
      for (int c = 0; i > 0 && c < ctas; ++c)
        for (int j = 0; j < 6; ++j) mean[j] += out_h[8 * c + j] / (double)(ctas * kTimes);
    }
    say("first what=%s ctas=%d cold=%d prefetched_clocks_ahead=%d clocks=%.0f %.0f %.0f %.0f %.0f %.0f", what,
        ctas, is_cold, ahead, mean[0], mean[1], mean[2], mean[3], mean[4], mean[5]);
  };
  for (int ctas : {1, 16, sms})
    for (int is_cold : {0, 1}) {
      say_copies("thread_load", ctas, is_cold, -1, [&] { first_loads<<<ctas, 32>>>(src, out_d); });
      say_copies("bulk", ctas, is_cold, -1,
                 [&] { first_copies<<<ctas, 32, 32768>>>(maps[0], maps[1], src, 0, -1, out_d); });
      for (int ahead : {-1, 0, 500, 1000, 2000})
        for (int kind : {1, 2})
          say_copies(kind == 1 ? "one_map" : "two_maps", ctas, is_cold, ahead,
                     [&] { first_copies<<<ctas, 32, 32768>>>(maps[0], maps[1], src, kind, ahead, out_d); });
    }
  return 0;
}
