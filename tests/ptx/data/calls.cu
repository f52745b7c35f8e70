// SPDX-License-Identifier: Apache-2.0
// Device functions: direct calls, recursion, calls through pointers, structs by value, switches, loops, local arrays.
struct Pair {
  float first;
  double second;
  char tag;
};
using Function = float (*)(float, int);

__device__ __noinline__ float power(float x, int n) { return n == 0 ? 1.0f : x * power(x, n - 1); }
__device__ __noinline__ float repeat(float x, int n) {
  for (int i = 0; i < n; ++i) x = x * x + 1.0f;
  return x;
}
__device__ __noinline__ Pair twice(Pair p) { return {p.first * 2, p.second * 2, static_cast<char>(p.tag + 1)}; }
__device__ __noinline__ void nothing(int* p) { *p = 1; }
__device__ Function functions[3] = {power, repeat, nullptr};

__global__ void calls(float* out, int which, Pair p, int* counter) {
  int scratch[16];
  for (int i = 0; i < 16; ++i) scratch[i] = counter[i] * i;
  float x = functions[which & 1](out[0], 3);
  x += power(x, 4) + repeat(x, 2);
  Pair q = twice(p);
  nothing(counter);
  out[threadIdx.x] = x + q.first + static_cast<float>(q.second) + q.tag + scratch[which];
}

__global__ void switches(int* out, int which) {
  int v = out[threadIdx.x];
  switch (which) {
    case 0: v = v * 3 + 1; break;
    case 1: v = v / 7; break;
    case 2: v = v % 11; break;
    case 3: v = v << 3; break;
    case 4: v = v >> 2; break;
    case 5: v = __popc(v); break;
    case 6: v ^= out[1]; break;
    case 7: atomicAdd(out + 2, v); break;
    case 8: v = out[v & 31]; break;
    case 9: v = -v; break;
    case 10: v = ~v; break;
    case 11: __trap();
    default: v = 0;
  }
  out[threadIdx.x] = v;
}
