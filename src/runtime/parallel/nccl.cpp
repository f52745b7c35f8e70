// SPDX-License-Identifier: Apache-2.0
#include "runtime/parallel/nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>

#include "imbrex/core/error.h"
#include "runtime/device/backend.h"
#include "runtime/driver/context_scope.h"

namespace imbrex::runtime {

namespace {

/// ncclUniqueId, which is passed by value.
struct UniqueId {
  char bytes[128] = {};
};
constexpr int kOldest = 21900;       // 2.19.0
constexpr int kSum = 0, kUint8 = 1;  // ncclRedOp_t, ncclDataType_t

std::optional<int> nccl_type(DataType dtype) {
  if (dtype == int8) return 0;
  if (dtype == uint8) return kUint8;
  if (dtype == int32) return 2;
  if (dtype == uint32) return 3;
  if (dtype == int64) return 4;
  if (dtype == uint64) return 5;
  if (dtype == float16) return 6;
  if (dtype == float32) return 7;
  if (dtype == float64) return 8;
  if (dtype == bfloat16) return 9;
  return std::nullopt;
}

int sum_type(DataType dtype) {
  if (const auto type = nccl_type(dtype)) return *type;
  throw LaunchError(Diagnostic{{},
                               fmt::format("NCCL adds no {}", dtype.name()),
                               {"the GPUs cannot reach each other's memory, so that NCCL is used"},
                               "convert to float32, float16 or bfloat16"});
}

/// The device's primary context, current for a scope: NCCL works on the current device.
class OnDevice {
 public:
  explicit OnDevice(const Device& device) : scope_(CudaDriver::get(), context_of(device)) {}

 private:
  static CUcontext context_of(const Device& device) {
    const CudaDriver& driver = CudaDriver::get();
    CUcontext context = nullptr;
    driver.check(driver.cuDevicePrimaryCtxRetain(&context, device.backend().ordinal()), "CUDA context");
    return context;  // which Imbrex's device keeps for good
  }
  ContextScope scope_;
};

}  // namespace

struct Nccl::Library {
  int (*get_version)(int*) = nullptr;
  int (*get_unique_id)(UniqueId*) = nullptr;
  int (*init_rank)(void** communicator, int ranks, UniqueId id, int rank) = nullptr;
  int (*destroy)(void*) = nullptr;
  int (*abort)(void*) = nullptr;
  const char* (*error_string)(int) = nullptr;
  const char* (*last_error)(void*) = nullptr;
  int (*all_reduce)(const void*, void*, size_t, int type, int op, void*, void* stream) = nullptr;
  int (*all_gather)(const void*, void*, size_t, int type, void*, void* stream) = nullptr;
  int (*reduce_scatter)(const void*, void*, size_t, int type, int op, void*, void* stream) = nullptr;
  int version = 0;
  std::string why_not;

  Library() {
    const char* const told = std::getenv("IMBREX_NCCL");
    void* const library = dlopen(told != nullptr ? told : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      why_not = fmt::format("no NCCL: {}", dlerror());
      return;
    }
    const auto find = [&](auto& function, const char* symbol) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, symbol));
      if (function == nullptr && why_not.empty()) why_not = fmt::format("libnccl.so.2 lacks {}", symbol);
    };
    find(get_version, "ncclGetVersion");
    find(get_unique_id, "ncclGetUniqueId");
    find(init_rank, "ncclCommInitRank");
    find(destroy, "ncclCommDestroy");
    find(abort, "ncclCommAbort");
    find(error_string, "ncclGetErrorString");
    find(last_error, "ncclGetLastError");
    find(all_reduce, "ncclAllReduce");
    find(all_gather, "ncclAllGather");
    find(reduce_scatter, "ncclReduceScatter");
    if (!why_not.empty()) return;
    get_version(&version);
    if (version < kOldest)
      why_not = fmt::format("NCCL is of version {}.{}; Imbrex needs 2.19 or later", version / 10000,
                            version / 100 % 100);
  }
  static const Library& get() {
    static const Library library;
    return library;
  }
};

