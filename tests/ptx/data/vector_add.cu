// SPDX-License-Identifier: Apache-2.0
// The smallest useful kernel, with a printf: parameters, a local struct for its arguments, a call of an extern function.
#include <cstdio>

__global__ void vector_add(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
  if (i == 0) printf("%d elements, first %f, %s\n", n, c[0], "done");
}
