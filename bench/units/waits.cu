// SPDX-License-Identifier: Apache-2.0
// What warps wait for: loads from shared memory and products by mma.sync one by one and in flight, copies by cp.async, fences behind
// stores, and flags that another CTA sets.
//   nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a -o waits bench/units/waits.cu && ./waits
// What an H200 answered: docs/measurements/2026-11-23-waits.txt.
#include "device.h"

extern __shared__ __align__(1024) char smem[];
constexpr int kRounds = 64;

// Eight independent loads, each used by a sum of its own: what nobody uses the compiler drops.
enum Load { kWord, kFourWords, kFourMatrices };
template <Load kLoad>
__global__ void shared_loads(long long* out, int step, uint32_t* sink) {
  for (int i = threadIdx.x; i < 16384; i += blockDim.x) ((uint32_t*)smem)[i] = i;
  uint32_t at = s32(smem) + threadIdx.x % 32 * (kLoad == kWord ? 4 : 16), sum = 0;
  __syncthreads();
  uint32_t x[8][4] = {}, sums[8] = {};
  const long long t = clk();
  for (int r = 0; r < kRounds; ++r) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (kLoad == kWord) asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x[i][0]) : "r"(at + 512 * i));
      if (kLoad == kFourWords)
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[i][0]), "=r"(x[i][1]), "=r"(x[i][2]), "=r"(x[i][3])
                     : "r"(at + 512 * i));
      if (kLoad == kFourMatrices)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(x[i][0]), "=r"(x[i][1]), "=r"(x[i][2]), "=r"(x[i][3])
                     : "r"(at + 512 * i));
    }
    for (int i = 0; i < 8; ++i) sums[i] += x[i][0] ^ x[i][3];
    at += step;  // 0, which the compiler does not know
  }
  for (int i = 0; i < 8; ++i) sum ^= sums[i];
  if (sum == 0x5eed1234) {
    *sink = sum;
    return;
  }
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = clk() - t;
}
// A chain of loads, each from where the one before says.
__global__ void matrix_chain(long long* out, uint32_t* sink) {
  uint32_t p = s32(smem);
  for (int i = threadIdx.x; i < 256; i += 32) ((uint32_t*)smem)[i] = p;
  __syncwarp();
  const long long t = clk();
  for (int i = 0; i < 256; ++i)
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%0];" : "+r"(p));
  if (p == 1) {
    *sink = p;
    return;
  }
  out[0] = clk() - t;
}

__device__ __forceinline__ void mma(float (&d)[4], const uint32_t* a, const uint32_t* b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
// Products by one warp or several: `kSums` of them independent, each sum's following the one before.
template <int kSums>
__global__ void products(long long* out, uint32_t* sink) {
  float d[kSums][4] = {};
  uint32_t a[4] = {threadIdx.x, 1, 2, 3}, b[2] = {4, threadIdx.x};
  __syncthreads();
  const long long t = clk();
  for (int r = 0; r < kRounds; ++r)
#pragma unroll
    for (int i = 0; i < kSums; ++i) mma(d[i], a, b);
  float sum = 0;
  for (int i = 0; i < kSums; ++i) sum += d[i][0] + d[i][3];
  if (sum == 12345.5f) {
    *sink = 1;
    return;
  }
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = clk() - t;
}
// The inner loop of a product by mma.sync: tiles of 64 x 64 of a warp, operands by ldmatrix right before their use.
template <bool kWithProducts>
__global__ void steps(long long* out, int step, uint32_t* sink) {
  for (int i = threadIdx.x; i < 8192; i += blockDim.x) ((uint32_t*)smem)[i] = 0;
  float d[32][4] = {};
  uint32_t at = s32(smem) + threadIdx.x % 32 * 16, got = 0;
  __syncthreads();
  const long long t = clk();
  for (int r = 0; r < kRounds; ++r) {
    uint32_t x[8][4];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(x[i][0]), "=r"(x[i][1]), "=r"(x[i][2]), "=r"(x[i][3])
                   : "r"(at + 512 * i));
    if (kWithProducts) {
#pragma unroll
      for (int i = 0; i < 32; ++i) mma(d[i], x[i / 8], &x[4 + i % 8 / 2][i % 2 * 2]);
    } else {
      for (int i = 0; i < 8; ++i) got ^= x[i][0] ^ x[i][1] ^ x[i][2] ^ x[i][3];
    }
    at += step;
  }
  float sum = 0;
  for (int i = 0; i < 32; ++i) sum += d[i][0] + d[i][3];
  if (sum == 12345.5f || got == 0x5eed1234) {
    *sink = 1;
    return;
  }
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = clk() - t;
}

