// SPDX-License-Identifier: Apache-2.0
// Bugs with Blackwell's tensor memory, as public projects have shipped them. Each kernel is faulty as <false>, mended
// as <true>; `// NAME` marks the lines of which a finding must name one.
#include "words.cuh"

#define ALLOCATE(to) \
  asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"(SHARED(&(to))) : "memory")
#define GIVE_BACK(address) asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 32;" ::"r"(address))
#define RELINQUISH() asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;")
#define TENSOR_LOAD(value, address) \
  asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(value) : "r"(address) : "memory")
#define TENSOR_STORE(address, value) \
  asm volatile("tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(address), "r"(value) : "memory")
#define WAIT_LOAD() asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory")
#define WAIT_STORE() asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory")
#define FENCE_BEFORE() asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory")
#define FENCE_AFTER() asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory")

/// One warp gives tensor memory back while the others may not have read it.
template <bool kMended>
__global__ void given_back_in_use(uint32_t* out, const uint32_t* in, int) {
  __shared__ uint32_t tensor;
  const int warp = threadIdx.x / 32;
  if (warp == 0) {
    ALLOCATE(tensor);
    RELINQUISH();
  }
  FENCE_BEFORE();
  __syncthreads();
  FENCE_AFTER();
  const uint32_t mine = tensor + (warp << 21);
  TENSOR_STORE(mine, in[threadIdx.x % 64]);
  WAIT_STORE();
  uint32_t value;
  TENSOR_LOAD(value, mine);  // given_back_in_use
  WAIT_LOAD();
  out[threadIdx.x] = value;
  if (kMended) {
    FENCE_BEFORE();
    __syncthreads();
  }
  if (warp == 0) GIVE_BACK(tensor);  // given_back_in_use
}

/// The address of what one warp has allocated is read with no barrier that makes it known.
template <bool kMended>
__global__ void address_read_early(uint32_t* out, const uint32_t* in, int) {
  __shared__ uint32_t tensor;
  const int warp = threadIdx.x / 32;
  if (warp == 0) {
    ALLOCATE(tensor);  // address_read_early
    RELINQUISH();
  }
  if (kMended) {
    FENCE_BEFORE();
    __syncthreads();
    FENCE_AFTER();
  }
  const uint32_t base = tensor;  // address_read_early
  TENSOR_STORE(base + (warp << 21), in[threadIdx.x % 64]);
  WAIT_STORE();
  uint32_t value;
  TENSOR_LOAD(value, base + (warp << 21));
  WAIT_LOAD();
  out[threadIdx.x] = value;
  FENCE_BEFORE();
  __syncthreads();
  if (warp == 0) GIVE_BACK(base);
}

/// Softmax publishes row maxima through tensor memory without waiting for its own store.
template <bool kMended>
__global__ void maxima_published_early(uint32_t* out, const uint32_t* in, int) {
  __shared__ uint32_t tensor;
  __shared__ uint64_t ready;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (warp == 0) {
    ALLOCATE(tensor);
    RELINQUISH();
  }
  if (threadIdx.x == 0) INIT(ready, 32);
  FENCE_BEFORE();
  __syncthreads();
  FENCE_AFTER();
  const uint32_t base = tensor;
  if (warp == 0) {
    TENSOR_STORE(base, in[lane]);  // maxima_published_early
    if (kMended) WAIT_STORE();
    FENCE_BEFORE();
    ARRIVE(ready);
  } else if (warp == 4) {
    WAIT(ready, 0);
    FENCE_AFTER();
    uint32_t value;
    TENSOR_LOAD(value, base);  // maxima_published_early
    WAIT_LOAD();
    out[lane] = value;
    FENCE_BEFORE();
  }
  __syncthreads();
  if (warp == 0) GIVE_BACK(base);
}

#define BOTH(name)                                                       \
  template __global__ void name<false>(uint32_t*, const uint32_t*, int); \
  template __global__ void name<true>(uint32_t*, const uint32_t*, int)
BOTH(given_back_in_use);
BOTH(address_read_early);
BOTH(maxima_published_early);
