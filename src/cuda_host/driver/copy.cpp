// SPDX-License-Identifier: Apache-2.0
// Copies, in one to three dimensions. Every kind is one CopyWork: pointers say themselves where they lie.
#include <fmt/format.h>

#include "cuda_host/host/copies.h"
#include "cuda_host/host/host.h"

using namespace imbrex::cuda;

namespace {

uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

/// A copy that the host waits for, on the default stream.
CUresult copy_now(const char* function, uint64_t to, uint64_t from, size_t bytes) {
  return answer(function, [&] {
    Stream& stream = Host::get().current().default_stream;
    submit(stream, CopyWork{{to}, {from}, static_cast<int64_t>(bytes)});
  });
}

CUresult copy_on(const char* function, CUstream stream, uint64_t to, uint64_t from, size_t bytes) {
  return answer(function, [&] {
    submit(Host::get().stream(stream), CopyWork{{to}, {from}, static_cast<int64_t>(bytes)});
  });
}

}  // namespace

CUDA_API cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy_now("cuMemcpy", to, from, bytes);
}
CUDA_API cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return copy_now("cuMemcpyHtoD", to, address_of(from), bytes);
}
CUDA_API cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return copy_now("cuMemcpyDtoH", address_of(to), from, bytes);
}
CUDA_API cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy_now("cuMemcpyDtoD", to, from, bytes);
}
CUDA_API cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes) {
  return copy_now("cuMemcpyPeer", to, from, bytes);
}

CUDA_API cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_on("cuMemcpyAsync", stream, to, from, bytes);
}
CUDA_API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return copy_on("cuMemcpyHtoDAsync", stream, to, address_of(from), bytes);
}
CUDA_API cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_on("cuMemcpyDtoHAsync", stream, address_of(to), from, bytes);
}
CUDA_API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_on("cuMemcpyDtoDAsync", stream, to, from, bytes);
}
CUDA_API cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes,
                           CUstream stream) {
  return copy_on("cuMemcpyPeerAsync", stream, to, from, bytes);
}

CUDA_API cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return answer("cuMemcpy2DAsync",
                [&] { submit(Host::get().stream(stream), copy_work(not_null(copy, "copy"))); });
}
CUDA_API cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) { return cuMemcpy2DAsync_v2(copy, nullptr); }
CUDA_API cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) { return cuMemcpy2DAsync_v2(copy, nullptr); }
CUDA_API cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return answer("cuMemcpy3DAsync",
                [&] { submit(Host::get().stream(stream), copy_work(not_null(copy, "copy"))); });
}
CUDA_API cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) { return cuMemcpy3DAsync_v2(copy, nullptr); }
CUDA_API cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return cuMemcpy3DAsync_v2(copy, stream);
}
CUDA_API cuMemcpy3DPeer(const CUDA_MEMCPY3D* copy) { return cuMemcpy3DAsync_v2(copy, nullptr); }
