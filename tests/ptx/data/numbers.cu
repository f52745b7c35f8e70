// SPDX-License-Identifier: Apache-2.0
// Arithmetic and conversions of every width; math functions.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

__global__ void integers(long long* l, unsigned* u, short* s, unsigned char* c) {
  int t = threadIdx.x;
  l[t] = l[t] * l[1] / (l[2] | 1) + __mul64hi(l[3], l[4]) + (l[5] >> 3);
  u[t] = __umulhi(u[1], u[2]) + __umul24(u[3], u[4]) + __sad(u[5], u[6], u[7]) + min(u[8], u[9]) + u[10] % 7;
  s[t] = static_cast<short>(s[1] * s[2] - s[3]);
  c[t] = static_cast<unsigned char>(c[1] + c[2]);
  unsigned __int128 wide = static_cast<unsigned __int128>(l[6]) * static_cast<unsigned long long>(l[7]) + 5;
  l[t + 1] = static_cast<long long>(wide >> 64);
}

__global__ void floats(float* f, double* d, __half* h, __nv_bfloat16* b, __nv_fp8_e4m3* q, int* i) {
  int t = threadIdx.x;
  f[t] = sinf(f[0]) + cosf(f[1]) + expf(f[2]) + logf(f[3]) + sqrtf(f[4]) + rsqrtf(f[5]) + tanhf(f[6]) + f[7] / f[8] +
         fmaf(f[9], f[10], f[11]) + __fdividef(f[12], f[13]) + __expf(f[14]) + fminf(f[15], f[16]) + fabsf(f[17]) +
         floorf(f[18]) + rintf(f[19]) + copysignf(f[20], f[21]) + __frcp_rz(f[22]) + __fadd_ru(f[23], 1.0f);
  d[t] = sqrt(d[0]) + d[1] / d[2] + fma(d[3], d[4], d[5]) + exp(d[6]) + (isnan(d[7]) ? 1.0 : 0.0);
  h[t] = __hadd(h[1], h[2]) * h[3] + __float2half(f[24]) + __hfma(h[4], h[5], h[6]) + __int2half_rn(i[0]);
  b[t] = b[1] * b[2] + __float2bfloat16(f[25]);
  q[t] = __nv_fp8_e4m3(f[26]);
  __half2 pair = __hfma2(__half2half2(h[7]), __half2half2(h[8]), __half2half2(h[9]));
  h[t + 1] = __low2half(pair);
  h[t + 2] = h[10] < h[11] ? h[12] : hexp(h[13]);
  f[t + 1] = static_cast<float>(q[1]) + static_cast<float>(b[3]) + static_cast<float>(i[1]) + static_cast<float>(d[8]);
  i[t] = static_cast<int>(f[27]) + __float2int_rd(f[28]) + __double2int_rz(d[9]) + __float_as_int(f[29]);
}