// `count` copies of 16 bytes by each thread, until all are there.
template <int kCount>
__global__ void copies(long long* out, const char* from) {
  const char* at = from + (size_t)blockIdx.x * kCount * blockDim.x * 16 + threadIdx.x * 16;
  for (int r = 0; r < 3; ++r) {
    __syncthreads();
    const long long t = clk();
#pragma unroll
    for (int i = 0; i < kCount; ++i)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                       s32(smem) + (i * blockDim.x + threadIdx.x) * 16),
                   "l"(at + (size_t)i * blockDim.x * 16)
                   : "memory");
    const long long u = clk();
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) out[4 * blockIdx.x] = clk() - t, out[4 * blockIdx.x + 1] = u - t;
  }
}

// Stores of a word by each thread, then a fence, then the clock.
enum Fence { kNone, kGpu, kMembar, kCta };
template <Fence kFence>
__global__ void fences(long long* out, uint32_t* to, int count) {
  to += (size_t)blockIdx.x * 65536 + threadIdx.x;
  for (int r = 0; r < 4; ++r) {
    __syncthreads();
    const long long t = clk();
    for (int i = 0; i < count; ++i) to[(size_t)i * blockDim.x] = r;
    const long long u = clk();
    if (kFence == kGpu) asm volatile("fence.acq_rel.gpu;" ::: "memory");
    if (kFence == kMembar) asm volatile("membar.gl;" ::: "memory");
    if (kFence == kCta) asm volatile("fence.acq_rel.cta;" ::: "memory");
    const long long v = clk();
    __syncthreads();
    if (threadIdx.x == 0) out[4 * blockIdx.x] = v - u, out[4 * blockIdx.x + 1] = u - t;
    for (int i = 0; i < 20; ++i) __nanosleep(1000);
  }
}

__device__ __forceinline__ uint32_t acquire(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void release(uint32_t* p, uint32_t v) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
// Two CTAs hand a number to and fro; `bytes` of results are stored before each hand-over and read after it.
__global__ void turns(long long* out, uint32_t* flag, float* data, int count) {
  const uint32_t me = blockIdx.x;
  float sum = 0;
  long long t = 0;
  for (uint32_t r = 0; r < 66; ++r) {
    if (r == 2) t = clk();
    if (r % 2 != me) continue;
    if (threadIdx.x == 0)
      while (acquire(flag) != r) {
      }
    __syncthreads();
    for (int i = 0; i < count; ++i) {
      const size_t at = (size_t)i * blockDim.x + threadIdx.x;
      sum += data[at];
    }
    for (int i = 0; i < count; ++i) data[(size_t)i * blockDim.x + threadIdx.x] = sum + i;
    __syncthreads();
    if (threadIdx.x == 0) {
      asm volatile("fence.acq_rel.gpu;" ::: "memory");
      release(flag, r + 1);
    }
  }
  if (threadIdx.x == 0) out[blockIdx.x] = clk() - t;
}

// Four updates of shared memory a round, side by side, each where its number is below `bound`: `kGuarded` by a predicate, as the
// compiler writes bins of a histogram. `kOneWord`: all lanes that do so add to one counter and use its old value.
template <bool kGuarded, bool kOneWord>
__global__ void updates(long long* out, int bound, uint32_t* sink) {
  for (int i = threadIdx.x; i < 4096; i += blockDim.x) ((uint32_t*)smem)[i] = 0;
  uint32_t number = threadIdx.x % 32, got = 0;
  const uint32_t base = s32(smem);
  __syncthreads();
  const long long t = clk();
  for (int r = 0; r < kRounds; ++r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t at = base + (kOneWord ? 0 : (number + 32 * i) * 4);
      uint32_t old = 0;
      if (kOneWord)
        asm volatile("{\n.reg .pred p;\nsetp.lt.u32 p, %1, %2;\n@p atom.shared.add.u32 %0, [%3], 1;\n}"
                     : "+r"(old)
                     : "r"(number + i), "r"(bound), "r"(at)
                     : "memory");
      else if (kGuarded)
        asm volatile("{\n.reg .pred p;\nsetp.lt.u32 p, %0, %1;\n@p red.shared.add.u32 [%2], 1;\n}" ::"r"(number + i),
                     "r"(bound), "r"(at)
                     : "memory");
      else
        asm volatile("red.shared.add.u32 [%0], 1;" ::"r"(at) : "memory");
      got ^= old;
    }
  }
  if (got == 0x5eed1234) {
    *sink = got;
    return;
  }
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = clk() - t;
}
// Exact quotients of `above` in all lanes, and of `last` in the last one.
__global__ void quotients(long long* out, float above, float last, float below, float* sink) {
  float x[8], sum = 0;
  for (int i = 0; i < 8; ++i) x[i] = threadIdx.x % 32 == 31 ? last : above + i;
  __syncthreads();
  const long long t = clk();
  for (int r = 0; r < kRounds; ++r) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float q;
      asm volatile("div.rn.f32 %0, %1, %2;" : "=f"(q) : "f"(x[i]), "f"(below));
      sum += q;
    }
  }
  if (sum == 12345.5f) {
    *sink = sum;
    return;
  }
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = clk() - t;
}

