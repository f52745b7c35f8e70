// SPDX-License-Identifier: Apache-2.0
// Which instructions share a unit of a sub-partition, and for how many clocks each takes it: every instruction by itself, and pairs of
// them in turn. Two of different units take as long as the slower of them, two of one unit as long as both. At most two operands are
// registers: three of one bank are read in two clocks, which would hide the units.
//   nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a -o pipes bench/units/pipes.cu && ./pipes
// Clocks of a sub-partition for one instruction of each sort; one warp on it, and four. What an H200 answered:
// docs/measurements/2026-11-25-pipes.md.
#include "device.h"

constexpr int kRounds = 64, kChains = 8, kSteps = 32;

// Values that asm statements may use: %0 a float, %1 an integer, %2 a predicate as an integer; %3 and %4 a float and an integer that do not
// change; %5 an address in shared memory.
struct Chain {
  float f;
  uint32_t i;
  uint64_t l;
};
#define USE(CODE)                                                                                                            \
  asm volatile(CODE : "+f"(x[c].f), "+r"(x[c].i), "+l"(x[c].l) : "f"(by), "r"(with), "r"(shared), "f"(y[c].f), "r"(y[c].i) \
               : "memory")

#define SORT(NAME, TEXT, CODE)                                                                                        \
  struct NAME {                                                                                                       \
    static constexpr const char* kName = TEXT;                                                                        \
    static __device__ __forceinline__ void go(Chain* x, const Chain* y, float by, uint32_t with, uint32_t shared, int c) { \
      USE(CODE);                                                                                                      \
    }                                                                                                                 \
  };
SORT(Fma, "fma.f32", "fma.rn.f32 %0, %0, 0f3F7FFFF0, %6;")
SORT(Add, "add.f32", "add.rn.f32 %0, %0, %6;")
SORT(Mul, "mul.f32", "mul.rn.f32 %0, %0, %3;")
SORT(Max, "max.f32", "{.reg .f32 t; neg.f32 t, %0; max.f32 %0, t, %6;}")
SORT(Half2, "mul.f16x2", "mul.rn.f16x2 %1, %1, %7;")
SORT(BFloat2, "add.bf16x2", "add.rn.bf16x2 %1, %1, %7;")
SORT(AddI, "add.u32", "{.reg .u32 t; add.u32 t, %1, 77; add.u32 %1, t, %7;}")
SORT(Logic, "lop3", "lop3.b32 %1, %1, 0x1234567, %7, 0x6A;")
SORT(MulI, "mad.lo.u32", "mad.lo.u32 %1, %1, 0x12345, %7;")
SORT(MulWide, "mad.wide.u32", "mad.wide.u32 %2, %1, %4, %2;")
SORT(Shift, "shf.l.wrap", "shf.l.wrap.b32 %1, %1, %7, 7;")
SORT(Permute, "prmt", "prmt.b32 %1, %1, %7, 0x1302;")
SORT(Select, "setp + selp", "{.reg .pred p; setp.lt.u32 p, %1, %7; selp.u32 %1, %4, %1, p;}")
SORT(SelectF, "setp.f32 + selp", "{.reg .pred p; setp.lt.f32 p, %0, %6; selp.f32 %0, %3, %0, p;}")
SORT(Pack, "cvt.rn.bf16x2.f32", "{.reg .b32 t; cvt.rn.bf16x2.f32 t, %0, %6; mov.b32 %0, t;}")
SORT(PackHalf, "cvt.rn.f16x2.f32", "{.reg .b32 t; cvt.rn.f16x2.f32 t, %0, %6; mov.b32 %0, t;}")
SORT(Unpack, "cvt.f32.f16", "{.reg .b16 lo, hi; .reg .b32 t; mov.b32 t, %0; mov.b32 {lo, hi}, t; cvt.f32.f16 %0, hi;}")
SORT(FromInt, "cvt.rn.f32.u32", "{.reg .f32 t; cvt.rn.f32.u32 t, %1; mov.b32 %1, t;}")
SORT(ToInt, "cvt.rzi.u32.f32", "{.reg .f32 t; mov.b32 t, %1; cvt.rzi.u32.f32 %1, t;}")
SORT(Pack8, "cvt.rn.satfinite.e4m3x2.f32", "{.reg .b16 t; .reg .b32 u; cvt.rn.satfinite.e4m3x2.f32 t, %0, %6; cvt.u32.u16 u, t; mov.b32 %0, u;}")
SORT(Unpack8, "cvt.rn.f16x2.e4m3x2", "{.reg .b16 t; cvt.u16.u32 t, %1; cvt.rn.f16x2.e4m3x2 %1, t;}")
SORT(Exp, "ex2.approx", "ex2.approx.ftz.f32 %0, %0;")
SORT(Reciprocal, "rsqrt.approx", "rsqrt.approx.ftz.f32 %0, %0;")
SORT(Tanh, "tanh.approx", "tanh.approx.f32 %0, %0;")
SORT(Shuffle, "shfl", "shfl.sync.bfly.b32 %0, %0, 1, 31, -1;")
SORT(Redux, "redux.add", "redux.sync.add.s32 %1, %1, -1;")
SORT(Vote, "vote.ballot", "{.reg .pred p; setp.ne.u32 p, %1, %7; vote.sync.ballot.b32 %1, p, -1;}")
SORT(Popc, "popc", "popc.b32 %1, %1;")
SORT(Load, "ld.shared", "{.reg .u32 t; ld.volatile.shared.u32 t, [%5]; xor.b32 %1, %1, t;}")
SORT(Store, "st.shared", "st.volatile.shared.u32 [%5], %1;")
SORT(Double, "fma.f64", "fma.rn.f64 %2, %2, %2, %2;")
SORT(Divide, "div.rn.f32", "div.rn.f32 %0, %6, %3;")
SORT(Root, "sqrt.rn.f32", "sqrt.rn.f32 %0, %6;")
SORT(DivideInt, "div.u32", "div.u32 %1, %1, %4;")
SORT(AddCarry, "add.s64", "add.s64 %2, %2, %2;")
SORT(Nothing, "nothing", "")

