// SPDX-License-Identifier: Apache-2.0
// Cooperative groups: x / |x| in one launch, with a barrier of the whole grid between the two halves.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

extern "C" __global__ void normalize(float* x, int n, double* square_sum) {
  const cg::grid_group grid = cg::this_grid();
  const cg::thread_block block = cg::this_thread_block();
  const auto warp = cg::tiled_partition<32>(block);
  double sum = 0;
  for (unsigned long long i = grid.thread_rank(); i < n; i += grid.size()) sum += double(x[i]) * x[i];
  sum = cg::reduce(warp, sum, cg::plus<double>());
  if (warp.thread_rank() == 0) atomicAdd(square_sum, sum);
  grid.sync();
  const float scale = rsqrt(*square_sum);
  for (unsigned long long i = grid.thread_rank(); i < n; i += grid.size()) x[i] *= scale;
}
