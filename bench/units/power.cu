// SPDX-License-Identifier: Apache-2.0
// What one kind of work costs a Hopper chip in energy, and what clock it leaves: the measurements behind
// src/vgpu/timeline/power.cpp. Each kernel does one thing on some of the SMs for more than a second; a warp of each SM notes its
// clock against time, and the host reads the driver's count of energy meanwhile.
//   bench/units/generate && nvcc -O2 -std=c++17 -gencode arch=compute_90a,code=sm_90a -o power bench/units/power.cu -ldl && ./power
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <dlfcn.h>
#include <chrono>
#include <string>
#include <thread>

#include "device.h"
#include "wgmma.h"

extern __shared__ __align__(1024) char smem[];

// ---- operands
enum Fill { kZeros, kOnes, kNormal, kNarrow, kUniform, kPositive, kBits };
static const char* const kFillNames[] = {"zeros", "ones", "normal", "narrow", "uniform", "positive", "bits"};
enum Type { kBf16, kF16, kE4m3, kS8, kTf32 };
static const char* const kTypeNames[] = {"bf16", "f16", "e4m3", "s8", "tf32"};

__device__ __forceinline__ uint32_t hashed(uint64_t x) {
  x ^= x >> 31;
  x *= 0x9E3779B97F4A7C15ull;
  x ^= x >> 29;
  x *= 0xBF58476D1CE4E5B9ull;
  return (uint32_t)(x >> 32);
}
__device__ float value_of(uint64_t i, int fill) {
  const uint32_t h = hashed(2 * i), g = hashed(2 * i + 1);
  const float u = (h >> 8) * (1.f / 16777216), v = ((g >> 8) + 1) * (1.f / 16777217);
  switch (fill) {
    case kZeros: return 0;
    case kOnes: return 1;
    case kNormal: return sqrtf(-2 * logf(v)) * cosf(6.2831853f * u);
    case kNarrow: return (float)(int)(h % 5) - 2;
    case kUniform: return 2 * u - 1;
    default: return u;
  }
}
__global__ void fill_memory(char* to, size_t bytes, int type, int fill) {
  const int size = type == kTf32 ? 4 : type <= kF16 ? 2 : 1;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < bytes / size; i += (size_t)gridDim.x * blockDim.x) {
    const float x = value_of(i, fill);
    if (type == kBf16) ((__nv_bfloat16*)to)[i] = fill == kBits ? __ushort_as_bfloat16(hashed(i) & 0xBFFF) : __float2bfloat16(x);
    if (type == kF16) ((__half*)to)[i] = fill == kBits ? __ushort_as_half(hashed(i) & 0xBFFF) : __float2half(x);
    if (type == kE4m3) ((__nv_fp8_e4m3*)to)[i] = __nv_fp8_e4m3(x);
    if (type == kS8) ((int8_t*)to)[i] = (int8_t)(fill == kBits ? hashed(i) : (uint32_t)(int)(fill == kNormal ? 32 * x : x));
    if (type == kTf32) ((float*)to)[i] = x;
  }
}

// ---- what the warps of an SM do
enum Work { kIdle, kSpin, kSs, kRs, kMma, kFma, kAlu, kMufu, kLoadShared, kStoreShared, kReadMemory, kCopyMemory };
constexpr int kWorkers = 256, kThreads = kWorkers + 64, kNotes = 24, kOperands = 4 * 48 * 1024, kDepth = 4, kChunk = 16384;

struct Plan {
  int loads;            // bulk loads beside the work: 0 none, 1 from L2, 2 from memory
  int period;           // clocks between two of them, at least
  int pause;            // nanoseconds a warp sleeps between its products
  long long nanoseconds;
  const char* data;
  char* target;
  size_t bytes;         // of data
  long long *notes, *counts;
};

