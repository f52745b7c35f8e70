// SPDX-License-Identifier: Apache-2.0
// Bugs of pipelines inside one CTA, as public projects have shipped them. Each kernel is faulty as <false>, mended as
// <true>; `// NAME` marks the lines of which a finding must name one.
#include "words.cuh"

/// Attention: the sums' place in the scratch memory was computed for two query stages; with one it is that of the
/// maxima, which the correction warp may still be reading.
template <bool kMended>
__global__ void scratch_for_two_stages(uint32_t* out, const uint32_t* in, int) {
  constexpr int kStages = 1;
  __shared__ uint32_t scratch[2 * 32 * kStages];
  __shared__ uint64_t max_ready, sum_ready;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int sums = kMended ? 32 * kStages : 32 * (2 - kStages) - 32;
  if (threadIdx.x == 0) {
    INIT(max_ready, 32);
    INIT(sum_ready, 32);
  }
  __syncthreads();
  if (warp == 0) {
    scratch[lane] = in[lane];
    ARRIVE(max_ready);
    scratch[sums + lane] = in[lane] * 2;  // scratch_for_two_stages
    ARRIVE(sum_ready);
  } else {
    WAIT(max_ready, 0);
    const uint32_t most = scratch[lane];  // scratch_for_two_stages
    WAIT(sum_ready, 0);
    out[lane] = most + scratch[sums + lane];
  }
}

/// Attention scores: every warp reads all scores of a tile, and the next tile's are written with no barrier between.
template <bool kMended>
__global__ void scores_overwritten(uint32_t* out, const uint32_t* in, int n) {
  __shared__ uint32_t scores[64];
  uint32_t sum = 0;
  for (int tile = 0; tile < n; ++tile) {
    scores[threadIdx.x] = in[(tile * 64 + threadIdx.x) % 64];  // scores_overwritten
    __syncthreads();
    for (int i = 0; i < 64; ++i) sum += scores[i];  // scores_overwritten
    if (kMended) __syncthreads();
  }
  out[threadIdx.x] = sum;
}

/// The scheduler packs a tile's number and whether it has work into one word. The load warp unpacks it, the softmax
/// warp does not: it waits for a load that is never made.
template <bool kMended>
__global__ void packed_work_item(uint32_t* out, const uint32_t* in, int n) {
  __shared__ uint32_t item;
  __shared__ uint64_t full;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) INIT(full, 1);
  uint32_t sum = 0, phase = 0;
  for (int tile = 0; tile < n; ++tile) {
    __syncthreads();
    if (threadIdx.x == 0) item = static_cast<uint32_t>(tile) << 1 | (tile % 3 != 2);
    __syncthreads();
    const uint32_t packed = item;
    if (warp == 1 && lane == 0 && (packed & 1) != 0) ARRIVE(full);
    if (warp == 2) {
      const bool has_work = kMended ? (packed & 1) != 0 : packed != 0;
      if (has_work) {
        WAIT(full, phase);  // packed_work_item
        phase ^= 1;
        sum += in[packed >> 1 & 31];
      }
    }
  }
  if (warp == 2) out[lane] = sum;
}

/// Block-sparse attention: for a tile without active blocks softmax does not arrive; correction waits for every tile.
template <bool kMended>
__global__ void empty_tiles(uint32_t* out, const uint32_t* in, int n) {
  __shared__ uint64_t ready, taken;
  __shared__ uint32_t value[32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    INIT(ready, 32);
    INIT(taken, 32);
  }
  __syncthreads();
  uint32_t sum = 0;
  for (int tile = 0; tile < n; ++tile) {
    const bool is_empty = tile % 4 >= 2;
    if (warp == 0) {
      if (kMended || !is_empty) {
        WAIT(taken, tile % 2 ^ 1);  // empty_tiles
        value[lane] = is_empty ? 0 : in[lane];
        ARRIVE(ready);
      }
    } else {
      WAIT(ready, tile % 2);  // empty_tiles
      sum += value[lane];
      ARRIVE(taken);
    }
  }
  if (warp == 1) out[lane] = sum;
}

