// SPDX-License-Identifier: Apache-2.0
// Devices, versions, error texts, and the way from the runtime to the driver's functions.
#include <cstring>

#include "cuda_host/abi/device_numbers.h"
#include "cuda_host/runtime/state.h"

using namespace imbrex::cudart;
using namespace imbrex::cuda;

namespace {

constexpr int kRuntimeVersion = IMBREX_CUDART_MAJOR >= 13 ? 13000 : 12090;

/// cudaErrorName, text; for numbers that are none CUDA says so.
struct RuntimeError {
  int number;
  const char* name;
  const char* text;
};
constexpr RuntimeError kErrors[] = {
#define ERROR(number, driver_name, runtime_name, text) {number, #runtime_name, text},
#define RUNTIME_ERROR(number, runtime_name, text) {number, #runtime_name, text},
#include "cuda_host/abi/errors.def"
#undef ERROR
#undef RUNTIME_ERROR
};

int attribute(int which, int device) {
  int value = 0;
  cuDeviceGetAttribute(&value, which, device);
  return value;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const char* cudaGetErrorName(int error) {
  for (const RuntimeError& one : kErrors)
    if (one.number == error) return one.name;
  return "unrecognized error code";
}
extern "C" __attribute__((visibility("default"))) const char* cudaGetErrorString(int error) {
  for (const RuntimeError& one : kErrors)
    if (one.number == error) return one.text;
  return "unrecognized error code";
}

CUDART_API cudaDriverGetVersion(int* version) { return keep(cuDriverGetVersion(version)); }
CUDART_API cudaRuntimeGetVersion(int* version) {
  *version = kRuntimeVersion;
  return keep(CUDA_SUCCESS);
}
CUDART_API cudaGetDeviceCount(int* count) { return keep(cuDeviceGetCount(count)); }
CUDART_API cudaDeviceGetAttribute(int* value, int which, int device) {
  return keep(cuDeviceGetAttribute(value, which, device));
}
CUDART_API cudaDeviceGetPCIBusId(char* text, int bytes, int device) {
  return keep(cuDeviceGetPCIBusId(text, bytes, device));
}
CUDART_API cudaDeviceGetByPCIBusId(int* device, const char* text) {
  return keep(cuDeviceGetByPCIBusId(device, text));
}
CUDART_API cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return keep(cuDeviceCanAccessPeer(can, device, peer));
}
CUDART_API cudaDeviceGetP2PAttribute(int* value, int which, int from, int to) {
  return keep(cuDeviceGetP2PAttribute(value, which, from, to));
}
CUDART_API cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return call([&] {
    CUcontext context = nullptr;
    const CUresult error = cuDevicePrimaryCtxRetain(&context, peer);
    return error == CUDA_SUCCESS ? cuCtxEnablePeerAccess(context, flags) : error;
  });
}
CUDART_API cudaDeviceDisablePeerAccess(int peer) {
  return call([&] {
    CUcontext context = nullptr;
    const CUresult error = cuDevicePrimaryCtxRetain(&context, peer);
    return error == CUDA_SUCCESS ? cuCtxDisablePeerAccess(context) : error;
  });
}
CUDART_API cudaDeviceSynchronize() {
  return call([] { return cuCtxSynchronize(); });
}
CUDART_API cudaDeviceReset() { return keep(cuDevicePrimaryCtxReset_v2(current_device())); }
CUDART_API cudaInitDevice(int device, unsigned, unsigned) {
  CUcontext context = nullptr;
  return keep(cuDevicePrimaryCtxRetain(&context, device));
}
CUDART_API cudaSetDeviceFlags(unsigned flags) {
  return keep(cuDevicePrimaryCtxSetFlags_v2(current_device(), flags));
}
CUDART_API cudaGetDeviceFlags(unsigned* flags) {
  return keep(cuDevicePrimaryCtxGetState(current_device(), flags, nullptr));
}
CUDART_API cudaSetValidDevices(int*, int) { return keep(CUDA_SUCCESS); }
CUDART_API cudaChooseDevice(int* device, const cudaDeviceProp*) {
  *device = 0;
  return keep(CUDA_SUCCESS);
}
CUDART_API cudaDeviceGetLimit(size_t* value, int limit) {
  return call([&] { return cuCtxGetLimit(value, limit); });
}
CUDART_API cudaDeviceSetLimit(int limit, size_t value) {
  return call([&] { return cuCtxSetLimit(limit, value); });
}
CUDART_API cudaDeviceGetCacheConfig(int* config) {
  *config = 0;
  return keep(CUDA_SUCCESS);
}
CUDART_API cudaDeviceSetCacheConfig(int) { return keep(CUDA_SUCCESS); }
CUDART_API cudaDeviceGetSharedMemConfig(int* config) {
  *config = 1;
  return keep(CUDA_SUCCESS);
}
CUDART_API cudaDeviceSetSharedMemConfig(int) { return keep(CUDA_SUCCESS); }
CUDART_API cudaCtxResetPersistingL2Cache() { return keep(CUDA_SUCCESS); }
CUDART_API cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return call([&] { return cuCtxGetStreamPriorityRange(least, greatest); });
}
CUDART_API cudaProfilerStart() { return keep(cuProfilerStart()); }
CUDART_API cudaProfilerStop() { return keep(cuProfilerStop()); }
// The names of CUDA 3, which CUDA 12 still exports.
CUDART_API cudaThreadSynchronize() { return cudaDeviceSynchronize(); }
CUDART_API cudaThreadExit() { return cudaDeviceReset(); }

