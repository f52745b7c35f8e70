// SPDX-License-Identifier: Apache-2.0
// Allocation of every kind of memory.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "cuda_host/driver/answer.h"
#include "cuda_host/driver/pool.h"

using namespace imbrex::cuda;

namespace {

constexpr int64_t kPitchAlignment = 512;

CUdeviceptr allocate(size_t bytes, MemoryKind kind, unsigned flags = 0) {
  Host& host = Host::get();
  return host.memory.allocate(static_cast<int64_t>(bytes), kind, host.usable().device, flags).address;
}

/// Allocation on a stream: while the stream is captured the graph owns the memory.
CUdeviceptr allocate_on(Stream& stream, size_t bytes, Pool* pool) {
  Host& host = Host::get();
  expect_no_implicit_capture(stream);
  if (!stream.is_capturing()) expect_no_unsafe_capture();
  const int device = stream.context->device;
  Block& block = host.memory.allocate(static_cast<int64_t>(bytes), MemoryKind::kDevice, device);
  if (!stream.is_capturing()) {
    Pool& from = pool != nullptr ? *pool : current_pool(device);
    block.pool = &from;
    from.take(block.bytes);
  }
  if (stream.is_capturing()) stream.capture->graph->memory.push_back(block.address);
  const uint64_t address = block.address;
  submit(stream, AllocateWork{address, static_cast<int64_t>(bytes)});
  return address;
}

}  // namespace

CUDA_API cuMemGetInfo_v2(size_t* free, size_t* total) {
  return answer("cuMemGetInfo", [&] {
    const DeviceMemory& memory = Host::get().memory;
    if (free != nullptr) *free = static_cast<size_t>(memory.total_bytes() - memory.used_bytes());
    if (total != nullptr) *total = static_cast<size_t>(memory.total_bytes());
  });
}

CUDA_API cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  return answer("cuMemAlloc", [&] { not_null(address, "address") = allocate(bytes, MemoryKind::kDevice); });
}
CUDA_API cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width, size_t height, unsigned) {
  return answer("cuMemAllocPitch", [&] {
    const size_t row = (width + kPitchAlignment - 1) / kPitchAlignment * kPitchAlignment;
    not_null(address, "address") = allocate(row * height, MemoryKind::kDevice);
    not_null(pitch, "pitch") = row;
  });
}
CUDA_API cuMemAllocManaged(CUdeviceptr* address, size_t bytes, unsigned flags) {
  return answer("cuMemAllocManaged",
                [&] { not_null(address, "address") = allocate(bytes, MemoryKind::kManaged, flags); });
}
CUDA_API cuMemFree_v2(CUdeviceptr address) {
  return answer("cuMemFree", [&] {
    if (address == 0) return;
    Host::get().usable();
    host_waits_for_everything();  // as cudaFree does
    Host::get().memory.free(address, MemoryKind::kDevice);
  });
}

CUDA_API cuMemHostAlloc(void** pointer, size_t bytes, unsigned flags) {
  return answer("cuMemHostAlloc", [&] {
    not_null(pointer, "pointer") = reinterpret_cast<void*>(allocate(bytes, MemoryKind::kPinned, flags));
  });
}
CUDA_API cuMemAllocHost_v2(void** pointer, size_t bytes) { return cuMemHostAlloc(pointer, bytes, 0); }
CUDA_API cuMemFreeHost(void* pointer) {
  return answer("cuMemFreeHost", [&] {
    if (pointer == nullptr) return;
    expect_no_unsafe_capture();
    host_waits_for_everything();
    Host::get().memory.free(reinterpret_cast<uint64_t>(pointer), MemoryKind::kPinned);
  });
}
CUDA_API cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* pointer, unsigned) {
  return answer("cuMemHostGetDevicePointer", [&] {
    Host& host = Host::get();
    const auto at = reinterpret_cast<uint64_t>(pointer);
    if (host.memory.find(at) == nullptr) {
      if (host.memory.find_registered(pointer) != nullptr) {
        not_null(address, "address") = host.memory.device_address_of_registered(pointer);
        return;
      }
      refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("{} is no pinned host memory", pointer));
    }
    not_null(address, "address") = at;
  });
}
CUDA_API cuMemHostGetFlags(unsigned* flags, void* pointer) {
  return answer("cuMemHostGetFlags", [&] {
    const Block* block = Host::get().memory.find(reinterpret_cast<uint64_t>(pointer));
    if (block == nullptr || block->kind != MemoryKind::kPinned)
      refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("{} is no pinned host memory", pointer));
    not_null(flags, "flags") = block->flags;
  });
}
CUDA_API cuMemHostRegister_v2(void* pointer, size_t bytes, unsigned flags) {
  return answer("cuMemHostRegister",
                [&] { Host::get().memory.register_host(pointer, static_cast<int64_t>(bytes), flags); });
}
CUDA_API cuMemHostUnregister(void* pointer) {
  return answer("cuMemHostUnregister", [&] { Host::get().memory.unregister_host(pointer); });
}

CUDA_API cuMemAllocFromPoolAsync(CUdeviceptr* address, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return answer("cuMemAllocFromPoolAsync", [&] {
    Host& host = Host::get();
    not_null(address, "address") = allocate_on(host.stream(stream), bytes, &host.pools.get(pool));
  });
}
CUDA_API cuMemAllocAsync(CUdeviceptr* address, size_t bytes, CUstream stream) {
  return answer("cuMemAllocAsync", [&] {
    not_null(address, "address") = allocate_on(Host::get().stream(stream), bytes, nullptr);
  });
}
CUDA_API cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
  return answer("cuMemFreeAsync", [&] {
    Host& host = Host::get();
    Stream& on = host.stream(stream);
    // What a graph allocated stays until the graph goes, so that it can be launched again.
    const bool is_of_graph = on.is_capturing() && std::ranges::find(on.capture->graph->memory, address) !=
                                                      on.capture->graph->memory.end();
    if (is_of_graph) return submit(on, EmptyWork{});
    if (on.is_capturing() && address != 0)
      refuse(CUDA_ERROR_INVALID_VALUE,
             fmt::format("0x{:x} was not allocated in the graph that is being captured", address));
    expect_no_implicit_capture(on);
    if (!on.is_capturing()) expect_no_unsafe_capture();
    if (address != 0) submit(on, FreeWork{address});
  });
}

