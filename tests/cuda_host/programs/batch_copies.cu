// SPDX-License-Identifier: Apache-2.0
// Copies in batches, of lines and of boxes, and what an H100 with driver 580 refuses of them.
#include <cstring>

#include "check.h"

#if CUDART_VERSION >= 13000
#define FAILED
#else
#define FAILED nullptr,  // CUDA 12 tells which copy failed
#endif

constexpr size_t kBytes = 64;
unsigned char source[3][kBytes], result[3][kBytes];
unsigned char* device;
cudaStream_t stream;

void lines() {
  cudaMemcpyAttributes kinds[2] = {};
  kinds[0].srcAccessOrder = cudaMemcpySrcAccessOrderDuringApiCall;
  kinds[1].srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  size_t first_of[2] = {0, 1};
  void *to[3], *from[3];
  size_t bytes[3] = {kBytes, kBytes - 5, 1};
  for (int i = 0; i < 3; ++i) to[i] = device + i * kBytes, from[i] = source[i];
  const auto batch = [&](size_t count, size_t sets, cudaStream_t on) {
    return cudaMemcpyBatchAsync(to, from, bytes, count, kinds, first_of, sets, FAILED on);
  };
  CHECK(cudaMemset(device, 0, sizeof source));
  CHECK(cudaDeviceSynchronize());
  CHECK(batch(3, 2, stream));
  CHECK(cudaStreamSynchronize(stream));
  for (int i = 0; i < 3; ++i) to[i] = result[2 - i], from[i] = device + i * kBytes;
  CHECK(batch(3, 1, cudaStreamPerThread));
  CHECK(cudaStreamSynchronize(cudaStreamPerThread));
  for (int i = 0; i < 3; ++i) {
    EXPECT(std::memcmp(result[2 - i], source[i], bytes[i]) == 0);
    for (size_t b = bytes[i]; b < kBytes; ++b) EXPECT(result[2 - i][b] == 0xAA);
  }

  EXPECT(batch(3, 1, nullptr) == cudaErrorInvalidValue);
  EXPECT(batch(3, 1, cudaStreamLegacy) == cudaErrorInvalidValue);
  EXPECT(batch(0, 1, stream) == cudaErrorInvalidValue);
  EXPECT(batch(3, 0, stream) == cudaErrorInvalidValue);
  EXPECT(batch(1, 2, stream) == cudaErrorInvalidValue);
  first_of[1] = 0;
  EXPECT(batch(3, 2, stream) == cudaErrorInvalidValue);
  first_of[1] = 3;
  EXPECT(batch(3, 2, stream) == cudaErrorInvalidValue);
  first_of[0] = 1;
  EXPECT(batch(3, 1, stream) == cudaErrorInvalidValue);
  first_of[0] = 0;
  bytes[1] = 0;
  EXPECT(batch(3, 1, stream) == cudaErrorInvalidValue);
  bytes[1] = 1;
  from[1] = nullptr;
  EXPECT(batch(3, 1, stream) == cudaErrorInvalidValue);
  from[1] = device;
  kinds[0].flags = 2;
  EXPECT(batch(3, 1, stream) == cudaErrorInvalidValue);
  kinds[0].flags = cudaMemcpyFlagPreferOverlapWithCompute;
  CHECK(batch(3, 1, stream));
  for (int order : {0, 4}) {
    kinds[0].srcAccessOrder = static_cast<cudaMemcpySrcAccessOrder>(order);
    EXPECT(batch(3, 1, stream) == cudaErrorInvalidValue);
  }
  kinds[0].srcAccessOrder = cudaMemcpySrcAccessOrderAny;
  // A capture refuses it, and goes on.
  cudaGraph_t graph;
  size_t nodes = 1;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  EXPECT(batch(3, 1, stream) == cudaErrorStreamCaptureUnsupported);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT(nodes == 0);
}

/// A box of 2 layers of 3 rows of 5 bytes, tightly packed, and in rows of 8 bytes and layers of 4 rows.
void boxes() {
  cudaMemcpy3DBatchOp copy{};
  copy.src.type = copy.dst.type = cudaMemcpyOperandTypePointer;
  copy.extent = {5, 3, 2};
  copy.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
  const auto batch = [&](size_t count, unsigned long long flags, cudaStream_t on) {
    return cudaMemcpy3DBatchAsync(count, &copy, FAILED flags, on);
  };
  copy.src.op.ptr.ptr = source[0];
  copy.dst.op.ptr = {device, 8, 4, {}};
  CHECK(batch(1, 0, stream));
  copy.src.op.ptr = copy.dst.op.ptr;
  copy.dst.op.ptr = {result[0], 0, 0, {}};
  CHECK(batch(1, 0, stream));
  CHECK(cudaStreamSynchronize(stream));
  EXPECT(std::memcmp(result[0], source[0], 30) == 0);
  CHECK(cudaMemcpy(result[1], device + (4 + 2) * 8, 5, cudaMemcpyDefault));
  EXPECT(std::memcmp(result[1], source[0] + 5 * 5, 5) == 0);

  EXPECT(batch(1, 0, nullptr) == cudaErrorInvalidValue);
  EXPECT(batch(0, 0, stream) == cudaErrorInvalidValue);
  EXPECT(batch(1, 1, stream) == cudaErrorInvalidValue);
  copy.extent.depth = 0;
  EXPECT(batch(1, 0, stream) == cudaErrorInvalidValue);
  copy.extent.depth = 2;
  copy.src.op.ptr.rowLength = 4;
  EXPECT(batch(1, 0, stream) == cudaErrorInvalidValue);
  copy.src.op.ptr.rowLength = 8;
  copy.src.op.ptr.layerHeight = 2;
  EXPECT(batch(1, 0, stream) == cudaErrorInvalidValue);
  copy.src.op.ptr.layerHeight = 0;
  copy.src.type = static_cast<cudaMemcpy3DOperandType>(0);
  EXPECT(batch(1, 0, stream) == cudaErrorInvalidValue);
}

int main() {
  for (size_t i = 0; i < sizeof source; ++i) source[i / kBytes][i % kBytes] = static_cast<unsigned char>(7 * i + 1);
  std::memset(result, 0xAA, sizeof result);
  CHECK(cudaMalloc(&device, sizeof source));
  CHECK(cudaStreamCreate(&stream));
  lines();
  boxes();
  std::printf("ok\n");
}