/// Bulk copies and an mbarrier in a loop whose length is known at run time: right, and reported by a public race
/// checker. Faulty, the wait's parity is not the stage's: the first pass over the stages goes through at once.
template <bool kMended>
__global__ void bulk_copies_in_a_loop(uint32_t* out, const uint32_t* in, int n) {
  constexpr int kStages = 2, kWords = 64;
  __shared__ alignas(128) uint32_t tile[kStages][kWords];
  __shared__ uint64_t full[kStages], empty[kStages];
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      INIT(full[i], 1);
      INIT(empty[i], 64);
    }
    INITS_VISIBLE();
  }
  __syncthreads();
  if (threadIdx.x >= 64) {
    if (threadIdx.x == 64)
      for (int i = 0; i < n; ++i) {
        const int stage = i % kStages, phase = i / kStages & 1;
        WAIT(empty[stage], phase ^ 1);
        FENCE_PROXY();
        EXPECT(full[stage], kWords * 4);
        BULK_LOAD(tile[stage], in, kWords * 4, full[stage]);  // bulk_copies_in_a_loop
      }
    return;
  }
  uint32_t sum = 0;
  for (int i = 0; i < n; ++i) {
    const int stage = i % kStages, phase = i / kStages & 1;
    WAIT(full[stage], kMended ? phase : phase ^ 1);
    sum += tile[stage][threadIdx.x];  // bulk_copies_in_a_loop
    ARRIVE(empty[stage]);
  }
  out[threadIdx.x] = sum;
}

/// A generated software pipeline: at the last tiles as many groups may stay in flight as in the middle.
template <bool kMended>
__global__ void pipeline_tail(uint32_t* out, const uint32_t* in, int n) {
  __shared__ alignas(16) uint32_t ring[2][32 * 4];
  uint32_t sum = 0;
  COPY_16(&ring[0][threadIdx.x * 4], in + threadIdx.x * 4);  // pipeline_tail
  COPY_COMMIT();
  for (int i = 0; i < n; ++i) {
    if (i + 1 < n) {
      COPY_16(&ring[(i + 1) % 2][threadIdx.x * 4], in + threadIdx.x * 4);  // pipeline_tail
      COPY_COMMIT();
    }
    if (kMended && i + 1 == n)
      COPY_WAIT(0);
    else
      COPY_WAIT(1);
    __syncwarp();
    sum += ring[i % 2][threadIdx.x * 4 + 3];  // pipeline_tail
    __syncwarp();
  }
  out[threadIdx.x] = sum;
}

/// A generated pipeline that hangs: the last tile is smaller, and the bytes of a whole one are expected.
template <bool kMended>
__global__ void bytes_of_the_last_tile(uint32_t* out, const uint32_t* in, int n) {
  constexpr int kWords = 64;
  __shared__ alignas(128) uint32_t tile[kWords];
  __shared__ uint64_t full;
  if (threadIdx.x == 0) {
    INIT(full, 1);
    INITS_VISIBLE();
  }
  __syncthreads();
  uint32_t sum = 0;
  for (int i = 0; i < n; ++i) {
    const int words = i + 1 == n ? kWords / 4 : kWords;
    if (threadIdx.x == 0) {
      EXPECT(full, kMended ? words * 4 : kWords * 4);
      FENCE_PROXY();
      BULK_LOAD(tile, in, words * 4, full);
    }
    WAIT(full, i & 1);  // bytes_of_the_last_tile
    if (threadIdx.x < words) sum += tile[threadIdx.x];
    __syncthreads();
  }
  out[threadIdx.x] = sum;
}

/// A barrier allocated for no arrivals at all passed without a word.
template <bool kMended>
__global__ void barrier_of_no_arrivals(uint32_t* out, const uint32_t* in, int n) {
  __shared__ uint64_t done;
  if (threadIdx.x == 0) INIT(done, kMended ? 32 : n - n);  // barrier_of_no_arrivals
  __syncthreads();
  ARRIVE(done);
  WAIT(done, 0);
  out[threadIdx.x] = in[threadIdx.x];
}

/// A backward kernel: the barrier of a group counts a warp that left through another branch.
template <bool kMended>
__global__ void group_barrier_of_four_warps(uint32_t* out, const uint32_t* in, int) {
  __shared__ uint32_t partial[128];
  const int warp = threadIdx.x / 32;
  partial[threadIdx.x] = in[threadIdx.x % 64];
  if (warp == 3 && !kMended) return;
  NAMED_SYNC(1, 128);  // group_barrier_of_four_warps
  out[threadIdx.x % 64] = partial[threadIdx.x % 64] + partial[threadIdx.x % 64 + 32];
}

/// Unequal register budgets within one warp group.
template <bool kMended>
__global__ void __launch_bounds__(128) register_budgets(uint32_t* out, const uint32_t* in, int) {
  if (kMended || threadIdx.x < 64)
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");  // register_budgets
  else
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");  // register_budgets
  out[threadIdx.x] = in[threadIdx.x % 64];
}

/// An epilogue that leaves while its bulk store may still be reading.
template <bool kMended>
__global__ void exit_before_the_store_has_read(uint32_t* out, const uint32_t* in, int) {
  __shared__ alignas(128) uint32_t tile[32];
  tile[threadIdx.x] = in[threadIdx.x];
  FENCE_PROXY();
  __syncthreads();
  if (threadIdx.x == 0) {
    BULK_STORE(out, tile, 128);  // exit_before_the_store_has_read
    BULK_COMMIT();
    if (kMended) BULK_WAIT_READ();
  }
}

