// SPDX-License-Identifier: Apache-2.0
// Copies that run beside the threads, as CUDA's guides show them: cuda::pipeline with stages, cuda::barrier, cooperative groups, and a
// tile by the tensor memory accelerator with a map that the driver makes.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda.h>

#include <cuda/barrier>
#include <cuda/pipeline>
#include <utility>

#include "check.h"
// Barriers are initialised by one thread, as the guides have it.
#pragma nv_diag_suppress static_var_with_dynamic_init

namespace groups = cooperative_groups;
namespace experimental = cuda::device::experimental;
using Barrier = cuda::barrier<cuda::thread_scope_block>;

template <int stages>
__global__ void by_pipeline(const int* in, int* out, int batches) {
  const auto block = groups::this_thread_block();
  extern __shared__ int shared[];
  __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
  auto pipeline = cuda::make_pipeline(block, &state);
  const int n = static_cast<int>(block.size()), first = static_cast<int>(blockIdx.x) * batches;
  for (int batch = 0, next = 0; batch < batches; ++batch) {
    for (; next < batches && next < batch + stages; ++next) {
      pipeline.producer_acquire();
      cuda::memcpy_async(block, shared + next % stages * n, in + (first + next) * n, sizeof(int) * n,
                         pipeline);
      pipeline.producer_commit();
    }
    pipeline.consumer_wait();
    const int value = shared[batch % stages * n + n - 1 - static_cast<int>(threadIdx.x)];
    pipeline.consumer_release();
    out[(first + batch) * n + static_cast<int>(threadIdx.x)] = value + 1;
  }
}

__global__ void by_barrier(const int4* in, int* out) {
  __shared__ int4 shared[128];
  __shared__ Barrier barrier;
  if (threadIdx.x == 0) init(&barrier, blockDim.x);
  __syncthreads();
  cuda::memcpy_async(shared + threadIdx.x, in + threadIdx.x, cuda::aligned_size_t<16>(16), barrier);
  barrier.arrive_and_wait();
  const int4 v = shared[127 - threadIdx.x];
  out[threadIdx.x] = v.x + v.y + v.z + v.w;
}

__global__ void by_group(const int* in, int* out) {
  __shared__ int shared[256];
  const auto block = groups::this_thread_block();
  groups::memcpy_async(block, shared, in, sizeof shared);
  groups::wait(block);
  out[threadIdx.x] = shared[255 - threadIdx.x];
}

__global__ void by_tile(const __grid_constant__ CUtensorMap map, int x, int y) {
  __shared__ alignas(128) int tile[16][32];
  __shared__ Barrier barrier;
  if (threadIdx.x == 0) {
    init(&barrier, blockDim.x);
    experimental::fence_proxy_async_shared_cta();
  }
  __syncthreads();
  Barrier::arrival_token token;
  if (threadIdx.x == 0) {
    experimental::cp_async_bulk_tensor_2d_global_to_shared(tile, &map, x, y, barrier);
    token = cuda::device::barrier_arrive_tx(barrier, 1, sizeof tile);
  } else {
    token = barrier.arrive();
  }
  barrier.wait(std::move(token));
  for (unsigned i = threadIdx.x; i < 512; i += blockDim.x) tile[i / 32][i % 32] += 100000;
  experimental::fence_proxy_async_shared_cta();
  __syncthreads();
  if (threadIdx.x == 0) {
    experimental::cp_async_bulk_tensor_2d_shared_to_global(&map, x, y, tile);
    experimental::cp_async_bulk_commit_group();
    experimental::cp_async_bulk_wait_group_read<0>();
  }
}

int main() {
  constexpr int kWidth = 128, kHeight = 64, kCount = kWidth * kHeight;
  int *in = nullptr, *out = nullptr;
  CHECK(cudaMallocManaged(&in, kCount * sizeof(int)));
  CHECK(cudaMallocManaged(&out, kCount * sizeof(int)));
  for (int i = 0; i < kCount; ++i) in[i] = i;

  by_pipeline<3><<<3, 128, 3 * 128 * sizeof(int)>>>(in, out, 6);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < 3 * 6 * 128; ++i) EXPECT(out[i] == i / 128 * 128 + 127 - i % 128 + 1);

  by_barrier<<<1, 128>>>(reinterpret_cast<const int4*>(in), out);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < 128; ++i) EXPECT(out[i] == 16 * (127 - i) + 6);

  by_group<<<1, 256>>>(in, out);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < 256; ++i) EXPECT(out[i] == 255 - i);

  void* found = nullptr;
  cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
  CHECK(
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result));
#else
  CHECK(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result));
#endif
  EXPECT(found != nullptr && result == cudaDriverEntryPointSuccess);
  CUtensorMap map;
  const cuuint64_t extents[] = {kWidth, kHeight}, strides[] = {kWidth * sizeof(int)};
  const cuuint32_t box[] = {32, 16}, steps[] = {1, 1};
  const auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found);
  EXPECT(encode(&map, CU_TENSOR_MAP_DATA_TYPE_INT32, 2, in, extents, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS);
  by_tile<<<1, 128>>>(map, 64, 16);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < kCount; ++i) {
    const int x = i % kWidth, y = i / kWidth;
    const bool is_inside = x >= 64 && x < 96 && y >= 16 && y < 32;
    EXPECT(in[i] == i + (is_inside ? 100000 : 0));
  }
  std::puts("ok");
}
