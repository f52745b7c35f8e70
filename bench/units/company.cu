// SPDX-License-Identifier: Apache-2.0
// What warps of a sub-partition cost each other that use its units for a part of their time only: pieces of code that a warp alone spends
// waiting for its own results, run by one warp to eight.
//   nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a -o company bench/units/company.cu && ./company
// Clocks of a warp for each piece, by the number of warps on a sub-partition; warps begin together, and each at a time of its own.
#include "device.h"

#include <algorithm>

constexpr int kRounds = 200;

#define FMA(i) asm volatile("fma.rn.f32 %0, %0, 0f3F7FFFF0, %1;" : "+f"(x[i]) : "f"(by))
#define EXP(i) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[i]))
#define LOP(i) asm volatile("lop3.b32 %0, %0, 0x1234567, %1, 0x6A;" : "+r"(n[i]) : "r"(with))
#define SHFL(i) asm volatile("shfl.sync.bfly.b32 %0, %0, 1, 31, -1;" : "+f"(x[i]))
#define LOAD(i) asm volatile("ld.volatile.shared.f32 %0, [%1];" : "=f"(x[i]) : "r"(at + 4 * i))
#define MANY(count, body)  \
  _Pragma("unroll") for (int i = 0; i < count; ++i) { \
    body;                  \
  }

#define PIECE(NAME, TEXT, BODY)                                                                            \
  struct NAME {                                                                                            \
    static constexpr const char* kName = TEXT;                                                             \
    static __device__ __forceinline__ void go(float* x, uint32_t* n, float by, uint32_t with, uint32_t at) { BODY } \
  };
PIECE(Chain, "32 fma in a row", MANY(32, FMA(0)))
PIECE(Specials, "16 ex2 in a row", MANY(16, EXP(0)))
PIECE(Spread, "16 of fma, ex2, fma, each alone", MANY(16, FMA(i)) MANY(16, EXP(i)) MANY(16, FMA(i)))
PIECE(SpreadChain, "16 ex2, 32 fma in a row", MANY(16, EXP(i)) MANY(32, FMA(0)))
PIECE(Integers, "32 lop3, 16 fma in a row", MANY(32, LOP(i % 16)) MANY(16, FMA(0)))
PIECE(IntegersLong, "64 lop3, 64 fma in a row", MANY(64, LOP(i % 16)) MANY(64, FMA(0)))
PIECE(Reduction, "5 of shfl, fma in a row", MANY(5, SHFL(0); FMA(0)))
PIECE(Loads, "16 ld.shared, 16 fma in a row", MANY(16, LOAD(i)) MANY(16, FMA(0)))
PIECE(Mixed, "8 ld.shared, 8 lop3, 16 fma, 8 ex2, a reduction",
      MANY(8, LOAD(i)) MANY(8, LOP(i)) MANY(8, FMA(i)) MANY(8, EXP(i)) MANY(8, FMA(0)) MANY(5, SHFL(0); FMA(0)))

template <class Piece>
__global__ void pieces(int* out, float from, uint32_t with, int apart, float* sink) {
  __shared__ float words[32 * 17];
  for (int i = threadIdx.x; i < 32 * 17; i += blockDim.x) words[i] = from;
  float x[16];
  uint32_t n[16];
  for (int i = 0; i < 16; ++i) {
    x[i] = from + threadIdx.x + i;
    n[i] = with + threadIdx.x + i;
  }
  const int warp = threadIdx.x / 32;
  const uint32_t at = s32(words) + 4 * (threadIdx.x % 32) * 17;
  __syncthreads();
  const long long begin = clk();
  while (clk() - begin < (long long)apart * (warp * 37 % 32)) {
  }
  const long long t = clk();
#pragma unroll 1
  for (int round = 0; round < kRounds; ++round) Piece::go(x, n, from, with, at);
  const int took = (int)(clk() - t);
  float sum = 0;
  for (int i = 0; i < 16; ++i) sum += x[i] + n[i];
  if (sum == 12345.678f) *sink = sum;
  if (threadIdx.x % 32 == 0) out[warp] = took;
}

static int* answers;
static float* sink;

template <class Piece>
static void measure() {
  for (int apart : {0, 13}) {
    char text[400];
    int at = 0;
    for (int each : {1, 2, 3, 4, 5, 6, 8}) {
      std::vector<double> all;
      for (int again = 0; again < 5; ++again) {
        pieces<Piece><<<1, 128 * each>>>(answers, 0.5f, 77, apart, sink);
        CHECK(cudaDeviceSynchronize());
        int took[32];
        CHECK(cudaMemcpy(took, answers, sizeof took, cudaMemcpyDeviceToHost));
        double mean = 0;
        for (int w = 0; w < 4 * each; ++w) mean += took[w] / (4.0 * each * kRounds);
        all.push_back(mean);
      }
      std::sort(all.begin(), all.end());
      at += snprintf(text + at, sizeof text - at, " %d: %.1f", each, all[2]);
    }
    say("%s, %d apart:%s", Piece::kName, apart, text);
  }
}

int main() {
  CHECK(cudaMalloc(&answers, 4096));
  CHECK(cudaMalloc(&sink, 64));
  measure<Chain>();
  measure<Specials>();
  measure<Spread>();
  measure<SpreadChain>();
  measure<Integers>();
  measure<IntegersLong>();
  measure<Reduction>();
  measure<Loads>();
  measure<Mixed>();
}
