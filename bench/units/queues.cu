// SPDX-License-Identifier: Apache-2.0
// How warps wait for the queue before the load/store unit: bursts of accesses to shared and global memory by one warp to 32 of an SM, each
// burst followed by the use of what was loaded, or by arithmetic. And what constants cost that lie far apart.
//   nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a -o queues bench/units/queues.cu && ./queues
// Clocks of a warp for a round, the mean over warps; and until the last access of a round is issued.
#include "device.h"

#include <utility>

constexpr int kRounds = 64;
extern __shared__ __align__(1024) char smem[];

enum Kind { kLds32, kLds128, kSts32, kSts128, kLdg32, kLdg128, kLdgL1, kStg32, kStg128, kKinds };
static const char* const kNames[] = {"ld.shared.b32",    "ld.shared.v4",          "st.shared.b32", "st.shared.v4", "ld.global.cg.b32",
                                     "ld.global.cg.v4", "ld.global.b32 from L1", "st.global.b32", "st.global.v4"};

template <int kKind, int kBurst, int kChain>
__global__ void bursts(char* global, size_t of_cta, int* out, float by, float* sink) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  constexpr bool kWide = kKind == kLds128 || kKind == kSts128 || kKind == kLdg128 || kKind == kStg128;
  constexpr int kBytes = kWide ? 16 : 4;
  const uint32_t shared = s32(smem) + (warp % 4) * 512 * 16 + lane * kBytes;
  // In L2, or the same lines again and again in L1.
  char* const near = global + blockIdx.x * of_cta + (size_t)warp * (kKind == kLdgL1 ? 0 : 32 * kBytes * kBurst * 2) + lane * kBytes;
  float x[kBurst * 4], chain = by;
  for (int i = 0; i < kBurst * 4; ++i) x[i] = by + i;
  __syncthreads();
  const int t = (int)clk();
  int issued = 0;
#pragma unroll 1
  for (int r = 0; r < kRounds; ++r) {
    const int u = (int)clk();
    char* const at = kKind == kLdgL1 ? near : near + (size_t)(r % 2) * (32 * kBytes * kBurst);
#pragma unroll
    for (int i = 0; i < kBurst; ++i) {
      const uint32_t s = shared + i * 32 * kBytes;
      char* const g = at + i * 32 * kBytes;
      if (kKind == kLds32) asm volatile("ld.volatile.shared.f32 %0, [%1];" : "=f"(x[i]) : "r"(s));
      if (kKind == kLds128)
        asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(x[4 * i]), "=f"(x[4 * i + 1]), "=f"(x[4 * i + 2]), "=f"(x[4 * i + 3])
                     : "r"(s));
      if (kKind == kSts32) asm volatile("st.volatile.shared.f32 [%1], %0;" ::"f"(x[i]), "r"(s) : "memory");
      if (kKind == kSts128)
        asm volatile("st.volatile.shared.v4.f32 [%4], {%0, %1, %2, %3};" ::"f"(x[4 * i]), "f"(x[4 * i + 1]), "f"(x[4 * i + 2]),
                     "f"(x[4 * i + 3]), "r"(s)
                     : "memory");
      if (kKind == kLdg32) asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(x[i]) : "l"(g));
      if (kKind == kLdgL1) asm volatile("ld.global.ca.f32 %0, [%1];" : "=f"(x[i]) : "l"(g));
      if (kKind == kLdg128)
        asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(x[4 * i]), "=f"(x[4 * i + 1]), "=f"(x[4 * i + 2]), "=f"(x[4 * i + 3])
                     : "l"(g));
      if (kKind == kStg32) asm volatile("st.global.f32 [%1], %0;" ::"f"(x[i]), "l"(g) : "memory");
      if (kKind == kStg128)
        asm volatile("st.global.v4.f32 [%4], {%0, %1, %2, %3};" ::"f"(x[4 * i]), "f"(x[4 * i + 1]), "f"(x[4 * i + 2]), "f"(x[4 * i + 3]),
                     "l"(g)
                     : "memory");
    }
    issued += (int)clk() - u;
    constexpr bool kLoads = kKind == kLds32 || kKind == kLds128 || kKind == kLdg32 || kKind == kLdg128 || kKind == kLdgL1;
    if (kLoads)
#pragma unroll
      for (int i = 0; i < kBurst * (kWide ? 4 : 1); ++i) asm volatile("add.f32 %0, %0, %1;" : "+f"(chain) : "f"(x[i]));
