// SPDX-License-Identifier: Apache-2.0
// What a Communicator stands on: the ranks as one of them reaches the others, be they threads of one process or processes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "imbrex/parallel/communicator.h"
#include "imbrex/runtime/device.h"
#include "runtime/device/backend.h"
#include "runtime/parallel/job.h"
#include "runtime/parallel/meeting.h"

namespace imbrex::runtime {

class Collectives;
class RankLink;
class StreamBeside;

/// Memory of every rank, from one rank to the next at the same distance.
class SymmetricMemory {
 public:
  virtual ~SymmetricMemory() = default;
  /// By all ranks; `call` for messages. Returns where rank 0's part is to this rank. DeviceError on all where one fails.
  virtual uint64_t allocate(RankLink& link, uint64_t bytes, const std::string& call,
                            SourceLocation where) = 0;
  virtual int64_t rank_stride_bytes() const = 0;
};

class RankLink : public WaitBound {
 public:
  RankLink(int my_rank, int ranks, Device my_device, double seconds);
  ~RankLink() override;
  RankLink(const RankLink&) = delete;
  RankLink& operator=(const RankLink&) = delete;

  /// As Meeting::meet(). Where it throws, the ranks will not meet again: what this rank's kernels wait for is ended, for the
  /// memory that they use is about to be freed.
  std::vector<Brought> meet(const std::string& call, Brought brought, SourceLocation where);
  /// This rank has ended; `why` is the error, "" where there was none. Others get to know.
  virtual void end(const std::string& why) = 0;

  const int rank, size;
  const Device device;
  const double patience;
  std::shared_ptr<SymmetricMemory> memory;
  /// Where GPUs cannot reach each other's memory; null where they can.
  std::shared_ptr<Collectives> collectives;

  /// What Communicator::agree() has met for.
  std::unordered_set<uint64_t> agreed;

  void add_signals(uint64_t mine, int64_t bytes);
  /// The first of each of this rank's signals, as text, read while kernels may be running.
  std::vector<std::string> signals_as_text() const;
  /// Ends every signal::wait() of this rank, by setting its signals to a large value, because of what `why` says. What
  /// kernels compute is worth nothing from then on. Any thread may call it; nothing on a virtual node, which finds itself
  /// who waits in vain. `by`: whose GPU does it, null: the rank's own, whose driver may be waiting for its kernels.
  void end_waits(const std::string& why, const Device* by = nullptr);
  /// Why waits were ended; "" where they were not.
  std::string why_waits_ended() const;
  /// What ends waits: all of this rank's signals are set to a large value, on virtual GPUs too.
  void set_signals_for_end(const Device* by = nullptr) const;

  /// Waits for what a CUDA GPU does. DeviceError where it has not ended within `patience`: then waits were ended; and where
  /// it has not ended as long after that, it is not waited for any more.
  void wait_until(const std::function<bool()>& has_ended, SourceLocation where);
  void wait_until(const std::function<bool()>& has_ended) override { wait_until(has_ended, {}); }

 protected:
  virtual std::vector<Brought> meet_others(const std::string& call, Brought brought,
                                           SourceLocation where) = 0;
  /// Where each of the others stands: "rank 1 has ended".
  virtual std::vector<std::string> others() = 0;

 private:
  mutable std::mutex signals_mutex_;
  std::vector<std::pair<uint64_t, int64_t>> signals_;  // of this rank: address and bytes
  // Made before any kernel waits for a signal: while the driver waits for one that does, it makes no stream.
  std::unique_ptr<StreamBeside> beside_;
  std::string why_waits_ended_;
};

/// Memory that one rank allocates for all, who share an address space.
class CommonMemory {
 public:
  virtual ~CommonMemory() = default;
  /// Returns the address on rank 0.
  virtual uint64_t allocate(uint64_t bytes) = 0;
  virtual int64_t rank_stride_bytes() const = 0;
};
/// Of the virtual GPUs of a node, whose devices share `turn`.
std::shared_ptr<CommonMemory> virtual_node_memory(std::shared_ptr<vgpu::VirtualNode> node,
                                                  std::shared_ptr<std::mutex> turn);
/// Of CUDA devices of this process, which can reach each other's memory.
std::shared_ptr<CommonMemory> cuda_memory(const std::vector<Device>& devices);
/// As a rank sees it; `memory` is null in other processes than rank 0's.
std::shared_ptr<SymmetricMemory> symmetric_memory_of(std::shared_ptr<CommonMemory> memory,
                                                     int64_t rank_stride_bytes);
/// Of one CUDA device of each rank's process.
std::shared_ptr<SymmetricMemory> cuda_memory_of_processes(const RankLink& link);
/// Of GPUs that cannot reach each other's: of this rank alone, with a distance of 0.
std::shared_ptr<SymmetricMemory> memory_without_peers(const Device& device);

/// Where a CUDA GPU is in its server: "0000:00:06.0".
std::string place_of_gpu(const Device& device);
/// By all ranks, on CUDA GPUs: whether each can reach the memory of all others (IMBREX_NO_PEERS=1 says no).
bool can_reach_all(RankLink& link);
/// The same of devices of this process.
bool can_reach_all(const std::vector<Device>& devices);
/// By all ranks, where they cannot: collectives go through NCCL, which rank 0 says on stderr. DeviceError without NCCL.
void use_nccl(RankLink& link);
/// Virtual GPUs, where IMBREX_NO_PEERS=1, as GPUs that cannot: their host programs carry what collectives need.
void part_if_wished(RankLink& link);

/// The links of ranks that are threads of this process.
std::vector<std::shared_ptr<RankLink>> link_threads(const parallel::Ranks& ranks);
/// This process's link, once all ranks have come. DeviceError names those that have not.
std::shared_ptr<RankLink> link_process(const parallel::Ranks& ranks, const Job& job);

}  // namespace imbrex::runtime
