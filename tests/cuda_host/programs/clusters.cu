// SPDX-License-Identifier: Apache-2.0
// Clusters with distributed shared memory, and a cooperative launch with a barrier of the whole grid.
#include <cooperative_groups.h>

#include "check.h"

namespace cg = cooperative_groups;

__global__ void ring(int* out) {
  __shared__ int mine[32];
  cg::cluster_group cluster = cg::this_cluster();
  mine[threadIdx.x] = blockIdx.x * 100 + threadIdx.x;
  cluster.sync();
  const unsigned next = (cluster.block_rank() + 1) % cluster.num_blocks();
  out[blockIdx.x * 32 + threadIdx.x] = cluster.map_shared_rank(mine, next)[31 - threadIdx.x];
  cluster.sync();
}

__global__ void neighbours(int* x, int* y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
  x[i] = i * i;
  cg::this_grid().sync();
  y[i] = x[(i + 777) % n];
}

int main() {
  int *x, *y;
  CHECK(cudaMalloc(&x, 1024 * sizeof(int)));
  CHECK(cudaMalloc(&y, 1024 * sizeof(int)));
  int got[1024];
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = 4;
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(8);
  config.blockDim = dim3(32);
  config.attrs = &attribute;
  config.numAttrs = 1;
  CHECK(cudaLaunchKernelEx(&config, ring, x));
  CHECK(cudaMemcpy(got, x, 256 * sizeof(int), cudaMemcpyDeviceToHost));
  for (int b = 0; b < 8; ++b)
    for (int t = 0; t < 32; ++t) EXPECT(got[b * 32 + t] == (b / 4 * 4 + (b + 1) % 4) * 100 + 31 - t);
  int clusters = 0;
  CHECK(cudaOccupancyMaxActiveClusters(&clusters, ring, &config));
  EXPECT(clusters > 0);

  void* arguments[] = {&x, &y};
  CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(neighbours), dim3(8), dim3(128), arguments, 0, nullptr));
  CHECK(cudaMemcpy(got, y, sizeof got, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 1024; ++i) EXPECT(got[i] == ((i + 777) % 1024) * ((i + 777) % 1024));
}
