// SPDX-License-Identifier: Apache-2.0
// A CTA waits for a flag by an access that does not acquire, and reads what the CTA that set the flag has written. Whether it reads
// the older value depends on what its SM's L1 cache holds: on who has read the same memory before the flag was set.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

constexpr int kThreads = 64, kReads = 32, kRow = 256;  // 32 reads, each of its own sector of 32 bytes

enum Look { kRelaxedGpu, kRelaxedSys, kVolatile, kAtomic, kAcquireCta, kFenceCta, kFenceGpu, kAcquireGpu, kLooks };
const char* const kLookNames[] = {"ld.relaxed.gpu", "ld.relaxed.sys", "ld.volatile", "atom.relaxed.gpu.or", "ld.acquire.cta",
                                  "ld.relaxed.gpu, fence.acq_rel.cta", "ld.relaxed.gpu, fence.acq_rel.gpu", "ld.acquire.gpu"};
enum Load { kPlain, kNoAllocate, kNonCoherent, kRelaxedCtaLoad, kAsyncCa, kAsyncCg, kCg, kVolatileLoad, kRelaxedLoad, kAtomicLoad, kBulk, kLoads };
const char* const kLoadNames[] = {"ld.global", "ld.global.L1::no_allocate", "ld.global.nc", "ld.relaxed.cta", "cp.async.ca", "cp.async.cg",
                                  "ld.global.cg", "ld.volatile", "ld.relaxed.gpu", "atom.relaxed.gpu.or", "cp.async.bulk"};
// Who has read what before the flag was set.
enum Before { kNobody, kSameThread, kOtherWarp, kOtherCta, kSameSector, kSameLine, kBefores };
const char* const kBeforeNames[] = {"nobody", "the same thread", "another warp", "another CTA of the SM", "a word beside it (32 bytes)",
                                    "another sector of the line"};

struct Shared {  // what a pair of SMs has in common; each flag in a line of its own
  uint32_t begin[32], ready[32], flag[32];
};

__device__ uint32_t peek(const uint32_t* p) {
  uint32_t x;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}
__device__ void poke(uint32_t* p, uint32_t x) { asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory"); }
__device__ void release(uint32_t* p, uint32_t x) { asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(x) : "memory"); }
__device__ uint32_t plain(const uint32_t* p) {
  uint32_t x;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  return x;
}
__device__ void patience(long long since) {
  if (clock64() - since > 4000000000ll) __trap();
}

template <int kLook>
__device__ void wait_for(uint32_t* p, uint32_t round) {
  const long long since = clock64();
  for (uint32_t x = 0; x != round; patience(since)) {
    if constexpr (kLook == kRelaxedSys) asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    else if constexpr (kLook == kVolatile) asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    else if constexpr (kLook == kAtomic) asm volatile("atom.relaxed.gpu.global.or.b32 %0, [%1], 0;" : "=r"(x) : "l"(p) : "memory");
    // What a CTA sees of the other by .cta may be never: looked at by .gpu first.
    else if constexpr (kLook == kAcquireCta) { x = peek(p); if (x == round) { uint32_t y; asm volatile("ld.acquire.cta.global.u32 %0, [%1];" : "=r"(y) : "l"(p) : "memory"); } }
    else if constexpr (kLook == kAcquireGpu) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
    else x = peek(p);
  }
  if constexpr (kLook == kFenceCta) asm volatile("fence.acq_rel.cta;" ::: "memory");
  if constexpr (kLook == kFenceGpu) asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

template <int kLoad>
__device__ uint32_t get(const uint32_t* p, uint32_t* staging, uint64_t* barrier, uint32_t phase) {
  uint32_t x;
  const uint32_t s = (uint32_t)__cvta_generic_to_shared(staging), b = (uint32_t)__cvta_generic_to_shared(barrier);
  if constexpr (kLoad == kNoAllocate) asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  else if constexpr (kLoad == kNonCoherent) asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  else if constexpr (kLoad == kRelaxedCtaLoad) asm volatile("ld.relaxed.cta.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  else if constexpr (kLoad == kCg) asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  else if constexpr (kLoad == kVolatileLoad) asm volatile("ld.volatile.global.u32 %0, [%1];" : "=r"(x) : "l"(p) : "memory");
  else if constexpr (kLoad == kRelaxedLoad) x = peek(p);
  else if constexpr (kLoad == kAtomicLoad) asm volatile("atom.relaxed.gpu.global.or.b32 %0, [%1], 0;" : "=r"(x) : "l"(p) : "memory");
  else if constexpr (kLoad == kAsyncCa || kLoad == kAsyncCg) {
    if constexpr (kLoad == kAsyncCa) asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(s), "l"(p) : "memory");
    else asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(s), "l"(p) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(s) : "memory");
  } else if constexpr (kLoad == kBulk) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 16;" ::"r"(b) : "memory");
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 16, [%2];" ::"r"(s), "l"(p), "r"(b) : "memory");
    for (uint32_t done = 0; done == 0;)
      asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(b), "r"(phase) : "memory");
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(x) : "r"(s) : "memory");
  } else x = plain(p);
  return x;
}

