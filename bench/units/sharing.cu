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
  const char* const base = from + (size_t)w.begin * piece;
  const auto ask = [&](int stage) {
    bar_expect(bars + 8 * stage, piece);
    bulk_load(data + stage * piece, base + (size_t)at * piece, piece, bars + 8 * stage);
    if (++at == w.pieces) at = 0;
  };
  for (int s = 0; s < stages; ++s) ask(s);
  int s = 0, parity = 0;
  for (int i = 0; i < count; ++i) {
    bar_wait(bars + 8 * s, parity);
    if (pace > 0) {
      next = max(next, clk()) + pace;
      while (clk() < next) {
      }
    }
    if (i + stages < count) ask(s);
    if (++s == stages) s = 0, parity ^= 1;
  }
  out[3 * blockIdx.x] = clk() - t;
  out[3 * blockIdx.x + 1] = begun_ns;
  out[3 * blockIdx.x + 2] = ns();
}

/// Loads by one thread and stores by another, `count` pieces of 16 KiB each of which four are under way, in a part of each CTA's own of
/// `pieces` of them; 0: none. Clocks of each.
__global__ void both(char* from, char* to, int pieces, int loads, int stores, long long* out) {
  constexpr int kPiece = 16384, kUnderWay = 4;
  const uint32_t bars = s32(smem), data = s32(smem) + 1024;
  if (threadIdx.x == 0)
    for (int i = 0; i < kUnderWay; ++i) bar_init(bars + 8 * i, 1);
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
  __syncthreads();
  const size_t part = (size_t)blockIdx.x * pieces * kPiece;
  const long long t = clk();
  if (threadIdx.x == 0) {
    const char* at = from + part;
    int s = 0, parity = 0, place = 0;
    for (int i = 0; i < loads + kUnderWay; ++i) {
      if (i >= kUnderWay) bar_wait(bars + 8 * s, parity);
      if (i < loads) {
        bar_expect(bars + 8 * s, kPiece);
        bulk_load(data + s * kPiece, at + (size_t)place * kPiece, kPiece, bars + 8 * s);
        if (++place == pieces) place = 0;
      }
      if (++s == kUnderWay) {
        s = 0;
        if (i >= kUnderWay) parity ^= 1;
      }
    }
    out[2 * blockIdx.x] = clk() - t;
  }
  if (threadIdx.x == 32) {
    int place = 0;
    for (int i = 0; i < stores; ++i) {
      bulk_store(to + part + (size_t)place * kPiece, data + (kUnderWay + i % kUnderWay) * kPiece, kPiece);
      asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group.read 3;" ::: "memory");
      if (++place == pieces) place = 0;
    }
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    out[2 * blockIdx.x + 1] = clk() - t;
  }
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
    for (const int delay : {0, 100, 200, 400, 1000, 2000}) {
      if (is_once && delay != 0 && delay != 200 && delay != 1000) continue;
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
  // Loads and stores at once.
  CHECK(cudaFuncSetAttribute(both, cudaFuncAttributeMaxDynamicSharedMemorySize, 1024 + kMostStages * 16384));
  for (const int ctas : {1, 132})
    for (const int loads : {0, 256})
      for (const int stores : {0, 32, 64, 128, 256}) {
        if (loads + stores == 0 || is_once) continue;
        std::vector<double> load, store;
        for (int round = 0; round < 6; ++round) {
          CHECK(cudaMemset(answers, 0, 1 << 12));
          both<<<ctas, 64, 1024 + kMostStages * 16384>>>(memory, memory + (size_t{32} << 20), 6, loads, stores, answers);
          CHECK(cudaDeviceSynchronize());
          std::vector<long long> got(2 * ctas);
          CHECK(cudaMemcpy(got.data(), answers, got.size() * 8, cudaMemcpyDeviceToHost));
          if (round == 0) continue;
          double l = 0, w = 0;
          for (int c = 0; c < ctas; ++c) l += (double)got[2 * c] / ctas, w += (double)got[2 * c + 1] / ctas;
          load.push_back(l), store.push_back(w);
        }
        std::sort(load.begin(), load.end()), std::sort(store.begin(), store.end());
        say("%3d CTAs, 16 KiB at a time in L2: %d loads take %.0f clocks (%.1f bytes a clock), %d stores beside them %.0f (%.1f)", ctas, loads,
            load[2], loads * 16384 / std::max(1.0, load[2]), stores, store[2], stores * 16384 / std::max(1.0, store[2]));
      }
  CHECK(cudaDeviceSynchronize());
  return 0;
}
