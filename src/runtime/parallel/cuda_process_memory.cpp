// SPDX-License-Identifier: Apache-2.0
// Symmetric memory of CUDA GPUs whose ranks are processes: each process makes the memory of its own GPU, passes it to the
// others as an open file, and maps that of all into addresses of its own, a stretch per rank.
#include <fmt/format.h>

#include "imbrex/core/error.h"
#include "runtime/parallel/cuda_stretches.h"
#include "runtime/parallel/rank_link.h"

namespace imbrex::runtime {

namespace {

class CudaProcessMemory : public SymmetricMemory {
 public:
  explicit CudaProcessMemory(const RankLink& link)
      : device_(link.device), stretches_(link.size, {link.device}, true) {}

  uint64_t allocate(RankLink& link, uint64_t bytes, const std::string& call, SourceLocation where) override {
    std::string failure;
    CudaStretches::Part part{};
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
      part = stretches_.take(bytes);
      mine = stretches_.create(device_, part);
      int file = -1;
      driver_.check(driver_.cuMemExportToShareableHandle(&file, mine, kMemHandleIsFile, 0),
                    "memory for other processes");
      brought.file = std::make_shared<const FileDescriptor>(file);
    });
    brought.text = failure;
    const std::vector<Brought> all = link.meet(call + ", its memory", std::move(brought), where);
    check_all(all, call, where);
    for (int rank = 0; rank < link.size; ++rank)
      attempt([&] {
        const auto& file = all[static_cast<size_t>(rank)].file;
        CUmemHandle handle = mine;
        if (rank != link.rank) {
          if (file == nullptr) throw DeviceError(Diagnostic{{}, "its file has not come", {}, ""});
          driver_.check(
              driver_.cuMemImportFromShareableHandle(
                  &handle, reinterpret_cast<void*>(static_cast<uintptr_t>(file->number())), kMemHandleIsFile),
              fmt::format("memory of rank {}", rank));
        }
        stretches_.map(handle, rank, part);
      });
    check_all(link.meet(call + ", mapped", {failure, nullptr}, where), call, where);
    return stretches_.address(part);
  }
  int64_t rank_stride_bytes() const override { return CudaStretches::kStride; }

 private:
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
  const CudaDriver& driver_ = CudaDriver::get();
  CudaStretches stretches_;
};

}  // namespace

std::shared_ptr<SymmetricMemory> cuda_memory_of_processes(const RankLink& link) {
  return std::make_shared<CudaProcessMemory>(link);
}

}  // namespace imbrex::runtime