int main() {
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  const int sms = properties.multiProcessorCount;
  say("device %s, %d SMs", properties.name, sms);
  long long *out_d, out_h[1024];
  uint32_t *sink, *global;
  char *src, *cold;
  CHECK(cudaMalloc(&out_d, sizeof out_h));
  CHECK(cudaMalloc(&sink, 4));
  CHECK(cudaMalloc(&global, 64 << 20));
  CHECK(cudaMalloc(&src, 64 << 20));
  CHECK(cudaMalloc(&cold, 256 << 20));
  CHECK(cudaMemset(global, 0, 64 << 20));
  CHECK(cudaMemset(src, 0, 64 << 20));
  const auto fetch = [&] {
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(out_h, out_d, sizeof out_h, cudaMemcpyDeviceToHost));
  };
  const auto twice = [&](auto&& launch) {
    launch();
    launch();
    fetch();
  };
  matrix_chain<<<1, 32, 65536 / 2>>>(out_d, sink);
  twice([&] { matrix_chain<<<1, 32, 32768>>>(out_d, sink); });
  say("ldmatrix.x1 chain latency=%.1f", out_h[0] / 256.0);
#define SAY_LOADS(LOAD)                                                                                 \
  CHECK(cudaFuncSetAttribute(shared_loads<LOAD>, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536)); \
  for (int warps : {1, 2, 4, 8, 16}) {                                                                  \
    twice([&] { shared_loads<LOAD><<<1, 32 * warps, 65536>>>(out_d, 0, sink); });                       \
    say("shared_loads %s warps=%d clocks_per_warp_instruction_of_sm=%.2f of_its_warp=%.2f", #LOAD, warps, \
        out_h[0] / (8.0 * kRounds * warps), out_h[0] / (8.0 * kRounds));                                \
  }
  SAY_LOADS(kWord)
  SAY_LOADS(kFourWords)
  SAY_LOADS(kFourMatrices)
