// SPDX-License-Identifier: Apache-2.0
// Memory of every kind, copies and fills.
#include "cuda_host/runtime/copies.h"
#include "cuda_host/runtime/state.h"

using namespace imbrex::cudart;
using namespace imbrex::cuda;

namespace {

CUdeviceptr* device_pointer(void** pointer) { return reinterpret_cast<CUdeviceptr*>(pointer); }

enum Kind : int { kHostToHost = 0, kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3, kDefault = 4 };
constexpr auto kInvalidDirection = static_cast<CUresult>(21);

/// The driver's function of each direction checks which side must be the device's.
CUresult copy(void* to, const void* from, size_t bytes, int kind) {
  switch (kind) {
    case kHostToDevice:
      return cuMemcpyHtoD_v2(address_of(to), from, bytes);
    case kDeviceToHost:
      return cuMemcpyDtoH_v2(to, address_of(from), bytes);
    case kDeviceToDevice:
      return cuMemcpyDtoD_v2(address_of(to), address_of(from), bytes);
    case kHostToHost:
    case kDefault:
      return cuMemcpy(address_of(to), address_of(from), bytes);
    default:
      return kInvalidDirection;
  }
}
CUresult copy_async(void* to, const void* from, size_t bytes, int kind, CUstream stream) {
  switch (kind) {
    case kHostToDevice:
      return cuMemcpyHtoDAsync_v2(address_of(to), from, bytes, stream);
    case kDeviceToHost:
      return cuMemcpyDtoHAsync_v2(to, address_of(from), bytes, stream);
    case kDeviceToDevice:
      return cuMemcpyDtoDAsync_v2(address_of(to), address_of(from), bytes, stream);
    case kHostToHost:
    case kDefault:
      return cuMemcpyAsync(address_of(to), address_of(from), bytes, stream);
    default:
      return kInvalidDirection;
  }
}

template <class Body>
cudaError_t with_variable(const void* variable, size_t offset, size_t bytes, Body&& body) {
  return call([&] {
    CUdeviceptr address = 0;
    size_t size = 0;
    if (const CUresult error = find_variable(variable, &address, &size); error != CUDA_SUCCESS) return error;
    if (offset > size || bytes > size - offset) return CUDA_ERROR_INVALID_VALUE;
    return body(reinterpret_cast<char*>(address) + offset);
  });
}

}  // namespace

