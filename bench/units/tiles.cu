// SPDX-License-Identifier: Apache-2.0
// What tiles of a product cost beside their products: the store of a tile (stmatrix, fence, barrier, boxes by TMA, wait), boxes whose rows
// begin in the middle of a sector, loaded and stored, and clusters that start where others have ended.
//   nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a -o tiles bench/units/tiles.cu -lcuda && ./tiles
// Clocks of an SM.
#include "device.h"

extern __shared__ __align__(1024) char smem[];

__device__ __forceinline__ void box_load(const CUtensorMap& map, uint32_t dst, int x, int y, uint32_t bar) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(dst),
      "l"(&map), "r"(x), "r"(y), "r"(bar)
      : "memory");
}
__device__ __forceinline__ void box_store(const CUtensorMap& map, uint32_t src, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(x), "r"(y), "r"(src)
               : "memory");
}

// ---- the end of a tile

/// Each warp group stores `tiles` tiles of 64 rows and `columns` halves, one below the other: clocks from the first to the last, and
/// until all have been written. `slices`: parts of a tile, each stored as soon as it is there, all of which may be under way.
__global__ void ends(const __grid_constant__ CUtensorMap map, int columns, int tiles, int slices, int per_row, long long* out) {
  const int group = threadIdx.x / 128, groups = blockDim.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const uint32_t base = s32(smem) + group * 64 * columns * 2;
  const int slice = columns / slices;
  uint32_t v = threadIdx.x;
  __syncthreads();
  const long long t = clk();
  for (int i = 0; i < tiles; ++i) {
    const int tile = (blockIdx.x * tiles + i) * groups + group;
    const int x = tile % per_row * columns, y = tile / per_row * 64;
    for (int s = 0; s < slices; ++s) {
      // Its place was read before the last `slices` stores.
      if (threadIdx.x % 128 == 0) {
        if (slices == 1) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        else asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
      }
      asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
      for (int c = 0; c < slice; c += 16) {  // 16 rows of each warp, 16 columns: swizzled by 16 bytes as boxes are
        const int column = s * slice + c, box = column / 64, row = warp * 16 + lane % 16, piece = column % 64 / 8 + lane / 16;
        const uint32_t at = base + box * 8192 + row * 128 + ((piece ^ row % 8) << 4);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(v) : "memory");
        v = v * 3 + 1;
      }
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
      if (threadIdx.x % 128 == 0) {
        for (int c = 0; c < slice; c += 64) {
          const int column = s * slice + c;
          box_store(map, base + column / 64 * 8192, x + column, y);
        }
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      }
    }
  }
  const long long u = clk();
  if (threadIdx.x % 128 == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  if (threadIdx.x == 0) {
    out[2 * blockIdx.x] = u - t;
    out[2 * blockIdx.x + 1] = clk() - t;
  }
}

// ---- boxes

/// `count` boxes of 64 halves and `rows` rows, one below the other, then beside; `stages` under way. 16 KiB a stage.
template <bool kStores>
__global__ void boxes(const __grid_constant__ CUtensorMap map, int rows, int down, int count, int stages, int x0, long long* out) {
  if (threadIdx.x != 0) return;
  const uint32_t bars = s32(smem), data = s32(smem) + 1024;
  for (int i = 0; i < stages; ++i) bar_init(bars + 8 * i, 1);
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
  const long long t = clk();
  int x = x0, y = blockIdx.x * down * rows, left = down;
  const auto next = [&] {
    y += rows;
    if (--left > 0) return;
    left = down;
    y -= down * rows;
    x += 64;
  };
  int s = 0, parity = 0;
  for (int i = 0; i < count; ++i) {
    if (kStores) {
      box_store(map, data + s * 16384, x, y);
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      asm volatile("cp.async.bulk.wait_group.read 3;" ::: "memory");
    } else {
      if (i >= stages) bar_wait(bars + 8 * s, parity);
      bar_expect(bars + 8 * s, rows * 128);
      box_load(map, data + s * 16384, x, y, bars + 8 * s);
    }
    next();
    if (++s == stages) {
      s = 0;
      if (i >= stages) parity ^= 1;
    }
  }
  if (!kStores)
    for (int i = 0; i < stages; ++i) {
      bar_wait(bars + 8 * s, parity);
      if (++s == stages) s = 0, parity ^= 1;
    }
  if (kStores) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  out[2 * blockIdx.x] = clk() - t;
}

