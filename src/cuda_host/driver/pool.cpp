// SPDX-License-Identifier: Apache-2.0
// Memory pools. Freed memory goes back to the device at once, so that nothing is held in reserve.
#include "cuda_host/driver/pool.h"

#include <fmt/format.h>

#include <cstring>

#include "cuda_host/driver/answer.h"

using namespace imbrex::cuda;

namespace {

CUmemoryPool default_pool(CUdevice device) {
  Host& host = Host::get();
  Device& on = host.device(device);
  static auto* pools = new std::map<int, CUmemoryPool>;
  CUmemoryPool& pool = (*pools)[device];
  if (pool == nullptr) {
    Pool& made = host.pools.make();
    made.device = device;
    pool = reinterpret_cast<CUmemoryPool>(&made);
  }
  if (on.current_pool == nullptr) on.current_pool = pool;
  return pool;
}

}  // namespace

Pool& imbrex::cuda::current_pool(int device) {
  default_pool(device);
  return Host::get().pools.get(Host::get().device(device).current_pool);
}

CUDA_API cuDeviceGetDefaultMemPool(CUmemoryPool* pool, CUdevice device) {
  return answer("cuDeviceGetDefaultMemPool", [&] { not_null(pool, "pool") = default_pool(device); });
}
CUDA_API cuDeviceGetMemPool(CUmemoryPool* pool, CUdevice device) {
  return answer("cuDeviceGetMemPool", [&] {
    default_pool(device);
    not_null(pool, "pool") = Host::get().device(device).current_pool;
  });
}
CUDA_API cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
  return answer("cuDeviceSetMemPool", [&] {
    Host::get().pools.get(pool);
    Host::get().device(device).current_pool = pool;
  });
}
CUDA_API cuMemPoolCreate(CUmemoryPool* pool, const CUmemPoolProps* properties) {
  return answer("cuMemPoolCreate", [&] {
    Pool& made = Host::get().pools.make();
    made.device = not_null(properties, "properties").location.id;
    not_null(pool, "pool") = reinterpret_cast<CUmemoryPool>(&made);
  });
}
CUDA_API cuMemPoolDestroy(CUmemoryPool pool) {
  return answer("cuMemPoolDestroy", [&] { Host::get().pools.destroy(pool); });
}
CUDA_API cuMemPoolTrimTo(CUmemoryPool pool, size_t) {
  return answer("cuMemPoolTrimTo", [&] { Host::get().pools.get(pool); });
}
CUDA_API cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void* value) {
  return answer("cuMemPoolSetAttribute", [&] {
    uint64_t kept = 0;
    std::memcpy(&kept, &not_null(static_cast<char*>(value), "value"),
                attribute < Pool::kReleaseThreshold ? 4 : 8);
    Host::get().pools.get(pool).attributes[attribute] = kept;
  });
}
CUDA_API cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void* value) {
  return answer("cuMemPoolGetAttribute", [&] {
    Host& host = Host::get();
    const Pool& of = host.pools.get(pool);
    uint64_t result = attribute < Pool::kReleaseThreshold ? 1 : 0;
    // What is reserved is what is used.
    const bool is_reserved = attribute == Pool::kReservedCurrent || attribute == Pool::kReservedHigh;
    const int kept_as = is_reserved ? attribute + Pool::kUsedCurrent - Pool::kReservedCurrent : attribute;
    if (const auto at = of.attributes.find(kept_as); at != of.attributes.end()) result = at->second;
    std::memcpy(&not_null(static_cast<char*>(value), "value"), &result,
                attribute < Pool::kReleaseThreshold ? 4 : 8);
  });
}
CUDA_API cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc*, size_t) {
  return answer("cuMemPoolSetAccess", [&] { Host::get().pools.get(pool); });
}
CUDA_API cuMemPoolGetAccess(int* flags, CUmemoryPool pool, CUmemLocation*) {
  return answer("cuMemPoolGetAccess", [&] {
    Host::get().pools.get(pool);
    not_null(flags, "flags") = 3;  // read and write
  });
}
