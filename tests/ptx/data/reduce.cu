// SPDX-License-Identifier: Apache-2.0
// Shared memory static and dynamic, shuffles, votes, matches, warp reductions, cooperative groups.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

__global__ void __launch_bounds__(256, 2) reduce(const float* in, float* out, int n) {
  extern __shared__ float dynamic[];
  __shared__ float partial[8][33];
  float sum = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += in[i];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffffu, sum, offset);
  partial[threadIdx.x / 32][threadIdx.x % 32] = sum;
  dynamic[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x < 8) atomicAdd(out, partial[threadIdx.x][0] + dynamic[threadIdx.x * 32]);
}

__global__ void warp_tricks(const int* in, int* out) {
  int v = in[threadIdx.x];
  unsigned active = __activemask();
  int any = __any_sync(active, v > 3), all = __all_sync(active, v > 3);
  unsigned ballot = __ballot_sync(active, v & 1);
  unsigned same = __match_any_sync(active, v);
  int pred;
  unsigned equal = __match_all_sync(active, v, &pred);
  out[threadIdx.x] = any + all + ballot + same + equal + pred + __reduce_add_sync(active, v) + __reduce_max_sync(active, v) +
                     __popc(ballot) + __clz(v) + __ffs(v) + __brev(v) + __byte_perm(v, ballot, 0x3210) +
                     __funnelshift_l(v, v, 7) + __dp4a(v, v, v) + __vadd2(v, v);
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  out[threadIdx.x + 32] = cg::reduce(warp, v, cg::plus<int>()) + cg::this_grid().thread_rank();
  __syncwarp();
  __nanosleep(100);
}
