// SPDX-License-Identifier: Apache-2.0
// NCCL through dlopen, with prototypes of our own: collectives of GPUs that cannot reach each other's memory. It is looked
// for where IMBREX_NCCL says, and where the dynamic loader looks: a program that has loaded PyTorch has it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "imbrex/core/dtype.h"
#include "runtime/parallel/rank_link.h"

namespace imbrex::runtime {

struct CUstream_st;  // the CUDA driver's

class Nccl {
 public:
  /// By all ranks. Null on all of them, with the reason in `why_not`, where a rank has no NCCL 2.19 or later. DeviceError
  /// where it is there and fails.
  static std::shared_ptr<Nccl> make(RankLink& link, std::string* why_not);
  ~Nccl();
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  /// "NCCL 2.28.9".
  std::string name() const;
  // Addresses of dense memory of this rank; numbers of elements. LaunchError for types that NCCL does not add.
  void all_reduce(uint64_t from, uint64_t to, int64_t count, DataType dtype, CUstream_st* stream);
  /// `bytes` of each rank, one behind the other.
  void all_gather(uint64_t from, uint64_t to, int64_t bytes, CUstream_st* stream);
  /// `count` for each rank.
  void reduce_scatter(uint64_t from, uint64_t to, int64_t count, DataType dtype, CUstream_st* stream);
  /// Ends what is under way, and all later calls fail. Any thread may call it.
  void abort() noexcept;

 private:
  struct Library;
  Nccl(const Library& library, Device device) : library_(library), device_(std::move(device)) {}
  void check(int result, const char* call) const;
  /// The communicator; DeviceError when it was aborted.
  void* communicator(const char* call) const;

  const Library& library_;
  const Device device_;
  mutable std::mutex mutex_;
  void* communicator_ = nullptr;
};

}  // namespace imbrex::runtime
