// SPDX-License-Identifier: Apache-2.0
// Textures are not there, and say so.
#include "check.h"

int main() {
  cudaResourceDesc resource{};
  cudaTextureDesc texture{};
  float* x;
  CHECK(cudaMalloc(&x, 1024));
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = x;
  resource.res.linear.desc = cudaChannelFormatDesc{32, 0, 0, 0, cudaChannelFormatKindFloat};
  resource.res.linear.sizeInBytes = 1024;
  texture.readMode = cudaReadModeElementType;
  cudaTextureObject_t object = 0;
  EXPECT(cudaCreateTextureObject(&object, &resource, &texture, nullptr) == cudaErrorNotSupported);
}