__device__ __forceinline__ uint64_t desc(uint32_t at) {
  return (uint64_t)(at >> 4 & 0x3FFF) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
template <int TYPE>
using Sum = std::conditional_t<TYPE == kS8, int, float>;
template <int TYPE, int N, bool RS>
__device__ __forceinline__ void product(Sum<TYPE> (&d)[N / 2], uint32_t a, uint32_t b, const uint32_t (&r)[4]) {
  if constexpr (RS) {
    wgmma_rs_256(d, r, desc(b));
  } else if constexpr (TYPE == kBf16) {
    if constexpr (N == 64)
      wgmma_ss_64(d, desc(a), desc(b));
    else if constexpr (N == 128)
      wgmma_ss_128(d, desc(a), desc(b));
    else
      wgmma_ss_256(d, desc(a), desc(b));
  } else if constexpr (TYPE == kF16) {
    wgmma_f16(d, desc(a), desc(b));
  } else if constexpr (TYPE == kE4m3) {
    wgmma_e4m3(d, desc(a), desc(b));
  } else if constexpr (TYPE == kS8) {
    wgmma_s8(d, desc(a), desc(b));
  } else {
    wgmma_tf32(d, desc(a), desc(b));
  }
}

template <int WORK, int TYPE, int N>
__global__ void __launch_bounds__(kThreads, 1) load(Plan plan) {
  const uint32_t bars = s32(smem), base = s32(smem) + 1024;
  volatile int* stop = (volatile int*)(smem + 512);
  for (int i = threadIdx.x; i < kOperands / 16; i += kThreads)
    ((uint4*)(smem + 1024))[i] = ((const uint4*)plan.data)[i + blockIdx.x * 64 % 4096];
  if (threadIdx.x == 0) {
    *stop = 0;
    for (int i = 0; i < kDepth; ++i) bar_init(bars + 8 * i, 1);
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async;" ::: "memory");
  }
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  if (threadIdx.x >= kWorkers + 32) {  // loads in a ring, over the operands
    if (plan.loads == 0 || threadIdx.x != kWorkers + 32) return;
    size_t at = (size_t)blockIdx.x * kChunk;
    int slot = 0;
    uint32_t parity = 0;
    long long n = 0, next = clk();
    const auto issue = [&](int into) {
      bar_expect(bars + 8 * into, kChunk);
      bulk_load(base + (into * 3) * kChunk, plan.data + at, kChunk, bars + 8 * into);
      at += (size_t)gridDim.x * kChunk;
      if (at + kChunk > plan.bytes) at = (size_t)blockIdx.x * kChunk;
    };
    for (int i = 0; i < kDepth; ++i) issue(i);
    while (!*stop) {
      bar_wait(bars + 8 * slot, parity);
      ++n;
      while (clk() < next) {}
      next = max(next + plan.period, clk() - 4000);
      issue(slot);
      if (++slot == kDepth) {
        slot = 0;
        parity ^= 1;
      }
    }
    for (int i = 0; i < kDepth; ++i) {
      bar_wait(bars + 8 * slot, parity);
      if (++slot == kDepth) {
        slot = 0;
        parity ^= 1;
      }
    }
    plan.counts[2 * blockIdx.x + 1] = n;
    return;
  }
  if (threadIdx.x >= kWorkers) {  // notes: 1 microsecond after the start, then in steps of 2, 5, 10
    if (threadIdx.x != kWorkers) return;
    const long long begin = ns();
    long long after = 0, unit = 1000;
    for (int i = 0; i < kNotes; ++i) {
      while (ns() - begin < after) {
        const long long left = after - (ns() - begin);
        if (left > 2000) __nanosleep(min(left / 2, 100000ll));
      }
      plan.notes[(size_t)(blockIdx.x * kNotes + i) * 2] = clk();
      plan.notes[(size_t)(blockIdx.x * kNotes + i) * 2 + 1] = ns();
      after = i % 3 == 0 ? unit : i % 3 == 1 ? 2 * unit : 5 * unit;
      if (i % 3 == 2) unit *= 10;
      after = min(after, plan.nanoseconds);
    }
    *stop = 1;
    return;
  }
  long long n = 0;
  const int group = threadIdx.x / 128;
  if constexpr (WORK == kIdle) return;
  if constexpr (WORK == kSpin) {
    if (threadIdx.x >= 32) return;
    while (!*stop) ++n;
  }
  if constexpr (WORK == kSs || WORK == kRs) {
    Sum<TYPE> d[N / 2] = {};
    const uint32_t* words = (const uint32_t*)(smem + 1024);
    uint32_t r[4];
    for (int i = 0; i < 4; ++i) r[i] = words[threadIdx.x * 4 + i];
    // The warps of a group must agree when to end: one of them looks for all.
    volatile int* seen = (volatile int*)(smem + 520) + 2 * group;
    for (int turn = 0;; turn ^= 1) {
      if (threadIdx.x % 128 == 0) seen[turn] = *stop;
      asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
      if (seen[turn]) break;
      for (int stage = 0; stage < 4; ++stage) {
        const uint32_t a = base + stage * 49152 + group * 8192, b = base + stage * 49152 + 16384;
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int j = 0; j < 4; ++j) product<TYPE, N, WORK == kRs>(d, a + j * 32, b + j * 32, r);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        ++n;
        if (plan.pause > 0) __nanosleep(plan.pause);
      }
      if (n % 128 == 0) {
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        for (int i = 0; i < N / 2; ++i) d[i] = 0;
      }
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    float s = 0;
    for (int i = 0; i < N / 2; ++i) s += d[i];
    if (s == 12345.f) plan.target[threadIdx.x] = 1;
  }
  if constexpr (WORK == kMma) {
    float d[8][4] = {};
    uint32_t a[4], b[8][2];
    const uint32_t* words = (const uint32_t*)(smem + 1024);
    for (int i = 0; i < 4; ++i) a[i] = words[threadIdx.x * 20 + i];
    for (int i = 0; i < 16; ++i) b[i / 2][i % 2] = words[threadIdx.x * 20 + 4 + i];
    while (!*stop) {
      for (int k = 0; k < 16; ++k)
#pragma unroll
        for (int i = 0; i < 8; ++i)
          asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                       : "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
                       : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[i][0]), "r"(b[i][1]));
      n += 128;
      if (n % 1024 == 0)
        for (int i = 0; i < 8; ++i)
          for (int j = 0; j < 4; ++j) d[i][j] = 0;
    }
    float s = 0;
    for (int i = 0; i < 8; ++i) s += d[i][0] + d[i][1] + d[i][2] + d[i][3];
    if (s == 12345.f) plan.target[threadIdx.x] = 1;
  }
  if constexpr (WORK == kFma || WORK == kAlu || WORK == kMufu) {
    const uint32_t* words = (const uint32_t*)(smem + 1024);
    float x[8], y = __uint_as_float(words[threadIdx.x] & 0x3FFFFFFF | 0x3F000000) , z = .3f;
    uint32_t u[8], v = words[threadIdx.x + 7];
    for (int i = 0; i < 8; ++i) u[i] = words[threadIdx.x * 8 + i], x[i] = __uint_as_float(u[i] & 0x3F7FFFFF);
    while (!*stop) {
      for (int k = 0; k < 16; ++k)
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          if (WORK == kFma) asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(x[i]) : "f"(y * .5f), "f"(z));
          if (WORK == kAlu) asm volatile("xor.b32 %0, %0, %1;\nadd.u32 %0, %0, %2;" : "+r"(u[i]) : "r"(v), "r"(k * 77));
          if (WORK == kMufu) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[i]));
        }
      n += 128;
    }
    float s = 0;
    for (int i = 0; i < 8; ++i) s += x[i] + u[i];
    if (s == 12345.f) plan.target[threadIdx.x] = 1;
  }
  if constexpr (WORK == kLoadShared || WORK == kStoreShared) {
    uint32_t x0 = threadIdx.x * 0x9E3779B9u, x1 = x0 * 77, x2 = x0 * 99, x3 = x0 * 12345, sum = 0;
    while (!*stop) {
#pragma unroll
      for (int j = 0; j < 32; ++j) {
        const uint32_t at = base + (threadIdx.x + (j & 15) * 256) * 16;
        if (WORK == kLoadShared) {
          asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(x0), "=r"(x1), "=r"(x2), "=r"(x3) : "r"(at));
          sum ^= x0 ^ x1 ^ x2 ^ x3;
        } else {
          asm volatile("st.shared.v4.u32 [%4], {%0, %1, %2, %3};" ::"r"(x0), "r"(x1), "r"(x2), "r"(x3), "r"(at));
        }
      }
      if (WORK == kStoreShared) x0 = x0 * 1664525 + 1, x1 ^= x0, x2 += x1, x3 ^= x2;
      n += 32;
    }
    if (sum == 12345) plan.target[threadIdx.x] = 1;
  }
  if constexpr (WORK == kReadMemory || WORK == kCopyMemory) {
    const size_t count = plan.bytes / 16, step = (size_t)gridDim.x * kWorkers;
    size_t at = (size_t)blockIdx.x * kWorkers + threadIdx.x;
    uint32_t sum = 0;
    while (!*stop) {
      uint4 v[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = __ldcg((const uint4*)plan.data + at + j * step);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        if (WORK == kCopyMemory)
          ((uint4*)plan.target)[at + j * step] = v[j];
        else
          sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
      }
      at += 8 * step;
      if (at + 8 * step >= count) at = (size_t)blockIdx.x * kWorkers + threadIdx.x;
      n += 8;
    }
    if (sum == 12345) plan.target[threadIdx.x] = 1;
  }
  if (threadIdx.x == 0) plan.counts[2 * blockIdx.x] = n;
}

