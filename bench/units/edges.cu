// SPDX-License-Identifier: Apache-2.0
// Stores that write a part of a line or of a sector; reductions by bulk copies; first copies that are multicast; clusters up to 8.
//   nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a -o edges bench/units/edges.cu && ./edges
// Clocks of an SM. What an H200 answered: docs/measurements/2026-11-25-pipes.md.
#include "device.h"

extern __shared__ __align__(1024) char smem[];

// ---- stores

/// Every warp writes `rounds` pieces of its own one after the other, each by `each` stores of `bytes` a lane: lane i of store j begins at
/// i * lane + j * store; the next piece is `piece` bytes further on, after `pieces` the first one again. Warps' parts lie side by side,
/// `part` bytes each.
template <class T>
__global__ void stores(char* to, size_t part, int rounds, int pieces, int piece, int each, int lane, int store, T value, long long* out) {
  const size_t warp = (blockIdx.x * (size_t)blockDim.x + threadIdx.x) / 32;
  char* const begin = to + warp * part + threadIdx.x % 32 * lane + (store < 0 ? -store * (each - 1) : 0);
  char* at = begin;
  __syncthreads();
  const long long t = clk();
  for (int r = 0, back = 0; r < rounds; ++r) {
    for (int j = 0; j < each; ++j) *(T*)(at + j * store) = value;
    at += piece;
    if (++back == pieces) {
      at = begin;
      back = 0;
    }
  }
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = clk() - t;
}

// ---- reductions

/// `count` bulk reductions or stores of `bytes` from shared memory, one thread; where each goes is `step` bytes further on.
template <int kWhat>  // 0: a store; 1: adds float32, 2: bfloat16, 3: uint32
__global__ void bulk(char* to, size_t of_cta, int count, int bytes, size_t step, long long* out) {
  if (threadIdx.x != 0) return;
  for (int i = 0; i < 16384 / 4; ++i) ((float*)smem)[i] = 0;
  asm volatile("fence.proxy.async;" ::: "memory");
  char* at = to + blockIdx.x * of_cta;
  const uint32_t from = s32(smem);
  const long long t = clk();
  for (int i = 0; i < count; ++i) {
    if (kWhat == 0) bulk_store(at, from, bytes);
    if (kWhat == 1)
      asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(at), "r"(from), "r"(bytes)
                   : "memory");
    if (kWhat == 2)
      asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.bf16 [%0], [%1], %2;" ::"l"(at), "r"(from),
                   "r"(bytes)
                   : "memory");
    if (kWhat == 3)
      asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;" ::"l"(at), "r"(from), "r"(bytes)
                   : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    at += step;
  }
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  const long long u = clk();
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  out[2 * blockIdx.x] = u - t;
  out[2 * blockIdx.x + 1] = clk() - t;
}

/// The same by a tensor map: boxes of 32 x 64 words; `of_cta` rows further on for each CTA.
template <int kWhat>  // 0: a store, 1: adds float32
__global__ void boxes(const __grid_constant__ CUtensorMap map, int of_cta, int count, long long* out) {
  if (threadIdx.x != 0) return;
  for (int i = 0; i < 8192 / 4; ++i) ((float*)smem)[i] = 0;
  asm volatile("fence.proxy.async;" ::: "memory");
  const uint32_t from = s32(smem);
  const long long t = clk();
  for (int i = 0; i < count; ++i) {
    const int x = i % 4 * 32, y = (blockIdx.x * of_cta + i / 4) * 64;
    if (kWhat == 0)
      asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(x), "r"(y),
                   "r"(from)
                   : "memory");
    else
      asm volatile("cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
                   "r"(x), "r"(y), "r"(from)
                   : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
  }
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  const long long u = clk();
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  out[2 * blockIdx.x] = u - t;
  out[2 * blockIdx.x + 1] = clk() - t;
}

// ---- copies within clusters

