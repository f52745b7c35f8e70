// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "core/target.h"
#include "imbrex/core/error.h"
#include "imbrex/inspect/written_parameters.h"
#include "imbrex/runtime/kernel.h"
#include "lang/trace.h"
#include "runtime/assemble/kept_plan.h"
#include "runtime/cache/tuned.h"
#include "runtime/compile/compile.h"
#include "runtime/device/stream_handle.h"
#include "runtime/launch/first_call_tuning.h"
#include "runtime/launch/jit.h"

namespace imbrex {

void detail::constant_does_not_fit(int64_t value, int bits, bool is_signed) {
  throw LaunchError(
      Diagnostic{{},
                 fmt::format("a compile-time argument is {}, the kernel's parameter has {} bits{}", value,
                             bits, is_signed ? "" : " and no sign"),
                 {},
                 "declare a wider parameter or pass a smaller number"});
}

namespace {

/// What a kernel picks its configuration by, and what it picked so far.
struct Tuned {
  KernelBase::Family family;
  std::map<std::vector<int64_t>, KernelBase*> by_shape;
  std::map<std::string, std::unique_ptr<KernelBase>> by_config;  // "": the default
  std::optional<AutotuneOptions> autotune;                       // where first calls tune
};

std::vector<int64_t> constants_of(const KernelEntry& entry, std::span<const LaunchArgument> arguments) {
  std::vector<int64_t> constants;
  for (size_t i = 0; i < arguments.size(); ++i)
    if (entry.parameters[i].kind == ParameterKind::kConstant) constants.push_back(arguments[i].value);
  return constants;
}

/// The stream that a call launches on; none where it only prepares.
using LaunchedOn = std::optional<runtime::CUstream_st*>;

constexpr size_t kMostParameters = 64;  // of a kernel: arguments are sorted on the stack

}  // namespace

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

  std::string members;  // all that operator() depends on; meant where has_identity
  bool has_identity = false;

  std::unique_ptr<Tuned> tuned;
  std::vector<int64_t> last_shape;
  KernelBase* last_tuned = nullptr;

  /// The kernel with the configuration of the nearest shape that still is what was tuned and that compiles
  /// for these arguments.
  KernelBase* pick(std::span<const LaunchArgument> arguments, const std::vector<int64_t>& shape);
  /// The kernel with the configuration tuned for this very shape, now if it was not before.
  KernelBase* tune(std::span<const LaunchArgument> arguments, const std::vector<int64_t>& shape);
  /// What a compiled kernel with these constants is kept as; "" where it is not.
  std::string identity(std::span<const int64_t> constants) const;
  std::unique_ptr<runtime::JitKernel> compile(const std::vector<int64_t>& constants) const;
  runtime::JitKernel* prepare(std::span<const LaunchArgument> arguments, LaunchedOn stream);
  /// The kernel for the shape of these arguments: picked, or as it was the last time.
  KernelBase* choose(std::span<const LaunchArgument> arguments, LaunchedOn stream);
  std::vector<int64_t> shape_of(std::span<const LaunchArgument> arguments) const;
  /// LaunchError without a device, and for more parameters than a call has room for.
  void require_callable(std::span<const LaunchArgument> arguments) const;
  /// LaunchError where what would be launched next must be compiled first, but the stream is being captured.
  void require_may_compile(LaunchedOn stream) const;
  /// The kernel with the configuration of this text.
  KernelBase* with(const std::string& config);
};

KernelBase* KernelBase::State::with(const std::string& config) {
  std::unique_ptr<KernelBase>& made = tuned->by_config[config];
  if (!made)
    made = std::make_unique<KernelBase>(*entry, tuned->family.make(tuned->family.space.parse(config)), target,
                                        device);
  return made.get();
}

KernelBase* KernelBase::State::pick(std::span<const LaunchArgument> arguments,
                                    const std::vector<int64_t>& shape) {
  const std::vector<runtime::TunedRecord> records = runtime::by_distance(
      runtime::all_tuned(Cache::shared(), std::string(entry->type_name), target, runtime::tuned_on(*device)),
      shape, entry->parameters);
  for (const runtime::TunedRecord& record : records) {
    try {
      // The arguments that the record was tuned with, to see whether the kernel still is the same.
      std::vector<LaunchArgument> then(arguments.begin(), arguments.end());
      size_t next = 0;
      for (size_t i = 0; i < then.size(); ++i)
        if (runtime::is_in_shape(entry->parameters[i])) then[i].value = record.shape[next++];
      const auto traced = lang::trace(*entry, kernel.get(), constants_of(*entry, then), target);
      if (runtime::code_digest(*traced) != record.code) continue;
      KernelBase* candidate = with(record.config);
      const std::lock_guard lock(candidate->state_->mutex);  // a thread with another shape may be using it
      candidate->state_->prepare(arguments, std::nullopt);
      return candidate;
    } catch (const CompileError&) {
      // Not for these sizes; the next nearest may be.
    }
  }
  return with("");
}