/// `count` times the same box at (x, y).
__global__ void edges(const __grid_constant__ CUtensorMap map, int rows, int y, int x, int count, int stages, long long* out) {
  if (threadIdx.x != 0) return;
  const uint32_t bars = s32(smem), data = s32(smem) + 1024;
  for (int i = 0; i < stages; ++i) bar_init(bars + 8 * i, 1);
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
  const long long t = clk();
  int s = 0, parity = 0;
  for (int i = 0; i < count + stages; ++i) {
    if (i >= stages) bar_wait(bars + 8 * s, parity);
    if (i < count) {
      bar_expect(bars + 8 * s, rows * 128);
      box_load(map, data + s * 16384, x, y, bars + 8 * s);
    }
    if (++s == stages) {
      s = 0;
      if (i >= stages) parity ^= 1;
    }
  }
  out[2 * blockIdx.x] = clk() - t;
}

// ---- what CTAs of a cluster send each other

/// 128 threads of CTA 0 send `stores` times eight bytes each to every other CTA, as rows of 32 bytes, and signal its barrier behind that,
/// all of them or one; each CTA that has its bytes signals back. Clocks of: the first CTA's stores, its signals, and until all have answered.
template <bool kReleases>
__global__ void sends(int stores, int all, int rounds, long long* out) {
  const uint32_t full = s32(smem), empty = full + 8, data = full + 1024;
  uint32_t rank, size;
  asm volatile("mov.u32 %0, %%cluster_ctarank;\nmov.u32 %1, %%cluster_nctarank;" : "=r"(rank), "=r"(size));
  const int signals = all ? 128 : 1;
  if (threadIdx.x == 0) {
    bar_init(full, signals);
    bar_init(empty, signals * (size - 1));
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  const auto remote = [](uint32_t at, uint32_t of) {
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at), "r"(of));
    return there;
  };
  const auto signal = [&](uint32_t there) {
    if (!all && threadIdx.x != 0) return;
    if (kReleases) asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
    else asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
  };
  long long stored = 0, told = 0, answered = 0;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int r = 0; r < rounds; ++r) {
    if (rank == 0) {
      const long long t = clk();
      for (uint32_t other = 1; other < size; ++other) {
        const uint32_t to = remote(data, other) + warp * 8192 + lane / 4 * 1024 + lane % 4 * 8;
        const long long u = clk();
        for (int i = 0; i < stores; ++i)
          asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %1};" ::"r"(to + i * 32), "f"(1.5f) : "memory");
        const long long v = clk();
        signal(remote(full, other));
        stored += v - u;
        told += clk() - v;
      }
      bar_wait(empty, r & 1);
      answered += clk() - t;
    } else {
      bar_wait(full, r & 1);
      signal(remote(empty, 0));
    }
  }
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  if (threadIdx.x == 0) {
    out[3 * blockIdx.x] = stored / rounds;
    out[3 * blockIdx.x + 1] = told / rounds;
    out[3 * blockIdx.x + 2] = answered / rounds;
  }
}

// ---- starts

__device__ __forceinline__ uint32_t smid() {
  uint32_t t;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(t));
  return t;
}
/// CTAs that take a whole SM and `wait` clocks: where, when they began and ended.
__global__ void waves(int wait, int meets, long long* out) {
  const long long t = clk(), begun = ns();
  if (meets) asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  const long long met = clk() - t;
  while (clk() - t < wait) {
  }
  if (meets) asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  if (threadIdx.x == 0) {
    long long* to = out + 6 * blockIdx.x;
    to[0] = smid();
    to[1] = t;
    to[2] = clk();
    to[3] = begun;
    to[4] = ns();
    to[5] = met;
  }
}

