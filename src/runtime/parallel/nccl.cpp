// SPDX-License-Identifier: Apache-2.0
#include "runtime/parallel/nccl.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "imbrex/core/error.h"
#include "runtime/device/backend.h"
#include "runtime/driver/context_scope.h"

namespace imbrex::runtime {

namespace {

constexpr int kOldest = 21900;  // 2.19.0

/// ncclUniqueId, which is passed by value.
struct UniqueId {
  char bytes[128] = {};
};
/// ncclConfig_t as of 2.19, which later versions take by its size.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = kOldest;
  int blocking = 0;
  int cluster_size = INT_MIN, min_ctas = INT_MIN, max_ctas = INT_MIN;  // INT_MIN: NCCL's own choice
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};
constexpr int kSum = 0, kUint8 = 1;           // ncclRedOp_t, ncclDataType_t
constexpr int kSuccess = 0, kInProgress = 7;  // ncclResult_t

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
  int (*init_rank)(void** communicator, int ranks, UniqueId id, int rank, Config*) = nullptr;
  int (*async_error)(void*, int* result) = nullptr;
  int (*finalize)(void*) = nullptr;
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
    find(init_rank, "ncclCommInitRankConfig");
    find(async_error, "ncclCommGetAsyncError");
    find(finalize, "ncclCommFinalize");
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
  std::shared_ptr<Nccl> made(new Nccl(library, link.device, link.patience));
  try {
    const OnDevice scope(link.device);
    Config config;
    const int begun = library.init_rank(&made->communicator_, link.size, id, link.rank, &config);
    const int result = made->wait("ncclCommInitRankConfig", begun);
    if (result == kInProgress)
      failure = fmt::format("the ranks have not found each other within {:g} s", link.patience);
    else if (result != kSuccess)
      failure = fmt::format("{} ({})", library.error_string(result), library.last_error(nullptr));
  } catch (const Error& error) {
    failure = error.diagnostics().front().message;
  }
  if (!failure.empty()) made->abort();
  told_by_all("NCCL, begun", failure, &of_any);
  if (!of_any.empty())
    throw DeviceError(
        Diagnostic{{},
                   "NCCL cannot begin: " + of_any,
                   {},
                   "NCCL_DEBUG=WARN lets NCCL tell more; NCCL_SOCKET_IFNAME names the network"});
  return made;
}

Nccl::~Nccl() {
  try {
    const OnDevice scope(device_);
    int result = kInProgress;
    {
      const std::lock_guard lock(mutex_);
      if (communicator_ == nullptr) return;
      result = library_.finalize(communicator_);
    }
    if (wait("ncclCommFinalize", result) == kSuccess)
      library_.destroy(communicator_);
    else
      abort();
  } catch (const Error&) {
    // The context is gone, and the communicator with it.
  }
}

std::string Nccl::name() const {
  return fmt::format("NCCL {}.{}.{}", library_.version / 10000, library_.version / 100 % 100,
                     library_.version % 100);
}

void Nccl::fail(const char* name, const std::string& why) const {
  throw DeviceError(
      Diagnostic{{}, fmt::format("{}: {}", name, why), {}, "NCCL_DEBUG=WARN lets NCCL tell more"});
}

void Nccl::fail_ended(const char* name) const {
  fail(name, "NCCL's communicator was ended, because a rank has failed");
}

int Nccl::wait(const char* name, int result) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  while (result == kInProgress && Clock::now() - begin < std::chrono::duration<double>(patience_)) {
    {
      const std::lock_guard lock(mutex_);
      if (communicator_ == nullptr) fail_ended(name);
      if (const int asked = library_.async_error(communicator_, &result); asked != kSuccess) result = asked;
    }
    if (result == kInProgress) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return result;
}

void Nccl::call(const char* name, const std::function<int(void*)>& begin) {
  const OnDevice scope(device_);
  int result = kSuccess;
  {
    const std::lock_guard lock(mutex_);
    if (communicator_ == nullptr) fail_ended(name);
    result = begin(communicator_);
  }
  result = wait(name, result);
  if (result == kSuccess) return;
  if (result != kInProgress)
    fail(name, fmt::format("{} ({})", library_.error_string(result), library_.last_error(nullptr)));
  abort();
  fail(name, fmt::format("it is not connected to all ranks within {:g} s", patience_));
}

void Nccl::all_reduce(uint64_t from, uint64_t to, int64_t count, DataType dtype, CUstream_st* stream) {
  const int type = sum_type(dtype);
  call("ncclAllReduce", [&](void* communicator) {
    return library_.all_reduce(reinterpret_cast<const void*>(from), reinterpret_cast<void*>(to),
                               static_cast<size_t>(count), type, kSum, communicator, stream);
  });
}

void Nccl::all_gather(uint64_t from, uint64_t to, int64_t bytes, CUstream_st* stream) {
  call("ncclAllGather", [&](void* communicator) {
    return library_.all_gather(reinterpret_cast<const void*>(from), reinterpret_cast<void*>(to),
                               static_cast<size_t>(bytes), kUint8, communicator, stream);
  });
}

void Nccl::reduce_scatter(uint64_t from, uint64_t to, int64_t count, DataType dtype, CUstream_st* stream) {
  const int type = sum_type(dtype);
  call("ncclReduceScatter", [&](void* communicator) {
    return library_.reduce_scatter(reinterpret_cast<const void*>(from), reinterpret_cast<void*>(to),
                                   static_cast<size_t>(count), type, kSum, communicator, stream);
  });
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