CUDART_API cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  int count = 0;
  if (const CUresult error = cuDeviceGetCount(&count); error != CUDA_SUCCESS) return keep(error);
  if (p == nullptr) return keep(CUDA_ERROR_INVALID_VALUE);
  if (device < 0 || device >= count) return keep(CUDA_ERROR_INVALID_DEVICE);
  std::memset(static_cast<void*>(p), 0, sizeof *p);
  cuDeviceGetName(p->name, sizeof p->name, device);
  cuDeviceGetUuid_v2(&p->uuid, device);
  cuDeviceTotalMem_v2(&p->total_global_memory, device);
  const auto size = [&](int which) { return static_cast<size_t>(attribute(which, device)); };
  const auto number = [&](int which) { return attribute(which, device); };
  p->shared_per_block = size(kDeviceMaxSharedPerBlock);
  p->registers_per_block = number(kDeviceMaxRegistersPerBlock);
  p->warp_size = number(kDeviceWarpSize);
  p->max_pitch = size(kDeviceMaxPitch);
  p->max_threads_per_block = number(kDeviceMaxThreadsPerBlock);
  for (int i = 0; i < 3; ++i) {
    p->max_block[i] = number(kDeviceMaxBlockX + i);
    p->max_grid[i] = number(kDeviceMaxGridX + i);
  }
  p->total_constant_memory = size(kDeviceTotalConstantMemory);
  p->major = number(kDeviceMajor);
  p->minor = number(kDeviceMinor);
  p->texture_alignment = size(kDeviceTextureAlignment);
  p->texture_pitch_alignment = size(kDeviceTexturePitchAlignment);
  p->multiprocessors = number(kDeviceMultiprocessors);
  p->can_map_host_memory = number(kDeviceCanMapHostMemory);
  p->surface_alignment = size(kDeviceSurfaceAlignment);
  p->concurrent_kernels = number(kDeviceConcurrentKernels);
  p->ecc = number(kDeviceEccEnabled);
  p->pci_bus = number(kDevicePciBus);
  p->async_engines = number(kDeviceAsyncEngines);
  p->unified_addressing = number(kDeviceUnifiedAddressing);
  p->memory_bus_bits = number(kDeviceMemoryBusBits);
  p->l2_bytes = number(kDeviceL2Bytes);
  p->persisting_l2_bytes = number(kDeviceMaxPersistingL2Bytes);
  p->max_threads_per_multiprocessor = number(kDeviceMaxThreadsPerMultiprocessor);
  p->stream_priorities = number(kDeviceStreamPriorities);
  p->global_l1 = number(kDeviceGlobalL1);
  p->local_l1 = number(kDeviceLocalL1);
  p->shared_per_multiprocessor = size(kDeviceSharedPerMultiprocessor);
  p->registers_per_multiprocessor = number(kDeviceRegistersPerMultiprocessor);
  p->managed_memory = number(kDeviceManagedMemory);
  p->concurrent_managed_access = number(kDeviceConcurrentManagedAccess);
  p->compute_preemption = number(kDeviceComputePreemption);
  p->cooperative_launch = number(kDeviceCooperativeLaunch);
  p->shared_per_block_opt_in = size(kDeviceMaxSharedPerBlockOptIn);
  p->max_blocks_per_multiprocessor = number(kDeviceMaxBlocksPerMultiprocessor);
  p->max_access_policy_window = number(kDeviceMaxAccessPolicyWindow);
  p->reserved_shared_per_block = size(kDeviceReservedSharedPerBlock);
  p->host_register = number(kDeviceHostRegister);
  p->memory_pools = number(kDeviceMemoryPools);
  p->cluster_launch = number(kDeviceClusterLaunch);
#if IMBREX_CUDART_MAJOR < 13
  p->clock_kilohertz = number(kDeviceClockKilohertz);
  p->memory_clock_kilohertz = number(kDeviceMemoryClockKilohertz);
  p->device_overlap = number(kDeviceGpuOverlap);
  p->single_to_double_ratio = number(kDeviceSingleToDoubleRatio);
#else
  p->numa_id = number(kDeviceNumaId);
  p->host_numa_id = number(kDeviceHostNumaId);
#endif
  return keep(CUDA_SUCCESS);
}
CUDART_API cudaGetDeviceProperties_v2(cudaDeviceProp* properties, int device) {
  return cudaGetDeviceProperties(properties, device);
}

CUDART_API cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                            unsigned long long flags, int* status) {
  constexpr unsigned long long kThreadsStream = 2;
  if (imbrex::cuda::take_second_name() && flags == 0) flags = kThreadsStream;
  int found = 0;
  const CUresult error = cuGetProcAddress_v2(symbol, function, static_cast<int>(version), flags, &found);
  if (status != nullptr) *status = found;
  // "Not there" is told by the status alone.
  return keep(error == CUDA_ERROR_NOT_FOUND && status != nullptr ? CUDA_SUCCESS : error);
}
CUDART_API cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                   int* status) {
  return cudaGetDriverEntryPointByVersion(symbol, function, kRuntimeVersion, flags, status);
}