#pragma unroll
    for (int i = 0; i < kChain; ++i) asm volatile("fma.rn.f32 %0, %0, 0f3F7FFFF0, %1;" : "+f"(chain) : "f"(by));
  }
  const int took = (int)clk() - t;
  float sum = chain;
  for (int i = 0; i < kBurst * 4; ++i) sum += x[i];
  if (sum == 12345.678f) *sink = sum;
  if (lane == 0) {
    out[2 * (blockIdx.x * 32 + warp)] = took;
    out[2 * (blockIdx.x * 32 + warp) + 1] = issued;
  }
}

// ---- constants

constexpr int kConstants = 16384;
__constant__ float constants[kConstants];
template <int kWords, int kStride>
__global__ void far_constants(int* out, float* sink) {
  float x = threadIdx.x;
  for (int round = 0; round < 6; ++round) {
    const int t = (int)clk();
#pragma unroll
    for (int i = 0; i < kWords; ++i) asm volatile("add.f32 %0, %0, %1;" : "+f"(x) : "f"(constants[i * kStride]));
    const int took = (int)clk() - t;
    if (threadIdx.x % 32 == 0) out[6 * (threadIdx.x / 32) + round] = took;
  }
  if (x == 12345.678f) *sink = x;
}

static char* memory;
static int* answers;
static float* sink;

template <int kKind, int kBurst, int kChain>
static void measure() {
  constexpr size_t kShared = 4 * 512 * 16;
  for (const int ctas : {1, 132}) {
    char text[1000];
    int at = 0;
    for (const int warps : {1, 4, 8, 16, 32}) {
      std::vector<std::pair<double, double>> all;
      for (int again = 0; again < 4; ++again) {
        // Two places of each warp, which L2 holds.
        const size_t of_cta = (size_t)32 * 512 * kBurst * 2 / (kKind == kLdg128 || kKind == kStg128 ? 1 : 4);
        bursts<kKind, kBurst, kChain><<<ctas, 32 * warps, kShared>>>(memory, of_cta, answers, 0.5f, sink);
        CHECK(cudaDeviceSynchronize());
        static int took[2 * 132 * 32];
        CHECK(cudaMemcpy(took, answers, sizeof took, cudaMemcpyDeviceToHost));
        double mean = 0, issued = 0;
        for (int c = 0; c < ctas; ++c)
          for (int w = 0; w < warps; ++w) {
            mean += took[2 * (c * 32 + w)];
            issued += took[2 * (c * 32 + w) + 1];
          }
        all.emplace_back(mean / (1.0 * ctas * warps * kRounds), issued / (1.0 * ctas * warps * kRounds));
      }
      std::sort(all.begin(), all.end());
      at += snprintf(text + at, sizeof text - at, "  %d: %.1f (%.1f)", warps, all[1].first, all[1].second);
    }
    say("%2d of %-22s then %2d fma, %3d CTAs; warps:%s", kBurst, kNames[kKind], kChain, ctas, text);
  }
}
template <int kKind>
static void all_of() {
  measure<kKind, 1, 0>();
  measure<kKind, 4, 0>();
  measure<kKind, 8, 0>();
  measure<kKind, 4, 32>();
  measure<kKind, 8, 64>();
}
template <int... kKind>
static void every(std::integer_sequence<int, kKind...>) {
  (all_of<kKind>(), ...);
}
template <int kWords, int kStride>
static void constant_form() {
  for (const int warps : {1, 4, 16}) {
    far_constants<kWords, kStride><<<1, 32 * warps>>>(answers, sink);
    CHECK(cudaDeviceSynchronize());
    int took[6];
    CHECK(cudaMemcpy(took, answers, sizeof took, cudaMemcpyDeviceToHost));
    say("%4d constants %4d bytes apart, %2d warps: clocks for each, by rounds: %.1f %.1f %.1f %.1f", kWords, kStride * 4, warps,
        1.0 * took[0] / kWords, 1.0 * took[1] / kWords, 1.0 * took[3] / kWords, 1.0 * took[5] / kWords);
  }
}

int main() {
  CHECK(cudaMalloc(&memory, size_t{256} << 20));
  CHECK(cudaMemset(memory, 0, size_t{256} << 20));
  CHECK(cudaMalloc(&answers, 1 << 17));
  CHECK(cudaMalloc(&sink, 64));
  every(std::make_integer_sequence<int, kKinds>());
  constant_form<4, 16>();
  constant_form<16, 16>();
  constant_form<24, 16>();
  constant_form<32, 16>();
  constant_form<40, 16>();
  constant_form<64, 16>();
  constant_form<128, 16>();
  constant_form<256, 16>();
  constant_form<512, 16>();
  constant_form<32, 64>();
  constant_form<64, 64>();
  constant_form<512, 1>();
  return 0;
}
