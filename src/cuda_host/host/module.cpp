// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/host/module.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <set>

#include "core/target.h"
#include "cuda_host/host/host.h"
#include "imbrex/core/error.h"
#include "imbrex/core/nearest.h"

namespace imbrex::cuda {
namespace {

/// "9.0" of `.version 9.0` as 90.
int version_of(const std::string& ptx) {
  const size_t at = ptx.find(".version");
  if (at == std::string::npos) return 0;
  return static_cast<int>(std::atof(ptx.c_str() + at + 8) * 10 + 0.5);
}

int capability(const std::string& target) { return std::atoi(target.c_str() + 3); }

void save(const std::string& folder, const std::string& name, const std::string& ptx) {
  std::ofstream file(folder + "/" + name);
  file << ptx;
  if (!file) tell_once(fmt::format("IMBREX_SAVE_PTX: cannot write {}/{}", folder, name));
}

}  // namespace

ModuleObject::ModuleObject(const std::string& ptx, int device)
    : device_(device), ptx_version_(version_of(ptx)) {
  Host& host = Host::get();
  name_ = fmt::format("module-{}.ptx", host.next_id());
  if (!host.settings.saved_ptx.empty()) save(host.settings.saved_ptx, name_, ptx);
  module_ = host.gpu.load_module(ptx, name_);
  for (const auto& [name, variable] : module_.globals()) {
    if (variable.kind == vgpu::VariableKind::kManaged) managed_.insert(name);
    if (variable.kind == vgpu::VariableKind::kDevice) has_device_variables_ = true;
  }
}

ModuleObject::~ModuleObject() {
  Host& host = Host::get();
  for (const uint64_t address : adopted_) host.memory.disown(address);
  for (const auto& [name, function] : functions_) host.functions.destroy(function);
}

FunctionObject& ModuleObject::function(const std::string& name) {
  if (const auto at = functions_.find(name); at != functions_.end()) return *at->second;
  const std::vector<std::string> names = function_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    const std::string near = nearest_word(name, names);
    refuse(CUDA_ERROR_NOT_FOUND, fmt::format("the module has no kernel '{}'{}", name,
                                             near.empty() ? "" : fmt::format("; did you mean '{}'?", near)));
  }
  FunctionObject& made = Host::get().functions.make(*this, module_.function(name));
  functions_[name] = &made;
  return made;
}

vgpu::GlobalVariable ModuleObject::global(const std::string& name) {
  vgpu::GlobalVariable variable;
  try {
    variable = module_.global(name);
  } catch (const LaunchError& error) {
    refuse(CUDA_ERROR_NOT_FOUND, error.diagnostics().front().message);
  }
  Host& host = Host::get();
  if (host.memory.find(variable.address) == nullptr) {
    host.memory.adopt(
        variable.address, variable.bytes, device_,
        variable.kind == vgpu::VariableKind::kManaged ? MemoryKind::kManaged : MemoryKind::kDevice);
    adopted_.push_back(variable.address);
  }
  return variable;
}

int FunctionObject::attribute(int which) const {
  const vgpu::FunctionAttributes a = function.attributes();
  const int target = capability(Host::get().settings.gpu.target);
  switch (which) {
    case kFuncMaxThreads:
      return a.max_threads;
    case kFuncSharedBytes:
      return static_cast<int>(a.static_shared_bytes);
    case kFuncConstBytes:
      return static_cast<int>(a.constant_bytes);
    case kFuncLocalBytes:
      return static_cast<int>(a.local_bytes);
    // Virtual registers say little about real ones; 32 is what small kernels take, and no assembler runs here.
    case kFuncRegisters:
      return 32;
    case kFuncPtxVersion:
    case kFuncBinaryVersion:
      return target;
    case kFuncMaxDynamicShared:
      return static_cast<int>(a.max_dynamic_shared_bytes);
    case kFuncClusterMustBeSet:
      return a.required_cluster.x > 0 ? 1 : 0;
    case kFuncClusterWidth:
      return static_cast<int>(a.required_cluster.x);
    case kFuncClusterHeight:
      return static_cast<int>(a.required_cluster.y);
    case kFuncClusterDepth:
      return static_cast<int>(a.required_cluster.z);
    case kFuncCacheModeCa:
    case kFuncPreferredCarveout:
    case kFuncNonPortableCluster:
    case kFuncClusterScheduling: {
      const auto at = attributes.find(which);
      return at != attributes.end() ? at->second : which == kFuncPreferredCarveout ? -1 : 0;
    }
    default:
      refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("function attribute {} is not known", which));
  }
}

void FunctionObject::set_attribute(int which, int value) {
  switch (which) {
    case kFuncMaxDynamicShared:
      function.set_max_dynamic_shared(value);
      return;
    case kFuncPreferredCarveout:
    case kFuncNonPortableCluster:
    case kFuncClusterMustBeSet:
    case kFuncClusterWidth:
    case kFuncClusterHeight:
    case kFuncClusterDepth:
    case kFuncClusterScheduling:
      attributes[which] = value;
      return;
    case kFuncSharedMemoryMode:
      refuse(
          CUDA_ERROR_INVALID_VALUE);  // as the driver of CUDA 13.0, which Triton asks to see whether it knows it
    default:
      refuse(CUDA_ERROR_INVALID_VALUE, fmt::format("function attribute {} cannot be set", which));
  }
}

FunctionObject& LibraryKernel::on(int device) { return library.on(device).function(name); }

ModuleObject& Library::on(int device) {
  if (!modules_.empty() && !modules_.contains(device)) {
    ModuleObject& first = *modules_.begin()->second;
    if (!first.managed().empty() && first.has_device_variables())
      refuse(
          CUDA_ERROR_NOT_SUPPORTED,
          fmt::format("a module with the __managed__ variable '{}' and with __device__ variables runs on one "
                      "device only here; allocate what devices share with cudaMallocManaged",
                      *first.managed().begin()));
    if (!first.managed().empty()) return first;
  }
  std::unique_ptr<ModuleObject>& module = modules_[device];
  if (module == nullptr) module = std::make_unique<ModuleObject>(ptx_, device);
  return *module;
}

vgpu::GlobalVariable Library::managed(const std::string& name) {
  ModuleObject& module = on(modules_.empty() ? 0 : modules_.begin()->first);
  if (!module.managed().contains(name))
    refuse(CUDA_ERROR_NOT_FOUND, fmt::format("the library has no managed variable '{}'", name));
  return module.global(name);
}

LibraryKernel& Library::kernel(const std::string& name) {
  if (const auto at = kernels_.find(name); at != kernels_.end()) return *at->second;
  on(0).function(name);  // CUDA_ERROR_NOT_FOUND where there is none
  LibraryKernel& made = Host::get().kernels.make(*this, name);
  kernels_[name] = &made;
  return made;
}

}  // namespace imbrex::cuda
