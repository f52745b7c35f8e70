// SPDX-License-Identifier: Apache-2.0
// Initialised variables: constants, strings, addresses inside structs, two dimensions, managed memory.
struct Node {
  char tag;
  const int* data;
  float weight;
};
__device__ int table[2][3] = {{1, 2, 3}, {4, 5}};
__constant__ float coefficients[4] = {1.0f, -2.5f, 3e-9f};
__constant__ double tau = 6.283185307179586;
__device__ const char* names[2] = {"first", "second\n"};
__device__ Node nodes[2] = {{'a', table[0] + 1, 1.5f}, {'b', table[1], 2.5f}};
__device__ char bytes[5] = {1, 2, -3};
__device__ float4 quad = {1, 2, 3, 4};
__device__ __managed__ int shared_with_host = 7;
__device__ volatile unsigned long long counter;
struct __attribute__((packed)) Odd {
  char c;
  const void* p;
};
__device__ Odd odd = {1, &table[1][2]};

__global__ void globals(float* out, int i) {
  out[i] = coefficients[i] + static_cast<float>(tau) + names[i][0] + nodes[i].data[0] + nodes[i].weight + bytes[i] + quad.y +
           shared_with_host + static_cast<const int*>(odd.p)[0];
  counter = counter + i;
}