/// Two CTAs on every SM. SMs 2k and 2k + 1 are a pair: on the first one CTA reads and the other, perhaps, has read before; on the second
/// one CTA writes. Every round has memory of its own, which nobody on the reading SM has touched but as `before` says.
template <int kLook, int kLoad>
__global__ void __launch_bounds__(kThreads) run(uint32_t* data, Shared* pairs, uint32_t* slots, int rounds, int before, int by_barrier,
                                                unsigned long long* read, unsigned long long* wrong, uint32_t* role_count) {
  extern __shared__ uint32_t fills_half_the_sm[];
  __shared__ alignas(16) uint32_t staging[kReads * 4];
  __shared__ alignas(8) uint64_t barrier[kReads];
  __shared__ uint32_t slot_of_cta;
  uint32_t sm;
  asm("mov.u32 %0, %%smid;" : "=r"(sm));
  if (threadIdx.x == 0) slot_of_cta = atomicAdd(&slots[sm], 1);
  if (threadIdx.x < kReads) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"((uint32_t)__cvta_generic_to_shared(&barrier[threadIdx.x])));
  __syncthreads();
  const uint32_t slot = slot_of_cta, pair = sm / 2, t = threadIdx.x;
  Shared& shared = pairs[pair];
  const bool is_reader = sm % 2 == 0 && slot == 0, is_helper = sm % 2 == 0 && slot == 1, is_writer = sm % 2 == 1 && slot == 0;
  if (t == 0 && is_reader) atomicAdd(role_count, 1);
  if (t == 0 && is_writer) atomicAdd(role_count + 1, 1);
  uint32_t* rows = data + (size_t)pair * rounds * kRow;
  unsigned long long n = 0, stale = 0;
  uint32_t nonsense = 0;
  if (is_reader) {
    for (int r = 1; r <= rounds; ++r) {
      uint32_t* row = rows + (size_t)(r - 1) * kRow;
      uint32_t old = 0;
      if (before == kSameThread && t < kReads) old = plain(row + t * 8);
      if (before == kSameSector && t < kReads) old = plain(row + t * 8 + 4);
      if (before == kSameLine && t < kReads) old = plain(row + (t & ~1u) * 8);
      if (before == kOtherWarp && t >= kReads) old = plain(row + (t - kReads) * 8);
      if (old != 0) ++nonsense;  // uses the value, which has come therefore
      if (__syncthreads_or(old == 7)) return;
      if (t == 0) poke(before == kOtherCta ? shared.begin : shared.ready, r);
      if (!by_barrier || t == kThreads - 1) wait_for<kLook>(shared.flag, r);
      if (by_barrier) __syncthreads();
      if (t < kReads && (before != kSameLine || t % 2 == 1)) {
        const uint32_t x = get<kLoad>(row + t * 8, staging + t * 4, barrier + t, (r - 1) & 1);
        ++n;
        if (x == 0) ++stale;
        else if (x != (uint32_t)r) ++nonsense;
      }
      __syncthreads();
    }
    atomicAdd(read, n);
    atomicAdd(wrong, stale);
    if (nonsense) atomicAdd(wrong + 1, (unsigned long long)nonsense);
  } else if (is_helper && before == kOtherCta) {
    for (int r = 1; r <= rounds; ++r) {
      if (t == 0) wait_for<kRelaxedGpu>(shared.begin, r);
      __syncthreads();
      uint32_t old = 0;
      if (t < kReads) old = plain(rows + (size_t)(r - 1) * kRow + t * 8);
      if (__syncthreads_or(old == 7)) return;
      if (t == 0) poke(shared.ready, r);
    }
  } else if (is_writer) {
    for (int r = 1; r <= rounds; ++r) {
      if (t == 0) wait_for<kAcquireGpu>(shared.ready, r);
      __syncthreads();
      for (int i = t; i < kRow; i += kThreads) rows[(size_t)(r - 1) * kRow + i] = r;
      __syncthreads();
      if (t == 0) release(shared.flag, r);
    }
  }
}