/// A shared buffer, used in place, given back to the producer without the proxy fence.
template <bool kMended>
__global__ void stage_given_back_unfenced(uint32_t* out, const uint32_t* in, int) {
  __shared__ alignas(128) uint32_t tile[32];
  __shared__ uint64_t full, ready;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    INIT(full, 1);
    INIT(ready, 32);
    INITS_VISIBLE();
  }
  __syncthreads();
  if (warp == 0) {
    if (lane == 0) {
      EXPECT(full, 128);
      BULK_LOAD(tile, in, 128, full);
      WAIT(ready, 0);
      BULK_STORE(out, tile, 128);  // stage_given_back_unfenced
      BULK_COMMIT();
      BULK_WAIT_READ();
    }
  } else {
    WAIT(full, 0);
    tile[lane] = tile[lane] * 2;  // stage_given_back_unfenced
    if (kMended) FENCE_PROXY();
    ARRIVE(ready);
  }
}

/// A stage is read by threads, given back and filled again. Loads are still on their way when the arrival is not: an
/// H200 returned words of the next tile for up to a quarter.
template <bool kMended>
__global__ void refill_overtakes_loads(uint32_t* out, const uint32_t* in, int n) {
  __shared__ alignas(128) uint32_t tile[32];
  __shared__ uint64_t full, empty;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  if (threadIdx.x == 0) {
    INIT(full, 1);
    INIT(empty, 32);
    INITS_VISIBLE();
  }
  __syncthreads();
  if (warp == 0) {
    for (int i = 0; lane == 0 && i < n; ++i) {
      if (i > 0) WAIT(empty, (i - 1) & 1);
      if (kMended) FENCE_PROXY();
      EXPECT(full, 128);
      BULK_LOAD(tile, in, 128, full);  // refill_overtakes_loads
    }
  } else {
    uint32_t sum = 0, before = 0;
#pragma unroll 1
    for (int i = 0; i < n; ++i) {
      WAIT(full, i & 1);
      const uint32_t word = tile[lane];  // refill_overtakes_loads
      ARRIVE(empty);
      sum = sum * 3 + (word ^ before);
      before = word;
    }
    out[lane] = sum;
  }
}

/// Two warps hand over by a named barrier, and nothing holds the first back: where the second is late, the first
/// arrives twice in one phase and the second waits for ever. No race, and most schedules pass.
template <bool kMended>
__global__ void arrives_twice(uint32_t* out, const uint32_t* in, int n) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  uint32_t x = in[lane];
  for (int i = 0; i < n; ++i) {
    if (warp == 0) {
      x = busy(x, 300);
      NAMED_ARRIVE(1, 64);
      if (kMended) NAMED_SYNC(2, 64);
    } else {
      NAMED_SYNC(1, 64);  // arrives_twice
      if (kMended) NAMED_ARRIVE(2, 64);
      x += i;
    }
  }
  if (warp == 1) out[lane] = x;
}

/// A word that tells a phase, kept by strong accesses: one thread flips it when it has gone on, and warps that read
/// it later wait for a phase that has gone by.
template <bool kMended>
__global__ void phase_word_flipped(uint32_t* out, const uint32_t* in, int n) {
  __shared__ uint32_t word;
  __shared__ uint64_t gate;
  volatile uint32_t* phase = &word;
  if (threadIdx.x == 0) {
    *phase = 0;
    INIT(gate, 1);
  }
  __syncthreads();
  uint32_t x = in[threadIdx.x];
  for (int i = 0; i < n; ++i) {
    const uint32_t mine = *phase;
    if (kMended) __syncthreads();
    if (threadIdx.x == 0) {
      x = busy(x, 400);
      ARRIVE(gate);
      *phase = mine ^ 1;
    }
    WAIT(gate, mine);  // phase_word_flipped
    x += i;
    if (kMended) __syncthreads();
  }
  out[threadIdx.x] = x;
}

#define BOTH(name)                                                           \
  template __global__ void name<false>(uint32_t*, const uint32_t*, int);     \
  template __global__ void name<true>(uint32_t*, const uint32_t*, int)
BOTH(scratch_for_two_stages);
BOTH(scores_overwritten);
BOTH(packed_work_item);
BOTH(empty_tiles);
BOTH(bulk_copies_in_a_loop);
BOTH(pipeline_tail);
BOTH(bytes_of_the_last_tile);
BOTH(barrier_of_no_arrivals);
BOTH(group_barrier_of_four_warps);
BOTH(register_budgets);
BOTH(exit_before_the_store_has_read);
BOTH(stage_given_back_unfenced);
BOTH(refill_overtakes_loads);
BOTH(arrives_twice);
BOTH(phase_word_flipped);
