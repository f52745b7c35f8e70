// SPDX-License-Identifier: Apache-2.0
// NCCL's collectives between the GPUs of this process, with prototypes of our own: what ours are compared with. It is looked
// for where IMBREX_NCCL says, and where the loader looks.
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "imbrex/core/error.h"
#include "imbrex/parallel.h"
#include "imbrex/runtime.h"

namespace imbrex::parallel {

class NcclRival {
 public:
  /// Of no ranks: none.
  explicit NcclRival(int ranks) {
    if (ranks == 0) return;
    const char* const told = std::getenv("IMBREX_NCCL");
    void* const library = dlopen(told != nullptr ? told : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return;
    int (*init_all)(void**, int, const int*) = nullptr;
    find(library, init_all, "ncclCommInitAll");
    find(library, all_reduce_, "ncclAllReduce");
    find(library, all_gather_, "ncclAllGather");
    find(library, reduce_scatter_, "ncclReduceScatter");
    find(library, version_, "ncclGetVersion");
    std::vector<void*> made(static_cast<size_t>(ranks));
    if (!is_whole_ || init_all(made.data(), ranks, nullptr) != 0) return;
    communicators_ = std::move(made);
  }
  bool is_there() const { return !communicators_.empty(); }
  /// "NCCL 2.28.9", or that there is none.
  std::string name() const {
    int version = 0;
    if (!is_there() || version_(&version) != 0) return "no NCCL";
    return fmt::format("NCCL {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  }

  // Of bfloat16. By all ranks, without waiting.
  void all_reduce(int rank, const DeviceTensor& x, const DeviceTensor& y, const Stream& stream) const {
    check(all_reduce_(at(x), at(y), elements(x), kBfloat16, kSum, of(rank), stream.handle()));
  }
  void all_gather(int rank, const DeviceTensor& x, const DeviceTensor& y, const Stream& stream) const {
    check(all_gather_(at(x), at(y), elements(x), kBfloat16, of(rank), stream.handle()));
  }
  void reduce_scatter(int rank, const DeviceTensor& x, const DeviceTensor& y, const Stream& stream) const {
    check(reduce_scatter_(at(x), at(y), elements(y), kBfloat16, kSum, of(rank), stream.handle()));
  }

 private:
  static constexpr int kBfloat16 = 9, kSum = 0;
  template <class Function>
  void find(void* library, Function& function, const char* name) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    is_whole_ = is_whole_ && function != nullptr;
  }
  static void* at(const DeviceTensor& t) { return reinterpret_cast<void*>(t.address()); }
  static size_t elements(const DeviceTensor& t) { return static_cast<size_t>(t.bytes()) / 2; }
  void* of(int rank) const { return communicators_[static_cast<size_t>(rank)]; }
  static void check(int result) {
    if (result != 0) throw DeviceError(Diagnostic{{}, fmt::format("NCCL: result {}", result), {}, ""});
  }

  bool is_whole_ = true;
  int (*all_reduce_)(const void*, void*, size_t, int, int, void*, void*) = nullptr;
  int (*all_gather_)(const void*, void*, size_t, int, void*, void*) = nullptr;
  int (*reduce_scatter_)(const void*, void*, size_t, int, int, void*, void*) = nullptr;
  int (*version_)(int*) = nullptr;
  std::vector<void*> communicators_;  // by rank
};

}  // namespace imbrex::parallel
