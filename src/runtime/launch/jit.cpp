// SPDX-License-Identifier: Apache-2.0
#include "runtime/launch/jit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "imbrex/core/error.h"
#include "runtime/assemble/kept_plan.h"
#include "runtime/compile/compile.h"
#include "runtime/device/stream_handle.h"
#include "runtime/device/strides.h"
#include "runtime/launch/host_program.h"

namespace imbrex::runtime {

namespace {

/// Only for a virtual GPU that checks: what is predicted or measured is the kernel that ships.
bool checks_assumptions(const Device& device) {
  return device.is_virtual() && virtual_options(device.backend()).checks.any();
}

}  // namespace

JitKernel::JitKernel(Device device, std::shared_ptr<ir::Function> function,
                     std::span<const ParameterInfo> parameters)
    : JitKernel(device, compile(*function, {.check_assumptions = checks_assumptions(device)}), parameters) {
  loaded_ = device_.backend().load(compiled_);
}

std::unique_ptr<JitKernel> JitKernel::kept(const Device& device, const std::string& identity,
                                           const std::string& target,
                                           std::span<const ParameterInfo> parameters) {
  std::optional<KeptPlan> plan = kept_plan(identity, target);
  if (!plan) return nullptr;
  std::unique_ptr<JitKernel> made(new JitKernel(device, std::move(plan->kernel), parameters));
  made->loaded_ = device.backend().load_at_hand(made->compiled_, plan->ptx_digest);
  return made->loaded_ ? std::move(made) : nullptr;
}

JitKernel::JitKernel(Device device, codegen::CompiledKernel compiled,
                     std::span<const ParameterInfo> parameters)
    : device_(std::move(device)), compiled_(std::move(compiled)), address_parts_(compiled_) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].kind == ParameterKind::kConstant) continue;
    compiled_.arguments[positions_.size()].dtype = parameters[i].dtype;
    positions_.push_back(i + 1);
  }
}

JitKernel::Prepared& JitKernel::prepared_for(std::span<const LaunchArgument> arguments) {
  const auto fits = [&](const Prepared& p) {
    if (!p.is_ready) return false;
    for (size_t i = 0; i < arguments.size(); ++i)
      if (!compiled_.arguments[i].is_pointer && arguments[i].value != p.values[i]) return false;
    return true;
  };
  if (arguments.size() == compiled_.arguments.size()) {
    if (now_ != nullptr && fits(*now_)) return *now_;
    for (const std::unique_ptr<Prepared>& p : prepared_)
      if (fits(*p)) return *p;
  }
  if (now_ != nullptr && !now_->is_ready) return *now_;
  if (prepared_.size() == kMostPrepared) {
    Prepared& reused = *prepared_[oldest_++ % kMostPrepared];
    reused.is_ready = false;
    return reused;
  }
  Prepared& made = *prepared_.emplace_back(std::make_unique<Prepared>());
  made.slots.resize(compiled_.host.size());
  made.values.resize(compiled_.arguments.size());
  made.params.resize(compiled_.param_bytes);
  made.plan.params = made.params;
  return made;
}

LaunchReport JitKernel::launch(std::span<const LaunchArgument> arguments, bool timed, CUstream_st* stream,
                               SourceLocation where) {
  if (timed) refuse_capture(compiled_.name + ": a timed launch", device_.backend(), stream);
  std::lock_guard lock(mutex_);
  now_ = &prepared_for(arguments);
  if (!std::exchange(now_->is_ready, false) || !prepare_addresses(arguments)) prepare(arguments);
  now_->is_ready = true;
  now_->plan.timed = timed;
  now_->plan.stream = stream;
  now_->plan.where = where;
  return device_.backend().launch(*loaded_, now_->plan);
}

std::vector<std::string> JitKernel::integers_given() const {
  std::vector<std::string> given;
  for (size_t i = 0; i < compiled_.arguments.size(); ++i)
    if (const codegen::ArgumentInfo& argument = compiled_.arguments[i];
        !argument.is_pointer && !argument.dtype.is_float())
      given.push_back(fmt::format("{} = {}", argument.name, now_->values[i]));
  if (given.empty()) return {};
  return {fmt::format("called with {}", fmt::join(given, ", "))};
}

