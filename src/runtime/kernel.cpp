// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <map>
#include <mutex>
#include <vector>

#include "imbrex/error.h"
#include "imbrex/runtime.h"
#include "lang/trace.h"
#include "runtime/jit.h"

namespace imbrex {

void detail::constant_does_not_fit(int64_t value, int bits, bool is_signed) {
  throw LaunchError(
      Diagnostic{{},
                 fmt::format("a compile-time argument is {}, the kernel's parameter has {} bits{}", value,
                             bits, is_signed ? "" : " and no sign"),
                 {},
                 "declare a wider parameter or pass a smaller number"});
}

struct KernelBase::State {
  const KernelEntry* entry;
  std::shared_ptr<const void> kernel;
  std::string target;
  std::optional<Device> device;

  std::mutex mutex;
  std::map<std::vector<int64_t>, std::unique_ptr<runtime::JitKernel>> compiled;
  // The last kernel used, so that a warm launch with the same constants neither allocates nor searches.
  std::vector<int64_t> last_constants;
  runtime::JitKernel* last = nullptr;
};

KernelBase::KernelBase(const KernelEntry& entry, std::shared_ptr<const void> kernel, std::string target,
                       std::optional<Device> device)
    : state_(std::make_unique<State>()) {
  state_->entry = &entry;
  state_->kernel = std::move(kernel);
  state_->target = std::move(target);
  state_->device = std::move(device);
}
KernelBase::~KernelBase() = default;
KernelBase::KernelBase(KernelBase&&) noexcept = default;
KernelBase& KernelBase::operator=(KernelBase&&) noexcept = default;

std::shared_ptr<ir::Function> KernelBase::trace_arguments(std::span<const LaunchArgument> arguments) const {
  std::vector<int64_t> constants;
  for (size_t i = 0; i < arguments.size(); ++i)
    if (state_->entry->parameters[i].kind == ParameterKind::kConstant)
      constants.push_back(arguments[i].value);
  return lang::trace(*state_->entry, state_->kernel.get(), constants, state_->target);
}

LaunchReport KernelBase::launch_arguments(std::span<const LaunchArgument> arguments, bool timed) {
  if (!state_->device)
    throw LaunchError(
        Diagnostic{{}, "this kernel was made without a device", {}, "pass a Device to its constructor"});
  const std::span<const ParameterInfo> parameters = state_->entry->parameters;
  constexpr size_t kOnStack = 64;
  int64_t constants[kOnStack];
  LaunchArgument run_time[kOnStack];
  size_t constant_count = 0, run_time_count = 0;
  if (arguments.size() > kOnStack) throw InternalError("a kernel of more than 64 parameters");
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (parameters[i].kind == ParameterKind::kConstant)
      constants[constant_count++] = arguments[i].value;
    else
      run_time[run_time_count++] = arguments[i];
  }
  runtime::JitKernel* kernel = nullptr;
  {
    std::lock_guard lock(state_->mutex);
    if (state_->last == nullptr || state_->last_constants.size() != constant_count ||
        !std::equal(constants, constants + constant_count, state_->last_constants.begin())) {
      std::vector<int64_t> key(constants, constants + constant_count);
      std::unique_ptr<runtime::JitKernel>& entry = state_->compiled[key];
      if (!entry)
        entry = std::make_unique<runtime::JitKernel>(*state_->device, trace_arguments(arguments), parameters);
      state_->last = entry.get();
      state_->last_constants = std::move(key);
    }
    kernel = state_->last;
  }
  return kernel->launch({run_time, run_time_count}, timed);
}

}  // namespace imbrex