// ---- the driver's management library
using Nvml = void*;
static int (*nvml_energy)(Nvml, unsigned long long*);
static int (*nvml_power)(Nvml, unsigned*);
static int (*nvml_temperature)(Nvml, int, unsigned*);
static int (*nvml_limit)(Nvml, unsigned*);
static int (*nvml_reasons)(Nvml, unsigned long long*);
static Nvml gpu;
static void open_nvml() {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (library == nullptr) say("FAILED: no libnvidia-ml.so.1"), exit(1);
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) say("FAILED: no %s", name), exit(1);
  };
  int (*init)();
  int (*by_bus)(const char*, Nvml*);
  find(init, "nvmlInit_v2");
  find(by_bus, "nvmlDeviceGetHandleByPciBusId_v2");
  find(nvml_energy, "nvmlDeviceGetTotalEnergyConsumption");
  find(nvml_power, "nvmlDeviceGetPowerUsage");
  find(nvml_temperature, "nvmlDeviceGetTemperature");
  find(nvml_limit, "nvmlDeviceGetEnforcedPowerLimit");
  find(nvml_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  char bus[64];
  CHECK(cudaDeviceGetPCIBusId(bus, 64, 0));
  if (init() != 0 || by_bus(bus, &gpu) != 0) say("FAILED: the management library"), exit(1);
}