__device__ __forceinline__ int cluster_rank() {
  int r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
__device__ __forceinline__ int cluster_size() {
  int r;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(r));
  return r;
}
__device__ __forceinline__ uint32_t smid() {
  uint32_t t;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(t));
  return t;
}
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
constexpr int kStages = 8, kBytes = 16384;
/// Each CTA gets `kStages` stages of 16 KiB. kCast: 0: it copies them itself; 1: each CTA of the cluster copies its share of the bytes to
/// all of them. `together`: stages that are asked for at once. Every stage: clocks from its group's first copy until its bytes are there.
template <int kCast>
__global__ void stages(const char* from, size_t of_cta, int together, long long* out) {
  const uint32_t bars = s32(smem), data = s32(smem) + 1024;
  const int rank = cluster_rank(), size = cluster_size();
  const char* at = from + (kCast ? blockIdx.x / size : blockIdx.x) * of_cta;
  long long begun = clk();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      bar_init(bars + 8 * i, 1);
      bar_expect(bars + 8 * i, kBytes);
    }
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
  }
  cluster_barrier();
  const long long passed = clk() - begun;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; i += together) {
      const long long t = clk();
      for (int j = i; j < i + together; ++j) {
        if (kCast) {
          const uint32_t share = kBytes / size;
          asm volatile(
              "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(
                  data + j * kBytes + rank * share),
              "l"(at + (size_t)j * kBytes + rank * share), "r"(share), "r"(bars + 8 * j), "h"((uint16_t)((1 << size) - 1))
              : "memory");
        } else {
          bulk_load(data + j * kBytes, at + (size_t)j * kBytes, kBytes, bars + 8 * j);
        }
      }
      for (int j = i; j < i + together; ++j) {
        bar_wait(bars + 8 * j, 0);
        out[blockIdx.x * (kStages + 1) + 1 + j] = clk() - t;
      }
    }
    out[blockIdx.x * (kStages + 1)] = passed;
  }
  cluster_barrier();
}

// ---- starts of clusters

/// When each CTA begins, where, what a barrier of the cluster takes and a signal to the neighbour and back.
__global__ void cluster_starts(long long* out, int wait) {
  const uint32_t bar = s32(smem);
  const long long g = ns(), c = clk();
  const int rank = cluster_rank(), size = cluster_size();
  if (threadIdx.x == 0) {
    bar_init(bar, 1);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  cluster_barrier();
  const long long first = clk() - c;
  cluster_barrier();
  const long long c2 = clk();
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  const long long second = clk() - c2;
  long long trip = 0;
  if (threadIdx.x == 0 && size > 1) {  // rank 0 signals the last, which answers
    const int last = size - 1;
    uint32_t other;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(other) : "r"(bar), "r"(rank == 0 ? last : 0));
    const long long c3 = clk();
    if (rank == last) bar_wait(bar, 0);
    if (rank == 0 || rank == last)
      asm volatile("mbarrier.arrive.release.cta.shared::cluster.b64 _, [%0];" ::"r"(other) : "memory");
    if (rank == 0) bar_wait(bar, 0);
    trip = clk() - c3;
  }
  while (clk() - c < wait) {
  }
  cluster_barrier();
  if (threadIdx.x == 0) {
    long long* to = out + 6 * blockIdx.x;
    to[0] = smid();
    to[1] = g;
    to[2] = first;
    to[3] = second;
    to[4] = trip;
    to[5] = ns();
  }
}
__global__ void empty() {}

static char* memory;
static char* other;
static uint32_t* sink;
static long long* answers;

static void cold() { flush<<<528, 512>>>((const uint4*)other, (size_t{128} << 20) / 16, sink); }
template <class Go>
static std::vector<double> means(int ctas, int count, bool is_cold, Go&& go) {
  return means(answers, ctas, count, [&] {
    if (is_cold) cold();
    go();
  });
}

template <class T>
static void store_form(const char* what, int piece, int each, int lane, int store) {
  T value{};
  for (const int ctas : {1, 132})
    for (const bool far : {false, true}) {  // of memory: each byte once, of L2: the same 24 MiB
      const int threads = 512, rounds = 256;
      const size_t part = far ? (size_t)piece * rounds : 0;
      const size_t warps = (size_t)ctas * threads / 32;
      if (far && warps * part > (size_t{3} << 30)) continue;
      const size_t near = (size_t{24} << 20) / warps / piece * piece;
      const int pieces = far ? rounds : (int)std::min<size_t>(rounds, near / piece);
      const double clocks = means(ctas, 1, false, [&] {
        stores<T><<<ctas, threads>>>(memory, far ? part : near, rounds, pieces, piece, each, lane, store, value, answers);
      })[0];
      say("stores %s, %d CTAs, %s: %.2f clocks of an SM per store", what, ctas, far ? "beyond L2" : "in L2",
          clocks / (double)(rounds * each * threads / 32));
    }
}
template <int kWhat>
static void bulk_form(const char* what) {
  CHECK(cudaFuncSetAttribute(bulk<kWhat>, cudaFuncAttributeMaxDynamicSharedMemorySize, 16384));
  for (const int ctas : {1, 8, 132})
    for (const int bytes : {512, 2048, 8192, 16384})
      for (const int place : {0, 1}) {  // each its own; all the same
        for (const int count : {1, 32}) {
          const size_t of_cta = place ? 0 : (size_t)bytes * count;
          const auto m = means(ctas, 2, false, [&] {
            bulk<kWhat><<<ctas, 32, 16384>>>(memory, of_cta, count, bytes, bytes, answers);
          });
          say("bulk %s, %d CTAs, %d bytes, %s, %d of them: %.0f read, %.0f done", what, ctas, bytes,
              place ? "the same places" : "places of their own", count, m[0], m[1]);
        }
      }
}
/// Of a matrix of 128 columns, whose rows are 512 bytes.
template <int kWhat>
static void box_form(const char* what) {
  CUtensorMap map;
  const cuuint64_t dims[] = {128, 132 * 8 * 64}, strides[] = {512};
  const cuuint32_t box[] = {32, 64}, one[] = {1, 1};
  if (cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, memory, dims, strides, box, one,
                             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
    say("FAILED: a tensor map");
  for (const int ctas : {1, 8, 132})
    for (const int place : {0, 1})
      for (const int count : {1, 4, 32}) {
        const auto m = means(ctas, 2, false, [&] { boxes<kWhat><<<ctas, 32, 8192>>>(map, place ? 0 : 8, count, answers); });
        say("boxes of 8192 bytes, %s, %d CTAs, %s, %d of them: %.0f read, %.0f done", what, ctas,
            place ? "the same places" : "places of their own", count, m[0], m[1]);
      }
}
template <class Kernel, class... Args>
static bool launch(Kernel* kernel, int ctas, int threads, int shared, int cluster, Args... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = ctas;
  config.blockDim = threads;
  config.dynamicSmemBytes = shared;
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {(unsigned)std::max(1, cluster), 1, 1};
  config.attrs = &attribute;
  config.numAttrs = cluster > 0 ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, args...) == cudaSuccess;
}

