// SPDX-License-Identifier: Apache-2.0
// What functions are, and how many of them fit: attributes and occupancy.
#include <fmt/format.h>

#include <algorithm>

#include "core/target.h"
#include "cuda_host/driver/answer.h"
#include "imbrex/inspect/occupancy.h"
#include "vgpu/timeline/sm_groups.h"

using namespace imbrex::cuda;

namespace {

int64_t ctas_per_sm(const FunctionObject& function, int64_t threads, int64_t dynamic_shared,
                    int64_t cluster = 1) {
  if (threads < 1) refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("blocks of {} threads", threads));
  imbrex::CtaResources wanted;
  wanted.threads = threads;
  wanted.registers_per_thread = function.attribute(kFuncRegisters);
  wanted.shared_bytes = function.attribute(kFuncSharedBytes) + dynamic_shared;
  wanted.cluster_ctas = cluster;
  if (threads > function.attribute(kFuncMaxThreads)) return 0;
  return imbrex::occupancy(Host::get().settings.gpu.target, wanted).ctas_per_sm;
}

const imbrex::Target& target() { return *imbrex::find_target(Host::get().settings.gpu.target); }

}  // namespace

CUDA_API cuFuncGetAttribute(int* value, int attribute, CUfunction function) {
  return answer("cuFuncGetAttribute",
                [&] { not_null(value, "value") = Host::get().function(function).attribute(attribute); });
}
CUDA_API cuFuncSetAttribute(CUfunction function, int attribute, int value) {
  return answer("cuFuncSetAttribute",
                [&] { Host::get().function(function).set_attribute(attribute, value); });
}
CUDA_API cuKernelGetAttribute(int* value, int attribute, CUkernel kernel, CUdevice device) {
  return answer("cuKernelGetAttribute", [&] {
    not_null(value, "value") = Host::get().kernels.get(kernel).on(device).attribute(attribute);
  });
}
CUDA_API cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice device) {
  return answer("cuKernelSetAttribute",
                [&] { Host::get().kernels.get(kernel).on(device).set_attribute(attribute, value); });
}
CUDA_API cuFuncSetCacheConfig(CUfunction, int) { return CUDA_SUCCESS; }
CUDA_API cuFuncSetSharedMemConfig(CUfunction, int) { return CUDA_SUCCESS; }
CUDA_API cuKernelSetCacheConfig(CUkernel, int, CUdevice) { return CUDA_SUCCESS; }
CUDA_API cuFuncLoad(CUfunction function) {
  return answer("cuFuncLoad", [&] { Host::get().function(function); });
}
CUDA_API cuFuncIsLoaded(int* state, CUfunction function) {
  return answer("cuFuncIsLoaded", [&] {
    Host::get().function(function);
    not_null(state, "state") = 1;
  });
}
CUDA_API cuFuncGetName(const char** name, CUfunction function) {
  return answer("cuFuncGetName",
                [&] { not_null(name, "name") = Host::get().function(function).function.name().c_str(); });
}
CUDA_API cuFuncGetModule(CUmodule* module, CUfunction function) {
  return answer("cuFuncGetModule", [&] {
    not_null(module, "module") = reinterpret_cast<CUmodule>(&Host::get().function(function).module);
  });
}

namespace {

void parameter_info(const FunctionObject& function, size_t index, size_t* offset, size_t* bytes) {
  const auto& parameters = function.function.parameters();
  if (index >= parameters.size()) refuse(CUDA_ERROR_INVALID_VALUE);  // how programs count parameters
  not_null(offset, "offset") = static_cast<size_t>(parameters[index].offset);
  if (bytes != nullptr) *bytes = static_cast<size_t>(parameters[index].bytes);
}

}  // namespace

CUDA_API cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset, size_t* bytes) {
  return answer("cuFuncGetParamInfo",
                [&] { parameter_info(Host::get().function(function), index, offset, bytes); });
}
CUDA_API cuKernelGetParamInfo(CUkernel kernel, size_t index, size_t* offset, size_t* bytes) {
  return answer("cuKernelGetParamInfo",
                [&] { parameter_info(Host::get().kernels.get(kernel).on(0), index, offset, bytes); });
}

