// SPDX-License-Identifier: Apache-2.0
// Virtual memory management.
#include <fcntl.h>
#include <fmt/format.h>

#include "cuda_host/driver/answer.h"

using namespace imbrex::cuda;

using CUmemHandle = unsigned long long;

namespace {

constexpr int kPinnedMemory = 1, kOnDevice = 1, kFileDescriptor = 1, kReadWrite = 3;

CUmemHandle handle_of(PhysicalMemory& memory) { return reinterpret_cast<CUmemHandle>(&memory); }

void expect_device_memory(const CUmemAllocationProp& properties) {
  if (properties.type != kPinnedMemory || properties.location.type != kOnDevice)
    refuse(CUDA_ERROR_NOT_SUPPORTED, "memory without an address is the device's here, not the host's");
  Host::get().device(properties.location.id);
}
void expect_file_descriptor(int handle_type) {
  if (handle_type != kFileDescriptor)
    refuse(CUDA_ERROR_NOT_SUPPORTED,
           fmt::format("handle type {}: the virtual GPU shares memory by file descriptors", handle_type));
}

}  // namespace

CUDA_API cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp*, int) {
  return answer("cuMemGetAllocationGranularity",
                [&] { not_null(granularity, "granularity") = VirtualMemory::kGranularity; });
}
CUDA_API cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment, CUdeviceptr,
                             unsigned long long) {
  return answer("cuMemAddressReserve", [&] {
    not_null(address, "address") =
        Host::get().virtual_memory.reserve(static_cast<int64_t>(bytes), static_cast<int64_t>(alignment));
  });
}
CUDA_API cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  return answer("cuMemAddressFree",
                [&] { Host::get().virtual_memory.release_addresses(address, static_cast<int64_t>(bytes)); });
}
CUDA_API cuMemCreate(CUmemHandle* handle, size_t bytes, const CUmemAllocationProp* properties,
                     unsigned long long) {
  return answer("cuMemCreate", [&] {
    expect_device_memory(not_null(properties, "properties"));
    not_null(handle, "handle") =
        handle_of(Host::get().virtual_memory.create(static_cast<int64_t>(bytes), *properties));
  });
}
CUDA_API cuMemRelease(CUmemHandle handle) {
  return answer("cuMemRelease", [&] { Host::get().virtual_memory.release(handle); });
}
CUDA_API cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemHandle handle, unsigned long long) {
  return answer("cuMemMap", [&] {
    VirtualMemory& memory = Host::get().virtual_memory;
    memory.map(address, static_cast<int64_t>(bytes), static_cast<int64_t>(offset), memory.get(handle));
  });
}
CUDA_API cuMemUnmap(CUdeviceptr address, size_t bytes) {
  return answer("cuMemUnmap", [&] {
    host_waits_for_everything();
    Host::get().virtual_memory.unmap(address, static_cast<int64_t>(bytes));
  });
}
CUDA_API cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* access, size_t count) {
  return answer("cuMemSetAccess", [&] {
    // All devices are the same virtual GPU: what one may do all may.
    bool allowed = false;
    for (size_t i = 0; i < count; ++i) {
      const CUmemAccessDesc& one = *(&not_null(access, "desc") + i);
      Host::get().device(one.location.id);
      allowed = allowed || one.flags != 0;
    }
    if (count > 0) Host::get().virtual_memory.set_access(address, static_cast<int64_t>(bytes), allowed);
  });
}
CUDA_API cuMemGetAccess(unsigned long long* flags, const CUmemLocation*, CUdeviceptr address) {
  return answer("cuMemGetAccess", [&] {
    Host::get().virtual_memory.mapped_at(address);
    not_null(flags, "flags") = Host::get().virtual_memory.has_access(address) ? kReadWrite : 0;
  });
}
CUDA_API cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties, CUmemHandle handle) {
  return answer("cuMemGetAllocationPropertiesFromHandle", [&] {
    not_null(properties, "properties") = Host::get().virtual_memory.get(handle).properties;
  });
}
CUDA_API cuMemRetainAllocationHandle(CUmemHandle* handle, void* address) {
  return answer("cuMemRetainAllocationHandle", [&] {
    PhysicalMemory& memory = Host::get().virtual_memory.mapped_at(reinterpret_cast<uint64_t>(address));
    ++memory.handles;
    not_null(handle, "handle") = handle_of(memory);
  });
}
CUDA_API cuMemExportToShareableHandle(void* out, CUmemHandle handle, int handle_type, unsigned long long) {
  return answer("cuMemExportToShareableHandle", [&] {
    expect_file_descriptor(handle_type);
    const PhysicalMemory& memory = Host::get().virtual_memory.get(handle);
    if ((memory.properties.handle_types & kFileDescriptor) == 0)
      refuse(CUDA_ERROR_INVALID_VALUE,
             "the memory was made without CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR in requestedHandleTypes");
    const int file = fcntl(memory.file, F_DUPFD_CLOEXEC, 0);
    if (file < 0) refuse(CUDA_ERROR_OUT_OF_MEMORY, "the process has no file descriptor left");
    not_null(static_cast<int*>(out), "shareableHandle") = file;
  });
}
CUDA_API cuMemImportFromShareableHandle(CUmemHandle* handle, void* file, int handle_type) {
  return answer("cuMemImportFromShareableHandle", [&] {
    expect_file_descriptor(handle_type);
    const int descriptor = static_cast<int>(reinterpret_cast<intptr_t>(file));
    not_null(handle, "handle") = handle_of(Host::get().virtual_memory.import_file(descriptor));
  });
}
