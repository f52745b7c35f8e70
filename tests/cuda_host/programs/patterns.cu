// SPDX-License-Identifier: Apache-2.0
// What CUDA programs are made of: a sum over the grid and a scan with cooperative groups, a histogram in shared memory, streams that
// overlap with memory from a pool; and a conditional node of a graph, which is refused.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include <vector>

#include "check.h"

namespace cg = cooperative_groups;

__global__ void sum_of_grid(const int* in, int n, long long* out) {
  const cg::grid_group grid = cg::this_grid();
  const cg::thread_block block = cg::this_thread_block();
  const auto tile = cg::tiled_partition<32>(block);
  __shared__ int part[8];
  int sum = 0;
  for (int i = static_cast<int>(grid.thread_rank()); i < n; i += static_cast<int>(grid.size())) sum += in[i];
  sum = cg::reduce(tile, sum, cg::plus<int>());
  if (tile.thread_rank() == 0) part[tile.meta_group_rank()] = sum;
  block.sync();
  if (block.thread_rank() == 0) {
    long long total = 0;
    for (unsigned i = 0; i < tile.meta_group_size(); ++i) total += part[i];
    out[1 + blockIdx.x] = total;
  }
  grid.sync();
  if (grid.thread_rank() == 0) {
    long long total = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) total += out[1 + i];
    out[0] = total;
  }
}

__global__ void histogram(const unsigned char* in, int n, unsigned* bins) {
  __shared__ unsigned own[256];
  for (unsigned i = threadIdx.x; i < 256; i += blockDim.x) own[i] = 0;
  __syncthreads();
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&own[in[i]], 1);
  __syncthreads();
  for (unsigned i = threadIdx.x; i < 256; i += blockDim.x)
    if (own[i] != 0) atomicAdd(&bins[i], own[i]);
}

__global__ void scan(int* x) {
  const auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  __shared__ int sums[32];
  const int inclusive = cg::inclusive_scan(tile, x[threadIdx.x]);
  if (tile.thread_rank() == 31) sums[tile.meta_group_rank()] = inclusive;
  __syncthreads();
  if (tile.meta_group_rank() == 0) {
    const int before = cg::exclusive_scan(tile, tile.thread_rank() < blockDim.x / 32 ? sums[tile.thread_rank()] : 0);
    __syncwarp();
    sums[tile.thread_rank()] = before;
  }
  __syncthreads();
  x[threadIdx.x] = inclusive + sums[tile.meta_group_rank()];
}

__global__ void scale(float* x, int n, float factor) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) x[i] *= factor;
}

template <class T>
T* uploaded(const std::vector<T>& host) {
  T* device;
  CHECK(cudaMalloc(&device, host.size() * sizeof(T)));
  CHECK(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  return device;
}

void sum_and_count(int n) {
  std::vector<int> numbers(n);
  std::vector<unsigned char> bytes(n);
  std::vector<unsigned> counts(256), got(256);
  long long sum = 0, got_sum = 0;
  for (int i = 0; i < n; ++i) {
    sum += numbers[i] = (i * 7919) % 1000 - 500;
    ++counts[bytes[i] = static_cast<unsigned char>(i * 31 + i / 7)];
  }
  int* in = uploaded(numbers);
  long long* out = uploaded(std::vector<long long>(17, -1));
  void* arguments[] = {&in, &n, &out};
  CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(sum_of_grid), 16, 256, arguments));
  CHECK(cudaMemcpy(&got_sum, out, sizeof got_sum, cudaMemcpyDeviceToHost));
  EXPECT(got_sum == sum);
  unsigned* bins = uploaded(std::vector<unsigned>(256));
  histogram<<<6, 192>>>(uploaded(bytes), n, bins);
  CHECK(cudaMemcpy(got.data(), bins, 1024, cudaMemcpyDeviceToHost));
  EXPECT(got == counts);
}

void scan_a_block() {
  std::vector<int> x(512), got(512);
  for (int i = 0; i < 512; ++i) x[i] = i % 13 - 5;
  int* device = uploaded(x);
  scan<<<1, 512>>>(device);
  CHECK(cudaMemcpy(got.data(), device, 2048, cudaMemcpyDeviceToHost));
  int sum = 0;
  for (int i = 0; i < 512; ++i) EXPECT(got[i] == (sum += x[i]));
}

void overlap(int streams, int n) {
  cudaMemPool_t pool;
  CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
  unsigned long long keep = ~0ull;
  CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  float* host;
  CHECK(cudaMallocHost(&host, streams * n * sizeof(float)));
  for (int i = 0; i < streams * n; ++i) host[i] = static_cast<float>(i);
  cudaEvent_t before = nullptr;
  for (int i = 0; i < streams; ++i) {
    cudaStream_t stream;
    cudaEvent_t scaled;
    float* device;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&scaled, cudaEventDisableTiming));
    CHECK(cudaMallocAsync(&device, n * sizeof(float), stream));
    CHECK(cudaMemcpyAsync(device, host + i * n, n * sizeof(float), cudaMemcpyHostToDevice, stream));
    if (before != nullptr) CHECK(cudaStreamWaitEvent(stream, before, 0));
    scale<<<(n + 255) / 256, 256, 0, stream>>>(device, n, 2);
    CHECK(cudaEventRecord(scaled, stream));
    CHECK(cudaMemcpyAsync(host + i * n, device, n * sizeof(float), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaFreeAsync(device, stream));
    before = scaled;
  }
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < streams * n; ++i) EXPECT(host[i] == 2.0f * i);
  CHECK(cudaFreeHost(host));
}

int main() {
  sum_and_count(30001);
  scan_a_block();
  overlap(4, 1001);
  cudaGraph_t graph;
  cudaGraphConditionalHandle condition;
  CHECK(cudaGraphCreate(&graph, 0));
  EXPECT(cudaGraphConditionalHandleCreate(&condition, graph, 1, cudaGraphCondAssignDefault) == cudaErrorNotSupported);
}
