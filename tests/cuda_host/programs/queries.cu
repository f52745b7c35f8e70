// SPDX-License-Identifier: Apache-2.0
// Device queries, occupancy, function attributes, and several devices.
#include "check.h"

__global__ void __launch_bounds__(256) kernel(float* x) {
  __shared__ float staged[1024];
  staged[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = staged[255 - threadIdx.x];
}

__global__ void plain(float* x) { x[threadIdx.x] = 1; }

int main() {
  int devices = 0;
  CHECK(cudaGetDeviceCount(&devices));
  EXPECT(devices == 2);
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 1));
  EXPECT(properties.major == 9 && properties.minor == 0);
  EXPECT(properties.multiProcessorCount == 132);
  EXPECT(properties.sharedMemPerBlockOptin == 227 << 10);
  EXPECT(properties.warpSize == 32 && properties.maxThreadsPerMultiProcessor == 2048);
  EXPECT(properties.clusterLaunch == 1 && properties.cooperativeLaunch == 1);
  cudaFuncAttributes attributes;
  CHECK(cudaFuncGetAttributes(&attributes, kernel));
  EXPECT(attributes.sharedSizeBytes == 4096);
  EXPECT(attributes.maxThreadsPerBlock == 256);
  int blocks = 0, grid = 0, threads = 0, value = 0;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 256, 40 << 10));
  EXPECT(blocks == 5);  // 228 KiB over 45
  CHECK(cudaOccupancyMaxPotentialBlockSize(&grid, &threads, kernel));
  EXPECT(threads > 0 && threads <= 256 && grid >= 132);
  // What two CTAs of an SM may have, but no more than the kernel may.
  size_t shared = 0;
  CHECK(cudaOccupancyAvailableDynamicSMemPerBlock(&shared, plain, 2, 256));
  EXPECT(shared == 48 << 10);
  CHECK(cudaFuncSetAttribute(plain, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 << 10));
  CHECK(cudaOccupancyAvailableDynamicSMemPerBlock(&shared, plain, 2, 256));
  EXPECT(shared == 113 << 10);
  CHECK(cudaDeviceCanAccessPeer(&value, 0, 1));
  EXPECT(value == 1);
  CHECK(cudaDeviceEnablePeerAccess(1, 0));
  float *here, *there;
  float host[256], got[256];
  for (int i = 0; i < 256; ++i) host[i] = i;
  CHECK(cudaMalloc(&here, sizeof host));
  CHECK(cudaMemcpy(here, host, sizeof host, cudaMemcpyHostToDevice));
  CHECK(cudaSetDevice(1));
  CHECK(cudaMalloc(&there, sizeof host));
  CHECK(cudaMemcpyPeer(there, 1, here, 0, sizeof host));
  kernel<<<1, 256>>>(there);
  CHECK(cudaMemcpy(got, there, sizeof got, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 256; ++i) EXPECT(got[i] == 255 - i);
  cudaPointerAttributes where;
  CHECK(cudaPointerGetAttributes(&where, there));
  EXPECT(where.device == 1 && where.type == cudaMemoryTypeDevice);
  EXPECT(cudaSetDevice(2) == cudaErrorInvalidDevice);
}
