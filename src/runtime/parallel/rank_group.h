// SPDX-License-Identifier: Apache-2.0
// What a Communicator stands on: the ranks' meeting, and memory that is at the same place on each of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "imbrex/runtime/device.h"
#include "runtime/parallel/meeting.h"

namespace imbrex::runtime {

/// Memory of every rank, from one rank to the next at the same distance.
class SymmetricMemory {
 public:
  virtual ~SymmetricMemory() = default;
  /// By one rank for all. Returns the address on rank 0.
  virtual uint64_t allocate(uint64_t bytes) = 0;
  virtual int64_t rank_stride_bytes() const = 0;
};

class RankGroup {
 public:
  RankGroup(int ranks, std::shared_ptr<vgpu::VirtualNode> virtual_node, double seconds)
      : meeting(ranks, virtual_node, seconds), node(std::move(virtual_node)), patience(seconds) {}
  /// Ends every signal::wait() of a rank, by setting its signals to a large value. What kernels compute is worth nothing
  /// from then on: `waits_ended`.
  void end_waits(int rank);
  std::atomic<bool> waits_ended = false;

  Meeting meeting;
  std::shared_ptr<vgpu::VirtualNode> node;  // null on CUDA GPUs
  std::vector<Device> devices;              // by rank
  std::shared_ptr<SymmetricMemory> memory;
  double patience;

  /// The signals of every rank: addresses on rank 0, and bytes.
  std::mutex signals_mutex;
  std::vector<std::pair<uint64_t, int64_t>> signals;
};

/// Of the virtual GPUs of a node, whose devices share `turn`.
std::shared_ptr<SymmetricMemory> virtual_symmetric_memory(std::shared_ptr<vgpu::VirtualNode> node,
                                                          std::shared_ptr<std::mutex> turn);
/// Of CUDA devices. DeviceError where one cannot reach another's memory.
std::shared_ptr<SymmetricMemory> cuda_symmetric_memory(const std::vector<Device>& devices);

}  // namespace imbrex::runtime
