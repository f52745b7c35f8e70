// SPDX-License-Identifier: Apache-2.0
// Symmetric memory: on a virtual node a part of each GPU's stretch of the address space; on CUDA GPUs one reservation of
// addresses with a stretch per device, into which physical memory of that device is mapped, for all of them to use.
#include <fmt/format.h>

#include <exception>

#include "imbrex/core/error.h"
#include "runtime/parallel/cuda_stretches.h"
#include "runtime/parallel/rank_link.h"

namespace imbrex::runtime {

namespace {

class VirtualNodeMemory : public CommonMemory {
 public:
  VirtualNodeMemory(std::shared_ptr<vgpu::VirtualNode> node, std::shared_ptr<std::mutex> turn)
      : node_(std::move(node)), turn_(std::move(turn)) {}
  ~VirtualNodeMemory() override {
    const std::lock_guard lock(*turn_);
    for (const uint64_t address : addresses_) node_->free_symmetric(address);
  }
  uint64_t allocate(uint64_t bytes) override {
    const std::lock_guard lock(*turn_);
    addresses_.push_back(node_->allocate_symmetric(static_cast<int64_t>(bytes)));
    return addresses_.back();
  }
  int64_t rank_stride_bytes() const override { return node_->rank_stride(); }

 private:
  std::shared_ptr<vgpu::VirtualNode> node_;
  std::shared_ptr<std::mutex> turn_;
  std::vector<uint64_t> addresses_;
};

class CudaMemory : public CommonMemory {
 public:
  explicit CudaMemory(const std::vector<Device>& devices)
      : devices_(devices), stretches_(static_cast<int>(devices.size()), devices, false) {}
  uint64_t allocate(uint64_t bytes) override {
    const CudaStretches::Part part = stretches_.take(bytes);
    for (size_t rank = 0; rank < devices_.size(); ++rank)
      stretches_.map(stretches_.create(devices_[rank], part), static_cast<int>(rank), part);
    return stretches_.address(part);
  }
  int64_t rank_stride_bytes() const override { return CudaStretches::kStride; }

 private:
  std::vector<Device> devices_;
  CudaStretches stretches_;
};

/// Rank 0 allocates for all, and tells the others where, or why not.
class OfRankZero : public SymmetricMemory {
 public:
  OfRankZero(std::shared_ptr<CommonMemory> memory, int64_t rank_stride_bytes)
      : memory_(std::move(memory)), rank_stride_bytes_(rank_stride_bytes) {}
  uint64_t allocate(RankLink& link, uint64_t bytes, const std::string& call, SourceLocation where) override {
    std::string told;
    std::exception_ptr failure;
    if (link.rank == 0) try {
        told = fmt::format("{}", memory_->allocate(bytes));
      } catch (const Error& error) {
        told = error.what();
        failure = std::current_exception();
      }
    told = link.meet(call + ", its address", {std::move(told), nullptr}, where).front().text;
    if (failure != nullptr) std::rethrow_exception(failure);
    if (told.find_first_not_of("0123456789") != std::string::npos)
      throw DeviceError(Diagnostic{where, call + ": rank 0 could not allocate it", {told}, ""});
    return std::stoull(told);
  }
  int64_t rank_stride_bytes() const override { return rank_stride_bytes_; }

 private:
  std::shared_ptr<CommonMemory> memory_;  // null where another process has it
  int64_t rank_stride_bytes_;
};

}  // namespace

std::shared_ptr<CommonMemory> virtual_node_memory(std::shared_ptr<vgpu::VirtualNode> node,
                                                  std::shared_ptr<std::mutex> turn) {
  return std::make_shared<VirtualNodeMemory>(std::move(node), std::move(turn));
}

std::shared_ptr<CommonMemory> cuda_memory(const std::vector<Device>& devices) {
  return std::make_shared<CudaMemory>(devices);
}

std::shared_ptr<SymmetricMemory> symmetric_memory_of(std::shared_ptr<CommonMemory> memory,
                                                     int64_t rank_stride_bytes) {
  return std::make_shared<OfRankZero>(std::move(memory), rank_stride_bytes);
}

}  // namespace imbrex::runtime
