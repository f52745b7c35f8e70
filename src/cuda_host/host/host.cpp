// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/host.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "cuda_host/abi/driver_functions.h"
#include "cuda_host/abi/second_name.h"
#include "cuda_host/abi/thread_object.h"
#include "cuda_host/host/device_address_fault.h"

namespace imbrex::cuda {
namespace {

Host* g_host = nullptr;
constinit thread_local bool t_null_is_of_thread = false;
std::set<const Context*>& live_contexts() {
  static auto* live = new std::set<const Context*>;
  return *live;
}

}  // namespace

CallLock& Host::mutex() {
  static auto* mutex = new CallLock;
  return *mutex;
}

Host* Host::made() { return g_host; }

Context& Host::usable() {
  Context& context = current();
  if (context.failure != CUDA_SUCCESS) refuse(context.failure);
  return context;
}

Host& Host::get() {
  const std::lock_guard lock(mutex());
  if (g_host == nullptr) {
    g_host = new Host(Settings::from_environment());
    explain_device_address_faults();
    set_failure_listener([](const char* function, CUresult code) {
      const std::lock_guard call(mutex());
      g_host->log.failed(fmt::format("{} ({})", function, error_name(code)));
    });
    if (g_host->settings.progress) watch_over_host();
  }
  return *g_host;
}

NullStream::NullStream() : outer_(t_null_is_of_thread) { t_null_is_of_thread |= take_second_name(); }
NullStream::~NullStream() { t_null_is_of_thread = outer_; }
bool NullStream::is_of_thread() { return t_null_is_of_thread; }

void imbrexBeginTest() {
  const std::lock_guard lock(Host::mutex());
  if (g_host != nullptr) g_host->log.begin_part();
}

void imbrexNoteStandIn(const char* function) {
  const std::lock_guard lock(Host::mutex());
  Host::get().log.stood_in(function);
}

Host::Host(Settings with)
    : settings(std::move(with)),
      gpu(settings.options),
      devices(static_cast<size_t>(settings.gpus)),
      memory(gpu, settings.gpu.hbm_bytes),
      virtual_memory(gpu, memory),
      log(settings) {}

Device& Host::device(CUdevice ordinal) {
  if (ordinal < 0 || ordinal >= static_cast<int>(devices.size()))
    refuse(CUDA_ERROR_INVALID_DEVICE,
           fmt::format("device {} is asked for, there are {}", ordinal, devices.size()));
  return devices[static_cast<size_t>(ordinal)];
}

Context& Host::retain_primary(CUdevice ordinal) {
  Device& on = device(ordinal);
  if (on.primary == nullptr) {
    on.primary = std::make_unique<Context>(ordinal);
    on.primary->flags = on.primary_flags;
    on.primary->id = next_id();
    live_contexts().insert(on.primary.get());
  }
  ++on.primary_retained;
  return *on.primary;
}

Context& Host::context(CUcontext handle) {
  for (Device& one : devices)
    if (one.primary.get() == reinterpret_cast<Context*>(handle) && handle != nullptr) return *one.primary;
  if (handle == nullptr) return current();
  Context* made = contexts.find(handle);
  if (made == nullptr) refuse(CUDA_ERROR_INVALID_CONTEXT, "the context was destroyed, or never made");
  live_contexts().insert(made);
  return *made;
}

std::vector<Context*>& Host::context_stack() { return thread_object<std::vector<Context*>>(); }

Context* Host::current_or_null() {
  const std::vector<Context*>& stack = context_stack();
  if (stack.empty() || stack.back() == nullptr) return nullptr;
  Context* top = stack.back();
  return live_contexts().contains(top) ? top : nullptr;
}

Context& Host::current() {
  Context* top = current_or_null();
  if (top == nullptr)
    refuse(CUDA_ERROR_INVALID_CONTEXT,
           "this thread has no context: call cuCtxCreate, or cuDevicePrimaryCtxRetain and cuCtxSetCurrent");
  return *top;
}

void Host::forget(Context& context) {
  for (const auto& [key, stored] : context.storage)
    if (stored.destroyed != nullptr) stored.destroyed(handle_of(context), key, stored.value);
  context.storage.clear();
  for (const auto& [thread, stream] : context.thread_streams) {
    gpu.order().destroy_stream(stream->order);
    streams.destroy(stream);
  }
  context.thread_streams.clear();
  std::erase(context_stack(), &context);
  live_contexts().erase(&context);
}

Stream& Host::stream(CUstream handle) {
  constexpr uintptr_t kLegacy = 1, kPerThread = 2;
  const uintptr_t number =
      handle == nullptr && NullStream::is_of_thread() ? kPerThread : reinterpret_cast<uintptr_t>(handle);
  if (number <= kLegacy) return current().default_stream;
  if (number != kPerThread) return streams.get(handle);
  Context& context = current();
  Stream*& of_thread = context.thread_streams[std::this_thread::get_id()];
  if (of_thread == nullptr) {
    of_thread = &streams.make(&context, 0);
    of_thread->id = next_id();
    of_thread->order = gpu.order().create_stream(
        fmt::format("the default stream of thread {}", context.thread_streams.size()), true);
  }
  return *of_thread;
}

FunctionObject& Host::function(CUfunction handle) {
  if (FunctionObject* function = functions.find(handle); function != nullptr) return *function;
  if (LibraryKernel* kernel = kernels.find(handle); kernel != nullptr)
    return kernel->on(current_or_null() == nullptr ? 0 : current().device);
  return functions.get(handle);
}

}  // namespace imbrex::cuda

extern "C" __attribute__((visibility("default"))) void imbrexNullIsOfThread(bool is) {
  imbrex::cuda::t_null_is_of_thread = is;
}