std::shared_ptr<Nccl> Nccl::make(RankLink& link, std::string* why_not) {
  const Library& library = Library::get();
  const auto told_by_all = [&](const char* call, const std::string& mine, std::string* first) {
    const std::vector<Brought> all = link.meet(call, {mine, nullptr}, {});
    for (size_t rank = 0; rank < all.size() && first->empty(); ++rank)
      if (!all[rank].text.empty()) *first = fmt::format("rank {}: {}", rank, all[rank].text);
  };
  why_not->clear();
  told_by_all("NCCL", library.why_not, why_not);
  if (!why_not->empty()) return nullptr;

  std::string failure, of_any;
  UniqueId id;
  if (link.rank == 0)
    if (const int result = library.get_unique_id(&id); result != 0) failure = library.error_string(result);
  told_by_all("NCCL's identifier", failure, &of_any);
  if (!of_any.empty()) throw DeviceError(Diagnostic{{}, "ncclGetUniqueId: " + of_any, {}, ""});
  const std::string bytes =
      link.meet("NCCL's communicator", {std::string(id.bytes, sizeof id.bytes), nullptr}, {}).front().text;
  std::memcpy(id.bytes, bytes.data(), std::min(bytes.size(), sizeof id.bytes));
  std::shared_ptr<Nccl> made(new Nccl(library, link.device));
  {
    const OnDevice scope(link.device);
    if (const int result = library.init_rank(&made->communicator_, link.size, id, link.rank); result != 0)
      failure = fmt::format("{} ({})", library.error_string(result), library.last_error(nullptr));
  }
  told_by_all("NCCL, begun", failure, &of_any);
  if (!of_any.empty()) throw DeviceError(Diagnostic{{}, "ncclCommInitRank: " + of_any, {}, ""});
  return made;
}

Nccl::~Nccl() {
  if (communicator_ == nullptr) return;
  try {
    const OnDevice scope(device_);
    library_.destroy(communicator_);
  } catch (const Error&) {
    // The context is gone, and the communicator with it.
  }
}

std::string Nccl::name() const {
  return fmt::format("NCCL {}.{}.{}", library_.version / 10000, library_.version / 100 % 100,
                     library_.version % 100);
}

void Nccl::check(int result, const char* call) const {
  if (result == 0) return;
  throw DeviceError(Diagnostic{{},
                               fmt::format("{}: {}", call, library_.error_string(result)),
                               {library_.last_error(communicator_)},
                               "NCCL_DEBUG=WARN lets NCCL tell more"});
}

void* Nccl::communicator(const char* call) const {
  if (communicator_ != nullptr) return communicator_;
  throw DeviceError(Diagnostic{
      {}, fmt::format("{}: NCCL's communicator was ended, because a rank has failed", call), {}, ""});
}

void Nccl::all_reduce(uint64_t from, uint64_t to, int64_t count, DataType dtype, CUstream_st* stream) {
  const int type = sum_type(dtype);
  const OnDevice scope(device_);
  const std::lock_guard lock(mutex_);
  check(library_.all_reduce(reinterpret_cast<const void*>(from), reinterpret_cast<void*>(to),
                            static_cast<size_t>(count), type, kSum, communicator("ncclAllReduce"), stream),
        "ncclAllReduce");
}

void Nccl::all_gather(uint64_t from, uint64_t to, int64_t bytes, CUstream_st* stream) {
  const OnDevice scope(device_);
  const std::lock_guard lock(mutex_);
  check(library_.all_gather(reinterpret_cast<const void*>(from), reinterpret_cast<void*>(to),
                            static_cast<size_t>(bytes), kUint8, communicator("ncclAllGather"), stream),
        "ncclAllGather");
}

void Nccl::reduce_scatter(uint64_t from, uint64_t to, int64_t count, DataType dtype, CUstream_st* stream) {
  const int type = sum_type(dtype);
  const OnDevice scope(device_);
  const std::lock_guard lock(mutex_);
  check(library_.reduce_scatter(reinterpret_cast<const void*>(from), reinterpret_cast<void*>(to),
                                static_cast<size_t>(count), type, kSum, communicator("ncclReduceScatter"),
                                stream),
        "ncclReduceScatter");
}

void Nccl::abort() noexcept {
  try {
    const OnDevice scope(device_);
    const std::lock_guard lock(mutex_);
    if (communicator_ != nullptr) library_.abort(std::exchange(communicator_, nullptr));
  } catch (const Error&) {
    // The context is gone, and the communicator with it.
  }
}

}  // namespace imbrex::runtime