KernelBase* KernelBase::State::tune(std::span<const LaunchArgument> arguments,
                                    const std::vector<int64_t>& shape) {
  const std::shared_ptr<ir::Function> traced =
      lang::trace(*entry, kernel.get(), constants_of(*entry, arguments), target);
  const std::string code = runtime::code_digest(*traced);
  const CacheKey key =
      runtime::tuned_key(std::string(entry->type_name), target, runtime::tuned_on(*device), shape, code);
  if (const auto record = runtime::load_tuned(Cache::shared(), key);
      record && runtime::configuration_of(*record, tuned->family.space))
    return with(record->config);

  runtime::FirstCallTuning tuning{.device = *device, .seconds = tuned->autotune->seconds};
  const std::vector<bool> written = written_parameters(*traced);
  size_t run_time = 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (entry->parameters[i].kind == ParameterKind::kConstant) continue;
    const DeviceTensor* const tensor = arguments[i].tensor;
    if (tensor != nullptr) bytes += tensor->bytes();
    if (!written[run_time++]) continue;
    // What cannot be saved cannot be restored; what is wrong with a tensor is said by the launch.
    if (tensor == nullptr || tensor->address() == 0 || tensor->may_overlap()) return pick(arguments, shape);
    tuning.written.push_back(*tensor);
  }
  for (const Configuration& configuration : tuned->family.space.configurations())
    tuning.configurations.push_back(tuned->family.space.to_string(configuration));
  tuning.prepare = [&](const std::string& configuration) {
    with(configuration)->prepare_arguments(arguments);
  };
  tuning.launch = [&](const std::string& configuration) {
    return with(configuration)->launch_arguments(arguments, true, nullptr, {});
  };
  if (runtime::call_references != nullptr)
    tuning.reference = runtime::call_references(*entry, *device, shape, bytes, tuning.seconds);
  AutotuneReport report = runtime::tune_first_call(tuning);
  report.kernel = traced->name;
  report.shape = shape;
  runtime::store_tuned(Cache::shared(), key,
                       {shape, {}, code, report.config, report.microseconds, device->is_virtual()});
  if (tuned->autotune->report) tuned->autotune->report(report);
  return with(report.config);
}

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

std::shared_ptr<ir::Function> KernelBase::trace_arguments(std::span<const LaunchArgument> arguments,
                                                          const std::string& target) const {
  return lang::trace(*state_->entry, state_->kernel.get(), constants_of(*state_->entry, arguments),
                     target.empty() ? state_->target : target);
}

std::vector<int64_t> KernelBase::State::shape_of(std::span<const LaunchArgument> arguments) const {
  std::vector<int64_t> shape;
  for (size_t i = 0; i < arguments.size(); ++i)
    if (runtime::is_in_shape(entry->parameters[i])) shape.push_back(arguments[i].value);
  return shape;
}
std::vector<int64_t> KernelBase::shape_of(std::span<const LaunchArgument> arguments) const {
  return state_->shape_of(arguments);
}

void KernelBase::use_tuned(Family family, std::optional<AutotuneOptions> autotune) {
  state_->tuned = std::make_unique<Tuned>();
  state_->tuned->family = std::move(family);
  if (autotune && autotune->enabled && runtime::is_autotuning_allowed())
    state_->tuned->autotune = std::move(autotune);
}

void KernelBase::State::require_callable(std::span<const LaunchArgument> arguments) const {
  if (!device)
    throw LaunchError(
        Diagnostic{{}, "this kernel was made without a device", {}, "pass a Device to its constructor"});
  if (arguments.size() > kMostParameters) throw InternalError("a kernel of more than 64 parameters");
}

void KernelBase::State::require_may_compile(LaunchedOn stream) const {
  if (stream.has_value() && device->backend().is_capturing(*stream))
    throw LaunchError(Diagnostic{
        {},
        fmt::format("{}: a call with {} that were not used before {}, and the stream is being captured into "
                    "a CUDA graph",
                    entry->type_name, tuned ? "sizes" : "compile-time arguments",
                    tuned && tuned->autotune ? "tunes" : "compiles"),
        {},
        "call prepare(...) of the kernel with the same arguments before the capture begins; for matmul, "
        "prepare_matmul(...)"});
}

