// SPDX-License-Identifier: Apache-2.0
// Memory and events shared between processes of one user. A handle of memory names the file that the owner's
// device memory lies in, which the other process opens through /proc. Work is done when the call that gives it
// returns, so that an event of another process has nothing left to wait for.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <map>

#include "cuda_host/driver/answer.h"

using namespace imbrex::cuda;

namespace {

constexpr uint64_t kMemoryMark = 0x6D65'6D2D'7865'7262, kEventMark = 0x6576'742D'7865'7262;
constexpr int64_t kPageBytes = 4096;
constexpr unsigned kEventInterprocess = 4;

struct SharedMemoryHandle {
  uint64_t mark;
  int process, file;
  int64_t offset, bytes;
};
struct SharedEventHandle {
  uint64_t mark;
  int process;
  unsigned flags;
};

struct Opened {
  uint64_t mapped;
  int64_t mapped_bytes;
};
std::map<uint64_t, Opened>& opened() {
  static auto* all = new std::map<uint64_t, Opened>;
  return *all;
}

template <class Handle>
Handle read(const CUipcMemHandle& from, uint64_t mark, const char* what) {
  Handle handle;
  std::memcpy(&handle, &from, sizeof handle);
  if (handle.mark != mark)
    refuse(CUDA_ERROR_INVALID_VALUE,
           fmt::format("these 64 bytes are no handle of {} of the virtual GPU", what));
  return handle;
}
template <class Handle>
void write(const Handle& handle, CUipcMemHandle& to) {
  static_assert(sizeof handle <= sizeof to);
  std::memset(&to, 0, sizeof to);
  std::memcpy(&to, &handle, sizeof handle);
}

}  // namespace

CUDA_API cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  return answer("cuIpcGetMemHandle", [&] {
    Host& host = Host::get();
    const Block* block = host.memory.find(address);
    if (block == nullptr || block->kind != MemoryKind::kDevice || opened().contains(block->address) ||
        host.virtual_memory.has_access(address))
      refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("0x{:x} is not of cuMemAlloc of this process", address));
    SharedMemoryHandle shared{kMemoryMark, getpid(), -1, 0, block->bytes};
    shared.file = host.gpu.shared_file(block->address, shared.offset);
    write(shared, not_null(handle, "handle"));
  });
}

CUDA_API cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned) {
  return answer("cuIpcOpenMemHandle", [&] {
    Host& host = Host::get();
    const auto shared = read<SharedMemoryHandle>(handle, kMemoryMark, "memory");
    if (shared.process == getpid())
      refuse(CUDA_ERROR_INVALID_CONTEXT, "the memory is this process's own: use its address");
    const std::string path = fmt::format("/proc/{}/fd/{}", shared.process, shared.file);
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0)
      refuse(CUDA_ERROR_MAP_FAILED,
             fmt::format("{} cannot be opened ({}): has process {} ended, or is it another user's?", path,
                         std::strerror(errno), shared.process));
    const int64_t begin = shared.offset / kPageBytes * kPageBytes;
    const int64_t bytes = (shared.offset + shared.bytes - begin + kPageBytes - 1) / kPageBytes * kPageBytes;
    const uint64_t mapped = host.gpu.reserve_addresses(bytes);
    host.gpu.map(mapped, bytes, file, begin);
    close(file);
    const uint64_t at = mapped + static_cast<uint64_t>(shared.offset - begin);
    host.memory.adopt(at, shared.bytes, host.current().device);
    opened()[at] = {mapped, bytes};
    not_null(address, "address") = at;
  });
}
CUDA_API cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return cuIpcOpenMemHandle_v2(address, handle, flags);
}

CUDA_API cuIpcCloseMemHandle(CUdeviceptr address) {
  return answer("cuIpcCloseMemHandle", [&] {
    const auto at = opened().find(address);
    if (at == opened().end())
      refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("0x{:x} was not opened by cuIpcOpenMemHandle", address));
    host_waits_for_everything();
    Host::get().gpu.unmap(at->second.mapped, at->second.mapped_bytes);
    Host::get().memory.disown(address);
    opened().erase(at);
  });
}

// An event's handle has the size of one of memory.
CUDA_API cuIpcGetEventHandle(CUipcMemHandle* handle, CUevent event) {
  return answer("cuIpcGetEventHandle", [&] {
    const Event& made = Host::get().events.get(event);
    if ((made.flags & kEventInterprocess) == 0)
      refuse(CUDA_ERROR_INVALID_HANDLE, "the event was made without CU_EVENT_INTERPROCESS");
    write(SharedEventHandle{kEventMark, getpid(), made.flags}, not_null(handle, "handle"));
  });
}
CUDA_API cuIpcOpenEventHandle(CUevent* event, CUipcMemHandle handle) {
  return answer("cuIpcOpenEventHandle", [&] {
    const auto shared = read<SharedEventHandle>(handle, kEventMark, "an event");
    not_null(event, "event") = reinterpret_cast<CUevent>(&Host::get().events.make(shared.flags));
  });
}
