// SPDX-License-Identifier: Apache-2.0
// A program compiled in parts (-rdc=true, with parts_device.cu): device functions and variables of the other part, a
// function pointer from there, a table of functions, virtual functions, and a static function that both parts have.
#include <vector>

#include "check.h"

extern __device__ float scale(float x, int by);
extern __device__ int calls;
typedef float (*Operation)(float, float);
extern __device__ Operation chosen(int which);

__device__ static float twist(float x) { return x + 1; }

__device__ static float add(float a, float b) { return a + b; }
__device__ static float subtract(float a, float b) { return a - b; }
__device__ static Operation const own[] = {add, subtract};

struct Shape {
  __device__ explicit Shape(float side) : side(side) {}
  __device__ virtual float area() const = 0;
  float side;
};
struct Square : Shape {
  using Shape::Shape;
  __device__ float area() const override { return side * side; }
};
struct Triangle : Shape {
  using Shape::Shape;
  __device__ float area() const override { return side * side / 2; }
};

__global__ void everything(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const Square square(x[i]);
  const Triangle triangle(x[i]);
  const Shape* const shape = i % 3 == 0 ? static_cast<const Shape*>(&square) : &triangle;
  float sum = twist(scale(x[i], 3));                 // 3 x + 1, of the other part
  sum = own[i % 2](sum, chosen(i % 5 < 2)(x[i], 2));  // max or min, of the other part; lanes call different ones
  y[i] = sum + shape->area();
  if (i == 0) atomicAdd(&calls, 1);
}

int main() {
  const int n = 1000;
  std::vector<float> x(n), y(n, -1e30f);
  for (int i = 0; i < n; ++i) x[i] = static_cast<float>(i % 37) / 4 - 3;
  float *in, *out;
  CHECK(cudaMalloc(&in, n * 4));
  CHECK(cudaMalloc(&out, n * 4));
  CHECK(cudaMemcpy(in, x.data(), n * 4, cudaMemcpyHostToDevice));
  everything<<<8, 128>>>(in, out, n);
  CHECK(cudaGetLastError());
  CHECK(cudaMemcpy(y.data(), out, n * 4, cudaMemcpyDeviceToHost));
  for (int i = 0; i < n; ++i) {
    const float other = i % 5 < 2 ? (x[i] > 2 ? x[i] : 2) : (x[i] < 2 ? x[i] : 2);
    const float sum = 3 * x[i] + 1 + (i % 2 == 0 ? other : -other);
    EXPECT(y[i] == sum + (i % 3 == 0 ? x[i] * x[i] : x[i] * x[i] / 2));
  }
}
