// SPDX-License-Identifier: Apache-2.0
// Registered kernels by name.
#include <fmt/format.h>

#include <bit>
#include <list>

#include "c_api/handles.h"

using namespace imbrex;
using namespace imbrex::c;

namespace {

/// The caller's arguments as KernelBase takes them, with the views that they refer to.
struct Arguments {
  std::list<DeviceTensor> tensors;
  std::vector<LaunchArgument> made;

  Arguments(const char* function, const imbrex_kernel& kernel, const imbrex_argument* given, int64_t count) {
    const std::span<const ParameterInfo> parameters = kernel.registered->entry->parameters;
    if (count != static_cast<int64_t>(parameters.size()))
      refuse(function,
             fmt::format("{}: {} arguments given, {} expected", kernel.registered->description.name, count,
                         parameters.size()),
             "give one for each parameter of operator(), in order, compile-time ones included");
    if (count > 0) require_given(function, "arguments", given);
    for (size_t i = 0; i < parameters.size(); ++i)
      made.push_back(make(function, kernel, i, parameters[i], given[i]));
  }

  LaunchArgument make(const char* function, const imbrex_kernel& kernel, size_t i,
                      const ParameterInfo& parameter, const imbrex_argument& given) {
    const std::string name = fmt::format("arguments[{}]", i);
    const auto expected = [&](const char* what) {
      refuse(function, fmt::format("{} is of kind {}, the parameter is {}", name, given.kind, what),
             "see imbrex_argument_kind");
    };
    if (parameter.kind == ParameterKind::kPointer) {
      if (given.kind == IMBREX_ARGUMENT_ADDRESS) return {given.integer, nullptr};
      if (given.kind != IMBREX_ARGUMENT_TENSOR) expected("a pointer");
      tensors.push_back(tensor_of(function, name.c_str(), kernel.device, given.tensor));
      return {0, &tensors.back()};
    }
    if (given.kind == IMBREX_ARGUMENT_INTEGER) {
      if (parameter.kind == ParameterKind::kScalar && parameter.dtype.is_float()) expected("a real number");
      return {given.integer, nullptr};
    }
    if (given.kind != IMBREX_ARGUMENT_REAL) expected("a number");
    if (parameter.kind == ParameterKind::kScalar && parameter.dtype == float32)
      return {std::bit_cast<int32_t>(static_cast<float>(given.real)), nullptr};
    if (parameter.dtype.is_integer()) expected("an integer");
    return {std::bit_cast<int64_t>(given.real), nullptr};
  }
};

}  // namespace

extern "C" {

imbrex_status imbrex_kernel_open(imbrex_device* device, const char* name, const char* configuration,
                                 imbrex_kernel** out) {
  return guard([&] {
    require_given("imbrex_kernel_open", "device", device);
    require_given("imbrex_kernel_open", "name", name);
    require_given("imbrex_kernel_open", "out", out);
    const RegisteredKernel& kernel = registered_kernel(name);
    if (!device->device.can_run(kernel.target))
      refuse("imbrex_kernel_open",
             fmt::format("{} is compiled for {}, '{}' runs {}", name, kernel.target, device->name,
                         device->target),
             "use a device of that target");
    const Configuration chosen =
        configuration == nullptr ? kernel.space.configuration(0) : kernel.space.parse(configuration);
    *out = new imbrex_kernel{device->device, &kernel, AnyKernel(kernel, chosen, device->device)};
  });
}
void imbrex_kernel_close(imbrex_kernel* kernel) { delete kernel; }
int64_t imbrex_kernel_parameter_count(const imbrex_kernel* kernel) {
  return static_cast<int64_t>(kernel->registered->entry->parameters.size());
}
imbrex_status imbrex_kernel_launch(imbrex_kernel* kernel, const imbrex_argument* arguments,
                                   int64_t argument_count, void* stream, imbrex_report** report) {
  return guard([&] {
    require_given("imbrex_kernel_launch", "kernel", kernel);
    const Arguments made("imbrex_kernel_launch", *kernel, arguments, argument_count);
    const Stream on = stream_of(kernel->device, stream);
    hand_over(kernel->kernel.launch_arguments(made.made, false, &on, {}), report);
  });
}
imbrex_status imbrex_kernel_prepare(imbrex_kernel* kernel, const imbrex_argument* arguments,
                                    int64_t argument_count) {
  return guard([&] {
    require_given("imbrex_kernel_prepare", "kernel", kernel);
    const Arguments made("imbrex_kernel_prepare", *kernel, arguments, argument_count);
    kernel->kernel.prepare_arguments(made.made);
  });
}

}  // extern "C"
