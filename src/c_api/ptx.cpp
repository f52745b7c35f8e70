// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "c_api/handles.h"
#include "imbrex/vgpu/virtual_gpu.h"

using namespace imbrex;
using namespace imbrex::c;

namespace {

vgpu::Dim3 extents(const char* what, const int64_t (&given)[3]) {
  for (const int64_t extent : given)
    if (extent < 0)
      refuse("imbrex_module_launch", fmt::format("an extent of the {} is {}", what, extent),
             "extents are 1 or more, or 0 for 1");
  const auto or_one = [](int64_t extent) { return extent == 0 ? 1 : extent; };
  return {or_one(given[0]), or_one(given[1]), or_one(given[2])};
}

/// The kernel asked for; without a name the only one.
std::string_view chosen(const imbrex_module& module, const char* kernel) {
  if (kernel != nullptr) return kernel;
  if (module.names.size() != 1)
    refuse("imbrex_module_launch", fmt::format("the module has {} kernels", module.names.size()),
           fmt::format("name one of them: {}", fmt::join(module.names, ", ")));
  return module.names.front();
}

}  // namespace

extern "C" {

imbrex_status imbrex_module_load(imbrex_device* device, const char* ptx, const char* name,
                                 imbrex_module** out) {
  return guard([&] {
    require_given("imbrex_module_load", "device", device);
    require_given("imbrex_module_load", "ptx", ptx);
    require_given("imbrex_module_load", "out", out);
    *out = new imbrex_module{PtxModule(device->device, ptx, name == nullptr ? "module.ptx" : name)};
  });
}
void imbrex_module_close(imbrex_module* module) { delete module; }
int64_t imbrex_module_kernel_count(const imbrex_module* module) {
  return static_cast<int64_t>(module->names.size());
}
const char* imbrex_module_kernel_name(const imbrex_module* module, int64_t index) {
  if (index < 0 || index >= imbrex_module_kernel_count(module)) return nullptr;
  return module->names[static_cast<size_t>(index)].c_str();
}

imbrex_status imbrex_module_launch(imbrex_module* module, const char* kernel, const imbrex_launch* launch,
                                   void* const* arguments, int64_t argument_count, void* stream,
                                   imbrex_report** report) {
  return guard([&] {
    require_given("imbrex_module_launch", "module", module);
    require_given("imbrex_module_launch", "launch", launch);
    require_size("imbrex_module_launch", "imbrex_launch", launch->struct_size, sizeof *launch);
    if (argument_count < 0)
      refuse("imbrex_module_launch", fmt::format("{} arguments", argument_count), "a count is 0 or more");
    if (argument_count > 0) require_given("imbrex_module_launch", "arguments", arguments);
    for (int64_t i = 0; i < argument_count; ++i)
      if (arguments[i] == nullptr)
        require_given("imbrex_module_launch", fmt::format("arguments[{}]", i).c_str(), nullptr);
    vgpu::Launch plan;
    plan.grid = extents("grid", launch->grid);
    plan.block = extents("block", launch->block);
    plan.cluster = extents("cluster", launch->cluster);
    plan.dynamic_shared_bytes = launch->dynamic_shared_bytes;
    plan.arguments = {arguments, static_cast<size_t>(argument_count)};
    const Device& device = module->module.device();
    hand_over(module->module.launch(chosen(*module, kernel), plan, stream_of(device, stream)), report);
  });
}

}  // extern "C"
