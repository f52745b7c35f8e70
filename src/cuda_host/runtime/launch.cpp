// SPDX-License-Identifier: Apache-2.0
// Launches, and what is known of kernels: attributes and occupancy.
#include <vector>

#include "cuda_host/abi/thread_object.h"
#include "cuda_host/runtime/state.h"

using namespace imbrex::cudart;
using imbrex::cuda::FunctionAttribute;

namespace {

/// `kernel<<<grid, block, shared, stream>>>` pushes; the stub of the kernel, called next, pops.
struct Configuration {
  CudaDim3 grid, block;
  size_t shared_bytes;
  CUstream stream;
};
std::vector<Configuration>& pushed() { return imbrex::cuda::thread_object<std::vector<Configuration>>(); }

constexpr auto kInvalidConfiguration = static_cast<CUresult>(9);

CUresult launch(const cudaLaunchConfig_t& wanted, CUfunction function, void** arguments) {
  const CudaDim3 &grid = wanted.grid, &block = wanted.block;
  // From 13.0 on the runtime leaves that to the driver, and its code is another.
  const auto is_between = [](unsigned value, unsigned most) { return value >= 1 && value <= most; };
  if (IMBREX_CUDART_MAJOR < 13 &&
      (!is_between(grid.x, 0x7FFFFFFF) || !is_between(grid.y, 65535) || !is_between(grid.z, 65535) ||
       !is_between(block.x, 1024) || !is_between(block.y, 1024) || !is_between(block.z, 64) ||
       uint64_t{block.x} * block.y * block.z > 1024))
    return kInvalidConfiguration;
  const CUlaunchConfig config{grid.x,
                              grid.y,
                              grid.z,
                              block.x,
                              block.y,
                              block.z,
                              static_cast<unsigned>(wanted.dynamic_shared_bytes),
                              wanted.stream,
                              wanted.attributes,
                              wanted.attribute_count};
  return cuLaunchKernelEx(&config, function, arguments, nullptr);
}

CUresult launch_by_address(const cudaLaunchConfig_t& wanted, const void* kernel, void** arguments) {
  CUfunction function = nullptr;
  const CUresult error = find_function(kernel, &function);
  return error == CUDA_SUCCESS ? launch(wanted, function, arguments) : error;
}

/// Occupancy functions ask with the same structure as launches.
CUlaunchConfig in_driver_form(const cudaLaunchConfig_t& c) {
  return {c.grid.x,
          c.grid.y,
          c.grid.z,
          c.block.x,
          c.block.y,
          c.block.z,
          static_cast<unsigned>(c.dynamic_shared_bytes),
          c.stream,
          c.attributes,
          c.attribute_count};
}

template <class Body>
cudaError_t with_function(const void* kernel, Body&& body) {
  return call([&] {
    CUfunction function = nullptr;
    const CUresult error = find_function(kernel, &function);
    return error == CUDA_SUCCESS ? body(function) : error;
  });
}

}  // namespace

extern "C" __attribute__((visibility("default"))) unsigned __cudaPushCallConfiguration(CudaDim3 grid,
                                                                                       CudaDim3 block,
                                                                                       size_t shared_bytes,
                                                                                       CUstream stream) {
  pushed().push_back({grid, block, shared_bytes, stream});
  return 0;
}
CUDART_API __cudaPopCallConfiguration(CudaDim3* grid, CudaDim3* block, size_t* shared_bytes, void* stream) {
  if (pushed().empty()) return keep(52);  // cudaErrorMissingConfiguration
  const Configuration top = pushed().back();
  pushed().pop_back();
  *grid = top.grid;
  *block = top.block;
  *shared_bytes = top.shared_bytes;
  *static_cast<CUstream*>(stream) = top.stream;
  return keep(CUDA_SUCCESS);
}

CUDART_API cudaLaunchKernel(const void* kernel, CudaDim3 grid, CudaDim3 block, void** arguments,
                            size_t shared_bytes, CUstream stream) {
  return call([&] {
    return launch_by_address({grid, block, shared_bytes, stream, nullptr, 0}, kernel, arguments);
  });
}
CUDART_API cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
  return call([&] {
    return config == nullptr ? CUDA_ERROR_INVALID_VALUE : launch_by_address(*config, kernel, arguments);
  });
}
CUDART_API cudaLaunchCooperativeKernel(const void* kernel, CudaDim3 grid, CudaDim3 block, void** arguments,
                                       size_t shared_bytes, CUstream stream) {
  CUlaunchAttribute attribute{};
  attribute.id = imbrex::cuda::kLaunchCooperative;
  attribute.value.cooperative = 1;
  return call([&] {
    return launch_by_address({grid, block, shared_bytes, stream, &attribute, 1}, kernel, arguments);
  });
}
/// From nvcc 12.8 on: the kernel of a stub, looked up once, and launches by it.
CUDART_API __cudaGetKernel(CUkernel* out, const void* kernel) {
  return call([&] { return find_kernel(kernel, out); });
}
CUDART_API __cudaLaunchKernel(CUkernel kernel, CudaDim3 grid, CudaDim3 block, void** arguments,
                              size_t shared_bytes, CUstream stream) {
  return call([&] {
    // The look-up failed when the kernel was first called; this is where the program hears of it.
    if (kernel == nullptr) return static_cast<CUresult>(last_error() == 0 ? 98 : last_error());
    return launch_by_address({grid, block, shared_bytes, stream, nullptr, 0}, kernel, arguments);
  });
}
CUDART_API cudaGetKernel(CUkernel* out, const void* kernel) {
  return call([&] { return find_kernel(kernel, out); });
}
CUDART_API cudaGetFuncBySymbol(CUfunction* out, const void* kernel) {
  return call([&] { return find_function(kernel, out); });
}
CUDART_API cudaLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return call([&] { return cuLaunchHostFunc(stream, function, data); });
}

