// SPDX-License-Identifier: Apache-2.0
// Streams in order by events; with an argument, without the event that orders them.
#include "check.h"

__global__ void fill(float* a, int n, float value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] = value;
}
__global__ void sum(const float* a, int n, float* total) {
  float mine = 0;
  for (int i = threadIdx.x; i < n; i += 32) mine += a[i];
  for (int d = 16; d > 0; d /= 2) mine += __shfl_xor_sync(~0u, mine, d);
  if (threadIdx.x == 0) *total = mine;
}
void CUDART_CB count(void* data) { ++*static_cast<int*>(data); }

int main(int argc, char**) {
  const int n = 1000;
  cudaStream_t first, second;
  cudaEvent_t begin, filled, end;
  CHECK(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking));
  CHECK(cudaStreamCreate(&second));
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreateWithFlags(&filled, cudaEventDisableTiming));
  CHECK(cudaEventCreate(&end));
  float *a, *total, *host;
  CHECK(cudaMallocAsync(&a, n * sizeof(float), first));
  CHECK(cudaMallocAsync(&total, sizeof(float), second));
  CHECK(cudaMallocHost(&host, sizeof(float)));
  CHECK(cudaEventRecord(begin, first));
  fill<<<4, 256, 0, first>>>(a, n, 2);
  CHECK(cudaEventRecord(filled, first));
  if (argc == 1) CHECK(cudaStreamWaitEvent(second, filled, 0));
  sum<<<1, 32, 0, second>>>(a, n, total);
  CHECK(cudaMemcpyAsync(host, total, sizeof(float), cudaMemcpyDeviceToHost, second));
  int called = 0;
  CHECK(cudaLaunchHostFunc(second, count, &called));
  CHECK(cudaEventRecord(end, second));
  CHECK(cudaEventSynchronize(end));
  EXPECT(*host == 2 * n);
  EXPECT(called == 1);
  float milliseconds = -1;
  CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
  EXPECT(milliseconds >= 0);
  EXPECT(cudaEventElapsedTime(&milliseconds, filled, end) == cudaErrorInvalidResourceHandle);
  CHECK(cudaStreamQuery(second));
  CHECK(cudaFreeAsync(a, second));
  CHECK(cudaFreeAsync(total, second));
  CHECK(cudaStreamSynchronize(second));
  CHECK(cudaFreeHost(host));
  CHECK(cudaStreamDestroy(first));
  CHECK(cudaStreamDestroy(second));
}
