// SPDX-License-Identifier: Apache-2.0
// What the handles of imbrex/c.h are, and how exceptions become statuses.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "imbrex/c.h"
#include "imbrex/core/error.h"
#include "imbrex/runtime/device.h"
#include "imbrex/runtime/device_tensor.h"
#include "imbrex/runtime/kernel.h"
#include "imbrex/runtime/ptx_module.h"
#include "imbrex/runtime/registry.h"

struct imbrex_device {
  imbrex::Device device;
  std::string name = device.name(), target = device.target();
};

struct imbrex_report {
  imbrex::LaunchReport launch;
  std::string text;                   // of all of them
  std::vector<std::string> findings;  // and notes, formatted
};

struct imbrex_module {
  imbrex::PtxModule module;
  std::vector<std::string> names = module.kernel_names();
};

namespace imbrex::c {

/// KernelBase for a kernel whose type is known by its registration only.
class AnyKernel : public KernelBase {
 public:
  AnyKernel(const RegisteredKernel& kernel, const Configuration& configuration, const Device& device)
      : KernelBase(*kernel.entry, kernel.make(configuration), kernel.target, device) {}
  using KernelBase::launch_arguments;
  using KernelBase::prepare_arguments;
};

/// Runs `body`; what it throws becomes a status and the thread's last error.
imbrex_status guard(const std::function<void()>& body) noexcept;

/// LaunchError "<function>: <message>".
[[noreturn]] void refuse(const char* function, const std::string& message, const std::string& help,
                         std::vector<std::string> facts = {});
/// LaunchError unless `pointer` is there.
void require_given(const char* function, const char* argument, const void* pointer);
/// LaunchError unless `size` is at least that of the first version of the structure.
void require_size(const char* function, const char* structure, size_t size, size_t least);

DataType dtype_of(const char* function, int32_t code);
/// A view of the caller's memory. LaunchError names `argument`.
DeviceTensor tensor_of(const char* function, const char* argument, const Device& device,
                       const imbrex_tensor* tensor);
/// The caller's stream.
Stream stream_of(const Device& device, void* stream);

/// Gives the report to who asked for it; DeviceError with the findings where nobody did.
void hand_over(LaunchReport&& launch, imbrex_report** out);

}  // namespace imbrex::c

struct imbrex_kernel {
  imbrex::Device device;
  const imbrex::RegisteredKernel* registered;
  imbrex::c::AnyKernel kernel;
};
