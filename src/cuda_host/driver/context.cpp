// SPDX-License-Identifier: Apache-2.0
// Contexts: primary and made, their stack per thread, limits, peers.
#include <fmt/format.h>

#include <algorithm>

#include "cuda_host/driver/answer.h"
#include "imbrex/core/error.h"

using namespace imbrex::cuda;

namespace {

/// CUDA answers a kernel's fault from every later call that waits.
void wait_for(const Context& context) {
  expect_no_capture();
  host_waits_for_everything();
  if (context.failure != CUDA_SUCCESS) refuse(context.failure);
}

void create(CUcontext* out, unsigned flags, CUdevice device) {
  Host& host = Host::get();
  host.device(device);
  Context& made = host.contexts.make(device);
  made.flags = flags;
  made.id = host.next_id();
  host.context(handle_of(made));
  host.context_stack().push_back(&made);
  not_null(out, "context") = handle_of(made);
}

void destroy(CUcontext context) {
  Host& host = Host::get();
  host_waits_for_backlog();
  host.forget(host.contexts.get(context));
  host.contexts.destroy(context);
}

void pop(CUcontext* out) {
  std::vector<Context*>& stack = Host::get().context_stack();
  if (stack.empty()) refuse(CUDA_ERROR_INVALID_CONTEXT, "this thread's stack of contexts is empty");
  if (out != nullptr) *out = handle_of(*stack.back());
  stack.pop_back();
}

constexpr int kPrintfLimit = 1, kHeapLimit = 2, kPendingLaunchesLimit = 5;

size_t default_limit(int limit) {
  switch (limit) {
    case Context::kStackLimit:
      return Context::kDefaultStack;
    case kPrintfLimit:
      return 1 << 20;
    case kHeapLimit:
      return static_cast<size_t>(Host::get().gpu.heap_bytes());
    case kPendingLaunchesLimit:
      return 64;
    default:
      return 0;
  }
}

/// Contexts share one virtual GPU, and so the heap of its kernels.
void set_heap_limit(size_t bytes) {
  try {
    Host::get().gpu.set_heap_bytes(static_cast<int64_t>(bytes));
  } catch (const imbrex::LaunchError& error) {
    refuse(CUDA_ERROR_INVALID_VALUE, error.diagnostics().front().message);
  }
}

void reset_primary(CUdevice device) {
  Host& host = Host::get();
  host_waits_for_backlog();
  Device& on = host.device(device);
  if (on.primary != nullptr) host.forget(*on.primary);
  on.primary.reset();
  on.primary_retained = 0;
  const auto has_context = [](const Device& one) { return one.primary != nullptr; };
  if (std::none_of(host.devices.begin(), host.devices.end(), has_context)) host.gpu.drop_heap();
}

}  // namespace

CUDA_API cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return answer("cuDevicePrimaryCtxRetain",
                [&] { not_null(context, "context") = handle_of(Host::get().retain_primary(device)); });
}
CUDA_API cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  return answer("cuDevicePrimaryCtxRelease", [&] {
    Device& on = Host::get().device(device);
    if (on.primary_retained == 0) refuse(CUDA_ERROR_INVALID_CONTEXT, "the primary context was not retained");
    if (--on.primary_retained == 0) reset_primary(device);
  });
}
CUDA_API cuDevicePrimaryCtxReset_v2(CUdevice device) {
  return answer("cuDevicePrimaryCtxReset", [&] { reset_primary(device); });
}
CUDA_API cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
  return answer("cuDevicePrimaryCtxSetFlags", [&] {
    constexpr unsigned kKnown = 0x1ff, kSchedules = 0x7;
    const unsigned schedule = flags & kSchedules;
    if ((flags & ~kKnown) != 0 || (schedule & (schedule - 1)) != 0)
      refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("context flags {:#x}", flags));
    Device& on = Host::get().device(device);
    on.primary_flags = flags;
    if (on.primary != nullptr) on.primary->flags = flags;
  });
}
// The first versions, of CUDA 7, differ in nothing that shows here.
CUDA_API cuDevicePrimaryCtxRelease(CUdevice device) { return cuDevicePrimaryCtxRelease_v2(device); }
CUDA_API cuDevicePrimaryCtxReset(CUdevice device) { return cuDevicePrimaryCtxReset_v2(device); }
CUDA_API cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned flags) {
  return cuDevicePrimaryCtxSetFlags_v2(device, flags);
}
CUDA_API cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  return answer("cuDevicePrimaryCtxGetState", [&] {
    const Device& on = Host::get().device(device);
    if (flags != nullptr) *flags = on.primary_flags;
    if (active != nullptr) *active = on.primary != nullptr ? 1 : 0;
  });
}

