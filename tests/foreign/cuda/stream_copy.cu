// SPDX-License-Identifier: Apache-2.0
// libcu++: chunks brought in by bulk copies that complete on a cuda::barrier, worked on in shared memory and sent out
// by bulk stores, two buffers in turn.
#include <cuda/barrier>
#include <cuda/ptx>
namespace ptx = cuda::ptx;
using Barrier = cuda::barrier<cuda::thread_scope_block>;

constexpr int kChunk = 512;

extern "C" __global__ void stream_copy(const float* in, float* out, int chunks, float factor) {
  __shared__ alignas(128) float buffer[2][kChunk];
#pragma nv_diag_suppress static_var_with_dynamic_init
  __shared__ Barrier full[2];
  if (threadIdx.x == 0) {
    init(&full[0], blockDim.x);
    init(&full[1], blockDim.x);
    ptx::fence_proxy_async(ptx::space_shared);
  }
  __syncthreads();
  const auto fetch = [&](int step, int chunk) {
    if (threadIdx.x == 0)
      cuda::memcpy_async(buffer[step % 2], in + static_cast<long>(chunk) * kChunk,
                         cuda::aligned_size_t<16>(sizeof buffer[0]), full[step % 2]);
    return full[step % 2].arrive();
  };
  int step = 0;
  for (int chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x, ++step) {
    auto token = fetch(step, chunk);
    full[step % 2].wait(std::move(token));
    for (int i = threadIdx.x; i < kChunk; i += blockDim.x) buffer[step % 2][i] *= factor;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
      ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out + static_cast<long>(chunk) * kChunk, buffer[step % 2],
                         sizeof buffer[0]);
      ptx::cp_async_bulk_commit_group();
      ptx::cp_async_bulk_wait_group_read(ptx::n32_t<1>());
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
}
