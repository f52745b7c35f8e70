// SPDX-License-Identifier: Apache-2.0
// Bugs between the CTAs of a cluster, as public projects have shipped them. Each kernel is faulty as <false>, mended
// as <true>; `// NAME` marks the lines of which a finding must name one.
#include "words.cuh"

/// Two CTAs work as a pair; the peer flips its phase only for tiles that it has work for, and they fall out of step.
template <bool kMended>
__global__ void pair_out_of_step(uint32_t* out, const uint32_t* in, int n) {
  __shared__ uint64_t full, empty;
  const uint32_t rank = cluster_rank();
  if (threadIdx.x == 0) {
    INIT(full, 1);
    INIT(empty, 1);
    INITS_VISIBLE();
  }
  CLUSTER_SYNC();
  uint32_t sum = 0, phase = 0;
  for (int tile = 0; tile < n; ++tile) {
    if (rank == 0) {
      WAIT_CLUSTER(full, tile & 1);  // pair_out_of_step
      sum += in[tile % 32];
      if (threadIdx.x == 0) ARRIVE_REMOTE(in_cta(SHARED(&empty), 1));
    } else {
      if (threadIdx.x == 0) ARRIVE_REMOTE(in_cta(SHARED(&full), 0));
      WAIT_CLUSTER(empty, phase);  // pair_out_of_step
      if (kMended || tile % 3 != 1) phase ^= 1;
    }
  }
  CLUSTER_SYNC();
  if (rank == 0) out[threadIdx.x] = sum;
}

/// A mailbox that peers write by st.async is cleared by its own CTA when they may have begun.
template <bool kMended>
__global__ void mailbox_cleared(uint32_t* out, const uint32_t* in, int) {
  __shared__ alignas(16) uint32_t mailbox[2];
  __shared__ uint64_t full;
  const uint32_t rank = cluster_rank();
  if (threadIdx.x == 0) {
    INIT(full, 1);
    INITS_VISIBLE();
    EXPECT(full, 4);
    if (kMended) mailbox[0] = mailbox[1] = 0;
  }
  CLUSTER_SYNC();
  if (threadIdx.x == 0 && !kMended) mailbox[rank ^ 1] = 0;  // mailbox_cleared
  if (threadIdx.x == 0)
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(  // mailbox_cleared
                     in_cta(SHARED(&mailbox[rank]), rank ^ 1)),
                 "r"(in[rank]), "r"(in_cta(SHARED(&full), rank ^ 1))
                 : "memory");
  WAIT_CLUSTER(full, 0);
  if (threadIdx.x == 0) out[rank] = mailbox[rank ^ 1];  // mailbox_cleared
  CLUSTER_SYNC();
}

/// A remote arrival that nobody waits for: its CTA may be gone.
template <bool kMended>
__global__ void arrival_at_an_exited_cta(uint32_t* out, const uint32_t* in, int) {
  __shared__ uint64_t done;
  const uint32_t rank = cluster_rank();
  if (threadIdx.x == 0) {
    INIT(done, 1);
    INITS_VISIBLE();
  }
  CLUSTER_SYNC();
  out[rank * 32 + threadIdx.x] = in[threadIdx.x];
  if (threadIdx.x == 0 && rank == 1) ARRIVE_REMOTE(in_cta(SHARED(&done), 0));  // arrival_at_an_exited_cta
  if (kMended) CLUSTER_SYNC();
}

/// A reduction through distributed shared memory reads its peer behind the last cluster barrier. Seen only where the
/// reader is late.
template <bool kMended>
__global__ void read_of_an_exited_cta(uint32_t* out, const uint32_t* in, int) {
  __shared__ uint32_t partial[32];
  const uint32_t rank = cluster_rank();
  partial[threadIdx.x] = in[threadIdx.x] + rank;
  CLUSTER_SYNC();
  uint32_t theirs;
  LOAD_REMOTE(theirs, in_cta(SHARED(&partial[threadIdx.x]), rank ^ 1));  // read_of_an_exited_cta
  out[rank * 32 + threadIdx.x] = busy(theirs, 500);
  if (kMended) CLUSTER_SYNC();
}

/// The phase of a cluster's own barrier is a word in shared memory, which thread 0 flips before the other warps have
/// read it.
template <bool kMended>
__global__ void cluster_phase_word(uint32_t* out, const uint32_t* in, int n) {
  __shared__ uint32_t word;
  __shared__ uint64_t gates[2];  // taken in turns: who is ahead arrives at the other one
  const uint32_t rank = cluster_rank();
  if (threadIdx.x == 0) {
    word = 0;
    INIT(gates[0], 2);
    INIT(gates[1], 2);
    INITS_VISIBLE();
  }
  CLUSTER_SYNC();
  uint32_t x = in[threadIdx.x];
  for (int i = 0; i < n; ++i) {
    const uint32_t phase = word;  // cluster_phase_word
    if (kMended) __syncthreads();
    if (threadIdx.x == 0) {
      // At the own gate first: the peer's next arrival must not be taken for this one.
      ARRIVE_REMOTE(in_cta(SHARED(&gates[i % 2]), rank));
      ARRIVE_REMOTE(in_cta(SHARED(&gates[i % 2]), rank ^ 1));
      if (i % 2 == 1) word = phase ^ 1;  // cluster_phase_word
    }
    WAIT_CLUSTER(gates[i % 2], phase);  // cluster_phase_word
    x += i;
    if (kMended) __syncthreads();
  }
  CLUSTER_SYNC();
  out[rank * 64 + threadIdx.x] = x;
}

#define BOTH(name)                                                       \
  template __global__ void name<false>(uint32_t*, const uint32_t*, int); \
  template __global__ void name<true>(uint32_t*, const uint32_t*, int)
BOTH(pair_out_of_step);
BOTH(mailbox_cleared);
BOTH(arrival_at_an_exited_cta);
BOTH(read_of_an_exited_cta);
BOTH(cluster_phase_word);
