// SPDX-License-Identifier: Apache-2.0
// Textures are not there, and say so: to whoever makes one, and to whoever launches a kernel that reads one. Other kernels of the
// program run.
#include "check.h"

__global__ void reads(cudaTextureObject_t texture, float* out) { *out = tex1Dfetch<float>(texture, 3); }
__global__ void writes(float* out) { *out = 1; }

int main() {
  cudaResourceDesc resource{};
  cudaTextureDesc texture{};
  float* x;
  CHECK(cudaMalloc(&x, 1024));
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = x;
  resource.res.linear.desc = cudaCreateChannelDesc<float>();
  EXPECT(resource.res.linear.desc.x == 32 && resource.res.linear.desc.f == cudaChannelFormatKindFloat);
  resource.res.linear.sizeInBytes = 1024;
  texture.readMode = cudaReadModeElementType;
  cudaTextureObject_t object = 0;
  EXPECT(cudaCreateTextureObject(&object, &resource, &texture, nullptr) == cudaErrorNotSupported);
  EXPECT(cudaGetLastError() == cudaErrorNotSupported);
  reads<<<1, 1>>>(object, x);
  EXPECT(cudaGetLastError() == cudaErrorNotSupported);
  writes<<<1, 1>>>(x);
  CHECK(cudaDeviceSynchronize());
}
