// SPDX-License-Identifier: Apache-2.0
// Several virtual GPUs that share an address space and run at the same time: what the GPUs of a server are to one
// another. Their kernels see each other's memory, and may wait for one another.
//
//   VirtualNode node(4, {.target = "sm_90a", .seed = 7});
//   const DeviceAddress counts = node.allocate_symmetric(1024);  // of rank r: counts + r * node.rank_stride()
//   std::vector<VirtualNode::RankLaunch> launches;
//   for (int rank = 0; rank < node.size(); ++rank)
//     launches.push_back({rank, functions[rank], {.grid = {8}, .block = {128}, .arguments = arguments[rank]}});
//   std::vector<Report> reports = node.launch(launches);
//
// A launch on several ranks depends on the seed alone: it says in what order clusters of all ranks see each other's
// atomics, and how much later one rank begins than another. (Which of two accesses that race is found to be the later one
// also depends on time, unless Options::host_threads is 1.) Beside the checks of one GPU there are those between them:
// weak accesses of two ranks to one place, of which one writes, must be ordered by releases and acquires of system scope
// (of the launches of one rank, each is ordered before the next); and where no rank can get on any more, the finding says
// where each of them stands. imbrex/parallel.h builds on this.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "imbrex/vgpu/virtual_gpu.h"

namespace imbrex::vgpu {

class GlobalMemory;

class VirtualNode {
 public:
  /// 1 to 16 GPUs of one kind, each with Options::memory_bytes of memory. LaunchError for another number.
  VirtualNode(int ranks, Options options);
  ~VirtualNode();
  VirtualNode(const VirtualNode&) = delete;
  VirtualNode& operator=(const VirtualNode&) = delete;

  int size() const;
  /// LaunchError for a rank that is not there. What is launched on it by VirtualGpu::launch() runs alone.
  VirtualGpu& gpu(int rank);
  /// Another seed for later launches, of all ranks.
  void set_seed(uint64_t seed);

  /// `bytes` on each rank, aligned to 256, at the same place in its memory: the address on rank 0; that on rank r is
  /// r * rank_stride() further. Contents are undefined. LaunchError where a rank has not enough.
  DeviceAddress allocate_symmetric(int64_t bytes);
  /// Frees it on all ranks.
  void free_symmetric(DeviceAddress address, SourceLocation where = {});
  /// From the memory of one rank to that of the next, in bytes; a multiple of 4096.
  int64_t rank_stride() const;

  struct RankLaunch {
    int rank = 0;
    Function function;  // loaded on that rank's GPU
    Launch launch;
  };
  /// Runs the launches, at most one per rank, at the same time, and returns their reports in the same order. Where one
  /// cannot go on, all end. LaunchError as VirtualGpu::launch().
  std::vector<Report> launch(std::span<const RankLaunch> launches);
  /// The host has waited for all ranks: what they did so far is ordered before what they do from here on.
  void barrier();

 private:
  friend class VirtualGpu;
  struct Data;
  std::shared_ptr<GlobalMemory> memory_;
  std::unique_ptr<Data> data_;
};

}  // namespace imbrex::vgpu