std::string KernelBase::State::identity(std::span<const int64_t> constants) const {
  if (!has_identity || !runtime::is_compiled_as_usual()) return "";
  return fmt::format("{}\n{}\n{}", entry->type_name, members, fmt::join(constants, ","));
}

std::unique_ptr<runtime::JitKernel> KernelBase::State::compile(const std::vector<int64_t>& constants) const {
  const std::string compiled_for = target_for(target, device->target()).value_or(target);
  const std::string known_as = device->is_virtual() ? "" : identity(constants);  // which runs PTX
  if (!known_as.empty())
    if (auto kept = runtime::JitKernel::kept(*device, known_as, compiled_for, entry->parameters)) return kept;
  auto made = std::make_unique<runtime::JitKernel>(
      *device, lang::trace(*entry, kernel.get(), constants, compiled_for), entry->parameters);
  if (!known_as.empty()) runtime::keep_plan(made->compiled(), known_as, compiled_for, Cache::shared());
  return made;
}

void KernelBase::keep_compiled_as(std::string members) {
  const std::string_view type = state_->entry->type_name;
  for (const char* local : {"{anonymous}", "(anonymous", "<lambda", "(lambda", "<unnamed"})
    if (type.find(local) != std::string_view::npos) return;
  state_->members = std::move(members);
  state_->has_identity = true;
}

void KernelBase::ship_arguments(Cache& folder, std::span<const LaunchArgument> arguments) const {
  const std::vector<int64_t> constants = constants_of(*state_->entry, arguments);
  const auto traced = lang::trace(*state_->entry, state_->kernel.get(), constants, state_->target);
  runtime::ship(*traced, state_->identity(constants), folder);
}

/// Compiled for these constants, or as it was the last time. Call with the mutex held.
runtime::JitKernel* KernelBase::State::prepare(std::span<const LaunchArgument> arguments, LaunchedOn stream) {
  int64_t constants[kMostParameters];
  size_t count = 0;
  for (size_t i = 0; i < arguments.size(); ++i)
    if (entry->parameters[i].kind == ParameterKind::kConstant) constants[count++] = arguments[i].value;
  if (last == nullptr || last_constants.size() != count ||
      !std::equal(constants, constants + count, last_constants.begin())) {
    std::vector<int64_t> key(constants, constants + count);
    std::unique_ptr<runtime::JitKernel>& made = compiled[key];
    if (!made) {
      require_may_compile(stream);
      made = compile(key);
    }
    last = made.get();
    last_constants = std::move(key);
  }
  return last;
}

KernelBase* KernelBase::State::choose(std::span<const LaunchArgument> arguments, LaunchedOn stream) {
  std::lock_guard lock(mutex);
  size_t place = 0;
  bool is_same = last_tuned != nullptr;
  for (size_t i = 0; i < arguments.size() && is_same; ++i)
    if (runtime::is_in_shape(entry->parameters[i])) is_same = arguments[i].value == last_shape[place++];
  if (!is_same) {
    std::vector<int64_t> shape = shape_of(arguments);
    KernelBase*& known = tuned->by_shape[shape];
    if (known == nullptr) {
      require_may_compile(stream);
      known = tuned->autotune ? tune(arguments, shape) : pick(arguments, shape);
    }
    last_shape = std::move(shape);
    last_tuned = known;
  }
  return last_tuned;
}

LaunchReport KernelBase::launch_arguments(std::span<const LaunchArgument> arguments, bool timed,
                                          const Stream* stream, SourceLocation where) {
  State& state = *state_;
  state.require_callable(arguments);
  runtime::CUstream_st* const handle = stream == nullptr
                                           ? state.device->backend().stream()
                                           : runtime::handle_on(*state.device, *stream, "launch");
  if (state.tuned) return state.choose(arguments, handle)->launch_arguments(arguments, timed, stream, where);
  const std::span<const ParameterInfo> parameters = state.entry->parameters;
  LaunchArgument run_time[kMostParameters];
  size_t run_time_count = 0;
  for (size_t i = 0; i < arguments.size(); ++i)
    if (parameters[i].kind != ParameterKind::kConstant) run_time[run_time_count++] = arguments[i];
  runtime::JitKernel* kernel = nullptr;
  {
    std::lock_guard lock(state.mutex);
    kernel = state.prepare(arguments, handle);
  }
  return kernel->launch({run_time, run_time_count}, timed, handle, where);
}

void KernelBase::prepare_arguments(std::span<const LaunchArgument> arguments) {
  State& state = *state_;
  state.require_callable(arguments);
  if (state.tuned) return state.choose(arguments, std::nullopt)->prepare_arguments(arguments);
  std::lock_guard lock(state.mutex);
  state.prepare(arguments, std::nullopt);
}

}  // namespace imbrex