CUDART_API cudaFuncGetAttributes(cudaFuncAttributes* out, const void* kernel) {
  return with_function(kernel, [&](CUfunction function) {
    using namespace imbrex::cuda;
    int values[kFuncAttributeCount] = {};
    for (int i = 0; i < kFuncAttributeCount; ++i)
      if (const CUresult error = cuFuncGetAttribute(&values[i], i, function); error != CUDA_SUCCESS)
        return error;
    *out = {};
    out->shared_bytes = static_cast<size_t>(values[kFuncSharedBytes]);
    out->local_bytes = static_cast<size_t>(values[kFuncLocalBytes]);
    out->max_threads = values[kFuncMaxThreads];
    out->registers = values[kFuncRegisters];
    out->ptx_version = values[kFuncPtxVersion];
    out->binary_version = values[kFuncBinaryVersion];
    out->max_dynamic_shared = values[kFuncMaxDynamicShared];
    out->preferred_carveout = values[kFuncPreferredCarveout];
    out->cluster_must_be_set = values[kFuncClusterMustBeSet];
    out->cluster_width = values[kFuncClusterWidth];
    out->cluster_height = values[kFuncClusterHeight];
    out->cluster_depth = values[kFuncClusterDepth];
    out->non_portable_cluster = values[kFuncNonPortableCluster];
    return CUDA_SUCCESS;
  });
}
CUDART_API cudaFuncSetAttribute(const void* kernel, int attribute, int value) {
  return with_function(kernel,
                       [&](CUfunction function) { return cuFuncSetAttribute(function, attribute, value); });
}
CUDART_API cudaKernelSetAttributeForDevice(CUkernel kernel, int attribute, int value, int device) {
  return call([&] { return cuKernelSetAttribute(attribute, value, kernel, device); });
}
CUDART_API cudaFuncSetCacheConfig(const void* kernel, int) {
  return with_function(kernel, [](CUfunction) { return CUDA_SUCCESS; });
}
CUDART_API cudaFuncSetSharedMemConfig(const void* kernel, int) {
  return with_function(kernel, [](CUfunction) { return CUDA_SUCCESS; });
}
CUDART_API cudaFuncGetName(const char** name, const void* kernel) {
  return call([&] {
    CUkernel found = nullptr;
    const CUresult error = find_kernel(kernel, &found);
    return error == CUDA_SUCCESS ? cuKernelGetName(name, found) : error;
  });
}
CUDART_API cudaFuncGetParamInfo(const void* kernel, size_t index, size_t* offset, size_t* bytes) {
  return call([&] {
    CUkernel found = nullptr;
    const CUresult error = find_kernel(kernel, &found);
    return error == CUDA_SUCCESS ? cuKernelGetParamInfo(found, index, offset, bytes) : error;
  });
}

CUDART_API cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* kernel,
                                                                  int threads, size_t dynamic_shared,
                                                                  unsigned flags) {
  return with_function(kernel, [&](CUfunction function) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, dynamic_shared,
                                                                flags);
  });
}
CUDART_API cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                         size_t dynamic_shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, threads, dynamic_shared, 0);
}
CUDART_API cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* kernel, int blocks,
                                                     int threads) {
  return with_function(kernel, [&](CUfunction function) {
    return cuOccupancyAvailableDynamicSMemPerBlock(bytes, function, blocks, threads);
  });
}
CUDART_API cudaOccupancyMaxPotentialClusterSize(int* ctas, const void* kernel,
                                                const cudaLaunchConfig_t* config) {
  return with_function(kernel, [&](CUfunction function) {
    const CUlaunchConfig driver_config = in_driver_form(*config);
    return cuOccupancyMaxPotentialClusterSize(ctas, function, &driver_config);
  });
}
CUDART_API cudaOccupancyMaxActiveClusters(int* clusters, const void* kernel,
                                          const cudaLaunchConfig_t* config) {
  return with_function(kernel, [&](CUfunction function) {
    const CUlaunchConfig driver_config = in_driver_form(*config);
    return cuOccupancyMaxActiveClusters(clusters, function, &driver_config);
  });
}
