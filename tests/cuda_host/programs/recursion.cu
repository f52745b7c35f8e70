// SPDX-License-Identifier: Apache-2.0
// Functions that call themselves: each lane to a depth of its own, two by turns, by virtual functions, with the variables of each call
// seen by the next. `deep`: a recursion that the stack of a thread has no room for; `deep raised`: once it has.
#include <cstring>

#include "check.h"

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

__device__ __noinline__ bool is_odd(int n);
__device__ __noinline__ bool is_even(int n) { return n == 0 || is_odd(n - 1); }
__device__ __noinline__ bool is_odd(int n) { return n != 0 && is_even(n - 1); }

__device__ void quicksort(int* a, int low, int high) {
  if (low >= high) return;
  const int pivot = a[high];
  int middle = low;
  for (int i = low; i < high; ++i)
    if (a[i] < pivot) {
      const int other = a[middle];
      a[middle++] = a[i];
      a[i] = other;
    }
  a[high] = a[middle];
  a[middle] = pivot;
  quicksort(a, low, middle - 1);
  quicksort(a, middle + 1, high);
}

/// Adds to the variable of whoever called, and has one of its own.
__device__ __noinline__ int chain(int depth, int* above) {
  int own[4];
  for (int i = 0; i < 4; ++i) own[i] = 10 * depth + i;
  above[depth & 3] += 1000;
  const int below = depth == 0 ? 0 : chain(depth - 1, own);
  return own[0] + own[1] + own[2] + own[3] + below;
}

struct Expression {
  __device__ virtual int value() const = 0;
  __device__ virtual ~Expression() {}
};
struct Number : Expression {
  __device__ explicit Number(int n) : number(n) {}
  __device__ int value() const override { return number; }
  int number;
};
struct Sum : Expression {
  __device__ Sum(Expression* a, Expression* b) : left(a), right(b) {}
  __device__ int value() const override { return left->value() + right->value(); }
  Expression *left, *right;
};
__device__ Expression* tree(int leaves) {
  if (leaves == 1) return new Number(7);
  return new Sum(tree(leaves / 2), tree(leaves - leaves / 2));
}

struct Results {
  int fibonacci[64], even[64], chain[64], tree[64];
};
__global__ void compute(Results* out) {
  const int i = static_cast<int>(threadIdx.x);
  out->fibonacci[i] = fibonacci(i % 12);
  out->even[i] = is_even(i % 20) ? 1 : 0;
  int first[4] = {};
  out->chain[i] = chain(i % 7, first) + first[0] + first[1] + first[2] + first[3];
  const Expression* const sum = tree(1 + i % 5);
  out->tree[i] = sum->value();
}
__global__ void sort(int* a, int n) { quicksort(a, 0, n - 1); }
__global__ void dive(int depth, int* out) {
  int first[4] = {};
  *out = chain(depth, first);
}

int main(int count, char** arguments) {
  if (count > 1 && std::strcmp(arguments[1], "deep") == 0) {
    if (count > 2) CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 64 << 10));
    int *out = nullptr, value = 0;
    CHECK(cudaMalloc(&out, sizeof(int)));
    dive<<<1, 1>>>(400, out);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(&value, out, sizeof value, cudaMemcpyDeviceToHost));
    EXPECT(value == 400 * 1000 + 401 * 6 + 4 * 10 * (400 * 401 / 2));
    std::puts("ok");
    return 0;
  }
  CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 8 << 10));
  Results* out = nullptr;
  CHECK(cudaMallocManaged(&out, sizeof(Results)));
  compute<<<1, 64>>>(out);
  CHECK(cudaDeviceSynchronize());
  const int fib[] = {0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89};
  for (int i = 0; i < 64; ++i) {
    EXPECT(out->fibonacci[i] == fib[i % 12]);
    EXPECT(out->even[i] == (i % 20 % 2 == 0 ? 1 : 0));
    const int depth = i % 7;
    EXPECT(out->chain[i] == (depth + 1) * 1000 + (depth + 1) * 6 + 4 * 10 * (depth * (depth + 1) / 2));
    EXPECT(out->tree[i] == 7 * (1 + i % 5));
  }
  constexpr int kCount = 100;
  int* numbers = nullptr;
  CHECK(cudaMallocManaged(&numbers, kCount * sizeof(int)));
  for (int i = 0; i < kCount; ++i) numbers[i] = i * 37 % kCount;
  sort<<<1, 1>>>(numbers, kCount);
  CHECK(cudaDeviceSynchronize());
  for (int i = 0; i < kCount; ++i) EXPECT(numbers[i] == i);
  std::puts("ok");
}
