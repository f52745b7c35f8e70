// SPDX-License-Identifier: Apache-2.0
#include "imbrex/runtime/ptx_module.h"

#include <fmt/format.h>

#include "imbrex/core/error.h"
#include "imbrex/vgpu/virtual_gpu.h"
#include "runtime/device/backend.h"
#include "runtime/device/stream_handle.h"

namespace imbrex {

struct PtxModule::State {
  Device device;
  std::shared_ptr<runtime::LoadedModule> loaded;
};

PtxModule::PtxModule(const Device& device, std::string ptx, std::string name)
    : state_(std::make_shared<State>(State{device, device.backend().load_ptx(ptx, name)})) {}

const Device& PtxModule::device() const { return state_->device; }
std::vector<std::string> PtxModule::kernel_names() const { return state_->loaded->facts.function_names(); }
const std::vector<vgpu::Parameter>& PtxModule::parameters(std::string_view kernel) const {
  return state_->loaded->facts.function(kernel).parameters();  // which live as long as the module
}

LaunchReport PtxModule::launch(std::string_view kernel, const vgpu::Launch& launch,
                               const Stream& stream) const {
  const size_t expected = parameters(kernel).size();
  if (launch.parameter_buffer.empty() && launch.arguments.size() != expected)
    throw LaunchError(Diagnostic{
        {},
        fmt::format("{}: {} arguments given, {} expected", kernel, launch.arguments.size(), expected),
        {},
        "give a pointer to the value of each parameter, in order"});
  return state_->device.backend().launch_ptx(*state_->loaded, std::string(kernel), launch,
                                             runtime::handle_on(state_->device, stream, "launch"));
}

}  // namespace imbrex
