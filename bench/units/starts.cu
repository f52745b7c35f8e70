// SPDX-License-Identifier: Apache-2.0
// What an H200 does at a launch's start and end, with what is in no cache, and with bytes that several SMs ask for.
// To compile and run it, on a Hopper GPU:
//   nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a -o starts bench/units/starts.cu && ./starts
// What an H200 answered: docs/measurements/2026-11-23-starts.md.
#include "device.h"

__device__ __forceinline__ uint32_t smid() {
  uint32_t t;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(t));
  return t;
}
extern __shared__ __align__(1024) char smem[];

__global__ void spin(long long clocks) {
  const long long t = clk();
  while (clk() - t < clocks) {
  }
}
__global__ void empty() {}
__global__ void one_param(long long* out) {
  if (out == (long long*)1) *out = 3;
}
__global__ void one_load(const float* x, float* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = x[i];
}
// N straight-line instructions that depend on each other.
template <int N>
__global__ void straight(float* out, float a, float b, long long* t) {
  const long long t0 = clk();
  float x = a;
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(x) : "f"(a), "f"(b));
  const long long t1 = clk();
  if (threadIdx.x == 0) t[blockIdx.x] = t1 - t0;
  if (x == 1.2345f) *out = x;
}
__global__ void starts(long long* out, int wait) {  // when and where each CTA starts
  if (threadIdx.x == 0) {
    const long long c = clk();
    out[4 * blockIdx.x] = smid();
    out[4 * blockIdx.x + 1] = ns();
    out[4 * blockIdx.x + 2] = c;
    while (clk() - c < wait) {
    }
    out[4 * blockIdx.x + 3] = clk();
  }
}
// As units.cu, but the CTAs of a group start `skew` clocks after each other.
__global__ void ring_load(const char* src, size_t footprint, int chunks, int chunk, int depth, int share,
                          int skew, int pattern, long long* out) {
  const uint32_t bars = s32(smem), data = s32(smem) + 1024;
  if (threadIdx.x == 0) {
    for (int i = 0; i < depth; ++i) bar_init(bars + 8 * i, 1);
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
    const int groups = (gridDim.x + share - 1) / share;
    const size_t lane = pattern ? blockIdx.x % groups : blockIdx.x / share, step = groups * (size_t)chunk;
    const int member = pattern ? blockIdx.x / groups : blockIdx.x % share;
    const long long g = ns();
    while (ns() - (g - g % 20000 + 20000) < 0) {
    }  // all start together
    const long long w = clk();
    while (clk() - w < (long long)skew * member) {
    }
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
    const long long t = clk();
    for (int i = 0; i < depth && i < chunks; ++i) issue();
    for (int i = 0; i < chunks; ++i) {
      bar_wait(bars + 8 * to_wait, parity);
      if (++to_wait == depth) {
        to_wait = 0;
        parity ^= 1;
      }
      if (i + depth < chunks) issue();
    }
    out[blockIdx.x] = clk() - t;
  }
}
// First and later tensor copies of a launch.
__global__ void first_copies(const __grid_constant__ CUtensorMap map, int bytes, int rows, int prefetch,
                             long long* out) {
  const uint32_t bar = s32(smem), data = s32(smem) + 1024;
  if (threadIdx.x != 0) return;
  const long long s = clk();
  if (prefetch) asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
  bar_init(bar, 1);
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
  long long t[6];
#pragma unroll
  for (int i = 0; i < 5; ++i) {
    t[i] = clk();
    bar_expect(bar, bytes);
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
        "%3}], [%4];" ::"r"(data),
        "l"(&map), "r"(0), "r"((int)(blockIdx.x * 5 + i) * rows), "r"(bar)
        : "memory");
    bar_wait(bar, i & 1);
  }
  t[5] = clk();
  out[8 * blockIdx.x] = t[0] - s;
  for (int i = 0; i < 5; ++i) out[8 * blockIdx.x + 1 + i] = t[i + 1] - t[i];
}
// Clusters: clocks from a CTA's start until it has passed a first barrier, then of four stages of 48 KiB, one after the other, each
// fetched by the CTA itself (`copies` 1) or a third by itself and of the rest its part for all (2), then of a last barrier.
// out: SM, globaltimer, start, end, clocks.
__global__ void cluster_starts(const __grid_constant__ CUtensorMap map, int copies, int barriers, int wait,
                               long long* out) {
  const uint32_t bar = s32(smem), data = s32(smem) + 1024;
  uint32_t rank, size;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
  const long long start = clk(), g = ns();
  if (threadIdx.x == 0) {
    for (int i = 0; i < 4; ++i) bar_init(bar + 8 * i, 1);
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
  }
  if (barriers)
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  else
    __syncthreads();
  if (threadIdx.x == 0) {
    long long t[7];
    t[0] = start;
    t[1] = clk();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t own = bar + 8 * i;
      const int parts = 32768 / 4096 / (copies == 2 ? (int)size : 1);  // of 32 rows of 128 bytes
      if (copies) bar_expect(own, 49152);
      for (int part = 0; copies && part < 4; ++part)
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
            "{%2, "
            "%3}], [%4];" ::"r"(data + part * 4096),
            "l"(&map), "r"(0), "r"((int)(blockIdx.x * 4 + i) * 512 + part * 32), "r"(own)
            : "memory");
      for (int part = 0; copies && part < parts; ++part) {
        const uint32_t to = data + 16384 + (part + (copies == 2 ? rank * parts : 0)) * 4096;
        const int row = (int)(blockIdx.x * 4 + i) * 512 + 128 + part * 32;
        if (copies == 1)
          asm volatile(
              "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
              "{%2, "
              "%3}], [%4];" ::"r"(to),
              "l"(&map), "r"(0), "r"(row), "r"(own)
              : "memory");
        else
          asm volatile(
              "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::"
              "cluster "
              "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to),
              "l"(&map), "r"(0), "r"(row), "r"(own), "h"((unsigned short)((1 << size) - 1))
              : "memory");
      }
      if (copies) bar_wait(own, 0);
      t[2 + i] = clk();
    }
    while (clk() - start < wait) {
    }
    t[6] = clk();
    for (int i = 0; i < 6; ++i) out[12 * blockIdx.x + 4 + i] = t[i + 1] - t[i];
  }
  const long long last = clk();
  if (barriers) asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
  if (threadIdx.x == 0) {
    out[12 * blockIdx.x] = smid();
    out[12 * blockIdx.x + 1] = g;
    out[12 * blockIdx.x + 2] = start;
    out[12 * blockIdx.x + 3] = clk();
    out[12 * blockIdx.x + 10] = out[12 * blockIdx.x + 3] - last;
  }
}
// Stores and loads of a warp: `segment` bytes at each of 128 / segment rows (4 bytes a thread).
__global__ void store_pattern(char* dst, int segment, size_t pitch, int rounds, long long* out) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, per = segment / 4, rows = 32 / per;
  char* base = dst + (size_t)blockIdx.x * pitch * 256;
  const long long t = clk();
  for (int i = 0; i < rounds; ++i) {
    const int row = (warp * rows + lane / per) & 255;
    const size_t at = row * pitch + (size_t)((i * segment) & (pitch - 1)) + lane % per * 4;
    *(volatile uint32_t*)(base + at) = i;
  }
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = clk() - t;
}
__global__ void chase(const uint64_t* p, int n, long long* out) {
  uint64_t at = 0;
  const long long t = clk();
  for (int i = 0; i < n; ++i)
    asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(at) : "l"((const char*)p + at));
  out[0] = clk() - t;
  out[1] = at;
}
__global__ void latencies(const char* p, size_t stride, int n,
                          long long* out) {  // of each line by itself, in L2
  for (int i = 0; i < n; ++i) {
    uint32_t x;
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(x) : "l"(p + i * stride) : "memory");
    if (x == 0x77777) out[0] = x;
  }
  for (int i = 0; i < n; ++i) {
    uint32_t x;
    const long long t = clk();
    asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(x) : "l"(p + i * stride) : "memory");
    asm volatile("{ .reg .pred q; setp.eq.u32 q, %0, 0x77777; @q trap; }" ::"r"(x) : "memory");
    out[i] = clk() - t;
  }
}
template <int what>
__global__ void loads_shared(int rounds, long long* out, uint32_t* sink) {
  const uint32_t at = s32(smem) + threadIdx.x * 16;
  uint32_t x0 = 0, x1 = 0, x2 = 0, x3 = 0, y[8][4] = {}, s = 0;
  __syncthreads();
  const long long t = clk();
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      if (what == 0)
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(y[j][0]), "=r"(y[j][1]), "=r"(y[j][2]), "=r"(y[j][3])
                     : "r"(at + j * 4096)
                     : "memory");
      if (what == 1)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(y[j][0]), "=r"(y[j][1]), "=r"(y[j][2]), "=r"(y[j][3])
                     : "r"(at + j * 4096)
                     : "memory");
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) s += y[j][0] ^ y[j][1] ^ y[j][2] ^ y[j][3];
  }
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = clk() - t;
  if (s == 77) sink[0] = s + x0 + x1 + x2 + x3;
}