CUDART_API cudaMalloc(void** pointer, size_t bytes) {
  return call([&] {
    if (pointer == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pointer = nullptr;
    return bytes == 0 ? CUDA_SUCCESS : cuMemAlloc_v2(device_pointer(pointer), bytes);
  });
}
CUDART_API cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
  return call([&] { return cuMemAllocPitch_v2(device_pointer(pointer), pitch, width, height, 16); });
}
CUDART_API cudaMalloc3D(cudaPitchedPtr* out, cudaExtent extent) {
  return call([&] {
    *out = {nullptr, 0, extent.width, extent.height};
    return cuMemAllocPitch_v2(device_pointer(&out->pointer), &out->pitch, extent.width,
                              extent.height * extent.depth, 16);
  });
}
CUDART_API cudaMallocManaged(void** pointer, size_t bytes, unsigned flags) {
  return call([&] { return cuMemAllocManaged(device_pointer(pointer), bytes, flags); });
}
CUDART_API cudaFree(void* pointer) {
  return call([&] { return cuMemFree_v2(address_of(pointer)); });
}
CUDART_API cudaHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  return call([&] { return cuMemHostAlloc(pointer, bytes, flags); });
}
CUDART_API cudaMallocHost(void** pointer, size_t bytes) { return cudaHostAlloc(pointer, bytes, 0); }
CUDART_API cudaFreeHost(void* pointer) {
  return call([&] { return cuMemFreeHost(pointer); });
}
CUDART_API cudaHostGetDevicePointer(void** device, void* host, unsigned flags) {
  return call([&] { return cuMemHostGetDevicePointer_v2(device_pointer(device), host, flags); });
}
CUDART_API cudaHostGetFlags(unsigned* flags, void* pointer) {
  return call([&] { return cuMemHostGetFlags(flags, pointer); });
}
CUDART_API cudaHostRegister(void* pointer, size_t bytes, unsigned flags) {
  return call([&] { return cuMemHostRegister_v2(pointer, bytes, flags); });
}
CUDART_API cudaHostUnregister(void* pointer) {
  return call([&] { return cuMemHostUnregister(pointer); });
}
CUDART_API cudaMemGetInfo(size_t* free, size_t* total) {
  return call([&] { return cuMemGetInfo_v2(free, total); });
}
CUDART_API cudaMallocAsync(void** pointer, size_t bytes, CUstream stream) {
  return call([&] { return cuMemAllocAsync(device_pointer(pointer), bytes, stream); });
}
CUDART_API cudaMallocFromPoolAsync(void** pointer, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return call([&] { return cuMemAllocFromPoolAsync(device_pointer(pointer), bytes, pool, stream); });
}
CUDART_API cudaFreeAsync(void* pointer, CUstream stream) {
  return call([&] { return cuMemFreeAsync(address_of(pointer), stream); });
}
CUDART_API cudaPointerGetAttributes(cudaPointerAttributes* out, const void* pointer) {
  return call([&] {
    unsigned type = 0;
    int device = -1, managed = 0;
    CUdeviceptr on_device = 0, on_host = 0;
    int wanted[] = {kPointerMemoryType, kPointerDeviceOrdinal, kPointerIsManaged, kPointerDevicePointer,
                    kPointerHostPointer};
    void* data[] = {&type, &device, &managed, &on_device, &on_host};
    const CUresult error = cuPointerGetAttributes(5, wanted, data, address_of(pointer));
    if (error != CUDA_SUCCESS) return error;
    *out = {};
    constexpr int kManaged = 3;
    out->type = managed != 0 ? kManaged : static_cast<int>(type);
    out->device = device;
    out->device_pointer = reinterpret_cast<void*>(on_device);
    out->host_pointer = type == 0 ? const_cast<void*>(pointer) : reinterpret_cast<void*>(on_host);
    return CUDA_SUCCESS;
  });
}

CUDART_API cudaMemcpy(void* to, const void* from, size_t bytes, int kind) {
  if (bytes == 0) return call([] { return CUDA_SUCCESS; });  // nor is it forbidden during a capture
  return call([&] { return copy(to, from, bytes, kind); });
}
CUDART_API cudaMemcpyAsync(void* to, const void* from, size_t bytes, int kind, CUstream stream) {
  return call([&] { return copy_async(to, from, bytes, kind, stream); });
}
CUDART_API cudaMemcpyPeer(void* to, int, const void* from, int, size_t bytes) {
  return call([&] { return cuMemcpyDtoD_v2(address_of(to), address_of(from), bytes); });
}
CUDART_API cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, CUstream stream) {
  return call(
      [&] { return cuMemcpyPeerAsync(address_of(to), nullptr, address_of(from), nullptr, bytes, stream); });
}
CUDART_API cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                        size_t height, int) {
  const CUDA_MEMCPY3D copy = rows(to, to_pitch, from, from_pitch, width, height);
  return call([&] { return cuMemcpy3D_v2(&copy); });
}
CUDART_API cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                             size_t height, int, CUstream stream) {
  const CUDA_MEMCPY3D copy = rows(to, to_pitch, from, from_pitch, width, height);
  return call([&] { return cuMemcpy3DAsync_v2(&copy, stream); });
}
CUDART_API cudaMemcpy3D(const cudaMemcpy3DParms* parameters) {
  const CUDA_MEMCPY3D copy = slices(*parameters);
  return call([&] { return cuMemcpy3D_v2(&copy); });
}
CUDART_API cudaMemcpy3DAsync(const cudaMemcpy3DParms* parameters, CUstream stream) {
  const CUDA_MEMCPY3D copy = slices(*parameters);
  return call([&] { return cuMemcpy3DAsync_v2(&copy, stream); });
}

