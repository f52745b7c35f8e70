// SPDX-License-Identifier: Apache-2.0
// Copies, in one to three dimensions. Every kind is one CopyWork: pointers say themselves where they lie.
#include <fmt/format.h>

#include "cuda_host/driver/answer.h"
#include "cuda_host/host/copies.h"

using namespace imbrex::cuda;

namespace {

uint64_t address_of(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

/// Which ends of a copy the function's name says are the device's.
enum class Ends { kAny, kToDevice, kFromDevice, kBoth };

/// Where it says so there must be memory of the device, or registered: else the copy would quietly go between two
/// places of the host.
void expect_ends(Ends ends, uint64_t to, uint64_t from) {
  const auto expect = [](const char* which, uint64_t address) {
    if (!DeviceMemory::is_of_device(address) &&
        Host::get().memory.find_registered(reinterpret_cast<void*>(address)) == nullptr)
      refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("the {}, 0x{:x}, is no device memory", which, address));
  };
  if (ends == Ends::kToDevice || ends == Ends::kBoth) expect("destination", to);
  if (ends == Ends::kFromDevice || ends == Ends::kBoth) expect("source", from);
}

/// A copy that the host waits for, on the default stream.
CUresult copy_now(const char* function, Ends ends, uint64_t to, uint64_t from, size_t bytes) {
  return answer(function, [&] {
    if (bytes > 0) expect_ends(ends, to, from);
    Stream& stream = Host::get().stream(nullptr);
    submit(stream, CopyWork{{to}, {from}, static_cast<int64_t>(bytes)});
    host_waits_for(stream);
  });
}

CUresult copy_on(const char* function, Ends ends, CUstream stream, uint64_t to, uint64_t from, size_t bytes) {
  return answer(function, [&] {
    if (bytes > 0) expect_ends(ends, to, from);
    submit(Host::get().stream(stream), CopyWork{{to}, {from}, static_cast<int64_t>(bytes)});
  });
}

}  // namespace

CUDA_API cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy_now("cuMemcpy", Ends::kAny, to, from, bytes);
}
CUDA_API cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return copy_now("cuMemcpyHtoD", Ends::kToDevice, to, address_of(from), bytes);
}
CUDA_API cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return copy_now("cuMemcpyDtoH", Ends::kFromDevice, address_of(to), from, bytes);
}
CUDA_API cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy_now("cuMemcpyDtoD", Ends::kBoth, to, from, bytes);
}
CUDA_API cuMemcpyPeer(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes) {
  return copy_now("cuMemcpyPeer", Ends::kAny, to, from, bytes);
}

CUDA_API cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_on("cuMemcpyAsync", Ends::kAny, stream, to, from, bytes);
}
CUDA_API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return copy_on("cuMemcpyHtoDAsync", Ends::kToDevice, stream, to, address_of(from), bytes);
}
CUDA_API cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_on("cuMemcpyDtoHAsync", Ends::kFromDevice, stream, address_of(to), from, bytes);
}
CUDA_API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy_on("cuMemcpyDtoDAsync", Ends::kBoth, stream, to, from, bytes);
}
CUDA_API cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes,
                           CUstream stream) {
  // No driver keeps it in a graph, be both devices the same.
  const CUresult error =
      answer("cuMemcpyPeerAsync", [&] { expect_not_captured(Host::get().stream(stream)); });
  if (error != CUDA_SUCCESS) return error;
  return copy_on("cuMemcpyPeerAsync", Ends::kAny, stream, to, from, bytes);
}

CUDA_API cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream stream) {
  return answer("cuMemcpy2DAsync",
                [&] { submit(Host::get().stream(stream), copy_work(not_null(copy, "copy"))); });
}
CUDA_API cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) {
  return answer("cuMemcpy2D", [&] {
    Stream& stream = Host::get().stream(nullptr);
    submit(stream, copy_work(not_null(copy, "copy")));
    host_waits_for(stream);
  });
}
CUDA_API cuMemcpy2DUnaligned_v2(const CUDA_MEMCPY2D* copy) { return cuMemcpy2D_v2(copy); }
CUDA_API cuMemcpy3DAsync_v2(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return answer("cuMemcpy3DAsync",
                [&] { submit(Host::get().stream(stream), copy_work(not_null(copy, "copy"))); });
}
CUDA_API cuMemcpy3D_v2(const CUDA_MEMCPY3D* copy) {
  return answer("cuMemcpy3D", [&] {
    Stream& stream = Host::get().stream(nullptr);
    submit(stream, copy_work(not_null(copy, "copy")));
    host_waits_for(stream);
  });
}
CUDA_API cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D* copy, CUstream stream) {
  return cuMemcpy3DAsync_v2(copy, stream);
}
CUDA_API cuMemcpy3DPeer(const CUDA_MEMCPY3D* copy) { return cuMemcpy3D_v2(copy); }