static char* memory;
static long long* answers;
static CUtensorMap map_of(size_t columns, size_t rows, size_t pitch, int box_rows) {
  CUtensorMap map;
  const cuuint64_t dims[] = {columns, rows}, strides[] = {pitch};
  const cuuint32_t box[] = {64, (cuuint32_t)box_rows}, one[] = {1, 1};
  if (cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, memory, dims, strides, box, one, CU_TENSOR_MAP_INTERLEAVE_NONE,
                             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
    say("FAILED: a tensor map");
  return map;
}

int main() {
  CHECK(cudaMalloc(&memory, size_t{1} << 30));
  CHECK(cudaMemset(memory, 0, size_t{1} << 30));
  CHECK(cudaMalloc(&answers, 1 << 20));
  CHECK(cudaFuncSetAttribute(ends, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
  CHECK(cudaFuncSetAttribute(boxes<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
  CHECK(cudaFuncSetAttribute(boxes<false>, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
  CHECK(cudaFuncSetAttribute(sends<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
  CHECK(cudaFuncSetAttribute(sends<false>, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
  CHECK(cudaFuncSetAttribute(edges, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
  CHECK(cudaFuncSetAttribute(waves, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
  CHECK(cudaFuncSetAttribute(waves, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  // Starts: three waves and one.
  for (const int meets : {0, 1})
    for (const int threads : {128, 256, 384})
      for (const int cluster : {0, 1, 2, 4, 8, 16}) {
        if (cluster == 0 && meets) continue;
        const int at_once = cluster <= 1 ? 132 : cluster == 2 ? 132 : cluster == 4 ? 120 : cluster == 8 ? 120 : 112;
        for (const int rounds : {1, 3}) {
          const int ctas = at_once * rounds;
          std::vector<double> first, last, gap, least, met, whole;
          bool failed = false;
          for (int again = 0; again < 5 && !failed; ++again) {
            cudaLaunchConfig_t config{};
            config.gridDim = ctas;
            config.blockDim = threads;
            config.dynamicSmemBytes = 190 << 10;
            cudaLaunchAttribute attribute{};
            attribute.id = cudaLaunchAttributeClusterDimension;
            attribute.val.clusterDim = {(unsigned)std::max(1, cluster), 1, 1};
            config.attrs = &attribute;
            config.numAttrs = cluster > 0 ? 1 : 0;
            failed = cudaLaunchKernelEx(&config, waves, 4000, meets, answers) != cudaSuccess || cudaDeviceSynchronize() != cudaSuccess;
            if (failed || again == 0) continue;
            std::vector<long long> got(6 * ctas);
            CHECK(cudaMemcpy(got.data(), answers, got.size() * 8, cudaMemcpyDeviceToHost));
            long long begin = got[3], end = 0, first_of_last = 0;
            double all_met = 0;
            std::vector<std::vector<std::pair<long long, long long>>> on(200);
            for (int c = 0; c < ctas; ++c) {
              begin = std::min(begin, got[6 * c + 3]);
              end = std::max(end, got[6 * c + 4]);
              all_met += (double)got[6 * c + 5] / ctas;
              on[got[6 * c]].emplace_back(got[6 * c + 1], got[6 * c + 2]);
            }
            for (int c = 0; c < at_once; ++c) first_of_last = std::max(first_of_last, got[6 * c + 3]);
            double sum = 0, low = 1e9;
            int gaps = 0;
            for (auto& of : on) {
              std::sort(of.begin(), of.end());
              for (size_t i = 1; i < of.size(); ++i) {
                sum += (double)(of[i].first - of[i - 1].second);
                low = std::min(low, (double)(of[i].first - of[i - 1].second));
                ++gaps;
              }
            }
            first.push_back((double)(first_of_last - begin));
            whole.push_back((double)(end - begin));
            met.push_back(all_met);
            gap.push_back(gaps > 0 ? sum / gaps : 0);
            least.push_back(gaps > 0 ? low : 0);
          }
          if (failed) {
            cudaGetLastError();
            say("clusters of %d: FAILED", cluster);
          } else {
            say("clusters of %2d%s, %d threads, %d CTAs: the first %d begin within %.0f ns, the rest %.0f clocks after ends, %.0f at least; "
                "first barrier %.0f; %.0f ns in all",
                cluster, meets ? " that meet" : "", threads, ctas, at_once, median(first), median(gap), median(least), median(met),
                median(whole));
          }
        }
      }
  // What CTAs of a cluster send each other.
  for (const bool releases : {true, false})
    for (const int cluster : {2, 4})
      for (const int all : {0, 1})
        for (const int stores : {0, 1, 4, 8, 16, 32}) {
          const int ctas = cluster == 2 ? 132 : 120;
          std::vector<double> m = means(answers, ctas, 3, [&] {
            cudaLaunchConfig_t config{};
            config.gridDim = ctas;
            config.blockDim = 128;
            config.dynamicSmemBytes = 190 << 10;
            cudaLaunchAttribute attribute{};
            attribute.id = cudaLaunchAttributeClusterDimension;
            attribute.val.clusterDim = {(unsigned)cluster, 1, 1};
            config.attrs = &attribute;
            config.numAttrs = 1;
            CHECK(cudaLaunchKernelEx(&config, releases ? sends<true> : sends<false>, stores, all, 8, answers));
          });
          say("clusters of %d, %2d stores of 8 bytes by 128 threads to each other CTA, %s by %s: stores %.0f, signals %.0f, answered after %.0f",
              cluster, stores, releases ? "released" : "told", all ? "all" : "one", m[0] * cluster, m[1] * cluster, m[2] * cluster);
        }
  // Ends of tiles.
  const size_t width = 4096;
  for (const int ctas : {1, 132})
    for (const int groups : {1, 2, 3})
      for (const int columns : {64, 128, 192, 256})
        for (const int slices : {1, 2}) {
          if (columns / slices % 64 != 0 || groups * columns * 128 > 190 << 10) continue;
          const CUtensorMap map = map_of(width, 32768, width * 2, 64);
          const int tiles = 16;
          const auto m = means(answers, ctas, 2, [&] {
            ends<<<ctas, 128 * groups, 190 << 10>>>(map, columns, tiles, slices, (int)width / columns, answers);
          });
          const auto one = means(answers, ctas, 2, [&] {
            ends<<<ctas, 128 * groups, 190 << 10>>>(map, columns, 1, slices, (int)width / columns, answers);
          });
          say("ends of tiles, %3d CTAs, %d groups of 64 x %d, %d slices: %.0f clocks a tile, one alone: issued %.0f, written %.0f", ctas,
              groups, columns, slices, m[1] / tiles, one[0], one[1]);
        }
  // Boxes: rows of 128 bytes that begin at any 16 bytes.
  for (const int ctas : {1, 132})
    for (const int rows : {64, 128})
      for (const int off : {0, 16, 32, 48, 64, 112}) {
        for (const bool far : {false, true}) {
          // Rows enough for each CTA's boxes; 64 boxes beside each other, or further down where they come from memory.
          const size_t pitch = 1024 + off;
          const int down = far ? 16 : 1, across = 8, count = down * across;
          const CUtensorMap map = map_of(512, (size_t)ctas * down * rows, pitch, rows);
          const auto clear = [&] {
            if (far) flush<<<528, 512>>>((const uint4*)(memory + (size_t{700} << 20)), (size_t{128} << 20) / 16, (uint32_t*)answers);
          };
          const auto l = means(answers, ctas, 2, [&] {
            clear();
            boxes<false><<<ctas, 32, 190 << 10>>>(map, rows, down, count, 8, 0, answers);
          });
          const auto s = means(answers, ctas, 2, [&] {
            clear();
            boxes<true><<<ctas, 32, 190 << 10>>>(map, rows, down, count, 8, 0, answers);
          });
          say("boxes of %d rows, %3d CTAs, pitch %zu, %s: %.1f clocks a box loaded, %.1f stored", rows, ctas, pitch,
              far ? "from memory" : "in L2", l[0] / count, s[0] / count);
        }
      }
  // Boxes of which a part lies beyond the tensor: rows below its end, columns right of it.
  for (const int ctas : {1, 132})
    for (const int rows : {64, 128})
      for (const int valid : {128, 127, 120, 96, 64, 32, 8, 1, 0}) {
        if (valid > rows) continue;
        // Each CTA but the last would have rows of others below it; so all read the same ones.
        const CUtensorMap map = map_of(512, (size_t)valid + 128, 1024, rows);
        const CUtensorMap narrow = map_of(448 + std::max(1, valid / 2), 1024, 1024, rows);
        const auto l = means(answers, ctas, 2, [&] { edges<<<ctas, 32, 190 << 10>>>(map, rows, 128, 0, 64, 8, answers); });
        const auto c = means(answers, ctas, 2, [&] { edges<<<ctas, 32, 190 << 10>>>(narrow, rows, 0, 448, 64, 8, answers); });
        say("boxes of %d rows, %3d CTAs, %3d rows inside: %.1f clocks a box; %d columns of 64 inside: %.1f", rows, ctas, valid, l[0] / 64,
            std::max(1, valid / 2), c[0] / 64);
      }
  // The same column of all SMs' rows at a time, by how far rows are apart: whether slices of L2 and pages of memory are shared out evenly.
  for (const size_t pitch : {1024, 1152, 2048, 2176, 4096, 4224, 8192, 8320, 16384, 16512})
    for (const bool far : {false, true}) {
      const int rows = 128, ctas = 132, down = 1, count = 8;
      const CUtensorMap map = map_of(512, (size_t)ctas * rows, pitch, rows);
      for (const int stages : {1, 4}) {
        const auto l = means(answers, ctas, 2, [&] {
          if (far) flush<<<528, 512>>>((const uint4*)(memory + (size_t{700} << 20)), (size_t{128} << 20) / 16, (uint32_t*)answers);
          boxes<false><<<ctas, 32, 190 << 10>>>(map, rows, down, count, stages, 0, answers);
        });
        say("boxes of %d rows, %d under way, 132 CTAs, pitch %zu, %s: %.1f clocks a box", rows, stages, pitch, far ? "from memory" : "in L2",
            l[0] / count);
      }
    }
  CHECK(cudaDeviceSynchronize());
  return 0;
}