CUDA_API cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  return answer("cuMemGetAddressRange", [&] {
    const Block* block = Host::get().memory.find(address);
    if (block == nullptr) refuse(CUDA_ERROR_NOT_FOUND, fmt::format("0x{:x} is in no allocation", address));
    if (base != nullptr) *base = block->address;
    if (bytes != nullptr) *bytes = static_cast<size_t>(block->bytes);
  });
}

// Where pages lie is no question on a CPU: advice and prefetches are accepted, and have nothing to do. During a capture they are not.
CUDA_API cuMemAdvise(CUdeviceptr, size_t, int, CUdevice) {
  return answer("cuMemAdvise", [] {});
}
CUDA_API cuMemAdvise_v2(CUdeviceptr address, size_t bytes, int advice, CUmemLocation location) {
  return cuMemAdvise(address, bytes, advice, location.id);
}
CUDA_API cuMemPrefetchAsync(CUdeviceptr, size_t, CUdevice, CUstream stream) {
  return answer("cuMemPrefetchAsync", [&] {
    const Stream& on = Host::get().stream(stream);
    expect_not_captured(on);
    expect_no_implicit_capture(on);
  });
}
CUDA_API cuMemPrefetchAsync_v2(CUdeviceptr address, size_t bytes, CUmemLocation location, unsigned,
                               CUstream stream) {
  return cuMemPrefetchAsync(address, bytes, location.id, stream);
}
CUDA_API cuStreamAttachMemAsync(CUstream stream, CUdeviceptr, size_t, unsigned) {
  return answer("cuStreamAttachMemAsync", [&] {
    expect_not_captured(Host::get().stream(stream));
    expect_no_unsafe_capture();
  });
}

namespace {

void write_attribute(void* data, int attribute, CUdeviceptr address, bool must_be_known) {
  Host& host = Host::get();
  const Block* block = host.memory.find(address);
  const bool is_registered = host.memory.find_registered(reinterpret_cast<const void*>(address)) != nullptr;
  const auto put = [&](auto value) {
    std::memcpy(&not_null(static_cast<char*>(data), "data"), &value, sizeof value);
  };
  if (block == nullptr && !is_registered && must_be_known && attribute != kPointerMapped)
    refuse(CUDA_ERROR_INVALID_VALUE);  // an ordinary answer: the pointer is the host's
  const bool is_pinned = is_registered || (block != nullptr && block->kind == MemoryKind::kPinned);
  const int device = block != nullptr ? block->device : 0;
  switch (attribute) {
    case kPointerContext: {
      Device& on = host.device(device);
      put(block == nullptr || on.primary == nullptr ? CUcontext{} : handle_of(*on.primary));
      return;
    }
    case kPointerMemoryType:
      put(static_cast<unsigned>(block == nullptr && !is_pinned ? 0
                                : is_pinned                    ? kMemoryTypeHost
                                                               : kMemoryTypeDevice));
      return;
    case kPointerDevicePointer:
      put(block != nullptr ? address : CUdeviceptr{0});
      return;
    case kPointerHostPointer: {
      const bool has_host = is_pinned || (block != nullptr && block->kind == MemoryKind::kManaged);
      if (!has_host && must_be_known) refuse(CUDA_ERROR_INVALID_VALUE);
      put(has_host ? address : CUdeviceptr{0});
      return;
    }
    case kPointerSyncMemops:
    case kPointerIsLegacyIpcCapable:
    case kPointerAllowedHandleTypes:
      put(0);
      return;
    case kPointerBufferId:
      put(block != nullptr ? block->id : uint64_t{0});
      return;
    case kPointerIsManaged:
      put(block != nullptr && block->kind == MemoryKind::kManaged ? 1 : 0);
      return;
    case kPointerDeviceOrdinal:
      put(block != nullptr ? device : is_pinned ? 0 : -2);
      return;
    case kPointerRangeStart:
      put(block != nullptr ? block->address : CUdeviceptr{0});
      return;
    case kPointerRangeSize:
      put(block != nullptr ? static_cast<size_t>(block->bytes) : size_t{0});
      return;
    case kPointerMapped:
      put(block != nullptr ? 1 : 0);
      return;
    case kPointerAccessFlags:
      put(3);
      return;
    case kPointerMemoryPool:
      put(block != nullptr ? block->pool : nullptr);
      return;
    default:
      refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("pointer attribute {} is not known", attribute));
  }
}

}  // namespace

CUDA_API cuPointerGetAttribute(void* data, int attribute, CUdeviceptr address) {
  return answer("cuPointerGetAttribute", [&] { write_attribute(data, attribute, address, true); });
}
CUDA_API cuPointerGetAttributes(unsigned count, int* attributes, void** data, CUdeviceptr address) {
  return answer("cuPointerGetAttributes", [&] {
    for (unsigned i = 0; i < count; ++i) write_attribute(data[i], attributes[i], address, false);
  });
}
CUDA_API cuPointerSetAttribute(const void*, int, CUdeviceptr) { return CUDA_SUCCESS; }
