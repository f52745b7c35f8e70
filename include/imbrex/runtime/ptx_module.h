// SPDX-License-Identifier: Apache-2.0
// PTX of any compiler on a device, be it a CUDA GPU or the virtual GPU.
//
//   PtxModule module(device, ptx_text, "saxpy.ptx");
//   void* arguments[] = {&n, &a, &x, &y};
//   module.launch("saxpy", {.grid = {cdiv(n, 256)}, .block = {256}, .arguments = arguments}).expect_clean();
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "imbrex/core/parse_error.h"
#include "imbrex/runtime/device.h"
#include "imbrex/runtime/stream.h"

namespace imbrex {

namespace vgpu {
struct Launch;  // imbrex/vgpu/virtual_gpu.h, which callers of launch() include
struct Parameter;
}  // namespace vgpu

/// Loaded PTX. A handle: cheap to copy.
class PtxModule {
 public:
  /// `name` stands for the text in messages. ParseError for text that is no PTX, LaunchError for a target that the
  /// device does not run. On a CUDA GPU each kernel is assembled when it is first launched.
  PtxModule(const Device& device, std::string ptx, std::string name = "module.ptx");

  const Device& device() const;
  /// Names of all kernels, in the text's order.
  std::vector<std::string> kernel_names() const;
  /// The parameters of a kernel, in order. LaunchError with the nearest name when there is none of this name.
  const std::vector<vgpu::Parameter>& parameters(std::string_view kernel) const;

  /// Launches a kernel; on a CUDA GPU without waiting. `launch` has `arguments`, one pointer to each argument's
  /// value, or a `parameter_buffer`; dynamic shared memory above 48 KiB is allowed for. LaunchError for an unknown
  /// kernel, another number of arguments, and a launch that the device refuses.
  LaunchReport launch(std::string_view kernel, const vgpu::Launch& launch, const Stream& stream = {}) const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace imbrex