#define SAY_PRODUCTS(SUMS)                                                                            \
  for (int warps : {1, 4, 8}) {                                                                       \
    twice([&] { products<SUMS><<<1, 32 * warps>>>(out_d, sink); });                                   \
    say("products m16n8k16 sums=%d warps=%d clocks_of_warp_per_product=%.2f", SUMS, warps,            \
        out_h[0] / (double)(SUMS * kRounds));                                                         \
  }
  SAY_PRODUCTS(1)
  SAY_PRODUCTS(2)
  SAY_PRODUCTS(4)
  SAY_PRODUCTS(8)
  SAY_PRODUCTS(16)
  SAY_PRODUCTS(32)
  for (int warps : {1, 2, 4, 8}) {
    twice([&] { steps<false><<<1, 32 * warps, 32768>>>(out_d, 0, sink); });
    const double loads = out_h[0] / (double)kRounds;
    twice([&] { steps<true><<<1, 32 * warps, 32768>>>(out_d, 0, sink); });
    say("steps warps=%d loads_only=%.1f with_32_products=%.1f clocks", warps, loads, out_h[0] / (double)kRounds);
  }
#define SAY_COPIES(COUNT)                                                                                \
  CHECK(cudaFuncSetAttribute(copies<COUNT>, cudaFuncAttributeMaxDynamicSharedMemorySize, 131072));      \
  for (int threads : {128, 256})                                                                        \
    for (int ctas : {1, sms}) {                                                                         \
      twice([&] { copies<COUNT><<<ctas, threads, 131072>>>(out_d, src); });                             \
      double all = 0, issue = 0;                                                                        \
      for (int i = 0; i < ctas; ++i) all += out_h[4 * i] / (double)ctas, issue += out_h[4 * i + 1] / (double)ctas; \
      say("copies cp.async of 16 bytes each=%d threads=%d ctas=%d until_there=%.0f issued_after=%.0f", COUNT,   \
          threads, ctas, all, issue);                                                                   \
    }
  SAY_COPIES(1)
  SAY_COPIES(4)
  SAY_COPIES(8)
  SAY_COPIES(16)
#define SAY_FENCES(FENCE)                                                                               \
  for (int threads : {32, 128})                                                                         \
    for (int ctas : {1, sms})                                                                           \
      for (int count : {0, 1, 4, 16, 64}) {                                                             \
        twice([&] { fences<FENCE><<<ctas, threads>>>(out_d, global, count); });                         \
        double all = 0, stores = 0;                                                                     \
        for (int i = 0; i < ctas; ++i) all += out_h[4 * i] / (double)ctas, stores += out_h[4 * i + 1] / (double)ctas; \
        say("fences %s threads=%d ctas=%d stores_of_each=%d fence=%.0f stores=%.0f", #FENCE, threads, ctas, count, \
            all, stores);                                                                               \
      }
  SAY_FENCES(kGpu)
  SAY_FENCES(kMembar)
  SAY_FENCES(kCta)
  for (int threads : {32, 128})
    for (int count : {0, 1, 4, 16, 32}) {
      CHECK(cudaMemset(global, 0, 4));
      turns<<<2, threads>>>(out_d, global, (float*)src, count);
      fetch();
      say("turns threads=%d words_of_each=%d clocks_per_turn=%.0f", threads, count, out_h[0] / 64.0);
    }
#define SAY_UPDATES(GUARDED, ONE_WORD, WHAT)                                                                       \
  for (int warps : {1, 4, 8, 16})                                                                                  \
    for (int bound : {40, 20}) {                                                                                   \
      twice([&] { updates<GUARDED, ONE_WORD><<<1, 32 * warps, 16384>>>(out_d, bound, sink); });                    \
      say("updates %s warps=%d below=%d clocks_of_warp_each=%.1f of_sm=%.2f", WHAT, warps, bound,                  \
          out_h[0] / (4.0 * kRounds), out_h[0] / (4.0 * kRounds * warps));                                         \
    }
  SAY_UPDATES(false, false, "plain")
  SAY_UPDATES(true, false, "guarded")
  SAY_UPDATES(true, true, "guarded_one_word")
  for (int warps : {1, 4, 16})
    for (float last : {3.f, 0.f, 1e-40f, 1e38f}) {
      twice([&] { quotients<<<1, 32 * warps>>>(out_d, 2.f, last, 1.7f, (float*)sink); });
      say("quotients last_lane=%g warps=%d clocks_of_warp_each=%.1f", last, warps, out_h[0] / (8.0 * kRounds));
    }
  return 0;
}
