// SPDX-License-Identifier: Apache-2.0
// What an H200 does with one resource at a time: the measurements behind src/vgpu/timeline/cost_model.cpp.
// One line per measurement: name, parameters, value, unit. To compile and run it, on a Hopper GPU:
//   bench/units/generate && nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a -o units bench/units/units.cu && ./units
// What an H200 answered: docs/measurements/2026-11-22-units.txt.
#include "device.h"
#include "wgmma.h"

__device__ __forceinline__ void fence_init() {
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
}

extern __shared__ __align__(1024) char smem[];

// ---- latencies of threads' loads
__global__ void chase(const uint32_t* p, int n, long long* out) {
  uint32_t at = 0;
  for (int i = 0; i < 64; ++i) asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(at) : "l"(p + at));
  const long long t = clk();
  for (int i = 0; i < n; ++i) asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(at) : "l"(p + at));
  out[0] = clk() - t;
  out[1] = at;
}

// ---- a ring of bulk loads, nothing else. share: so many CTAs read the same bytes.
__global__ void ring_load(const char* src, size_t footprint, int chunks, int chunk, int depth, int share,
                          long long* out) {
  const uint32_t bars = s32(smem), data = s32(smem) + 1024;
  if (threadIdx.x == 0) {
    for (int i = 0; i < depth; ++i) bar_init(bars + 8 * i, 1);
    fence_init();
    const size_t lane = blockIdx.x / share, step = (gridDim.x + share - 1) / share * (size_t)chunk;
    size_t at = lane * chunk;
    int in = 0, to_wait = 0;
    uint32_t parity = 0;
    auto issue = [&] {
      bar_expect(bars + 8 * in, chunk);
      bulk_load(data + in * chunk, src + at, chunk, bars + 8 * in);
      at += step;
      if (at >= footprint) at -= footprint;
      if (++in == depth) in = 0;
    };
    const long long t = clk(), n = ns();
    for (int i = 0; i < depth && i < chunks; ++i) issue();
    for (int i = 0; i < chunks; ++i) {
      bar_wait(bars + 8 * to_wait, parity);
      if (++to_wait == depth) {
        to_wait = 0;
        parity ^= 1;
      }
      if (i + depth < chunks) issue();
    }
    out[2 * blockIdx.x] = clk() - t;
    out[2 * blockIdx.x + 1] = ns() - n;
  }
}
__global__ void ring_store(char* dst, size_t footprint, int chunks, int chunk, int depth, long long* out) {
  const uint32_t data = s32(smem) + 1024;
  if (threadIdx.x == 0) {
    const long long t = clk(), n = ns();
    size_t at = (size_t)blockIdx.x * chunk;
    int slot = 0;
    for (int i = 0; i < chunks; ++i) {
      bulk_store(dst + at, data + slot * chunk, chunk);
      at += (size_t)gridDim.x * chunk;
      if (at >= footprint) at -= footprint;
      if (++slot == depth) slot = 0;
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      if (depth == 1)
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      else if (depth == 2)
        asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
      else
        asm volatile("cp.async.bulk.wait_group.read 3;" ::: "memory");
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    out[2 * blockIdx.x] = clk() - t;
    out[2 * blockIdx.x + 1] = ns() - n;
  }
}
__global__ void bulk_latency(char* src, size_t stride, int chunk, int n, int what, long long* out) {
  const uint32_t bar = s32(smem), data = s32(smem) + 1024;
  if (threadIdx.x != 0) return;
  bar_init(bar, 1);
  fence_init();
  long long total = 0;
  for (int i = 0; i < n; ++i) {
    char* at = src + (size_t)i * stride;
    const long long t = clk();
    if (what == 0) {
      bar_expect(bar, chunk);
      bulk_load(data, at, chunk, bar);
      bar_wait(bar, i & 1);
    } else {
      bulk_store(at, data, chunk);
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      if (what == 1)
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
      else
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    total += clk() - t;
    if (what == 1) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  }
  out[0] = total;
}
// ---- tensor copies: k of them at once; clocks to issue, clocks until all have landed
__global__ void tensor_load(const __grid_constant__ CUtensorMap map, int bytes, int rows, int k, int n,
                            int wrap, uint16_t mask, long long* out) {
  const uint32_t bar = s32(smem), data = s32(smem) + 1024;
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) {
    bar_init(bar, 1);
    fence_init();
  }
  __syncthreads();
  if (mask) asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  long long issue = 0, all = 0;
  const int copies = mask ? 2 : 1;
  for (int i = 0; i < n; ++i) {
    if (threadIdx.x == 0) {
      const long long t = clk();
      bar_expect(bar, bytes * k * copies);
    }
    if (mask) asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    if (threadIdx.x == 0) {
      const long long t = clk();
      for (int j = 0; j < k; ++j) {
        const uint32_t dst = data + ((j * copies + rank) * bytes & 131071);
        const int y = (((i * k + j) * copies + (int)rank) & (wrap - 1)) * rows, x = 0;
        if (mask)
          asm volatile(
              "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::"
              "cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(dst),
              "l"(&map), "r"(x), "r"(y), "r"(bar), "h"(mask)
              : "memory");
        else
          asm volatile(
              "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
              "{%2, %3}], [%4];" ::"r"(dst),
              "l"(&map), "r"(x), "r"(y), "r"(bar)
              : "memory");
      }
      issue += clk() - t;
      bar_wait(bar, i & 1);
      all += clk() - t;
    }
    if (mask) asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  }
  if (threadIdx.x == 0) {
    out[2 * blockIdx.x] = issue;
    out[2 * blockIdx.x + 1] = all;
  }
}

// ---- products; the last warp may load 16 KB chunks into shared memory meanwhile
__device__ __forceinline__ uint64_t desc(uint32_t at) {
  return (uint64_t)(at >> 4 & 0x3FFF) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
template <int N, bool RS>
__device__ __forceinline__ void one(float (&d)[N / 2], uint32_t a, uint32_t b, const uint32_t (&r)[4]) {
  if constexpr (RS) {
    if constexpr (N == 64)
      wgmma_rs_64(d, r, desc(b));
    else if constexpr (N == 128)
      wgmma_rs_128(d, r, desc(b));
    else
      wgmma_rs_256(d, r, desc(b));
  } else {
    if constexpr (N == 64)
      wgmma_ss_64(d, desc(a), desc(b));
    else if constexpr (N == 128)
      wgmma_ss_128(d, desc(a), desc(b));
    else
      wgmma_ss_256(d, desc(a), desc(b));
  }
}
template <int N, bool RS, int K, int PENDING>
__global__ void products(const char* src, int groups, int rounds, int chunk, long long* out, float* sink) {
  const uint32_t base = s32(smem) + 1024, bars = s32(smem);
  volatile int* stop = (volatile int*)(smem + 512);
  if (threadIdx.x == 0) {
    *stop = 0;
    for (int i = 0; i < 4; ++i) bar_init(bars + 8 * i, 1);
    fence_init();
  }
  __syncthreads();
  const int group = threadIdx.x / 128;
  if (group < groups) {
    float d[N / 2] = {};
    uint32_t r[4] = {threadIdx.x, 0x3f803f80, 0, 0x3f003f00};
    const uint32_t a = base + group * 16384, b = base + 32768;
    long long t = 0;
    for (int i = -2; i < rounds; ++i) {
      if (i == 0) t = clk();
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int j = 0; j < K; ++j) one<N, RS>(d, a + (j & 3) * 32, b + (j & 3) * 32, r);
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    t = clk() - t;
    float s = 0;
    for (int i = 0; i < N / 2; ++i) s += d[i];
    if (s == 12345.f) sink[threadIdx.x] = s;
    if (threadIdx.x % 128 == 0) {
      out[2 * blockIdx.x] = t;
      if (group == 0) *stop = 1;
    }
  } else if (threadIdx.x % 128 == 0 && chunk > 0) {
    long long n = 0;
    const uint32_t data = base + 65536;
    size_t at = (size_t)blockIdx.x * chunk;
    int slot = 0, next = 0;
    uint32_t parity = 0;
    auto issue = [&] {
      bar_expect(bars + 8 * next, chunk);
      bulk_load(data + next * chunk, src + at, chunk, bars + 8 * next);
      at += (size_t)gridDim.x * chunk;
      if (at >= (16u << 20)) at -= 16u << 20;
      next = (next + 1) & 3;
    };
    auto wait = [&] {
      bar_wait(bars + 8 * slot, parity);
      if (++slot == 4) {
        slot = 0;
        parity ^= 1;
      }
      ++n;
    };
    for (int i = 0; i < 4; ++i) issue();
    while (!*stop) {
      wait();
      issue();
    }
    for (int i = 0; i < 4; ++i) wait();
    out[2 * blockIdx.x + 1] = n;
  }
}
// ---- shared memory by threads
template <int what>
__global__ void shared_access(const char* src, int rounds, int chunk, long long* out, float* sink) {
  const uint32_t base = s32(smem) + 1024, bars = s32(smem);
  volatile int* stop = (volatile int*)(smem + 512);
  if (threadIdx.x == 0) {
    *stop = 0;
    for (int i = 0; i < 4; ++i) bar_init(bars + 8 * i, 1);
    fence_init();
  }
  __syncthreads();
  const int loader = blockDim.x - 32;
  if ((int)threadIdx.x < loader) {
    const uint32_t at = base + threadIdx.x * 16;
    uint32_t x0 = 0, x1 = 0, x2 = 0, x3 = 0, sum = 0;
    const long long t = clk();
    for (int i = 0; i < rounds; ++i) {
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        if (what == 0) {
          asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                       : "=r"(x0), "=r"(x1), "=r"(x2), "=r"(x3)
                       : "r"(at + j * 4096));
          sum ^= x0 ^ x1 ^ x2 ^ x3;
        }
        if (what == 1)
          asm volatile("st.shared.v4.u32 [%4], {%0, %1, %2, %3};" ::"r"(x0), "r"(x1), "r"(x2), "r"(x3),
                       "r"(at + j * 4096)
                       : "memory");
        if (what == 2)
          asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%4], {%0, %1, %2, %3};" ::"r"(x0), "r"(x1),
                       "r"(x2), "r"(x3), "r"(at + j * 4096)
                       : "memory");
        if (what == 3) {
          asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                       : "=r"(x0), "=r"(x1), "=r"(x2), "=r"(x3)
                       : "r"(at + j * 4096));
          sum ^= x0 ^ x1 ^ x2 ^ x3;
        }
      }
    }
    const long long e = clk() - t;
    if (sum == 77) sink[0] = sum;
    if (threadIdx.x == 0) {
      out[2 * blockIdx.x] = e;
      *stop = 1;
    }
  } else if (threadIdx.x % 32 == 0 && chunk > 0) {
    long long n = 0;
    const uint32_t data = base + 65536;
    size_t at = (size_t)blockIdx.x * chunk;
    int slot = 0, next = 0;
    uint32_t parity = 0;
    auto issue = [&] {
      bar_expect(bars + 8 * next, chunk);
      bulk_load(data + next * chunk, src + at, chunk, bars + 8 * next);
      at += (size_t)gridDim.x * chunk;
      if (at >= (16u << 20)) at -= 16u << 20;
      next = (next + 1) & 3;
    };
    auto wait = [&] {
      bar_wait(bars + 8 * slot, parity);
      if (++slot == 4) {
        slot = 0;
        parity ^= 1;
      }
      ++n;
    };
    for (int i = 0; i < 4; ++i) issue();
    while (!*stop) {
      wait();
      issue();
    }
    for (int i = 0; i < 4; ++i) wait();
    out[2 * blockIdx.x + 1] = n;
  }
}
// ---- barriers
__global__ void ping(int what, int rounds, long long* out) {
  const uint32_t a = s32(smem), b = a + 8;
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  if (threadIdx.x == 0) {
    bar_init(a, 1);
    bar_init(b, 1);
    fence_init();
  }
  __syncthreads();
  if (what >= 2) asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
  const int warp = threadIdx.x / 32;
  const long long t = clk();
  if (what == 0) {  // two warps of a CTA, an mbarrier each way
    if (threadIdx.x % 32 == 0 && warp < 2)
      for (int i = 0; i < rounds; ++i) {
        if (warp == 0) {
          bar_arrive(a);
          bar_wait(b, i & 1);
        } else {
          bar_wait(a, i & 1);
          bar_arrive(b);
        }
      }
  } else if (what == 1) {
    for (int i = 0; i < rounds; ++i) asm volatile("bar.sync 0;" ::: "memory");
  } else if (what == 2) {
    for (int i = 0; i < rounds; ++i)
      asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
  } else if (what == 3 && threadIdx.x == 0) {  // two CTAs
    uint32_t ra, rb;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(ra) : "r"(a), "r"(1));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(rb) : "r"(b), "r"(0));
    for (int i = 0; i < rounds; ++i) {
      if (rank == 0) {
        asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(ra) : "memory");
        bar_wait(b, i & 1);
      } else {
        bar_wait(a, i & 1);
        asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(rb) : "memory");
      }
    }
  }
  if (threadIdx.x == 0 && blockIdx.x == 0) out[0] = clk() - t;
  if (what >= 2) asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
}
__global__ void single_costs(
    long long* out) {  // what an arrival, a passed wait and a fence cost their thread
  const uint32_t a = s32(smem);
  if (threadIdx.x != 0) return;
  bar_init(a, 1);
  fence_init();
  long long t = clk();
  for (int i = 0; i < 64; ++i) bar_arrive(a);
  out[0] = clk() - t;
  bar_init(a + 8, 1);
  bar_arrive(a + 8);
  fence_init();
  t = clk();
  for (int i = 0; i < 64; ++i) bar_wait(a + 8, 0);
  out[1] = clk() - t;
  t = clk();
  for (int i = 0; i < 64; ++i) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  out[2] = clk() - t;
  t = clk();
  for (int i = 0; i < 64; ++i) bar_expect(a, 0);
  out[3] = clk() - t;
}
__global__ void empty(long long* out) {
  if (out != nullptr && threadIdx.x == 0) out[blockIdx.x] = ns();
}
__global__ void spin(long long clocks) {
  const long long t = clk();
  while (clk() - t < clocks) {
  }
}
// ---- streams by threads
__global__ void stream(const uint4* a, uint4* b, size_t n, int what) {
  uint4 s = {0, 0, 0, 0};
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
    if (what == 0) {
      const uint4 v = __ldcs(a + i);
      s.x ^= v.x;
      s.y ^= v.y;
      s.z ^= v.z;
      s.w ^= v.w;
    }
    if (what == 1) b[i] = s;
    if (what == 2) b[i] = a[i];
  }
  if (what == 0 && s.x == 0x12345 && s.y == 99) b[0] = s;
}