#if IMBREX_CUDART_MAJOR >= 13
CUDART_API cudaMemcpyBatchAsync(void* const* to, const void* const* from, const size_t* bytes, size_t count,
                                CUmemcpyAttributes* attributes, size_t* first_of, size_t kinds,
                                CUstream stream) {
  return call([&] {
    return cuMemcpyBatchAsync_v2(reinterpret_cast<const CUdeviceptr*>(to),
                                 reinterpret_cast<const CUdeviceptr*>(from), bytes, count, attributes,
                                 first_of, kinds, stream);
  });
}
CUDART_API cudaMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, unsigned long long flags,
                                  CUstream stream) {
  return call([&] { return cuMemcpy3DBatchAsync_v2(count, copies, flags, stream); });
}
#else
CUDART_API cudaMemcpyBatchAsync(void** to, void** from, size_t* bytes, size_t count,
                                CUmemcpyAttributes* attributes, size_t* first_of, size_t kinds,
                                size_t* failed, CUstream stream) {
  return call([&] {
    return cuMemcpyBatchAsync(reinterpret_cast<const CUdeviceptr*>(to),
                              reinterpret_cast<const CUdeviceptr*>(from), bytes, count, attributes, first_of,
                              kinds, failed, stream);
  });
}
CUDART_API cudaMemcpy3DBatchAsync(size_t count, CUDA_MEMCPY3D_BATCH_OP* copies, size_t* failed,
                                  unsigned long long flags, CUstream stream) {
  return call([&] { return cuMemcpy3DBatchAsync(count, copies, failed, flags, stream); });
}
#endif

CUDART_API cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height,
                             CUstream stream) {
  return call([&] {
    return cuMemsetD2D8Async(address_of(to), pitch, static_cast<unsigned char>(value), width, height, stream);
  });
}
CUDART_API cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
  return cudaMemset2DAsync(to, pitch, value, width, height, nullptr);
}
CUDART_API cudaMemset(void* to, int value, size_t bytes) { return cudaMemset2D(to, bytes, value, bytes, 1); }
CUDART_API cudaMemsetAsync(void* to, int value, size_t bytes, CUstream stream) {
  return cudaMemset2DAsync(to, bytes, value, bytes, 1, stream);
}
CUDART_API cudaMemset3DAsync(cudaPitchedPtr to, int value, cudaExtent extent, CUstream stream) {
  return call([&] {
    CUresult error = CUDA_SUCCESS;
    for (size_t z = 0; z < extent.depth && error == CUDA_SUCCESS; ++z)
      error = cuMemsetD2D8Async(address_of(to.pointer) + z * to.pitch * to.height, to.pitch,
                                static_cast<unsigned char>(value), extent.width, extent.height, stream);
    return error;
  });
}
CUDART_API cudaMemset3D(cudaPitchedPtr to, int value, cudaExtent extent) {
  return cudaMemset3DAsync(to, value, extent, nullptr);
}

CUDART_API cudaGetSymbolAddress(void** pointer, const void* variable) {
  return call([&] { return find_variable(variable, device_pointer(pointer), nullptr); });
}
CUDART_API cudaGetSymbolSize(size_t* bytes, const void* variable) {
  return call([&] { return find_variable(variable, nullptr, bytes); });
}
CUDART_API cudaMemcpyToSymbol(const void* variable, const void* from, size_t bytes, size_t offset, int kind) {
  return with_variable(variable, offset, bytes, [&](char* to) { return copy(to, from, bytes, kind); });
}
CUDART_API cudaMemcpyFromSymbol(void* to, const void* variable, size_t bytes, size_t offset, int kind) {
  return with_variable(variable, offset, bytes, [&](char* from) { return copy(to, from, bytes, kind); });
}
CUDART_API cudaMemcpyToSymbolAsync(const void* variable, const void* from, size_t bytes, size_t offset,
                                   int kind, CUstream stream) {
  return with_variable(variable, offset, bytes,
                       [&](char* to) { return copy_async(to, from, bytes, kind, stream); });
}
CUDART_API cudaMemcpyFromSymbolAsync(void* to, const void* variable, size_t bytes, size_t offset, int kind,
                                     CUstream stream) {
  return with_variable(variable, offset, bytes,
                       [&](char* from) { return copy_async(to, from, bytes, kind, stream); });
}

