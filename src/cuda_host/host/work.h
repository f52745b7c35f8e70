// SPDX-License-Identifier: Apache-2.0
// What can be put on a stream: carried out when it is submitted, or kept as a node while the stream is captured.
#pragma once

#include <cstddef>
#include <memory>
#include <variant>
#include <vector>

#include "cuda_host/host/memory.h"
#include "cuda_host/host/module.h"

namespace imbrex::cuda {

struct Graph;
struct Event;
struct LibraryKernel;

struct EmptyWork {};
struct LaunchWork {
  FunctionObject* function = nullptr;
  LibraryKernel* kernel = nullptr;  // by which it was launched or given to a graph's node, if it was
  vgpu::Dim3 grid, block, cluster;
  bool explicit_cluster = false;  // has the attribute
  int64_t dynamic_shared_bytes = 0;
  bool cooperative = false;
  std::vector<std::byte> parameters;  // laid out as the kernel wants them
};
struct CopyWork {
  PitchedSide to, from;
  int64_t width = 0, height = 1, depth = 1;
  std::shared_ptr<const std::vector<std::byte>> kept =
      nullptr;  // the bytes that `from` points to, where they are its own
};
struct FillWork {
  uint64_t to = 0;
  int64_t pitch = 0;
  uint32_t value = 0;
  int element_bytes = 1;
  int64_t width = 0, height = 1;  // elements, rows
};
struct HostWork {
  CUhostFn function = nullptr;
  void* data = nullptr;
};
/// Memory of a graph: it has its address from the start, and lives until the graph is destroyed.
struct AllocateWork {
  uint64_t address = 0;
  int64_t bytes = 0;
};
struct FreeWork {
  uint64_t address = 0;
};
struct RecordWork {
  Event* event = nullptr;
};
struct WaitWork {
  Event* event = nullptr;
};
struct ChildWork {
  Graph* graph = nullptr;
};

using Work = std::variant<EmptyWork, LaunchWork, CopyWork, FillWork, HostWork, AllocateWork, FreeWork,
                          RecordWork, WaitWork, ChildWork>;

struct Stream;
/// Carries it out now, as work of `stream`.
void perform(const Work& work, Stream& stream);
/// Whether it is a host function, or a graph that has one.
bool runs_host_function(const Work& work);
/// Carries it out, leaves it to the backlog, or keeps it where the stream is being captured.
void submit(Stream& stream, Work work);

/// The parameters of a launch as the program gave them: one pointer each, or one packed buffer (`extra`).
std::vector<std::byte> pack_parameters(const FunctionObject& function, void** parameters, void** extra);
/// Refuses a launch that asks for more than there is, or contradicts itself: by the code that a GPU's driver has for it.
void check_limits(const LaunchWork& work);
/// What a launch configuration says, its attributes included; refused as by check_limits().
LaunchWork launch_work(const CUlaunchConfig& config, CUfunction function, void** parameters, void** extra);

}  // namespace imbrex::cuda
