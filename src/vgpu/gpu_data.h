// SPDX-License-Identifier: Apache-2.0
// What stands behind the public handles of the virtual GPU.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "imbrex/vgpu/virtual_gpu.h"
#include "vgpu/checks/global_races.h"
#include "vgpu/machine/grid.h"
#include "vgpu/memory/device_heap.h"
#include "vgpu/memory/memory.h"
#include "vgpu/order/footprint_recorder.h"
#include "vgpu/program/module_image.h"
#include "vgpu/program/program.h"
#include "vgpu/timeline/flag_writers.h"
#include "vgpu/timeline/machine_costs.h"
#include "vgpu/timeline/sampling.h"

namespace imbrex::vgpu {

namespace detail {

struct GpuData {
  Options options;
  const Target* target = nullptr;
  std::shared_ptr<GlobalMemory> memory;
  int rank = -1;  // among the devices that share the memory; -1: none do
  int gpu() const { return rank < 0 ? 0 : rank; }
  uint64_t launches = 0;
  DeviceAddress cooperative_workspace = 0;  // allocated by the first cooperative launch
  int64_t heap_bytes = int64_t{8} << 20;
  std::unique_ptr<DeviceHeap> heap;  // made by the first launch of a kernel that allocates
  StreamOrder order;
  std::unique_ptr<FootprintRecorder> footprint;  // made by the first launch on a stream
};
struct ModuleData {
  std::shared_ptr<ModuleImage> image;
  std::vector<std::string> names;
  std::vector<std::shared_ptr<FunctionData>> functions;
};
struct FunctionData {
  std::string name;
  std::shared_ptr<const Program> program;
  std::exception_ptr refusal;  // why there is no program: an instruction that is not known or not modelled
  std::shared_ptr<ModuleImage> image;
  const Target* target = nullptr;
  int64_t max_dynamic_shared = 0;
  std::once_flag estimated;
  int64_t registers = 0;  // of a thread, when a time is predicted: of the machine code, or estimated
  std::shared_ptr<const MachineCosts> machine;  // null: only PTX is at hand
};

}  // namespace detail

/// A launch that can be run: on its own, or together with those of other GPUs.
struct VirtualGpu::Prepared {
  std::shared_ptr<const Program> program;
  LaunchContext context;
  int slots = 1;                      // clusters that are resident at once
  int64_t ctas_per_sm = 1;            // by shared memory and threads
  int64_t predicted_ctas_per_sm = 1;  // by registers too
  std::optional<StreamOrder::Stream> stream;
  SourceLocation where;
  FlagWriters flags;
  SamplePlan sample;  // everything, unless a part is enough to predict the launch
};

/// What a launch is replayed on, of which so many CTAs fit on an SM.
ReplayContext replay_context(const Target& target, const LaunchContext& launch, int64_t ctas_per_sm);

/// How many host threads run a launch.
int host_threads(const Options& options);

}  // namespace imbrex::vgpu
