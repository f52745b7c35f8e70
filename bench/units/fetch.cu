// SPDX-License-Identifier: Apache-2.0
// What it takes to fetch instructions: straight code of many lengths, run several times over by warps side by side. The first round finds no
// code in the caches, later ones find as much as the caches hold.
//   nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a -o fetch bench/units/fetch.cu && ./fetch
// Clocks of a warp for each 128 bytes of code (eight instructions): in the first round, and in later ones.
#include "device.h"

#include <algorithm>

constexpr int kRounds = 6, kMostWarps = 32;

template <int kLines>
__device__ __forceinline__ void code(float (&x)[8], float by) {
#pragma unroll
  for (int line = 0; line < kLines; ++line)
#pragma unroll
    for (int i = 0; i < 8; ++i) asm volatile("fma.rn.f32 %0, %0, 0f3F7FFFF0, %1;" : "+f"(x[i]) : "f"(by));
}

/// `apart`: clocks by which each warp begins later than the one before it.
template <int kLines>
__global__ void straight(int* out, float from, int apart, float* sink) {
  const int warp = threadIdx.x / 32;
  float x[8];
  for (int i = 0; i < 8; ++i) x[i] = from + threadIdx.x + i;
  __shared__ int took[kMostWarps][kRounds];
  __syncthreads();
  const long long begin = clk();
  while (clk() - begin < (long long)apart * warp) {
  }
#pragma unroll 1
  for (int round = 0; round < kRounds; ++round) {
    const long long t = clk();
    code<kLines>(x, from);
    if (threadIdx.x % 32 == 0) took[warp][round] = (int)(clk() - t);
  }
  float sum = 0;
  for (int i = 0; i < 8; ++i) sum += x[i];
  if (sum == 12345.678f) *sink = sum;
  if (threadIdx.x % 32 == 0)
    for (int round = 0; round < kRounds; ++round)
      out[(blockIdx.x * kMostWarps + warp) * kRounds + round] = took[warp][round];
}

static int* answers;
static float* sink;
static uint4* other;
constexpr size_t kOtherBytes = size_t{256} << 20;

static void push_out() {
  flush<<<1056, 256>>>(other, kOtherBytes / sizeof(uint4), (uint32_t*)sink);
}

template <int kLines>
static void launch(int ctas, int warps, int apart, bool is_cold) {
  double first = 0, first_most = 0, later = 0, later_most = 0, total = 0;
  for (int again = 0; again < 4; ++again) {
    if (is_cold) push_out();
    straight<kLines><<<ctas, 32 * warps>>>(answers, 0.5f, apart, sink);
    CHECK(cudaDeviceSynchronize());
    if (again == 0) continue;
    std::vector<int> took((size_t)ctas * kMostWarps * kRounds);
    CHECK(cudaMemcpy(took.data(), answers, took.size() * sizeof(int), cudaMemcpyDeviceToHost));
    for (int cta = 0; cta < ctas; ++cta)
      for (int warp = 0; warp < warps; ++warp) {
        const int* t = &took[((size_t)cta * kMostWarps + warp) * kRounds];
        first += t[0];
        first_most = std::max<double>(first_most, t[0]);
        for (int round = 2; round < kRounds; ++round) {
          later += t[round] / (kRounds - 2.0);
          later_most = std::max<double>(later_most, t[round]);
        }
        ++total;
      }
  }
  say("%d B, %d CTAs, %d warps, %d apart, %s: first %.1f (most %.1f), later %.2f (most %.1f)", kLines * 128, ctas, warps, apart,
      is_cold ? "cold" : "warm", first / total / kLines, first_most / kLines, later / total / kLines, later_most / kLines);
}

template <int kLines>
static void measure() {
  for (int ctas : {1, 132}) {
    launch<kLines>(ctas, 1, 0, true);
    launch<kLines>(ctas, 1, 0, false);
  }
  launch<kLines>(132, 4, 0, true);
  launch<kLines>(132, 8, 0, true);
  launch<kLines>(132, 16, 0, true);
  // Warps at places of their own: all of the code is under way at once.
  for (int warps : {2, 4, 8, 16}) launch<kLines>(132, warps, 11 * kLines * 4 / warps / 3 + 8 * kLines / warps, true);
  launch<kLines>(1, 8, 11 * kLines / 2, true);
}

int main() {
  CHECK(cudaMalloc(&answers, sizeof(int) * 132 * kMostWarps * kRounds));
  CHECK(cudaMalloc(&sink, 64));
  CHECK(cudaMalloc(&other, kOtherBytes));
  CHECK(cudaMemset(other, 1, kOtherBytes));
  measure<8>();
  measure<16>();
  measure<32>();
  measure<64>();
  measure<96>();
  measure<128>();
  measure<160>();
  measure<192>();
  measure<224>();
  measure<256>();
  measure<320>();
  measure<384>();
  measure<512>();
  measure<768>();
  measure<1024>();
  measure<1536>();
}
