// SPDX-License-Identifier: Apache-2.0
// Instructions as macros, so that a finding's line is the kernel's own and not that of a helper.
#pragma once
#include <stdint.h>

#define SHARED(p) static_cast<uint32_t>(__cvta_generic_to_shared(p))

#define INIT(bar, count) asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(SHARED(&(bar))), "r"(count) : "memory")
#define INITS_VISIBLE() asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory")
#define EXPECT(bar, bytes) \
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(SHARED(&(bar))), "r"(bytes) : "memory")
#define ARRIVE(bar) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(SHARED(&(bar))) : "memory")
#define WAIT(bar, parity)                                                  \
  asm volatile(                                                            \
      "{.reg .pred done;\nagain: mbarrier.try_wait.parity.shared::cta.b64 " \
      "done, [%0], %1;\n@!done bra again;}" ::"r"(SHARED(&(bar))),          \
      "r"(parity)                                                          \
      : "memory")

#define BULK_LOAD(to, from, bytes, bar)                                                                          \
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"( \
                   SHARED(to)),                                                                                  \
               "l"(from), "r"(bytes), "r"(SHARED(&(bar)))                                                        \
               : "memory")
#define BULK_STORE(to, from, bytes)                                                                             \
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(SHARED(from)), "r"(bytes) \
               : "memory")
#define BULK_COMMIT() asm volatile("cp.async.bulk.commit_group;" ::: "memory")
#define BULK_WAIT_READ() asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory")
#define COPY_16(to, from) asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(SHARED(to)), "l"(from) : "memory")
#define COPY_COMMIT() asm volatile("cp.async.commit_group;" ::: "memory")
#define COPY_WAIT(groups) asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory")
#define FENCE_PROXY() asm volatile("fence.proxy.async.shared::cta;" ::: "memory")

#define NAMED_SYNC(id, threads) asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory")
#define NAMED_ARRIVE(id, threads) asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory")
#define CLUSTER_SYNC() \
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory")
__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
/// The address in the CTA of that rank.
__device__ inline uint32_t in_cta(uint32_t address, uint32_t rank) {
  uint32_t mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(address), "r"(rank));
  return mapped;
}
#define ARRIVE_REMOTE(address) \
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(address) : "memory")
#define WAIT_CLUSTER(bar, parity)                                                           \
  asm volatile(                                                                             \
      "{.reg .pred done;\nagain: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 " \
      "done, [%0], %1;\n@!done bra again;}" ::"r"(SHARED(&(bar))),                           \
      "r"(parity)                                                                           \
      : "memory")
#define LOAD_REMOTE(value, address) \
  asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(address) : "memory")

/// Keeps a thread busy for about 2 `rounds` instructions.
__device__ inline uint32_t busy(uint32_t x, int rounds) {
#pragma unroll 1
  for (int i = 0; i < rounds; ++i) asm volatile("mad.lo.u32 %0, %0, 5, 1;" : "+r"(x));
  return x;
}
