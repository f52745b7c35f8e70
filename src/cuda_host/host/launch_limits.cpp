// SPDX-License-Identifier: Apache-2.0
// What no launch may ask for, with the error codes of an H200 under driver 580.
#include <fmt/format.h>

#include "core/target.h"
#include "cuda_host/abi/api_error.h"
#include "cuda_host/host/host.h"
#include "cuda_host/host/work.h"
#include "imbrex/inspect/occupancy.h"

namespace imbrex::cuda {
namespace {

constexpr bool is_between(int64_t value, int64_t most) { return value >= 1 && value <= most; }

std::string text_of(const vgpu::Dim3& d) { return fmt::format("({}, {}, {})", d.x, d.y, d.z); }

void check_extents(const LaunchWork& work, const std::string& kernel) {
  const vgpu::Dim3 &grid = work.grid, &block = work.block;
  constexpr int64_t kMostX = 0x7FFFFFFF, kMostYz = 65535, kMostThreads = 1024, kMostThreadsZ = 64;
  if (!is_between(grid.x, kMostX) || !is_between(grid.y, kMostYz) || !is_between(grid.z, kMostYz))
    refuse(CUDA_ERROR_INVALID_VALUE,
           fmt::format("{} is launched with a grid of {}; the limits are 1 to (2147483647, 65535, 65535)",
                       kernel, text_of(grid)));
  if (!is_between(block.x, kMostThreads) || !is_between(block.y, kMostThreads) ||
      !is_between(block.z, kMostThreadsZ) || block.count() > kMostThreads)
    refuse(CUDA_ERROR_INVALID_VALUE,
           fmt::format("{} is launched with a block of {}; the limits are 1 to (1024, 1024, 64), and 1024 "
                       "threads in all",
                       kernel, text_of(block)));
}

void check_cluster(const LaunchWork& work, const std::string& kernel, const Target& target) {
  const FunctionObject& function = *work.function;
  const vgpu::Dim3 own{function.attribute(kFuncClusterWidth), function.attribute(kFuncClusterHeight),
                       function.attribute(kFuncClusterDepth)};
  const bool has_own = own.x > 0;
  if (!work.explicit_cluster && !has_own) return;
  const vgpu::Dim3 cluster = work.explicit_cluster ? work.cluster : own;
  const auto refuse_cluster = [&](const std::string& why) {
    refuse(CUDA_ERROR_INVALID_CLUSTER_SIZE,
           fmt::format("{} is launched with clusters of {}, {}", kernel, text_of(cluster), why));
  };
  if (cluster.x < 1 || cluster.y < 1 || cluster.z < 1) refuse_cluster("which hold nothing");
  if (has_own && !(cluster == own))
    refuse_cluster(fmt::format("and was compiled for clusters of {}", text_of(own)));
  const vgpu::Dim3& grid = work.grid;
  if (grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0)
    refuse_cluster(fmt::format("which do not divide the grid of {}", text_of(grid)));
  constexpr int64_t kPortable = 8;
  const bool is_large_allowed = function.attribute(kFuncNonPortableCluster) != 0;
  const int64_t most =
      is_large_allowed ? target.max_cluster : std::min<int64_t>(kPortable, target.max_cluster);
  if (cluster.count() > most)
    refuse_cluster(fmt::format("at most {} CTAs{}", most,
                               is_large_allowed || target.max_cluster <= kPortable
                                   ? ""
                                   : "\n  help: up to 16 are allowed by cudaFuncSetAttribute(kernel, "
                                     "cudaFuncAttributeNonPortableClusterSizeAllowed, 1)"));
}

}  // namespace

void check_limits(const LaunchWork& work) {
  const FunctionObject& function = *work.function;
  const std::string kernel = demangled(function.function.name());
  const GpuModel& gpu = Host::get().settings.gpu;
  const Target& target = *find_target(gpu.target);
  check_extents(work, kernel);
  if (const int allowed = function.attribute(kFuncMaxDynamicShared); work.dynamic_shared_bytes > allowed)
    refuse(work.cooperative ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_ERROR_INVALID_VALUE,
           fmt::format("{} is to get {} bytes of dynamic shared memory, it may have {}\n"
                       "  help: allow more by cudaFuncSetAttribute(kernel, "
                       "cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)",
                       kernel, work.dynamic_shared_bytes, allowed));
  check_cluster(work, kernel, target);
  if (!work.cooperative) return;
  CtaResources wanted;
  wanted.threads = work.block.count();
  wanted.registers_per_thread = function.attribute(kFuncRegisters);
  wanted.shared_bytes = function.attribute(kFuncSharedBytes) + work.dynamic_shared_bytes;
  const int64_t most = int64_t{occupancy(gpu.target, wanted).ctas_per_sm} * gpu.sms;
  if (work.grid.count() > most)
    refuse(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
           fmt::format("a cooperative launch of {} with {} CTAs, of which {} fit on the GPU at once\n"
                       "  help: ask cudaOccupancyMaxActiveBlocksPerMultiprocessor how many fit",
                       kernel, work.grid.count(), most));
}

}  // namespace imbrex::cuda