void JitKernel::prepare(std::span<const LaunchArgument> arguments) {
  constexpr std::string_view kAxes = "xyz";
  check(arguments);
  for (size_t i = 0; i < arguments.size(); ++i)
    now_->values[i] = arguments[i].tensor != nullptr ? static_cast<int64_t>(arguments[i].tensor->address())
                                                     : arguments[i].value;
  evaluate_host(compiled_, now_->values, now_->slots);
  check_buffers(arguments);
  for (int i = 0; i < 3; ++i) {
    if (compiled_.grid_slots[i] < 0) continue;
    const int64_t extent = now_->slots[compiled_.grid_slots[i]];
    const int64_t limit = i == 0 ? (int64_t{1} << 31) - 1 : 65535;
    if (extent < 1 || extent > limit)
      throw LaunchError(Diagnostic{compiled_.where,
                                   fmt::format("{}: the grid's {} is {}, allowed are 1 to {}", compiled_.name,
                                               kAxes[i], extent, limit),
                                   integers_given(), "check the sizes passed to the kernel"});
    if (extent % compiled_.cluster[i] != 0)
      throw LaunchError(Diagnostic{compiled_.where,
                                   fmt::format("{}: the grid's {} is {}, not a multiple of the cluster's {}",
                                               compiled_.name, kAxes[i], extent, compiled_.cluster[i]),
                                   integers_given(), "round the grid up to whole clusters"});
    now_->plan.grid[i] = extent;
  }
  pack_params(compiled_, now_->values, now_->slots, device_.backend(), now_->params.data());
}

bool JitKernel::prepare_addresses(std::span<const LaunchArgument> arguments) {
  if (arguments.size() != now_->values.size()) return false;
  const DeviceBackend* const backend = &device_.backend();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const DeviceTensor* const tensor = arguments[i].tensor;
    const codegen::ArgumentInfo& info = compiled_.arguments[i];
    int64_t value = arguments[i].value;
    if (!info.is_pointer) {
      if (tensor != nullptr || value != now_->values[i]) return false;
      continue;
    }
    if (tensor != nullptr) {
      if (tensor->is_null() || (info.dtype != any_type && tensor->dtype() != info.dtype) ||
          &tensor->device().backend() != backend)
        return false;
      value = static_cast<int64_t>(tensor->address());
    }
    // The alignment is a power of 2.
    if (value == 0 || (value & (info.alignment - 1)) != 0) return false;
    now_->values[i] = value;
  }
  address_parts_.update(compiled_, now_->values, now_->slots, device_.backend(), now_->params.data());
  for (const codegen::BufferNeed& need : compiled_.buffers) {
    const DeviceTensor* const tensor = arguments[need.argument].tensor;
    if (tensor != nullptr && (!tensor->is_dense() || now_->slots[need.bytes_slot] > tensor->bytes()))
      return false;
  }
  return true;
}

namespace {

/// "-128 to 127", where `value` is not what an integer type holds; "" where it is.
std::string range_without(DataType type, int64_t value) {
  if (type.is_bool()) return value == 0 || value == 1 ? "" : "0 to 1";
  if (!type.is_integer() || type.bits() == 64) return "";
  const int64_t count = int64_t{1} << type.bits();
  const int64_t low = type.is_signed() ? -count / 2 : 0, high = low + count - 1;
  return value >= low && value <= high ? "" : fmt::format("{} to {}", low, high);
}

}  // namespace

std::string JitKernel::argument_text(size_t i) const {
  const std::string& name = compiled_.arguments[i].name;
  const std::string text = fmt::format("{}: argument {}", compiled_.name, positions_[i]);
  const bool is_invented = name == fmt::format("arg{}", i);  // by the trace, which did not find the source
  return is_invented ? text : fmt::format("{} ({})", text, name);
}

