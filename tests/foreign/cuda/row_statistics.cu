// SPDX-License-Identifier: Apache-2.0
// Sums and maxima of the rows of a matrix, by clusters of two CTAs: the first fetches each tile into both shared
// memories at once, then one adds and the other compares. The launch names the cluster, the kernel does not.
#include "tma.cuh"

constexpr int kRows = 32, kColumns = 32;

__device__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
__device__ void fetch_for_all(void* to, const CUtensorMap* map, int x, int y, uint64_t* barrier, uint16_t ctas) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
      "l"(map), "r"(x), "r"(y), "r"(shared_address(barrier)), "h"(ctas)
      : "memory");
}

extern "C" __global__ void __launch_bounds__(kRows)
    row_statistics(const __grid_constant__ CUtensorMap matrix, float* sums, float* maxima, int rows, int columns) {
  __shared__ alignas(128) float tile[kRows][kColumns];
  __shared__ uint64_t full;
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  const int row0 = blockIdx.x / 2 * kRows, row = row0 + threadIdx.x;
  if (threadIdx.x == 0) {
    barrier_init(&full, 1);
    barrier_inits_visible();
  }
  float result = rank == 0 ? 0.0f : -INFINITY;
  for (int column0 = 0; column0 < columns; column0 += kColumns) {
    if (threadIdx.x == 0 && column0 == 0) barrier_expect(&full, sizeof tile);
    cluster_barrier();  // both are ready for the tile
    if (rank == 0 && threadIdx.x == 0) fetch_for_all(tile, &matrix, column0, row0, &full, 3);
    barrier_wait(&full, column0 / kColumns & 1);
    for (int c = 0; c < min(kColumns, columns - column0); ++c) {
      const float v = tile[threadIdx.x][c];
      result = rank == 0 ? result + v : fmaxf(result, v);
    }
    if (threadIdx.x == 0 && column0 + kColumns < columns) barrier_expect(&full, sizeof tile);
  }
  if (row < rows) (rank == 0 ? sums : maxima)[row] = result;
}