static long long *notes_d, *counts_d;
static char *data, *target;
constexpr size_t kBig = 4ull << 30;
static int sms;
static double duration_s = 1.0;

static int filled_type = -1, filled_fill = -1;
static void fill(int type, int how) {
  if (filled_type == type && filled_fill == how) return;
  fill_memory<<<4 * sms, 256>>>(data, type == kBf16 && how == kNormal ? kBig : 32u << 20, type, how);
  CHECK(cudaDeviceSynchronize());
  filled_type = type, filled_fill = how;
}

template <int WORK, int TYPE = kBf16, int N = 256>
void measure(const char* name, int how, int on, int loads = 0, int period = 0, int pause = 0) {
  using namespace std::chrono;
  fill(TYPE, how);
  const int bytes = 1024 + kOperands + 1024;
  CHECK(cudaFuncSetAttribute(load<WORK, TYPE, N>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  CHECK(cudaMemset(notes_d, 0, sizeof(long long) * 2 * kNotes * sms));
  CHECK(cudaMemset(counts_d, 0, sizeof(long long) * 2 * sms));
  CHECK(cudaDeviceSynchronize());
  std::this_thread::sleep_for(milliseconds(150));
  Plan plan{loads, period, pause, (long long)(duration_s * 1e9), data, target, loads == 1 ? size_t{16} << 20 : kBig, notes_d, counts_d};
  const auto begin = steady_clock::now();
  load<WORK, TYPE, N><<<on, kThreads, bytes>>>(plan);
  struct Sample {
    double at, joules;
  };
  std::vector<Sample> samples;
  unsigned power = 0, temperature = 0;
  unsigned long long energy = 0, last = 0, reasons = 0;
  while (cudaStreamQuery(0) == cudaErrorNotReady) {
    nvml_energy(gpu, &energy);
    const double now = duration<double>(steady_clock::now() - begin).count();
    if (energy != last) samples.push_back({now, energy * 1e-3}), last = energy;
    if (now > duration_s * .9 && power == 0) nvml_power(gpu, &power), nvml_temperature(gpu, 0, &temperature), nvml_reasons(gpu, &reasons);
    std::this_thread::sleep_for(milliseconds(2));
  }
  CHECK(cudaDeviceSynchronize());
  std::vector<long long> notes(2 * kNotes * sms), counts(2 * sms);
  CHECK(cudaMemcpy(notes.data(), notes_d, notes.size() * 8, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(counts.data(), counts_d, counts.size() * 8, cudaMemcpyDeviceToHost));
  std::string clocks;
  double ghz = 0, lived = 0;
  for (int i = 1; i < kNotes; ++i) {
    std::vector<double> rates;
    for (int c = 0; c < on; ++c) {
      const long long* at = &notes[2 * (c * kNotes + i)];
      if (at[1] - at[-1] > 500) rates.push_back((double)(at[0] - at[-2]) / (at[1] - at[-1]));
    }
    if (rates.empty()) continue;
    std::sort(rates.begin(), rates.end());
    char text[64];
    snprintf(text, 64, " %.0f:%.0f", (notes[2 * i + 1] - notes[1]) * 1e-3, 1e3 * rates[rates.size() / 2]);
    clocks += text;
    ghz = rates[rates.size() / 2];
  }
  lived = (notes[2 * kNotes - 1] - notes[1]) * 1e-9;
  double from = 0, joules = 0, watts = 0, cool = 0;
  for (const Sample& s : samples) {
    if (s.at < .45 * duration_s) from = s.at, joules = s.joules;
    else if (from > 0 && s.at < duration_s) watts = (s.joules - joules) / (s.at - from);
    if (s.at < .2 && !samples.empty() && s.at > samples[0].at) cool = (s.joules - samples[0].joules) / (s.at - samples[0].at);
  }
  double n = 0, loaded = 0;
  for (int c = 0; c < on; ++c) n += counts[2 * c], loaded += counts[2 * c + 1];
  say("power work=%s type=%s operands=%s n=%d sms=%d loads=%d period=%d pause=%d watts=%.1f first_watts=%.1f nvml_watts=%.1f celsius=%u reasons=%llx "
      "mhz=%.0f per_sm_us=%.4f loads_per_sm_us=%.5f seconds=%.3f clocks=%s",
      name, kTypeNames[TYPE], kFillNames[how], N, on, loads, period, pause, watts, cool, power * 1e-3, temperature, reasons, 1e3 * ghz,
      n / on / lived * 1e-6, loaded / on / lived * 1e-6, lived, clocks.c_str());
}

int main(int argc, char** argv) {
  const int part = argc > 1 ? atoi(argv[1]) : 0;
  CHECK(cudaSetDevice(0));
  cudaDeviceProp prop;
  CHECK(cudaGetDeviceProperties(&prop, 0));
  sms = prop.multiProcessorCount;
  open_nvml();
  unsigned limit = 0;
  nvml_limit(gpu, &limit);
  say("device %s, %d SMs, limit %.0f W", prop.name, sms, limit * 1e-3);
  CHECK(cudaMalloc(&data, kBig));
  CHECK(cudaMalloc(&target, kBig));
  CHECK(cudaMalloc(&notes_d, sizeof(long long) * 2 * kNotes * sms));
  CHECK(cudaMalloc(&counts_d, sizeof(long long) * 2 * sms));
  fill(kBf16, kNormal);
  if (part == 0 || part == 1) {
    measure<kIdle>("idle", kNormal, sms);
    measure<kSpin>("spin", kNormal, sms);
    for (int on : {sms / 4, sms / 2, 3 * sms / 4, sms}) measure<kSs>("wgmma", kNormal, on);
    measure<kSs>("wgmma", kNormal, sms, 0, 0, 300);
    measure<kSs>("wgmma", kNormal, sms, 1, 341);
    measure<kSs>("wgmma", kNormal, sms, 2, 1000);
    measure<kSs, kBf16, 128>("wgmma", kNormal, sms);
    measure<kSs, kBf16, 64>("wgmma", kNormal, sms);
    measure<kRs>("wgmma_rs", kNormal, sms);
    measure<kMma>("mma", kNormal, sms);
    measure<kFma>("fma", kNormal, sms);
    measure<kAlu>("alu", kNormal, sms);
    measure<kMufu>("mufu", kNormal, sms);
    measure<kLoadShared>("ld.shared.v4", kNormal, sms);
    measure<kStoreShared>("st.shared.v4", kNormal, sms);
    measure<kIdle>("bulk_l2", kNormal, sms, 1);
    measure<kIdle>("bulk_l2", kNormal, sms / 4, 1);
    measure<kIdle>("bulk_memory", kNormal, sms, 2);
    measure<kIdle>("bulk_memory", kNormal, sms, 2, 1500);
    measure<kReadMemory>("ld.global", kNormal, sms);
    measure<kCopyMemory>("copy", kNormal, sms);
  }
  if (part == 0 || part == 2) {
    duration_s = 0.9;
    for (int how : {kUniform, kZeros, kOnes, kNarrow, kPositive, kBits}) measure<kSs>("wgmma", how, sms);
    measure<kSs, kF16>("wgmma", kNormal, sms);
    measure<kSs, kE4m3>("wgmma", kNormal, sms);
    measure<kSs, kE4m3>("wgmma", kZeros, sms);
    measure<kSs, kE4m3>("wgmma", kNarrow, sms);
    measure<kSs, kE4m3>("wgmma", kNormal, sms / 2);
    measure<kSs, kS8>("wgmma", kBits, sms);
    measure<kSs, kS8>("wgmma", kNormal, sms);
    measure<kSs, kTf32>("wgmma", kNormal, sms);
    measure<kSs, kTf32>("wgmma", kNormal, sms / 2);
    measure<kSs>("wgmma", kZeros, sms / 2);
    measure<kSs>("wgmma", kUniform, sms / 2);
    fill(kBf16, kZeros);
    measure<kIdle>("bulk_l2", kZeros, sms, 1);
    measure<kReadMemory>("ld.global", kZeros, sms);
  }
}
