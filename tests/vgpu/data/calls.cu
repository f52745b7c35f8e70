// nvcc -arch=sm_90a -ptx -lineinfo calls.cu
struct Pair { int first; double second; };
__device__ __noinline__ Pair combine(Pair a, int k) { return {a.first * k + 1, a.second / k}; }
__device__ __noinline__ int collatz(unsigned n) {
  int steps = 0;
  while (n != 1) { n = n % 2 ? 3 * n + 1 : n / 2; ++steps; }
  return steps;
}
__device__ __noinline__ int choose(int kind, int x) {
  switch (kind) {
    case 0: return x + 7;
    case 1: return x * x;
    case 2: return collatz(x + 1);
    case 3: return x ^ 0x55;
    case 4: return -x;
    default: return 1000000 + x;
  }
}
__global__ void calls(int* out, double* halves) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  Pair p = combine({i, i * 1.5}, i % 5 + 1);
  int local[8];
  for (int k = 0; k < 8; ++k) local[(k * 3 + i) % 8] = choose(k % 6, i);
  int sum = p.first;
  for (int k = 0; k < 8; ++k) sum = sum * 31 + local[k];
  out[i] = sum;
  halves[i] = p.second;
}
