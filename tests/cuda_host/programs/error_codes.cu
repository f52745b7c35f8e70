// SPDX-License-Identifier: Apache-2.0
// What calls answer that a program gets wrong: the codes are those of an H200 (driver 580, the runtimes of CUDA 13.0, shared and
// static), and cudaGetLastError() repeats each once.
#include "check.h"

#define ANSWERS(call, code)                                                                \
  do {                                                                                     \
    const cudaError_t answer = (call), last = cudaGetLastError();                          \
    if (answer != (code) || last != answer) {                                              \
      std::printf("line %d: %s: %s, then %s\n", __LINE__, #call, cudaGetErrorName(answer), \
                  cudaGetErrorName(last));                                                 \
      std::exit(1);                                                                        \
    }                                                                                      \
  } while (0)

__global__ void kernel(int* p) { p[threadIdx.x] = 1; }
__global__ void __launch_bounds__(128) bounded(int* p) { p[0] = 1; }
__device__ int variable;
__managed__ int managed = 4;
__constant__ int constant;

void pointers_and_copies() {
  int *d = nullptr, *pinned = nullptr, *h = new int[64];
  CHECK(cudaMalloc(&d, 4096));
  CHECK(cudaMallocHost(&pinned, 4096));
  void* address = nullptr;
  CHECK(cudaGetSymbolAddress(&address, variable));
  for (void* wrong : {reinterpret_cast<void*>(0x1234), static_cast<void*>(h), static_cast<void*>(pinned),
                      static_cast<void*>(d + 4), address, static_cast<void*>(&managed)})
    ANSWERS(cudaFree(wrong), cudaErrorInvalidValue);
  ANSWERS(cudaFreeHost(d), cudaErrorInvalidValue);
  ANSWERS(cudaFreeHost(h), cudaErrorInvalidValue);
  ANSWERS(cudaMemcpy(nullptr, nullptr, 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  ANSWERS(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyHostToDevice), cudaSuccess);
  ANSWERS(cudaMemcpy(d, h, 8192, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  ANSWERS(cudaMemcpy(d, h, 64, static_cast<cudaMemcpyKind>(9)), cudaErrorInvalidMemcpyDirection);
  ANSWERS(cudaMemcpy(d, h, 64, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  ANSWERS(cudaMemcpy(h, d, 64, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  ANSWERS(cudaMemcpy(d, h, 64, cudaMemcpyDefault), cudaSuccess);
  ANSWERS(cudaMemset(h, 0, 4), cudaErrorInvalidValue);
  ANSWERS(cudaMemset(d, 0, 5000), cudaErrorInvalidValue);
  ANSWERS(cudaMemset(nullptr, 0, 4), cudaErrorInvalidValue);
  ANSWERS(cudaMemset(nullptr, 0, 0), cudaSuccess);
  ANSWERS(cudaMemcpyToSymbol(constant, h, 8), cudaErrorInvalidValue);
  ANSWERS(cudaMemcpyToSymbol(constant, h, 4, 2), cudaErrorInvalidValue);
  ANSWERS(cudaMemcpyFromSymbol(h, h, 4), cudaErrorInvalidSymbol);
  ANSWERS(cudaMalloc(static_cast<void**>(nullptr), 4), cudaErrorInvalidValue);
  ANSWERS(cudaMalloc(&d, 0), cudaSuccess);
  EXPECT(d == nullptr);
  ANSWERS(cudaHostRegister(h, 256, 0), cudaSuccess);
  ANSWERS(cudaHostRegister(h, 256, 0), cudaErrorHostMemoryAlreadyRegistered);
  ANSWERS(cudaHostUnregister(h), cudaSuccess);
  ANSWERS(cudaHostUnregister(h), cudaErrorHostMemoryNotRegistered);
  ANSWERS(cudaHostGetDevicePointer(&address, h, 0), cudaErrorInvalidValue);
}

void devices_and_kernels() {
  int *d = nullptr, count = 0, host = 0;
  size_t bytes = 0;
  CHECK(cudaMalloc(&d, 4096));
  bounded<<<1, 129>>>(d);
  EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
  kernel<<<1, 32, 100000>>>(d);
  EXPECT(cudaGetLastError() == cudaErrorInvalidValue);
  ANSWERS(cudaSetDevice(-1), cudaErrorInvalidDevice);
  ANSWERS(cudaSetDevice(64), cudaErrorInvalidDevice);
  ANSWERS(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessUnsupported);
  ANSWERS(cudaSetDeviceFlags(0xffff), cudaErrorInvalidValue);
  ANSWERS(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 300000),
          cudaErrorInvalidValue);
  ANSWERS(cudaFuncSetAttribute(&host, cudaFuncAttributeMaxDynamicSharedMemorySize, 3000),
          cudaErrorInvalidResourceHandle);
  ANSWERS(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, kernel, 0, 0), cudaErrorInvalidValue);
  ANSWERS(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, kernel, 4096, 0), cudaSuccess);
  EXPECT(count == 0);
  ANSWERS(cudaDeviceSetLimit(cudaLimitStackSize, 1 << 20), cudaErrorInvalidValue);
  ANSWERS(cudaDeviceSetLimit(static_cast<cudaLimit>(77), 1), cudaErrorInvalidValue);
  CHECK(cudaDeviceGetLimit(&bytes, cudaLimitStackSize));
  EXPECT(bytes == 1024);
  ANSWERS(cudaDeviceSetLimit(cudaLimitStackSize, 1000), cudaSuccess);
  CHECK(cudaDeviceGetLimit(&bytes, cudaLimitStackSize));
  EXPECT(bytes == 1008);
}

void streams_and_events() {
  cudaEvent_t timed = nullptr, untimed = nullptr;
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  float milliseconds = 0;
  CHECK(cudaEventCreate(&timed));
  CHECK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  ANSWERS(cudaStreamDestroy(nullptr), cudaErrorInvalidResourceHandle);
  ANSWERS(cudaStreamDestroy(cudaStreamLegacy), cudaErrorInvalidResourceHandle);
  ANSWERS(cudaStreamSynchronize(nullptr), cudaSuccess);
  ANSWERS(cudaEventElapsedTime(&milliseconds, timed, timed), cudaErrorInvalidResourceHandle);
  CHECK(cudaEventRecord(timed));
  CHECK(cudaEventRecord(untimed));
  CHECK(cudaDeviceSynchronize());
  ANSWERS(cudaEventElapsedTime(&milliseconds, timed, untimed), cudaErrorInvalidResourceHandle);
  ANSWERS(cudaEventQuery(timed), cudaSuccess);
  ANSWERS(cudaEventDestroy(nullptr), cudaErrorInvalidResourceHandle);
  ANSWERS(cudaStreamCreateWithFlags(&stream, 7), cudaErrorInvalidValue);
  CHECK(cudaStreamCreate(&stream));
  ANSWERS(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  void* memory = nullptr;
  ANSWERS(cudaMalloc(&memory, 4), cudaErrorStreamCaptureUnsupported);
  ANSWERS(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
  ANSWERS(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
  ANSWERS(cudaStreamWaitEvent(stream, nullptr, 0), cudaErrorInvalidResourceHandle);
}

int main() {
  pointers_and_copies();
  devices_and_kernels();
  streams_and_events();
  std::puts("ok");
}
