// SPDX-License-Identifier: Apache-2.0
// Launches that no GPU can run, and the error of each. The expectations are what an H200 answered (driver 580, the runtimes of CUDA 13.0,
// shared and static, and of 12.9 for grids and blocks).
#include <cuda_runtime.h>

#include "check.h"

__global__ void plain(int* out) {
  if (out != nullptr) *out = 1;
}
__global__ void __launch_bounds__(128) bounded(int* out) {
  if (out != nullptr) *out = 1;
}
__global__ void __cluster_dims__(2, 1, 1) clustered(int* out) {
  if (out != nullptr) *out = 1;
}

static int* nothing = nullptr;
static void* arguments[] = {&nothing};

#define EXPECT_ERROR(call, expected)                                                                   \
  do {                                                                                                 \
    const cudaError_t error = (call);                                                                  \
    if (error != (expected)) {                                                                         \
      std::printf("line %d: %s: %s, not %s\n", __LINE__, #call, cudaGetErrorName(error),               \
                  cudaGetErrorName(expected));                                                         \
      std::exit(1);                                                                                    \
    }                                                                                                  \
    EXPECT(cudaGetLastError() == (expected));                                                          \
  } while (0)

struct Shape {
  dim3 grid, block;
};

cudaError_t captured(const Shape& shape, cudaError_t& end) {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  const cudaError_t error = cudaLaunchKernel((const void*)plain, shape.grid, shape.block, arguments, 0, stream);
  cudaGraph_t graph = nullptr;
  end = cudaStreamEndCapture(stream, &graph);
  cudaGetLastError();
  CHECK(cudaStreamDestroy(stream));
  return error;
}

cudaError_t added(const Shape& shape) {
  cudaGraph_t graph;
  CHECK(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t node;
  cudaKernelNodeParams parameters = {};
  parameters.func = (void*)plain;
  parameters.gridDim = shape.grid;
  parameters.blockDim = shape.block;
  parameters.kernelParams = arguments;
  const cudaError_t error = cudaGraphAddKernelNode(&node, graph, nullptr, 0, &parameters);
  CHECK(cudaGraphDestroy(graph));
  return error;
}

cudaError_t with_cluster(const void* kernel, unsigned grid, dim3 cluster) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = cluster.x;
  attribute.val.clusterDim.y = cluster.y;
  attribute.val.clusterDim.z = cluster.z;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(grid);
  config.blockDim = dim3(32);
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

int main() {
  int runtime = 0;
  CHECK(cudaRuntimeGetVersion(&runtime));
  const cudaError_t bad_shape = runtime >= 13000 ? cudaErrorInvalidValue : cudaErrorInvalidConfiguration;
  const Shape shapes[] = {{{1}, {0}},           {{1}, {32, 0, 1}},     {{0}, {32}},          {{1, 0, 1}, {32}},
                          {{1, 1, 0}, {32}},    {{1}, {1025}},         {{1}, {1, 1025, 1}},  {{1}, {1, 1, 65}},
                          {{1}, {64, 32, 1}},   {{2147483648u}, {32}}, {{1, 65536, 1}, {32}}, {{1, 1, 65536}, {32}}};
  for (const Shape& shape : shapes) {
    plain<<<shape.grid, shape.block>>>(nullptr);
    EXPECT_ERROR(cudaPeekAtLastError(), bad_shape);
    EXPECT_ERROR(cudaLaunchKernel((const void*)plain, shape.grid, shape.block, arguments, 0, nullptr), bad_shape);
    EXPECT_ERROR(cudaLaunchCooperativeKernel((const void*)plain, shape.grid, shape.block, arguments, 0, nullptr),
                 bad_shape);
    EXPECT_ERROR(added(shape), cudaErrorInvalidValue);
    cudaError_t end = cudaSuccess;
    EXPECT(captured(shape, end) == bad_shape);
    EXPECT(runtime < 13000 || end == cudaErrorStreamCaptureInvalidated);
  }
  for (const size_t shared : {size_t{49153}, size_t{232448}, size_t{1} << 20}) {
    EXPECT_ERROR(cudaLaunchKernel((const void*)plain, dim3(1), dim3(32), arguments, shared, nullptr),
                 cudaErrorInvalidValue);
    EXPECT_ERROR(cudaLaunchCooperativeKernel((const void*)plain, dim3(1), dim3(32), arguments, shared, nullptr),
                 cudaErrorCooperativeLaunchTooLarge);
  }
  bounded<<<1, 129>>>(nullptr);
  EXPECT_ERROR(cudaPeekAtLastError(), cudaErrorInvalidValue);
  clustered<<<3, 32>>>(nullptr);
  EXPECT_ERROR(cudaPeekAtLastError(), cudaErrorInvalidClusterSize);
  const void* const kernels[] = {(const void*)plain, (const void*)clustered};
  for (const void* kernel : kernels) {
    EXPECT_ERROR(with_cluster(kernel, 8, dim3(2)), cudaSuccess);
    EXPECT_ERROR(with_cluster(kernel, 8, dim3(3)), cudaErrorInvalidClusterSize);
    EXPECT_ERROR(with_cluster(kernel, 8, dim3(0)), cudaErrorInvalidClusterSize);
    EXPECT_ERROR(with_cluster(kernel, 8, dim3(1, 2, 1)), cudaErrorInvalidClusterSize);
    EXPECT_ERROR(with_cluster(kernel, 32, dim3(16)), cudaErrorInvalidClusterSize);
    EXPECT_ERROR(with_cluster(kernel, 32, dim3(32)), cudaErrorInvalidClusterSize);
  }
  EXPECT_ERROR(with_cluster(kernels[0], 8, dim3(8)), cudaSuccess);
  EXPECT_ERROR(with_cluster(kernels[1], 8, dim3(8)), cudaErrorInvalidClusterSize);
  EXPECT_ERROR(cudaLaunchCooperativeKernel(kernels[0], dim3(100000), dim3(32), arguments, 0, nullptr),
               cudaErrorCooperativeLaunchTooLarge);
  CHECK(cudaDeviceSynchronize());
  std::puts("ok");
}