template <class A, class B, int kA, int kB>
__global__ void both(long long* out, const Chain* from, int shift, uint32_t* sink) {
  __shared__ uint32_t words[1024];
  words[threadIdx.x] = from[0].i;
  Chain x[kChains], y[kChains];
  for (int c = 0; c < kChains; ++c) {
    x[c] = from[c + threadIdx.x % 4];
    y[c] = from[8 + c + threadIdx.x % 4];
  }
  const float by = from[16].f;
  const uint32_t with = from[16].i, shared = s32(words + threadIdx.x);
  __syncthreads();
  const long long t = clk();
#pragma unroll 1
  for (int r = 0; r < kRounds; ++r) {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
#pragma unroll
      for (int k = 0; k < kA; ++k) A::go(x, y, by, with, shared, (s + k) % kChains);
#pragma unroll
      for (int k = 0; k < kB; ++k) B::go(x, y, by, with, shared, (s + k + 4) % kChains);
    }
  }
  uint32_t sum = 0; /* a branch on what was computed: the clock is read behind it */
  for (int c = 0; c < kChains; ++c) sum ^= __float_as_uint(x[c].f) ^ x[c].i ^ (uint32_t)x[c].l;
  if (sum == 123457) {
    *sink = 1;
    return;
  }
  __syncthreads();
  if (threadIdx.x == 0) out[0] = clk() - t;
}

static long long* answers;
static Chain* values;
static uint32_t* sink;

/// `ways` of A and B in each step: clocks of a sub-partition per step.
template <class A, class B, int kA, int kB>
static void measure() {
  double clocks[3];
  int i = 0;
  for (int warps : {1, 4, 16}) {
    std::vector<long long> all;
    for (int round = 0; round < 5; ++round) {
      both<A, B, kA, kB><<<1, 32 * warps>>>(answers, values, 0, sink);
      CHECK(cudaDeviceSynchronize());
      long long got;
      CHECK(cudaMemcpy(&got, answers, sizeof got, cudaMemcpyDeviceToHost));
      all.push_back(got);
    }
    std::sort(all.begin(), all.end());
    clocks[i++] = (double)all[2] / (kRounds * kSteps) / (warps == 16 ? 4 : 1);
  }
  say("%d %s, %d %s: %.2f one warp, %.2f one on each sub-partition, %.2f of the sub-partition with four", kA, A::kName, kB,
      kB ? B::kName : "", clocks[0], clocks[1], clocks[2]);
}
template <class A>
static void alone() {
  measure<A, Nothing, 1, 0>();
}