// Where pages lie is no question on a CPU.
#if IMBREX_CUDART_MAJOR >= 13
CUDART_API cudaMemAdvise(const void* pointer, size_t bytes, int advice, CUmemLocation location) {
  return call([&] { return cuMemAdvise(address_of(pointer), bytes, advice, location.id); });
}
CUDART_API cudaMemPrefetchAsync(const void* pointer, size_t bytes, CUmemLocation location, unsigned,
                                CUstream stream) {
  return call([&] { return cuMemPrefetchAsync(address_of(pointer), bytes, location.id, stream); });
}
#else
CUDART_API cudaMemAdvise(const void* pointer, size_t bytes, int advice, int device) {
  return call([&] { return cuMemAdvise(address_of(pointer), bytes, advice, device); });
}
CUDART_API cudaMemPrefetchAsync(const void* pointer, size_t bytes, int device, CUstream stream) {
  return call([&] { return cuMemPrefetchAsync(address_of(pointer), bytes, device, stream); });
}
CUDART_API cudaMemAdvise_v2(const void* pointer, size_t bytes, int advice, CUmemLocation location) {
  return cudaMemAdvise(pointer, bytes, advice, location.id);
}
CUDART_API cudaMemPrefetchAsync_v2(const void* pointer, size_t bytes, CUmemLocation location, unsigned,
                                   CUstream stream) {
  return cudaMemPrefetchAsync(pointer, bytes, location.id, stream);
}
#endif
CUDART_API cudaStreamAttachMemAsync(CUstream stream, void* pointer, size_t bytes, unsigned flags) {
  return call([&] { return cuStreamAttachMemAsync(stream, address_of(pointer), bytes, flags); });
}

CUDART_API cudaDeviceGetDefaultMemPool(CUmemoryPool* pool, int device) {
  return keep(cuDeviceGetDefaultMemPool(pool, device));
}
CUDART_API cudaDeviceGetMemPool(CUmemoryPool* pool, int device) {
  return keep(cuDeviceGetMemPool(pool, device));
}
CUDART_API cudaDeviceSetMemPool(int device, CUmemoryPool pool) {
  return keep(cuDeviceSetMemPool(device, pool));
}
CUDART_API cudaMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  return keep(cuMemPoolCreate(pool, properties));
}
CUDART_API cudaMemPoolDestroy(CUmemoryPool pool) { return keep(cuMemPoolDestroy(pool)); }
CUDART_API cudaMemPoolTrimTo(CUmemoryPool pool, size_t bytes) { return keep(cuMemPoolTrimTo(pool, bytes)); }
CUDART_API cudaMemPoolSetAttribute(CUmemoryPool pool, int attribute, void* value) {
  return keep(cuMemPoolSetAttribute(pool, attribute, value));
}
CUDART_API cudaMemPoolGetAttribute(CUmemoryPool pool, int attribute, void* value) {
  return keep(cuMemPoolGetAttribute(pool, attribute, value));
}
CUDART_API cudaMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc* access, size_t count) {
  return keep(cuMemPoolSetAccess(pool, access, count));
}

// ---- arrays, which are not there: programs describe their elements before they ask for one

extern "C" __attribute__((visibility("default"))) cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y,
                                                                                              int z, int w,
                                                                                              int kind) {
  return {x, y, z, w, kind};
}
