// SPDX-License-Identifier: Apache-2.0
// Cooperative groups of four warps: sums, votes and values that go from one thread to all, one behind the other.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

extern "C" __global__ void collect(const int* x, int* out, int rounds) {
  __shared__ cg::block_tile_memory<256> memory;
  const cg::thread_block block = cg::this_thread_block(memory);
  const auto tile = cg::tiled_partition<128>(block);
  const int mine = x[blockIdx.x * blockDim.x + threadIdx.x];
  int sum = 0;
  for (int i = 0; i < rounds; ++i) {
    sum += cg::reduce(tile, mine + i, cg::plus<int>());
    sum += tile.any(mine == i) ? 1000 : 0;
    sum += tile.all(mine >= i) ? 100000 : 0;
    sum += tile.shfl(mine, (37 * i) % 128);
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
