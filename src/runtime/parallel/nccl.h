// SPDX-License-Identifier: Apache-2.0
// NCCL through dlopen, with prototypes of our own: collectives of GPUs that cannot reach each other's memory. It is looked
// for where IMBREX_NCCL says, and where the dynamic loader looks: a program that has loaded PyTorch has it.
//
// The communicator does not block: NCCL's calls return at once, and what they have begun (finding the other ranks, the
// connections that the first collective makes) is asked for until it is done. So each of them has a bound, and abort()
// need not wait for a call of another thread that waits for a rank which is gone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/parallel/collectives.h"
#include "runtime/parallel/rank_link.h"

namespace imbrex::runtime {

class Nccl : public Collectives {
 public:
  /// By all ranks. Null on all of them, with the reason in `why_not`, where a rank has no NCCL 2.19 or later. DeviceError
  /// where it is there and fails, or has not found the other ranks within the link's patience.
  static std::shared_ptr<Nccl> make(RankLink& link, std::string* why_not);
  /// Waits for what is under way, as long as a call may take; then ends it.
  ~Nccl() override;
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  std::string name() const override;
  // DeviceError where NCCL fails, has been aborted, or is not connected within the patience.
  void all_reduce(uint64_t from, uint64_t to, int64_t count, DataType dtype, CUstream_st* stream) override;
  void all_gather(uint64_t from, uint64_t to, int64_t bytes, CUstream_st* stream) override;
  void reduce_scatter(uint64_t from, uint64_t to, int64_t count, DataType dtype,
                      CUstream_st* stream) override;
  void abort() noexcept override;

 private:
  struct Library;
  Nccl(const Library& library, Device device, double patience)
      : library_(library), device_(std::move(device)), patience_(patience) {}
  /// Begins a call of NCCL and waits until the host's part of it is done.
  void call(const char* name, const std::function<int(void*)>& begin);
  /// NCCL's result once nothing is in progress; kInProgress when the patience has ended.
  int wait(const char* name, int result);
  [[noreturn]] void fail(const char* name, const std::string& why) const;
  [[noreturn]] void fail_ended(const char* name) const;

  const Library& library_;
  const Device device_;
  const double patience_;
  std::mutex mutex_;              // held during calls, which return at once
  void* communicator_ = nullptr;  // null once it was aborted
};

}  // namespace imbrex::runtime