int main() {
  CHECK(cudaMalloc(&memory, size_t{3} << 30));
  CHECK(cudaMalloc(&other, size_t{128} << 20));
  CHECK(cudaMalloc(&sink, 64));
  CHECK(cudaMalloc(&answers, size_t{1} << 20));
  CHECK(cudaMemset(memory, 0, size_t{3} << 30));
  CHECK(cudaMemset(other, 1, size_t{128} << 20));
  constexpr int kMost = 200 << 10;

  // Clusters first: how many fit, how they start, barriers.
  CHECK(cudaFuncSetAttribute(cluster_starts, cudaFuncAttributeMaxDynamicSharedMemorySize, kMost));
  CHECK(cudaFuncSetAttribute(cluster_starts, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  for (const int cluster : {1, 2, 4, 8, 16})
    for (const int shared : {1024, kMost}) {
      cudaLaunchConfig_t config{};
      config.gridDim = 256;
      config.blockDim = 384;
      config.dynamicSmemBytes = shared;
      cudaLaunchAttribute attribute{};
      attribute.id = cudaLaunchAttributeClusterDimension;
      attribute.val.clusterDim = {(unsigned)cluster, 1, 1};
      config.attrs = &attribute;
      config.numAttrs = 1;
      int most = 0;
      const cudaError_t error = cudaOccupancyMaxActiveClusters(&most, cluster_starts, &config);
      say("clusters of %d, %d bytes of shared memory: %d at once (%s)", cluster, shared, most, cudaGetErrorString(error));
    }
  for (const int cluster : {0, 1, 2, 4, 8, 16})
    for (const int ctas : {16, 128, 256}) {
      std::vector<double> first, second, trip, spread, last, us, places;
      cudaEvent_t e[2];
      for (auto& each : e) CHECK(cudaEventCreate(&each));
      bool fits = true;
      for (int round = 0; round < 8 && fits; ++round) {
        cold();
        CHECK(cudaEventRecord(e[0]));
        fits = launch(cluster_starts, ctas, 384, kMost, cluster, answers, 4000);
        CHECK(cudaEventRecord(e[1]));
        CHECK(cudaDeviceSynchronize());
        if (round == 0 || !fits) continue;
        std::vector<long long> got(6 * ctas);
        CHECK(cudaMemcpy(got.data(), answers, got.size() * 8, cudaMemcpyDeviceToHost));
        long long begin = got[1], latest = got[1], end = got[5];
        double f = 0, s = 0, t = 0;
        std::vector<int> used(256);
        for (int c = 0; c < ctas; ++c) {
          begin = std::min(begin, got[6 * c + 1]);
          latest = std::max(latest, got[6 * c + 1]);
          end = std::max(end, got[6 * c + 5]);
          f += got[6 * c + 2] / (double)ctas;
          s += got[6 * c + 3] / (double)ctas;
          if (cluster > 1 && c % cluster == 0) t += got[6 * c + 4] * (double)cluster / ctas;
          ++used[got[6 * c] % 256];
        }
        float ms;
        CHECK(cudaEventElapsedTime(&ms, e[0], e[1]));
        first.push_back(f);
        second.push_back(s);
        trip.push_back(t);
        spread.push_back(latest - begin);
        last.push_back(end - begin);
        us.push_back(1e3 * ms);
        places.push_back(256 - std::count(used.begin(), used.end(), 0));
      }
      if (!fits) {
        say("clusters of %d, %d CTAs: refused", cluster, ctas);
        cudaGetLastError();
        continue;
      }
      say("clusters of %d, %d CTAs: first barrier %.0f, a later one %.0f, there and back %.0f clocks; last start %.0f, last end "
          "%.0f ns after the first start; %.2f us between events; %.0f SMs",
          cluster, ctas, median(first), median(second), median(trip), median(spread), median(last), median(us), median(places));
    }

  // Stages.
  constexpr int kShared = 1024 + kStages * kBytes;
  CHECK(cudaFuncSetAttribute(stages<0>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
  CHECK(cudaFuncSetAttribute(stages<1>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
  for (const bool is_cold : {true, false})
    for (const int cluster : {0, 1, 2, 4, 8})
      for (const int cast : {0, 1})
        for (const int together : {1, 4}) {
          if (cast && cluster < 1) continue;
          const int ctas = 128;
          for (const int used : {std::max(1, cluster), ctas}) {
            const auto m = means(used, kStages + 1, is_cold, [&] {
              const size_t of_cta = kStages * kBytes;
              const bool fits = cast ? launch(stages<1>, used, 128, kShared, cluster, (const char*)memory, of_cta, together, answers)
                                     : launch(stages<0>, used, 128, kShared, cluster, (const char*)memory, of_cta, together, answers);
              if (!fits) say("FAILED: stages");
            });
            say("stages, clusters of %d, %s, %d together, %d CTAs, %s: barrier %.0f; %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f", cluster,
                cast ? "multicast" : "each its own", together, used, is_cold ? "cold" : "warm", m[0], m[1], m[2], m[3], m[4], m[5],
                m[6], m[7], m[8]);
          }
        }

  // Stores. A piece is what one warp writes of consecutive bytes.
  store_form<float>("128 bytes, whole lines", 128, 1, 4, 0);
  store_form<float4>("512 bytes, whole lines", 512, 1, 16, 0);
  store_form<float4>("512 bytes, each sector by two stores: 16 bytes of each 32", 1024, 2, 32, 16);
  store_form<float2>("256 bytes: 8 bytes of each 32, four stores fill them", 1024, 4, 32, 8);
  store_form<float>("128 bytes: 4 bytes of each 32, eight stores fill them", 1024, 8, 32, 4);
  store_form<float>("128 bytes: 4 bytes of each 16, four stores fill them", 512, 4, 16, 4);
  store_form<uint16_t>("64 bytes: 2 bytes of each 16, eight stores fill them", 512, 8, 16, 2);
  store_form<uint16_t>("64 bytes: 2 bytes side by side, two stores fill a line", 128, 2, 2, 64);
  store_form<uint16_t>("64 bytes: 2 bytes of each 16, the others never", 512, 1, 16, 0);
  store_form<float>("128 bytes: 4 bytes of each 32, the others never", 1024, 1, 32, 0);
  store_form<float>("128 bytes: 4 bytes of each 128, the others never", 4096, 1, 128, 0);
  store_form<float4>("512 bytes: half a sector of each, the others never", 1024, 1, 32, 0);
  store_form<float>("128 bytes: 4 bytes of each 16, the others never", 512, 1, 16, 0);
  store_form<float>("128 bytes: 4 bytes of each 16, two stores fill half", 512, 2, 16, 4);
  store_form<float>("128 bytes: 4 bytes of each 16, four stores fill them, from the last on", 512, 4, 16, -4);
  store_form<float2>("256 bytes: 8 bytes of each 16, two stores fill them", 512, 2, 16, 8);
  store_form<float2>("256 bytes: 8 bytes of each 16, the others never", 512, 1, 16, 0);
  store_form<float>("128 bytes: 4 bytes of each 8, two stores fill them", 256, 2, 8, 4);
  store_form<float>("128 bytes: 4 bytes of each 8, the others never", 256, 1, 8, 0);
  store_form<uint16_t>("64 bytes: 2 bytes of each 4, two stores fill them", 128, 2, 4, 2);
  store_form<uint16_t>("64 bytes: 2 bytes of each 8, four stores fill them", 256, 4, 8, 2);
  store_form<uint8_t>("32 bytes: a byte of each 4, four stores fill them", 128, 4, 4, 1);
  store_form<float4>("512 bytes: 16 bytes of each 64, the others never", 2048, 1, 64, 0);

  bulk_form<0>("stores");
  bulk_form<1>("adds of float32");
  bulk_form<2>("adds of bfloat16");
  bulk_form<3>("adds of uint32");
  box_form<0>("stores");
  box_form<1>("adds of float32");
  return 0;
}