int main() {
  CHECK(cudaMalloc(&answers, 64));
  CHECK(cudaMalloc(&sink, 64));
  CHECK(cudaMalloc(&values, 64 * sizeof(Chain)));
  std::vector<Chain> from(64);
  for (int i = 0; i < 64; ++i) from[i] = {1.0f + 0.01f * i, 0x3C003C01u + 7 * i, 0x3FF0000000000001ull + i};
  CHECK(cudaMemcpy(values, from.data(), from.size() * sizeof(Chain), cudaMemcpyHostToDevice));
  alone<Fma>();
  alone<Add>();
  alone<Mul>();
  alone<Max>();
  alone<Half2>();
  alone<BFloat2>();
  alone<AddI>();
  alone<Logic>();
  alone<MulI>();
  alone<MulWide>();
  alone<Shift>();
  alone<Permute>();
  alone<Select>();
  alone<SelectF>();
  alone<Pack>();
  alone<PackHalf>();
  alone<Unpack>();
  alone<FromInt>();
  alone<ToInt>();
  alone<Pack8>();
  alone<Unpack8>();
  alone<Exp>();
  alone<Reciprocal>();
  alone<Tanh>();
  alone<Shuffle>();
  alone<Redux>();
  alone<Vote>();
  alone<Popc>();
  alone<Load>();
  alone<Store>();
  alone<Double>();
  measure<Fma, Max, 1, 1>();
  measure<Fma, Logic, 1, 1>();
  measure<Fma, Logic, 2, 1>();
  measure<Fma, MulI, 1, 1>();
  measure<Fma, MulI, 2, 1>();
  measure<Logic, MulI, 1, 1>();
  measure<Max, Logic, 1, 1>();
  measure<Logic, Half2, 1, 1>();
  measure<Fma, Half2, 1, 1>();
  measure<MulI, Half2, 1, 1>();
  measure<Logic, Pack, 1, 1>();
  measure<Fma, Pack, 1, 1>();
  measure<MulI, Pack, 1, 1>();
  measure<Logic, Unpack, 1, 1>();
  measure<Exp, Unpack, 1, 1>();
  measure<Logic, FromInt, 1, 1>();
  measure<Exp, FromInt, 1, 1>();
  measure<Exp, ToInt, 1, 1>();
  measure<Logic, Pack8, 1, 1>();
  measure<Exp, Pack8, 1, 1>();
  measure<Logic, Unpack8, 1, 1>();
  measure<Exp, Fma, 1, 4>();
  measure<Exp, Fma, 1, 7>();
  measure<Exp, Fma, 1, 8>();
  measure<Exp, Logic, 1, 2>();
  measure<Exp, Logic, 1, 4>();
  measure<Exp, Shuffle, 1, 1>();
  measure<Exp, Shuffle, 1, 2>();
  measure<Exp, Load, 1, 4>();
  measure<Shuffle, Load, 1, 1>();
  measure<Shuffle, Store, 1, 1>();
  measure<Shuffle, Fma, 1, 4>();
  measure<Shuffle, Logic, 1, 2>();
  measure<Load, Fma, 1, 4>();
  measure<Load, Logic, 1, 2>();
  measure<Popc, Exp, 1, 1>();
  measure<Redux, Shuffle, 1, 1>();
  measure<Redux, Logic, 1, 1>();
  measure<Vote, Logic, 1, 1>();
  measure<Vote, Fma, 1, 2>();
  measure<Double, Fma, 1, 1>();
  measure<Double, Logic, 1, 1>();
  alone<Divide>();
  alone<Root>();
  alone<DivideInt>();
  alone<AddCarry>();
  measure<Divide, Logic, 1, 2>();
  measure<Divide, Logic, 1, 4>();
  measure<Divide, Logic, 1, 8>();
  measure<Divide, Fma, 1, 8>();
  measure<Divide, Exp, 1, 1>();
  measure<Divide, Exp, 1, 2>();
  measure<DivideInt, Exp, 1, 1>();
  measure<DivideInt, Logic, 1, 4>();
  measure<DivideInt, Fma, 1, 8>();
  measure<Shuffle, Exp, 2, 1>();
  measure<Logic, Max, 2, 2>();
  measure<Permute, Fma, 1, 1>();
  measure<Select, Fma, 1, 2>();
  return 0;
}
