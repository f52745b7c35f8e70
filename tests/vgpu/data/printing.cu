// nvcc -arch=sm_90a -ptx -lineinfo printing.cu
#include <cstdio>
__global__ void printing(double scale) {
  if (threadIdx.x % 16 == 3) printf("block %d thread %u: %6.2f %s %c %llx%%\n", blockIdx.x, threadIdx.x, scale * threadIdx.x, "text", 'z', 0x123456789abcull);
}