CUDA_API cuCtxCreate_v2(CUcontext* context, unsigned flags, CUdevice device) {
  return answer("cuCtxCreate", [&] { create(context, flags, device); });
}
CUDA_API cuCtxCreate_v3(CUcontext* context, void*, int, unsigned flags, CUdevice device) {
  return answer("cuCtxCreate", [&] { create(context, flags, device); });
}
CUDA_API cuCtxCreate_v4(CUcontext* context, void*, unsigned flags, CUdevice device) {
  return answer("cuCtxCreate", [&] { create(context, flags, device); });
}
CUDA_API cuCtxDestroy_v2(CUcontext context) {
  return answer("cuCtxDestroy", [&] { destroy(context); });
}
CUDA_API cuCtxAttach(CUcontext* context, unsigned) {
  return answer("cuCtxAttach", [&] {
    Context& current = Host::get().current();
    ++current.users;
    not_null(context, "context") = handle_of(current);
  });
}
CUDA_API cuCtxDetach(CUcontext context) {
  return answer("cuCtxDetach", [&] {
    if (--Host::get().contexts.get(context).users == 0) destroy(context);
  });
}
CUDA_API cuCtxPushCurrent_v2(CUcontext context) {
  return answer("cuCtxPushCurrent", [&] {
    Host& host = Host::get();
    host.context_stack().push_back(&host.context(context));
  });
}
CUDA_API cuCtxPopCurrent_v2(CUcontext* context) {
  return answer("cuCtxPopCurrent", [&] { pop(context); });
}
CUDA_API cuCtxSetCurrent(CUcontext context) {
  return answer("cuCtxSetCurrent", [&] {
    Host& host = Host::get();
    std::vector<Context*>& stack = host.context_stack();
    if (!stack.empty()) stack.pop_back();
    if (context != nullptr) stack.push_back(&host.context(context));
  });
}
CUDA_API cuCtxGetCurrent(CUcontext* context) {
  return answer("cuCtxGetCurrent", [&] {
    Context* current = Host::get().current_or_null();
    not_null(context, "context") = current == nullptr ? nullptr : handle_of(*current);
  });
}
CUDA_API cuCtxGetDevice(CUdevice* device) {
  return answer("cuCtxGetDevice", [&] {
    const Context* current = Host::get().current_or_null();
    if (current == nullptr) refuse(CUDA_ERROR_INVALID_CONTEXT);  // how programs ask whether there is one
    not_null(device, "device") = current->device;
  });
}
CUDA_API cuCtxGetDevice_v2(CUdevice* device, CUcontext context) {
  if (context == nullptr) return cuCtxGetDevice(device);
  return answer("cuCtxGetDevice", [&] { not_null(device, "device") = Host::get().context(context).device; });
}
CUDA_API cuCtxGetFlags(unsigned* flags) {
  return answer("cuCtxGetFlags", [&] { not_null(flags, "flags") = Host::get().current().flags; });
}
CUDA_API cuCtxSetFlags(unsigned flags) {
  return answer("cuCtxSetFlags", [&] { Host::get().current().flags = flags; });
}
CUDA_API cuCtxGetId(CUcontext context, unsigned long long* id) {
  return answer("cuCtxGetId", [&] { not_null(id, "id") = Host::get().context(context).id; });
}
CUDA_API cuCtxGetApiVersion(CUcontext, unsigned* version) {
  return answer("cuCtxGetApiVersion", [&] { not_null(version, "version") = 3020; });
}
CUDA_API cuCtxSynchronize() {
  return answer("cuCtxSynchronize", [&] { wait_for(Host::get().current()); });
}
CUDA_API cuCtxSynchronize_v2(CUcontext context) {
  return answer("cuCtxSynchronize", [&] { wait_for(Host::get().context(context)); });
}

CUDA_API cuCtxGetLimit(size_t* value, int limit) {
  return answer("cuCtxGetLimit", [&] {
    const Context& context = Host::get().current();
    const auto at = context.limits.find(limit);
    not_null(value, "value") = at != context.limits.end() ? at->second : default_limit(limit);
  });
}
CUDA_API cuCtxSetLimit(int limit, size_t value) {
  return answer("cuCtxSetLimit", [&] {
    constexpr int kLast = 9;
    if (limit < 0 || limit > kLast)
      refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("limit {} is not known", limit));
    if (limit == Context::kStackLimit) {
      constexpr size_t kMost = 512 << 10, kUnit = 16;
      if (value > kMost)
        refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("a stack of {} bytes, {} are the most", value, kMost));
      value = (value + kUnit - 1) / kUnit * kUnit;
    }
    Context& context = Host::get().current();
    expect_no_unsafe_capture();
    if (limit == kHeapLimit) return set_heap_limit(value);
    context.limits[limit] = value;
  });
}
CUDA_API cuCtxGetCacheConfig(int* config) {
  return answer("cuCtxGetCacheConfig", [&] { not_null(config, "config") = 0; });
}
CUDA_API cuCtxSetCacheConfig(int) {
  return answer("cuCtxSetCacheConfig", [] {});
}
CUDA_API cuCtxGetSharedMemConfig(int* config) {
  return answer("cuCtxGetSharedMemConfig", [&] { not_null(config, "config") = 1; });
}
CUDA_API cuCtxSetSharedMemConfig(int) { return CUDA_SUCCESS; }
CUDA_API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return answer("cuCtxGetStreamPriorityRange", [&] {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
  });
}
CUDA_API cuCtxResetPersistingL2Cache() { return CUDA_SUCCESS; }

CUDA_API cuCtxEnablePeerAccess(CUcontext peer, unsigned) {
  return answer("cuCtxEnablePeerAccess", [&] {
    Host& host = Host::get();
    const int device = host.context(peer).device;
    if (device == host.current().device)
      refuse(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, "a device is no peer of its own");
    bool& enabled = host.current().peers[device];
    if (enabled) refuse(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    enabled = true;
  });
}
CUDA_API cuCtxDisablePeerAccess(CUcontext peer) {
  return answer("cuCtxDisablePeerAccess", [&] {
    Host& host = Host::get();
    bool& enabled = host.current().peers[host.context(peer).device];
    if (!enabled) refuse(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    enabled = false;
  });
}
