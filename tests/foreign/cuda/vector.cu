// SPDX-License-Identifier: Apache-2.0
// Vector loads with a tail, half2 arithmetic, templates: what plain CUDA becomes.
#include <cuda_fp16.h>

struct Scale {
  float factor;
  __device__ float4 operator()(float4 v) const {
    return make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
  }
};

template <class F>
__device__ void transform(const float* in, float* out, int n, F f) {
  const int step = gridDim.x * blockDim.x;
  const int vectors = n / 4;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += step)
    reinterpret_cast<float4*>(out)[i] = f(reinterpret_cast<const float4*>(in)[i]);
  for (int i = vectors * 4 + threadIdx.x; blockIdx.x == 0 && i < n; i += blockDim.x)
    out[i] = f(make_float4(__ldg(in + i), 0, 0, 0)).x;
}

// x is scaled into y; then h = |h| * h + min(h, limit), two halves at a time.
extern "C" __global__ void __launch_bounds__(256) vector(const float* __restrict__ x, float* __restrict__ y, __half2* h,
                                                          int n, Scale scale, __half limit) {
  transform(x, y, n, scale);
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n / 2; i += gridDim.x * blockDim.x)
    h[i] = __hfma2(__habs2(h[i]), h[i], __hmin2(h[i], __half2half2(limit)));
}