static void check(cudaError_t e, const char* what) {
  if (e == cudaSuccess) return;
  printf("%s: %s\n", what, cudaGetErrorString(e));
  exit(1);
}

static int sms, rounds;
static bool is_trial;  // on a virtual GPU, where every CTA has an SM
static uint32_t *data, *slots, *roles;
static Shared* pairs;
static unsigned long long* counts;

template <int kLook, int kLoad>
void row() {
  const auto kernel = run<kLook, kLoad>;
  const int bytes = 100 << 10;  // two CTAs on an SM
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes), "attribute");
  for (int by_barrier = 0; by_barrier < 2; ++by_barrier)
    for (int before = 0; before < kBefores; ++before) {
      if (is_trial && before == kOtherCta) continue;
      check(cudaMemset(data, 0, (size_t)(is_trial ? sms * 2 : sms / 2) * rounds * kRow * 4), "memset");
      check(cudaMemset(pairs, 0, sizeof(Shared) * 2 * sms), "memset");
      check(cudaMemset(slots, 0, 4 * 1024), "memset");
      check(cudaMemset(roles, 0, 8), "memset");
      check(cudaMemset(counts, 0, 24), "memset");
      kernel<<<2 * sms, kThreads, bytes>>>(data, pairs, slots, rounds, before, by_barrier, counts, counts + 1, roles);
      unsigned long long c[3];
      uint32_t r[2];
      check(cudaMemcpy(c, counts, 24, cudaMemcpyDeviceToHost), kLookNames[kLook]);
      check(cudaMemcpy(r, roles, 8, cudaMemcpyDeviceToHost), "copy");
      printf("%s;%s;%s;%s;%llu;%llu;%llu;%u;%u\n", kLookNames[kLook], kLoadNames[kLoad], kBeforeNames[before],
             by_barrier ? "by a barrier" : "itself", c[0], c[1], c[2], r[0], r[1]);
      fflush(stdout);
    }
}
template <int kLook>
void rows() {
  row<kLook, kPlain>(), row<kLook, kNoAllocate>(), row<kLook, kNonCoherent>(), row<kLook, kRelaxedCtaLoad>(), row<kLook, kAsyncCa>(),
      row<kLook, kAsyncCg>(), row<kLook, kCg>(), row<kLook, kVolatileLoad>(), row<kLook, kRelaxedLoad>(), row<kLook, kAtomicLoad>(), row<kLook, kBulk>();
}

int main(int argc, char** argv) {
  rounds = argc > 1 ? atoi(argv[1]) : 1000;
  check(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0), "device");
  if ((is_trial = argc > 2)) sms = atoi(argv[2]);
  check(cudaMalloc(&data, (size_t)(is_trial ? sms * 2 : sms / 2) * rounds * kRow * 4), "data");
  check(cudaMalloc(&pairs, sizeof(Shared) * 2 * sms), "pairs");
  check(cudaMalloc(&slots, 4 * 1024), "slots");
  check(cudaMalloc(&roles, 8), "roles");
  check(cudaMalloc(&counts, 24), "counts");
  printf("look;load;read before by;looks;read;stale;other;readers;writers\n");
  rows<kRelaxedGpu>(), rows<kVolatile>(), rows<kAcquireGpu>(), rows<kAtomic>(), rows<kRelaxedSys>(), rows<kFenceGpu>(), rows<kFenceCta>(), rows<kAcquireCta>();
}