CUDA_API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function, int threads,
                                                              size_t dynamic_shared, unsigned) {
  return answer("cuOccupancyMaxActiveBlocksPerMultiprocessor", [&] {
    not_null(blocks, "blocks") = static_cast<int>(
        ctas_per_sm(Host::get().function(function), threads, static_cast<int64_t>(dynamic_shared)));
  });
}
CUDA_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int threads,
                                                     size_t dynamic_shared) {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, threads, dynamic_shared, 0);
}
CUDA_API cuOccupancyMaxPotentialBlockSizeWithFlags(int* grid, int* threads, CUfunction handle,
                                                   CUoccupancyB2DSize shared_of, size_t dynamic_shared,
                                                   int limit, unsigned) {
  return answer("cuOccupancyMaxPotentialBlockSize", [&] {
    const FunctionObject& function = Host::get().function(handle);
    const int most = std::min(limit > 0 ? limit : 1024, function.attribute(kFuncMaxThreads));
    int64_t best_threads = 0, best_ctas = 0;
    for (int size = most / 32 * 32; size >= 32;
         size -= 32) {  // the largest of those that keep most warps resident
      const int64_t shared =
          shared_of != nullptr ? static_cast<int64_t>(shared_of(size)) : static_cast<int64_t>(dynamic_shared);
      const int64_t ctas = ctas_per_sm(function, size, shared);
      if (ctas * size > best_ctas * best_threads) {
        best_ctas = ctas;
        best_threads = size;
      }
    }
    not_null(threads, "threads") = static_cast<int>(best_threads);
    not_null(grid, "grid") = static_cast<int>(best_ctas * Host::get().settings.gpu.sms);
  });
}
CUDA_API cuOccupancyMaxPotentialBlockSize(int* grid, int* threads, CUfunction function,
                                          CUoccupancyB2DSize shared_of, size_t dynamic_shared, int limit) {
  return cuOccupancyMaxPotentialBlockSizeWithFlags(grid, threads, function, shared_of, dynamic_shared, limit,
                                                   0);
}
CUDA_API cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction handle, int blocks, int threads) {
  return answer("cuOccupancyAvailableDynamicSMemPerBlock", [&] {
    const FunctionObject& function = Host::get().function(handle);
    int64_t available = 0;
    constexpr int64_t kStep = 128;
    // No more than the kernel may have: an H200 answers 49152 unless it was allowed more.
    const int64_t most =
        std::min<int64_t>(target().max_shared_bytes, function.attribute(kFuncMaxDynamicShared));
    for (int64_t shared = 0; shared <= most; shared += kStep)
      if (ctas_per_sm(function, threads, shared) >= blocks) available = shared;
    not_null(bytes, "bytes") = static_cast<size_t>(available);
  });
}
CUDA_API cuOccupancyMaxPotentialClusterSize(int* ctas, CUfunction handle, const CUlaunchConfig* config) {
  return answer("cuOccupancyMaxPotentialClusterSize", [&] {
    const CUlaunchConfig& c = not_null(config, "config");
    const FunctionObject& function = Host::get().function(handle);
    const int64_t threads = int64_t{c.block_x} * c.block_y * c.block_z;
    const int64_t most = function.attribute(kFuncNonPortableCluster) != 0 ? target().max_cluster
                                                                          : target().max_portable_cluster;
    not_null(ctas, "ctas") = static_cast<int>(ctas_per_sm(function, threads, c.shared_bytes) > 0 ? most : 0);
  });
}
CUDA_API cuOccupancyMaxActiveClusters(int* clusters, CUfunction handle, const CUlaunchConfig* config) {
  return answer("cuOccupancyMaxActiveClusters", [&] {
    int64_t cluster = 1;
    for (unsigned i = 0; i < not_null(config, "config").attribute_count; ++i)
      if (const CUlaunchAttribute& a = config->attributes[i]; a.id == kLaunchClusterDimension)
        cluster = int64_t{a.value.cluster.x} * a.value.cluster.y * a.value.cluster.z;
    const FunctionObject& function = Host::get().function(handle);
    const int64_t threads = int64_t{config->block_x} * config->block_y * config->block_z;
    not_null(clusters, "clusters") = static_cast<int>(imbrex::vgpu::active_clusters(
        target().sm, static_cast<int>(Host::get().settings.gpu.sms), std::max<int64_t>(1, cluster),
        ctas_per_sm(function, threads, config->shared_bytes)));
  });
}
