// SPDX-License-Identifier: Apache-2.0
// One histogram spread over the shared memories of a cluster: every CTA counts into its peers' bins.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_histogram(const int* x, int n, int* bins, int bins_per_cta) {
  extern __shared__ int local[];
  const cg::cluster_group cluster = cg::this_cluster();
  for (int b = threadIdx.x; b < bins_per_cta; b += blockDim.x) local[b] = 0;
  cluster.sync();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    int* owner = cluster.map_shared_rank(local, x[i] / bins_per_cta);
    atomicAdd(owner + x[i] % bins_per_cta, 1);
  }
  cluster.sync();
  for (int b = threadIdx.x; b < bins_per_cta; b += blockDim.x)
    atomicAdd(bins + cluster.block_rank() * bins_per_cta + b, local[b]);
}
