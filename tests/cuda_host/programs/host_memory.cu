// SPDX-License-Identifier: Apache-2.0
// Managed, pinned, registered and pitched memory.
#include <vector>

#include "check.h"

__global__ void triple(int* x, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= 3;
}
__global__ void transpose(const float* in, size_t in_pitch, float* out, int width, int height) {
  const int x = threadIdx.x, y = threadIdx.y;
  if (x < width && y < height)
    out[x * height + y] = reinterpret_cast<const float*>(reinterpret_cast<const char*>(in) + y * in_pitch)[x];
}

int main() {
  const int n = 3000;
  int *managed, *pinned, *seen;
  CHECK(cudaMallocManaged(&managed, n * sizeof(int)));
  CHECK(cudaHostAlloc(&pinned, n * sizeof(int), cudaHostAllocMapped));
  for (int i = 0; i < n; ++i) managed[i] = pinned[i] = i;
  CHECK(cudaHostGetDevicePointer(&seen, pinned, 0));
  triple<<<12, 256>>>(managed, n);
  triple<<<12, 256>>>(seen, n);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < n; ++i) EXPECT(managed[i] == 3 * i && pinned[i] == 3 * i);
  cudaPointerAttributes attributes;
  CHECK(cudaPointerGetAttributes(&attributes, managed));
  EXPECT(attributes.type == cudaMemoryTypeManaged);
  CHECK(cudaPointerGetAttributes(&attributes, pinned + 7));
  EXPECT(attributes.type == cudaMemoryTypeHost);
  std::vector<float> plain(20 * 30), turned(30 * 20, -1);
  CHECK(cudaPointerGetAttributes(&attributes, plain.data()));
  EXPECT(attributes.type == cudaMemoryTypeUnregistered);
  CHECK(cudaHostRegister(plain.data(), plain.size() * 4, cudaHostRegisterDefault));
  for (size_t i = 0; i < plain.size(); ++i) plain[i] = i * 0.5f;
  float *pitched, *out;
  size_t pitch = 0;
  CHECK(cudaMallocPitch(&pitched, &pitch, 20 * 4, 30));
  CHECK(cudaMalloc(&out, 600 * 4));
  CHECK(cudaMemcpy2D(pitched, pitch, plain.data(), 20 * 4, 20 * 4, 30, cudaMemcpyHostToDevice));
  transpose<<<1, dim3(32, 32)>>>(pitched, pitch, out, 20, 30);
  CHECK(cudaMemcpy(turned.data(), out, 600 * 4, cudaMemcpyDeviceToHost));
  for (int x = 0; x < 20; ++x)
    for (int y = 0; y < 30; ++y) EXPECT(turned[x * 30 + y] == plain[y * 20 + x]);
  CHECK(cudaHostUnregister(plain.data()));
  CHECK(cudaFree(managed));
  CHECK(cudaFreeHost(pinned));
}