static long long* out_d;
static std::vector<long long> out_h(65536);
static cudaEvent_t e0, e1;
static char *src, *cold;
static uint32_t* sink;
static int sms;
static void fetch() {
  CHECK(cudaDeviceSynchronize());
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(out_h.data(), out_d, out_h.size() * 8, cudaMemcpyDeviceToHost));
}
/// Median microseconds between two events around f, after a flush of L2 or not.
template <class F>
double timed(F&& f, bool is_cold, int n = 7) {
  std::vector<float> all;
  f();
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < n; ++i) {
    spin<<<1, 1>>>(60000);
    if (is_cold) flush<<<4 * sms, 512>>>((const uint4*)cold, (128u << 20) / 16, sink);
    CHECK(cudaEventRecord(e0));
    f();
    CHECK(cudaEventRecord(e1));
    CHECK(cudaEventSynchronize(e1));
    CHECK(cudaGetLastError());
    float ms;
    CHECK(cudaEventElapsedTime(&ms, e0, e1));
    all.push_back(ms * 1e3f);
  }
  std::sort(all.begin(), all.end());
  return all[n / 2];
}
template <int N>
void run_straight(int ctas, int threads) {
  auto f = [&] { straight<N><<<ctas, threads>>>((float*)sink, 1.5f, 0.25f, out_d); };
  double us[2], inside[2];
  for (int c = 0; c < 2; ++c) {
    us[c] = timed(f, c == 1);
    fetch();
    inside[c] = (double)*std::max_element(out_h.begin(), out_h.begin() + ctas);
  }
  say("code instructions=%d ctas=%d threads=%d warm_us=%.2f cold_us=%.2f warm_clocks=%.0f cold_clocks=%.0f",
      N, ctas, threads, us[0], us[1], inside[0], inside[1]);
}
int main() {
  CHECK(cudaSetDevice(0));
  CHECK(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0));
  CHECK(cudaEventCreate(&e0));
  CHECK(cudaEventCreate(&e1));
  CHECK(cudaMalloc(&out_d, out_h.size() * 8));
  CHECK(cudaMalloc(&src, 1ull << 30));
  CHECK(cudaMalloc(&cold, 128 << 20));
  CHECK(cudaMalloc(&sink, 4096));
  CHECK(cudaMemset(src, 0, 1ull << 30));
  CHECK(cudaMemset(cold, 1, 128 << 20));
  const int full = 227 * 1024;
  for (auto f : {(const void*)ring_load, (const void*)first_copies, (const void*)starts})
    CHECK(cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, full));
  CHECK(cudaFuncSetAttribute(loads_shared<0>, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
  CHECK(cudaFuncSetAttribute(loads_shared<1>, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536));
  spin<<<sms, 32>>>(400000000);
  CHECK(cudaDeviceSynchronize());
  // Launches, cold and warm.
  for (int ctas : {1, sms, 4 * sms}) {
    for (int c = 0; c < 2; ++c) {
      say("launch what=empty ctas=%d cold=%d us=%.2f", ctas, c, timed([&] { empty<<<ctas, 128>>>(); }, c));
      say("launch what=parameter ctas=%d cold=%d us=%.2f", ctas, c,
          timed([&] { one_param<<<ctas, 128>>>(out_d); }, c));
      say("launch what=load_store ctas=%d cold=%d us=%.2f", ctas, c,
          timed([&] { one_load<<<ctas, 128>>>((float*)src, (float*)src + (64 << 20)); }, c));
      say("launch what=empty_227KiB ctas=%d cold=%d us=%.2f", ctas, c,
          timed([&] { starts<<<ctas, 128, full>>>(out_d, 0); }, c));
    }
  }
  run_straight<16>(1, 32);
  run_straight<16>(sms, 32);
  run_straight<128>(1, 32);
  run_straight<128>(sms, 32);
  run_straight<512>(1, 32);
  run_straight<512>(sms, 32);
  run_straight<1024>(1, 32);
  run_straight<1024>(sms, 32);
  run_straight<1024>(sms, 512);
  run_straight<2048>(sms, 32);
  run_straight<4096>(1, 32);
  run_straight<4096>(sms, 32);
  run_straight<8192>(sms, 32);
  run_straight<8192>(sms, 512);
  run_straight<16384>(sms, 32);
  // Starts of CTAs.
  for (int wait : {0, 3000})
    for (int threads : {32, 128, 384, 1024})
      for (int shared : {0, full})
        for (int ctas : {sms, 2 * sms, 8 * sms}) {
          for (int i = 0; i < 2; ++i) {
            starts<<<ctas, threads, shared>>>(out_d, wait);
            fetch();
          }
          // by SM: clocks between starts; gap from the end of one to the start of the next when alone
          std::vector<std::vector<std::pair<long long, long long>>> by(256);
          for (int i = 0; i < ctas; ++i)
            by[out_h[4 * i] & 255].push_back({out_h[4 * i + 2], out_h[4 * i + 3]});
          double between = 0, gap = 0;
          int n = 0, most = 0;
          for (auto& v : by) {
            std::sort(v.begin(), v.end());
            most = std::max(most, (int)v.size());
            for (size_t j = 1; j < v.size(); ++j) {
              between += v[j].first - v[j - 1].first;
              gap += v[j].first - v[j - 1].second;
              ++n;
            }
          }
          long long first = out_h[1], last = out_h[1];
          for (int i = 0; i < ctas; ++i) {
            first = std::min(first, out_h[4 * i + 1]);
            last = std::max(last, out_h[4 * i + 1]);
          }
          say("starts wait=%d threads=%d shared=%d ctas=%d most_on_sm=%d clocks_between=%.0f gap=%.0f "
              "first_to_last_ns=%lld",
              wait, threads, shared, ctas, most, n ? between / n : 0, n ? gap / n : 0, last - first);
        }
  starts<<<sms * 2, 384, full / 2>>>(out_d, 3000);
  fetch();
  {
    printf("order of 264 CTAs, two to an SM:");
    for (int i = 0; i < 264; ++i) printf(" %lld", out_h[4 * i]);
    printf("\n");
  }
  starts<<<sms, 384, full>>>(out_d, 3000);
  fetch();
  {
    printf("order of 132 CTAs:");
    for (int i = 0; i < 132; ++i) printf(" %lld", out_h[4 * i]);
    printf("\n");
  }
  // Shared bytes, skewed.
  for (size_t footprint : {size_t{16} << 20, size_t{1} << 30})
    for (int pattern : {0, 1})
      for (int share : {1, 2, 4, 12})
        for (int depth : {2, 6})
          for (int skew : {0, 250, 500, 1000, 2000, 4000, 16000}) {
            if (share == 1 && (skew || pattern)) continue;
            if (pattern && depth == 2) continue;
            const int chunks = 192;
            for (int i = 0; i < 2; ++i) {
              if (footprint < (1u << 30)) {
                ring_load<<<sms, 32, full>>>(src, footprint, 400, 16384, 12, 1, 0, 0, out_d);
              } else
                flush<<<4 * sms, 512>>>((const uint4*)cold, (128u << 20) / 16, sink);
              ring_load<<<sms, 32, full>>>(src, footprint, chunks, 16384, depth, share, skew, pattern, out_d);
              fetch();
            }
            double sum = 0;
            long long most = 0;
            for (int i = 0; i < sms; ++i) {
              sum += out_h[i];
              most = std::max(most, out_h[i]);
            }
            say("skewed footprint=%zu pattern=%d share=%d depth=%d skew=%d bytes_per_clock_and_sm mean=%.2f "
                "least=%.2f",
                footprint >> 20, pattern, share, depth, skew, chunks * 16384.0 * sms / sum,
                chunks * 16384.0 / most);
          }
  // Few SMs, each its own bytes, few in flight.
  for (int ctas : {16, 32, 64, 96, 120, sms})
    for (int depth : {2, 4, 6}) {
      for (int i = 0; i < 2; ++i) {
        flush<<<4 * sms, 512>>>((const uint4*)cold, (128u << 20) / 16, sink);
        ring_load<<<ctas, 32, full>>>(src, 1ull << 30, 96, 16384, depth, 1, 0, 0, out_d);
        fetch();
      }
      long long most = 0;
      for (int i = 0; i < ctas; ++i) most = std::max(most, out_h[i]);
      say("from_memory ctas=%d depth=%d bytes_per_clock_and_sm=%.2f", ctas, depth, 96 * 16384.0 / most);
    }
  // First tensor copies.
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                              const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                              CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  void* entry;
  cudaDriverEntryPointQueryResult found;
  CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
  for (int columns : {64, 4096})
    for (int rows : {8, 64, 128}) {
      CUtensorMap map;
      const cuuint64_t size[2] = {(cuuint64_t)columns, 1u << 17}, stride[1] = {(cuuint64_t)columns * 2};
      const cuuint32_t box[2] = {64, (cuuint32_t)rows}, steps[2] = {1, 1};
      if (((Encode)entry)(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, src, size, stride, box, steps,
                          CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                          CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                          CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
        say("FAILED encode");
        continue;
      }
      for (int ctas : {1, sms})
        for (int is_cold : {0, 1})
          for (int prefetch : {0, 1}) {
            timed([&] { first_copies<<<ctas, 32, full>>>(map, rows * 128, rows, prefetch, out_d); }, is_cold,
                  3);
            fetch();
            double m[6] = {};
            for (int i = 0; i < ctas; ++i)
              for (int j = 0; j < 6; ++j) m[j] += out_h[8 * i + j] / (double)ctas;
            say("tensor_copies columns=%d rows=%d ctas=%d cold=%d prefetch=%d setup=%.0f first=%.0f "
                "then=%.0f %.0f %.0f %.0f",
                columns, rows, ctas, is_cold, prefetch, m[0], m[1], m[2], m[3], m[4], m[5]);
          }
    }
  // Clusters.
  {
    CUtensorMap map;
    const cuuint64_t size[2] = {64, 1u << 20}, stride[1] = {128};
    const cuuint32_t box[2] = {64, 32}, steps[2] = {1, 1};
    if (((Encode)entry)(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, src, size, stride, box, steps,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                        CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
      say("FAILED encode");
    CHECK(cudaFuncSetAttribute(cluster_starts, cudaFuncAttributeMaxDynamicSharedMemorySize, full));
    for (int cluster : {0, 1, 2, 4})  // 0: no such attribute
      for (int barriers : {0, 1})
        for (int multicast : {0, 1, 2})
          for (int shared : {full})
            for (int is_cold : {0, 1})
              for (int ctas : {4, 2 * sms / 4 * 4}) {
                if (barriers && cluster < 1) continue;
                if (multicast == 2 && (cluster < 2 || !barriers)) continue;
                if (shared != full) continue;
                cudaLaunchConfig_t config = {};
                config.gridDim = ctas;
                config.blockDim = 384;
                config.dynamicSmemBytes = shared;
                cudaLaunchAttribute attribute;
                attribute.id = cudaLaunchAttributeClusterDimension;
                attribute.val.clusterDim = {(unsigned)std::max(1, cluster), 1, 1};
                config.attrs = &attribute;
                config.numAttrs = cluster > 0 ? 1 : 0;
                const double us = timed(
                    [&] {
                      CHECK(cudaLaunchKernelEx(&config, cluster_starts, (const CUtensorMap)map, multicast,
                                               barriers, 0, out_d));
                    },
                    is_cold, 5);
                fetch();
                double m[7] = {};
                std::vector<std::vector<std::pair<long long, long long>>> of(sms);
                for (int i = 0; i < ctas; ++i) {
                  const long long* o = &out_h[12 * i];
                  for (int j = 0; j < 7; ++j) m[j] += o[4 + j] / (double)ctas;
                  of[o[0]].push_back({o[2], o[3]});
                }
                double gap = 0;
                int n = 0;
                for (auto& v : of) {
                  std::sort(v.begin(), v.end());
                  for (size_t j = 1; j < v.size(); ++j, ++n) gap += v[j].first - v[j - 1].second;
                }
                say("clusters size=%d barriers=%d copies=%d shared=%d cold=%d ctas=%d us=%.2f "
                    "first_barrier=%.0f stages=%.0f "
                    "%.0f %.0f %.0f rest=%.0f last_barrier=%.0f gap=%.0f",
                    cluster, barriers, multicast, shared, is_cold, ctas, us, m[0], m[1], m[2], m[3], m[4],
                    m[5], m[6], n ? gap / n : 0);
              }
  }
  // Stores of segments.
  for (int ctas : {1, 33, sms})
    for (int segment : {8, 16, 32, 64, 128}) {
      for (int i = 0; i < 2; ++i) {
        store_pattern<<<ctas, 512>>>(src, segment, 4096, 128, out_d);
        fetch();
      }
      long long most = 0;
      for (int i = 0; i < ctas; ++i) most = std::max(most, out_h[i]);
      say("store segment=%d ctas=%d bytes_per_clock_and_sm=%.2f clocks_per_warp_store=%.2f", segment, ctas,
          128.0 * 16 * 128 / most, most / (16.0 * 128));
    }
  // Latencies from memory and from L2 by line.
  {
    const size_t n = 4096, step = (1ull << 30) / n;
    std::vector<uint64_t> order(n);
    for (size_t i = 0; i < n; ++i) order[i] = i;
    srand(3);
    for (size_t i = n - 1; i > 0; --i) std::swap(order[i], order[rand() % (i + 1)]);
    for (size_t i = 0; i < n; ++i) {
      const uint64_t to = order[(i + 1) % n] * (step + 128) % (1ull << 30);
      CHECK(cudaMemcpy(src + order[i] * (step + 128) % (1ull << 30), &to, 8, cudaMemcpyHostToDevice));
    }
    flush<<<4 * sms, 512>>>((const uint4*)cold, (128u << 20) / 16, sink);
    chase<<<1, 1>>>((uint64_t*)src, 3000, out_d);
    fetch();
    say("chase from=memory clocks=%.1f", out_h[0] / 3000.0);
  }
  latencies<<<1, 1>>>(src + (256 << 20), 4096 + 128, 2048, out_d);
  fetch();
  {
    std::vector<long long> v(out_h.begin(), out_h.begin() + 2048);
    std::sort(v.begin(), v.end());
    say("latency from=l2 least=%lld tenth=%lld median=%lld ninetieth=%lld most=%lld", v[0], v[204], v[1024],
        v[1843], v[2040]);
  }
  flush<<<4 * sms, 512>>>((const uint4*)cold, (128u << 20) / 16, sink);
  for (int warps : {1, 4, 8, 16}) {
    loads_shared<0><<<1, 32 * warps, 65536>>>(256, out_d, sink);
    fetch();
    say("shared what=ld.v4 warps=%d bytes_per_clock=%.1f", warps, 256.0 * 8 * 512 * warps / out_h[0]);
    loads_shared<1><<<1, 32 * warps, 65536>>>(256, out_d, sink);
    fetch();
    say("shared what=ldmatrix.x4 warps=%d bytes_per_clock=%.1f", warps, 256.0 * 8 * 512 * warps / out_h[0]);
  }
  return 0;
}
