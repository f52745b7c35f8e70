// SPDX-License-Identifier: Apache-2.0
// Streams, events, capture and graphs: the driver's, with the runtime's structures.
#include "cuda_host/runtime/state.h"

using namespace imbrex::cudart;
using namespace imbrex::cuda;

CUDART_API cudaStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) {
  return call([&] { return cuStreamCreateWithPriority(stream, flags, priority); });
}
CUDART_API cudaStreamCreateWithFlags(CUstream* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
CUDART_API cudaStreamCreate(CUstream* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
CUDART_API cudaStreamDestroy(CUstream stream) {
  return call([&] { return cuStreamDestroy_v2(stream); });
}
CUDART_API cudaStreamSynchronize(CUstream stream) {
  return call([&] { return cuStreamSynchronize(stream); });
}
CUDART_API cudaStreamQuery(CUstream stream) {
  return call([&] { return cuStreamQuery(stream); });
}
CUDART_API cudaStreamGetFlags(CUstream stream, unsigned* flags) {
  return call([&] { return cuStreamGetFlags(stream, flags); });
}
CUDART_API cudaStreamGetPriority(CUstream stream, int* priority) {
  return call([&] { return cuStreamGetPriority(stream, priority); });
}
CUDART_API cudaStreamGetId(CUstream stream, unsigned long long* id) {
  return call([&] { return cuStreamGetId(stream, id); });
}
CUDART_API cudaStreamGetDevice(CUstream stream, int* device) {
  return call([&] { return cuStreamGetDevice(stream, device); });
}
CUDART_API cudaStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return call([&] { return cuStreamWaitEvent(stream, event, flags); });
}
CUDART_API cudaStreamAddCallback(CUstream stream, CUstreamCallback callback, void* data, unsigned flags) {
  return call([&] { return cuStreamAddCallback(stream, callback, data, flags); });
}
CUDART_API cudaStreamCopyAttributes(CUstream, CUstream) {
  return call([] { return CUDA_SUCCESS; });
}
CUDART_API cudaStreamSetAttribute(CUstream, int, const void*) {
  return call([] { return CUDA_SUCCESS; });
}

CUDART_API cudaStreamBeginCapture(CUstream stream, int mode) {
  return call([&] { return cuStreamBeginCapture_v2(stream, mode); });
}
CUDART_API cudaStreamEndCapture(CUstream stream, CUgraph* graph) {
  return call([&] { return cuStreamEndCapture(stream, graph); });
}
CUDART_API cudaStreamIsCapturing(CUstream stream, int* status) {
  return call([&] { return cuStreamIsCapturing(stream, status); });
}
CUDART_API cudaStreamGetCaptureInfo_v2(CUstream stream, int* status, unsigned long long* id, CUgraph* graph,
                                       const CUgraphNode** dependencies, size_t* count) {
  return call([&] { return cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count); });
}
CUDART_API cudaStreamGetCaptureInfo_v3(CUstream stream, int* status, unsigned long long* id, CUgraph* graph,
                                       const CUgraphNode** dependencies, const void** edges, size_t* count) {
  if (edges != nullptr) *edges = nullptr;
  return cudaStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies, count);
}
#if IMBREX_CUDART_MAJOR >= 13
CUDART_API cudaStreamGetCaptureInfo(CUstream stream, int* status, unsigned long long* id, CUgraph* graph,
                                    const CUgraphNode** dependencies, const void** edges, size_t* count) {
  return cudaStreamGetCaptureInfo_v3(stream, status, id, graph, dependencies, edges, count);
}
#else
CUDART_API cudaStreamGetCaptureInfo(CUstream stream, int* status, unsigned long long* id) {
  return cudaStreamGetCaptureInfo_v2(stream, status, id, nullptr, nullptr, nullptr);
}
#endif
CUDART_API cudaThreadExchangeStreamCaptureMode(int* mode) {
  return call([&] { return cuThreadExchangeStreamCaptureMode(mode); });
}

CUDART_API cudaEventCreateWithFlags(CUevent* event, unsigned flags) {
  return call([&] { return cuEventCreate(event, flags); });
}
CUDART_API cudaEventCreate(CUevent* event) { return cudaEventCreateWithFlags(event, 0); }
CUDART_API cudaEventDestroy(CUevent event) {
  return call([&] { return cuEventDestroy_v2(event); });
}
CUDART_API cudaEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  return call([&] { return cuEventRecordWithFlags(event, stream, flags); });
}
CUDART_API cudaEventRecord(CUevent event, CUstream stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}
CUDART_API cudaEventQuery(CUevent event) {
  return call([&] { return cuEventQuery(event); });
}
CUDART_API cudaEventSynchronize(CUevent event) {
  return call([&] { return cuEventSynchronize(event); });
}
CUDART_API cudaEventElapsedTime(float* milliseconds, CUevent from, CUevent to) {
  return call([&] { return cuEventElapsedTime(milliseconds, from, to); });
}
CUDART_API cudaEventElapsedTime_v2(float* milliseconds, CUevent from, CUevent to) {
  return cudaEventElapsedTime(milliseconds, from, to);
}