void JitKernel::check(std::span<const LaunchArgument> arguments) const {
  auto fail = [&](size_t i, const std::string& what, const std::string& help) {
    throw LaunchError(Diagnostic{compiled_.where, argument_text(i) + " " + what, {}, help});
  };
  if (arguments.size() != compiled_.arguments.size())
    throw LaunchError(Diagnostic{compiled_.where,
                                 fmt::format("{}: {} run-time arguments given, {} expected", compiled_.name,
                                             arguments.size(), compiled_.arguments.size()),
                                 {},
                                 "give one for each run-time parameter of operator(), in order"});
  for (size_t i = 0; i < arguments.size(); ++i) {
    const codegen::ArgumentInfo& info = compiled_.arguments[i];
    if (!info.is_pointer) {
      if (const std::string range = range_without(info.dtype, arguments[i].value); !range.empty())
        fail(i, fmt::format("is {}, {} holds {}", arguments[i].value, info.dtype.name(), range),
             "declare a wider parameter or pass a smaller number");
      continue;
    }
    const DeviceTensor* tensor = arguments[i].tensor;
    if (tensor == nullptr) {
      if (arguments[i].value == 0) fail(i, "is a null pointer", "pass an allocated tensor");
      if (arguments[i].value % info.alignment != 0)
        fail(i, fmt::format("is at address 0x{:x}, not a multiple of {}", arguments[i].value, info.alignment),
             "align the buffer");
      continue;
    }
    if (tensor->is_null()) fail(i, "is a null tensor", "make it with DeviceTensor::empty or from_host");
    if (tensor->address() == 0) fail(i, "has been released", "launch before release()");
    if (info.dtype != any_type && tensor->dtype() != info.dtype)
      fail(i,
           fmt::format("is a tensor of {}, the kernel takes {}", tensor->dtype().name(), info.dtype.name()),
           "convert the tensor or use another kernel");
    if (tensor->device().shared_backend() != device_.shared_backend())
      fail(i,
           fmt::format("lives on '{}', the kernel runs on {}'{}'", tensor->device().name(),
                       tensor->device().name() == device_.name() ? "another of that name, " : "",
                       device_.name()),
           "copy the tensor to the kernel's device");
    if (tensor->address() % info.alignment != 0)
      fail(i, fmt::format("is at address 0x{:x}, not a multiple of {}", tensor->address(), info.alignment),
           "align the buffer");
  }
}

/// A kernel that knows nothing of strides must not be given a tensor that has some.
void JitKernel::check_strides(const codegen::BufferNeed& need, const DeviceTensor& tensor) const {
  Extents extents, strides;
  for (int32_t slot : need.extents) extents.push_back(now_->slots[slot]);
  for (int32_t slot : need.strides) strides.push_back(now_->slots[slot]);
  const int64_t run = dense_prefix(tensor.shape(), tensor.strides()) * tensor.dtype().bits();
  if (!is_dense(extents, strides) || 8 * now_->slots[need.bytes_slot] <= run) return;
  throw LaunchError(Diagnostic{
      need.where,
      fmt::format("{} is not dense, and the kernel views it as if it were", argument_text(need.argument)),
      {fmt::format("tensor  {}[{}] with strides [{}]", tensor.dtype().name(), fmt::join(tensor.shape(), ", "),
                   fmt::join(tensor.strides(), ", ")),
       fmt::format("view    [{}] with strides [{}]", fmt::join(extents, ", "), fmt::join(strides, ", "))},
      "pass a dense copy, or let the kernel take the strides: global_view(pointer, dtype, shape, strides); "
      "an "
      "address (tensor.address()) is not checked"});
}

void JitKernel::check_buffers(std::span<const LaunchArgument> arguments) const {
  for (const codegen::BufferNeed& need : compiled_.buffers) {
    const DeviceTensor* tensor = arguments[need.argument].tensor;
    if (tensor == nullptr) continue;
    if (!tensor->is_dense()) check_strides(need, *tensor);
    if (now_->slots[need.bytes_slot] <= tensor->bytes()) continue;
    throw LaunchError(
        Diagnostic{need.where,
                   fmt::format("{} is too small: the kernel views {} bytes, the tensor has {}",
                               argument_text(need.argument), now_->slots[need.bytes_slot], tensor->bytes()),
                   {fmt::format("tensor  {}[{}]", tensor->dtype().name(), fmt::join(tensor->shape(), ", "))},
                   "pass a larger tensor or smaller sizes"});
  }
}

}  // namespace imbrex::runtime
