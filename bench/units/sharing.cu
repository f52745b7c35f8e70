// SPDX-License-Identifier: Apache-2.0
// What L2 gives when SMs read the same bytes, as the tiles of a product do: together, one after the other at several distances, and in
// orders that never meet; beside SMs that read bytes of their own.
//   nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a -o sharing bench/units/sharing.cu && ./sharing [--once]
// --once launches each form once behind a first one that fills L2, for a profiler. Bytes per clock and SM.
#include "device.h"

#include <cstring>

extern __shared__ __align__(1024) char smem[];
constexpr int kMostStages = 8;

/// What a CTA reads: `pieces` of them from `begin` on, round and round, first that at `first`, after `delay` clocks.
struct Walk {
  int begin, pieces, first, delay;
};
/// `piece` bytes each, `stages` of them under way; `pace`: no sooner than so many clocks after the one before.
__global__ void walk(const char* from, const Walk* walks, int piece, int count, int stages, int pace, long long* out) {
  if (threadIdx.x != 0) return;
  const uint32_t bars = s32(smem), data = s32(smem) + 1024;
  for (int i = 0; i < stages; ++i) bar_init(bars + 8 * i, 1);
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
  const Walk w = walks[blockIdx.x];
  int at = w.first;
  const long long begun = clk(), begun_ns = ns();
  while (clk() - begun < w.delay) {
  }
  const long long t = clk();
  long long next = t;
  for (int i = 0; i < count + stages; ++i) {
    const int s = i % stages;
    if (i >= stages) {
      bar_wait(bars + 8 * s, (i / stages - 1) & 1);
      if (pace > 0) {
        next = max(next, clk()) + pace;
        while (clk() < next) {
        }
      }
    }
    if (i < count) {
      bar_expect(bars + 8 * s, piece);
      bulk_load(data + s * piece, from + (size_t)(w.begin + at) * piece, piece, bars + 8 * s);
      if (++at == w.pieces) at = 0;
    }
  }
  out[3 * blockIdx.x] = clk() - t;
  out[3 * blockIdx.x + 1] = begun_ns;
  out[3 * blockIdx.x + 2] = ns();
}

static char* memory;
static Walk* walks;
static long long* answers;
static bool is_once;

static void form(const char* what, const std::vector<Walk>& of, int piece, int count, int stages, int pace = 0) {
  const int ctas = (int)of.size();
  CHECK(cudaMemcpy(walks, of.data(), ctas * sizeof(Walk), cudaMemcpyHostToDevice));
  std::vector<double> each, all;
  for (int round = 0; round < (is_once ? 2 : 6); ++round) {
    walk<<<ctas, 32, 1024 + kMostStages * 16384>>>(memory, walks, piece, count, stages, pace, answers);
    CHECK(cudaDeviceSynchronize());
    if (round == 0) continue;
    std::vector<long long> got(3 * ctas);
    CHECK(cudaMemcpy(got.data(), answers, got.size() * 8, cudaMemcpyDeviceToHost));
    double sum = 0;
    long long begin = got[1], end = 0;
    for (int c = 0; c < ctas; ++c) {
      sum += (double)got[3 * c];
      begin = std::min(begin, got[3 * c + 1]);
      end = std::max(end, got[3 * c + 2]);
    }
    each.push_back(sum / ctas);
    all.push_back((double)(end - begin));
  }
  std::sort(each.begin(), each.end());
  std::sort(all.begin(), all.end());
  const double bytes = (double)piece * count;
  say("%-66s %3d CTAs piece %5d stages %d pace %4d: %6.2f bytes per clock and SM, %6.3f TB/s from first to last", what, ctas, piece,
      stages, pace, bytes / each[each.size() / 2], bytes * ctas / all[all.size() / 2] * 1e-3);
}

int main(int count, char** arguments) {
  is_once = count > 1 && !strcmp(arguments[1], "--once");
  CHECK(cudaMalloc(&memory, size_t{64} << 20));
  CHECK(cudaMemset(memory, 1, size_t{64} << 20));
  CHECK(cudaMalloc(&walks, 1 << 16));
  CHECK(cudaMalloc(&answers, 1 << 16));
  CHECK(cudaFuncSetAttribute(walk, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024 + kMostStages * 16384));
  char text[200];
  const int n = is_once ? 256 : 512;
  for (const int ctas : {132, 64}) {
    for (const int mib : {4, 8, 16, 28}) {
      const int piece = 16384, pieces = (mib << 20) / piece;
      std::vector<Walk> own, shared, halves, scattered;
      for (int c = 0; c < ctas; ++c) {
        const int each = pieces / ctas;
        own.push_back({c * each, each, 0, 0});
        shared.push_back({0, pieces, c * pieces / ctas, 0});
        halves.push_back({c % 2 * (pieces / 2), pieces / 2, c / 2 * (pieces / 2) / ((ctas + 1) / 2), 0});
        scattered.push_back({0, pieces, (int)((c * 2654435761u) % (unsigned)pieces), 0});
      }
      snprintf(text, sizeof text, "%d MiB, each SM its own part", mib);
      form(text, own, piece, n, 6);
      snprintf(text, sizeof text, "%d MiB, all SMs all of it, an even distance apart", mib);
      form(text, shared, piece, n, 6);
      snprintf(text, sizeof text, "%d MiB, every other SM the same half, an even distance apart", mib);
      form(text, halves, piece, n, 6);
      snprintf(text, sizeof text, "%d MiB, all SMs all of it, from places by chance", mib);
      form(text, scattered, piece, n, 6);
    }
  }
  // Groups of neighbouring CTAs that read the same, each member so many clocks behind the one before; groups an even distance apart.
  for (const int of : {2, 4, 8, 16})
    for (const int delay : {0, 50, 100, 150, 200, 300, 400, 600, 1000, 2000}) {
      const int ctas = 128, piece = 16384, pieces = (16 << 20) / piece, groups = ctas / of;
      std::vector<Walk> together;
      for (int c = 0; c < ctas; ++c) together.push_back({0, pieces, c / of * pieces / groups, c % of * delay});
      snprintf(text, sizeof text, "16 MiB, groups of %d, %d clocks behind each other", of, delay);
      form(text, together, piece, n, 6);
      if (delay == 0 || delay == 200 || delay == 600) form(text, together, piece, n, 2);
      // A pace that L2 can follow even if nothing is served together: 16 KiB in 700 clocks, 23 bytes a clock and SM.
      form(text, together, piece, n, 6, 600);
    }
  // As tiles of a product do: the SM of tile (i, j) reads pieces of row i and of column j in turn. 8 x 16 tiles, in order of i or of j.
  for (const int across : {8, 16})
    for (const int piece : {8192, 16384})
      for (const int pace : {0, 300, 600}) {
        std::vector<Walk> rows, columns;
        const int ctas = 128, steps = 64;
        for (int c = 0; c < ctas; ++c) {
          rows.push_back({c / across * steps, steps, 0, 0});
          columns.push_back({(ctas / across + c % across) * steps, steps, 0, 0});
        }
        snprintf(text, sizeof text, "rows of %d tiles: all of a row read the same", across);
        form(text, rows, piece, n, 6, pace);
        snprintf(text, sizeof text, "columns of %d tiles: every %dth reads the same", ctas / across, across);
        form(text, columns, piece, n, 6, pace);
      }
  CHECK(cudaDeviceSynchronize());
  return 0;
}