static long long* out_d;
static std::vector<long long> out_h(8448);
static cudaEvent_t e0, e1;
template <class F>
float timed(F&& f) {
  CHECK(cudaEventRecord(e0));
  f();
  CHECK(cudaEventRecord(e1));
  CHECK(cudaEventSynchronize(e1));
  CHECK(cudaGetLastError());
  float ms;
  CHECK(cudaEventElapsedTime(&ms, e0, e1));
  return ms;
}
static void fetch() {
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaMemcpy(out_h.data(), out_d, out_h.size() * 8, cudaMemcpyDeviceToHost));
}
static long long most(int n) {
  long long m = 0;
  for (int i = 0; i < n; ++i) m = std::max(m, out_h[2 * i]);
  return m;
}
template <int N, bool RS, int K, int PENDING>
void run_one(char* src, float* sink) {
  const int smem_bytes = 200 * 1024;
  CHECK(cudaFuncSetAttribute(products<N, RS, K, PENDING>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             smem_bytes));
  for (int groups : {1, 2}) {
    if (groups == 2 && N == 256 && RS) continue;
    for (int chunk : {0, 16384}) {
      const int ctas = chunk ? 132 : 1;
      for (int round = 0; round < 2; ++round) {
        products<N, RS, K, PENDING>
            <<<ctas, 128 * groups + 128, smem_bytes>>>(src, groups, 256, chunk, out_d, sink);
        fetch();
      }
      const double clocks = (double)most(ctas);
      say("wgmma a=%s n=%d groups=%d in_a_row=%d pending=%d loads=%d clocks_per_round=%.1f clocks_each=%.2f "
          "loaded_bytes_per_clock=%.1f",
          RS ? "registers" : "shared", N, groups, K, PENDING, chunk, clocks / 256,
          clocks / (256 * K * groups), chunk ? out_h[1] * (double)chunk / clocks : 0.0);
    }
  }
}
template <int N, bool RS>
void run_products(char* src, float* sink) {
  run_one<N, RS, 4, 1>(src, sink);
  run_one<N, RS, 1, 0>(src, sink);
  run_one<N, RS, 2, 0>(src, sink);
  run_one<N, RS, 4, 0>(src, sink);
  run_one<N, RS, 8, 0>(src, sink);
}
template <int what>
void run_shared(char* src, float* sink, int sms, const char* name) {
  CHECK(cudaFuncSetAttribute(shared_access<what>, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024));
  for (int warps : {1, 4, 8})
    for (int chunk : {0, 16384}) {
      shared_access<what><<<sms, warps * 32 + 32, 227 * 1024>>>(src, 256, chunk, out_d, sink);
      fetch();
      const double clocks = (double)most(sms);
      say("shared what=%s warps=%d loads=%d bytes_per_clock=%.1f loaded_bytes_per_clock=%.1f", name, warps,
          chunk, 256.0 * 8 * 512 * warps / clocks, chunk ? out_h[1] * (double)chunk / clocks : 0.0);
    }
}
int main() {
  CHECK(cudaSetDevice(0));
  cudaDeviceProp prop;
  CHECK(cudaGetDeviceProperties(&prop, 0));
  const int sms = prop.multiProcessorCount;
  say("device %s, %d SMs, L2 %d MiB", prop.name, sms, (int)(prop.l2CacheSize >> 20));
  CHECK(cudaEventCreate(&e0));
  CHECK(cudaEventCreate(&e1));
  CHECK(cudaMalloc(&out_d, out_h.size() * 8));
  const size_t big = 2ull << 30;
  char *src, *dst;
  float* sink;
  CHECK(cudaMalloc(&src, big));
  CHECK(cudaMalloc(&dst, big));
  CHECK(cudaMalloc(&sink, 4096));
  CHECK(cudaMemset(src, 1, big));
  CHECK(cudaMemset(dst, 1, big));
  CHECK(cudaMemset(out_d, 0, out_h.size() * 8));
  const int full = 227 * 1024;
  for (auto f : {(const void*)ring_load, (const void*)ring_store, (const void*)tensor_load,
                 (const void*)bulk_latency, (const void*)empty, (const void*)ping})
    CHECK(cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, full));
  spin<<<sms, 32>>>(200000000);
  CHECK(cudaDeviceSynchronize());
  // Launches.
  for (int smem_bytes : {0, 220 * 1024})
    for (int threads : {32, 384, 1024})
      for (int ctas : {1, sms, 4 * sms, 32 * sms}) {
        empty<<<ctas, threads, smem_bytes>>>(nullptr);
        CHECK(cudaDeviceSynchronize());
        spin<<<1, 1>>>(1000000);
        const float one = timed([&] { empty<<<ctas, threads, smem_bytes>>>(nullptr); });
        spin<<<1, 1>>>(2000000);
        const float many = timed([&] {
          for (int i = 0; i < 64; ++i) empty<<<ctas, threads, smem_bytes>>>(nullptr);
        });
        say("launch ctas=%d threads=%d shared=%d event_us=%.2f in_a_row_us=%.3f", ctas, threads, smem_bytes,
            one * 1e3, many * 1e3 / 64);
      }
  // Loads by threads.
  for (size_t bytes :
       {size_t{1} << 17, size_t{8} << 20, size_t{24} << 20, size_t{40} << 20, size_t{256} << 20, big}) {
    const size_t n = std::min<size_t>(bytes / 512, 1 << 16);
    std::vector<uint32_t> order(n), next(bytes / 4, 0);
    const size_t step = bytes / n / 4;
    for (size_t i = 0; i < n; ++i) order[i] = i;
    srand(1);
    for (size_t i = n - 1; i > 0; --i)
      std::swap(order[i], order[((size_t)rand() * 32768 + rand()) % (i + 1)]);
    for (size_t i = 0; i < n; ++i) next[order[i] * step] = order[(i + 1) % n] * step;
    CHECK(cudaMemcpy(src, next.data(), bytes, cudaMemcpyHostToDevice));
    for (int round = 0; round < 2; ++round) {
      chase<<<1, 1>>>((uint32_t*)src, 16384, out_d);
      fetch();
    }
    say("chase bytes=%zu clocks=%.1f", bytes, out_h[0] / 16384.0);
  }
  // Rings of bulk loads.
  struct Ring {
    size_t footprint;
    int ctas, chunk, depth, share;
  };
  std::vector<Ring> rings;
  for (size_t footprint : {size_t{16} << 20, big}) {
    for (int ctas : {1, 8, 33, 66, 99, sms}) rings.push_back({footprint, ctas, 16384, 12, 1});
    for (int depth : {1, 2, 4, 8}) rings.push_back({footprint, sms, 16384, depth, 1});
    for (int chunk : {1024, 4096, 8192, 32768})
      rings.push_back({footprint, sms, chunk, std::min(16, 196608 / chunk), 1});
    for (int share : {2, 4, 11, 33, sms}) rings.push_back({footprint, sms, 16384, 12, share});
    for (int depth : {1, 2, 4, 8}) rings.push_back({footprint, 1, 16384, depth, 1});
  }
  for (size_t footprint : {size_t{28} << 20, size_t{40} << 20, size_t{56} << 20})
    rings.push_back({footprint, sms, 16384, 12, 1});
  for (const Ring& r : rings) {
    const int chunks = std::max<int>(64, (int)((r.ctas == 1 ? 64ull << 20 : 1ull << 30) /
                                               ((size_t)r.ctas / std::min(r.share, r.ctas) * r.chunk)) /
                                             (r.share > 1 ? r.share : 1));
    for (int round = 0; round < 2; ++round) {
      ring_load<<<r.ctas, 32, full>>>(src, r.footprint, chunks, r.chunk, r.depth, r.share, out_d);
      fetch();
    }
    const double clocks = (double)most(r.ctas), ghz = out_h[0] / (double)std::max(1ll, out_h[1]),
                 bytes = (double)chunks * r.chunk;
    say("bulk_load footprint=%zu ctas=%d chunk=%d depth=%d share=%d bytes_per_clock_and_sm=%.2f "
        "tb_per_s=%.3f ghz=%.3f",
        r.footprint >> 20, r.ctas, r.chunk, r.depth, r.share, bytes / clocks,
        bytes * r.ctas / clocks * ghz * 1e-3, ghz);
  }
  for (size_t footprint : {size_t{16} << 20, big})
    for (int ctas : {1, 33, sms})
      for (int depth : {1, 4}) {
        const int chunks = (int)((ctas == 1 ? 64ull << 20 : 1ull << 30) / ((size_t)ctas * 16384));
        for (int round = 0; round < 2; ++round) {
          ring_store<<<ctas, 32, full>>>(dst, footprint, chunks, 16384, depth, out_d);
          fetch();
        }
        const double clocks = (double)most(ctas), ghz = out_h[0] / (double)std::max(1ll, out_h[1]),
                     bytes = (double)chunks * 16384;
        say("bulk_store footprint=%zu ctas=%d depth=%d bytes_per_clock_and_sm=%.2f tb_per_s=%.3f ghz=%.3f",
            footprint >> 20, ctas, depth, bytes / clocks, bytes * ctas / clocks * ghz * 1e-3, ghz);
      }
  for (int what = 0; what < 3; ++what)
    for (int chunk : {128, 1024, 4096, 16384, 32768})
      for (int cold = 0; cold < 2; ++cold) {
        const size_t stride = cold ? 4 << 20 : 0;
        bulk_latency<<<1, 32, full>>>(src, stride, chunk, 256, what, out_d);
        fetch();
        say("bulk_latency what=%s chunk=%d %s clocks=%.1f",
            what == 0   ? "load"
            : what == 1 ? "store_read"
                        : "store_done",
            chunk, cold ? "cold" : "l2", out_h[0] / 256.0);
      }
  // Tensor copies.
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                              const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  void* entry;
  cudaDriverEntryPointQueryResult found;
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
  for (int rows : {8, 16, 32, 64, 128, 256}) {
    CUtensorMap map;
    const cuuint64_t size[2] = {64 * 64, 65536}, stride[1] = {64 * 64 * 2};
    const cuuint32_t box[2] = {64, (cuuint32_t)rows}, steps[2] = {1, 1};
    if (((Encode)entry)(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, src, size, stride, box, steps,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                        CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
      say("FAILED encode");
      continue;
    }
    const int bytes = rows * 128, wrap = 2048 / rows;
    for (int k : {1, 2, 4, 8, 16}) {
      if (bytes * k > 131072) continue;
      for (int ctas : {1, sms}) {
        tensor_load<<<ctas, 32, full>>>(map, bytes, rows, k, 200, wrap, 0, out_d);
        fetch();
        tensor_load<<<ctas, 32, full>>>(map, bytes, rows, k, 200, wrap, 0, out_d);
        fetch();
        say("tensor_load rows=%d bytes=%d at_once=%d ctas=%d issue_clocks_each=%.1f landed_clocks=%.1f", rows,
            bytes, k, ctas, out_h[0] / 200.0 / k, out_h[1] / 200.0);
      }
      if (k > 4 || rows < 64 || bytes * k * 2 > 131072) continue;
      cudaLaunchConfig_t c = {};
      c.gridDim = sms;
      c.blockDim = 32;
      c.dynamicSmemBytes = full;
      cudaLaunchAttribute at[1];
      at[0].id = cudaLaunchAttributeClusterDimension;
      at[0].val.clusterDim.x = 2;
      at[0].val.clusterDim.y = at[0].val.clusterDim.z = 1;
      c.attrs = at;
      c.numAttrs = 1;
      for (int round = 0; round < 2; ++round) {
        CHECK(cudaLaunchKernelEx(&c, tensor_load, map, bytes, rows, k, 200, wrap, (uint16_t)3, out_d));
        fetch();
      }
      say("tensor_load_multicast2 rows=%d bytes=%d at_once=%d ctas=%d issue_clocks_each=%.1f "
          "landed_clocks=%.1f",
          rows, bytes, k, sms, out_h[0] / 200.0 / k, out_h[1] / 200.0);
    }
  }
  // Products and shared memory.
  run_products<64, false>(src, sink);
  run_products<128, false>(src, sink);
  run_products<256, false>(src, sink);
  run_products<64, true>(src, sink);
  run_products<128, true>(src, sink);
  run_products<256, true>(src, sink);
  run_shared<0>(src, sink, sms, "ld.v4");
  run_shared<1>(src, sink, sms, "st.v4");
  run_shared<2>(src, sink, sms, "stmatrix.x4");
  run_shared<3>(src, sink, sms, "ldmatrix.x4");
  // Barriers.
  ping<<<1, 64, 64>>>(0, 1024, out_d);
  fetch();
  say("mbarrier one_way_clocks=%.1f", out_h[0] / 2048.0);
  for (int threads : {32, 64, 128, 256, 384, 512, 1024}) {
    ping<<<1, threads, 64>>>(1, 1024, out_d);
    fetch();
    say("bar_sync threads=%d clocks=%.1f", threads, out_h[0] / 1024.0);
  }
  for (int what : {2, 3})
    for (int threads : {32, 384}) {
      cudaLaunchConfig_t c = {};
      c.gridDim = 2;
      c.blockDim = threads;
      c.dynamicSmemBytes = 64;
      cudaLaunchAttribute at[1];
      at[0].id = cudaLaunchAttributeClusterDimension;
      at[0].val.clusterDim.x = 2;
      at[0].val.clusterDim.y = at[0].val.clusterDim.z = 1;
      c.attrs = at;
      c.numAttrs = 1;
      CHECK(cudaLaunchKernelEx(&c, ping, what, 1024, out_d));
      fetch();
      say("%s threads=%d clocks=%.1f", what == 2 ? "barrier_cluster" : "mbarrier_remote one_way", threads,
          out_h[0] / (what == 2 ? 1024.0 : 2048.0));
    }
  single_costs<<<1, 32, 64>>>(out_d);
  fetch();
  say("single arrive=%.1f passed_wait=%.1f fence_proxy_async=%.1f expect_tx=%.1f clocks", out_h[0] / 64.0,
      out_h[1] / 64.0, out_h[2] / 64.0, out_h[3] / 64.0);
  // Streams by threads.
  for (size_t bytes : {size_t{1} << 20, size_t{16} << 20, size_t{64} << 20, size_t{256} << 20, big})
    for (int what = 0; what < 3; ++what)
      for (int per_sm : {2, 8}) {
        const size_t n = bytes / 16;
        const int threads = 256;
        float best = 1e9;
        for (int i = 0; i < 4; ++i) {
          CHECK(cudaMemsetAsync(dst, i, big / 8));
          spin<<<1, 1>>>(100000);
          best =
              std::min(best, timed([&] {
                         stream<<<sms * per_sm, threads>>>((uint4*)src, (uint4*)src + (what == 2 ? n / 2 : 0),
                                                           what == 2 ? n / 2 : n, what);
                       }));
        }
        say("stream what=%s bytes=%zu ctas_per_sm=%d us=%.2f tb_per_s=%.3f",
            what == 0   ? "read"
            : what == 1 ? "write"
                        : "copy",
            bytes, per_sm, best * 1e3, bytes / best * 1e-9);
      }
  return 0;
}
