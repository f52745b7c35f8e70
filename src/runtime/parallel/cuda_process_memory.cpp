// SPDX-License-Identifier: Apache-2.0
// Symmetric memory of CUDA GPUs whose ranks are processes: each process makes the memory of its own GPU, passes it to the
// others as an open file, and maps that of all into addresses of its own, a stretch per rank.
#include <fmt/format.h>

#include <algorithm>

#include "imbrex/core/error.h"
#include "runtime/device/backend.h"
#include "runtime/driver/cuda_driver.h"
#include "runtime/parallel/rank_link.h"

namespace imbrex::runtime {

namespace {

class CudaProcessMemory : public SymmetricMemory {
 public:
  explicit CudaProcessMemory(const RankLink& link) : device_(link.device), ranks_(link.size) {
    size_t granularity = 0;
    const CUmemAllocationProp properties = properties_of_mine();
    driver_->check(driver_->cuMemGetAllocationGranularity(&granularity, &properties, 0),
                   "granularity of device memory");
    granularity_ = granularity;
    driver_->check(driver_->cuMemAddressReserve(&base_, all_bytes(), granularity_, 0, 0),
                   "addresses of symmetric memory");
    device_.backend().add_symmetric(base_, all_bytes());
  }
  ~CudaProcessMemory() override {
    for (const Mapping& mapping : mappings_) {
      driver_->cuMemUnmap(mapping.address, mapping.bytes);
      driver_->cuMemRelease(mapping.handle);
    }
    if (base_ != 0) driver_->cuMemAddressFree(base_, all_bytes());
  }

  uint64_t allocate(RankLink& link, uint64_t bytes, const std::string& call, SourceLocation where) override {
    const uint64_t size = (std::max<uint64_t>(bytes, 1) + granularity_ - 1) / granularity_ * granularity_;
    const uint64_t offset = std::exchange(next_, next_ + size);
    std::string failure;
    CUmemHandle mine = 0;
    const auto attempt = [&](auto&& body) {
      try {
        if (failure.empty()) body();
      } catch (const Error& error) {
        failure = error.diagnostics().front().message;
      }
    };
    Brought brought;
    attempt([&] {
      if (next_ > kStride) throw DeviceError(Diagnostic{{}, "no addresses are left", {}, ""});
      const CUmemAllocationProp properties = properties_of_mine();
      driver_->check(driver_->cuMemCreate(&mine, size, &properties, 0),
                     fmt::format("{} bytes of device memory", size));
      int file = -1;
      driver_->check(driver_->cuMemExportToShareableHandle(&file, mine, kMemHandleIsFile, 0),
                     "memory for other processes");
      brought.file = std::make_shared<const FileDescriptor>(file);
    });
    brought.text = failure;
    const std::vector<Brought> all = link.meet(call + ", its memory", std::move(brought), where);
    check_all(all, call, where);
    for (int rank = 0; rank < ranks_; ++rank)
      attempt([&] {
        const auto& file = all[static_cast<size_t>(rank)].file;
        CUmemHandle handle = mine;
        if (rank != link.rank) {
          if (file == nullptr) throw DeviceError(Diagnostic{{}, "its file has not come", {}, ""});
          driver_->check(
              driver_->cuMemImportFromShareableHandle(
                  &handle, reinterpret_cast<void*>(static_cast<uintptr_t>(file->number())), kMemHandleIsFile),
              fmt::format("memory of rank {}", rank));
        }
        map(handle, base_ + static_cast<uint64_t>(rank) * kStride + offset, size, rank);
      });
    check_all(link.meet(call + ", mapped", {failure, nullptr}, where), call, where);
    return base_ + offset;
  }
  int64_t rank_stride_bytes() const override { return kStride; }

 private:
  /// Of addresses alone: as much as no GPU has.
  static constexpr uint64_t kStride = uint64_t{1} << 38;
  struct Mapping {
    CUdeviceptr address;
    size_t bytes;
    CUmemHandle handle;
  };

  uint64_t all_bytes() const { return kStride * static_cast<uint64_t>(ranks_); }
  CUmemAllocationProp properties_of_mine() const {
    CUmemAllocationProp properties;
    properties.location = device_.backend().ordinal();
    properties.handle_types = kMemHandleIsFile;
    return properties;
  }
  void map(CUmemHandle handle, CUdeviceptr address, uint64_t size, int rank) {
    const std::string what = fmt::format("access of this GPU to the memory of rank {}", rank);
    driver_->check(driver_->cuMemMap(address, size, 0, handle, 0), what);
    mappings_.push_back({address, size, handle});
    CUmemAccessDesc access;
    access.location = device_.backend().ordinal();
    driver_->check(driver_->cuMemSetAccess(address, size, &access, 1), what);
  }
  /// DeviceError where a rank has failed.
  static void check_all(const std::vector<Brought>& all, const std::string& call, SourceLocation where) {
    for (size_t rank = 0; rank < all.size(); ++rank)
      if (!all[rank].text.empty())
        throw DeviceError(
            Diagnostic{where,
                       fmt::format("{}: rank {} has failed", call, rank),
                       {all[rank].text},
                       "kernels that read each other's memory need GPUs joined by NVLink, or a PCIe "
                       "topology with peer access"});
  }

  Device device_;
  int ranks_;
  const CudaDriver* driver_ = &CudaDriver::get();
  CUdeviceptr base_ = 0;
  uint64_t granularity_ = 1, next_ = 0;
  std::vector<Mapping> mappings_;
};

}  // namespace

std::shared_ptr<SymmetricMemory> cuda_memory_of_processes(const RankLink& link) {
  return std::make_shared<CudaProcessMemory>(link);
}

}  // namespace imbrex::runtime
