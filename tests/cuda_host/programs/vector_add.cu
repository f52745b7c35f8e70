// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "check.h"

__global__ void add(const float* a, const float* b, float* c, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}

int main() {
  const int n = 10007;
  std::vector<float> x(n), y(n), z(n, -1);
  for (int i = 0; i < n; ++i) {
    x[i] = i * 0.25f;
    y[i] = 7.0f - i;
  }
  float *a, *b, *c;
  CHECK(cudaMalloc(&a, n * 4));
  CHECK(cudaMalloc(&b, n * 4));
  CHECK(cudaMalloc(&c, n * 4));
  CHECK(cudaMemcpy(a, x.data(), n * 4, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(b, y.data(), n * 4, cudaMemcpyHostToDevice));
  add<<<(n + 255) / 256, 256>>>(a, b, c, n);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(z.data(), c, n * 4, cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; ++i) EXPECT(z[i] == x[i] + y[i]);
  add<<<1, 2000>>>(a, b, c, n);
  EXPECT(cudaGetLastError() != cudaSuccess);
  EXPECT(cudaGetLastError() == cudaSuccess);
  EXPECT(cudaMemcpy(z.data(), y.data(), 4, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(cudaFree(a));
  EXPECT(cudaFree(b + 1) != cudaSuccess);
  cudaGetLastError();
  CHECK(cudaDeviceReset());
}
