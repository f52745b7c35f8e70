// SPDX-License-Identifier: Apache-2.0
// What is loaded on a CUDA GPU.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/device/backend.h"
#include "runtime/driver/cuda_driver.h"

namespace imbrex::runtime {

/// A module, unloaded with it by its device; null until it is loaded.
struct OwnedModule {
  class Owner {
   public:
    virtual void unload(CUmodule module) noexcept = 0;

   protected:
    ~Owner() = default;
  };
  Owner& device;
  CUmodule handle = nullptr;

  explicit OwnedModule(Owner& owner) : device(owner) {}
  OwnedModule(const OwnedModule&) = delete;
  OwnedModule& operator=(const OwnedModule&) = delete;
  ~OwnedModule() {
    if (handle != nullptr) device.unload(handle);
  }
};

class CudaKernel : public LoadedKernel {
 public:
  CudaKernel(OwnedModule::Owner& device, const codegen::CompiledKernel& compiled)
      : module(device), kernel(compiled), params(compiled.params.size()) {}

  OwnedModule module;
  codegen::CompiledKernel kernel;
  CUfunction function = nullptr;
  CUlaunchAttribute attributes[2];
  CUlaunchConfig config = {};
  const std::byte* buffer = nullptr;  // of the last launch's parameters
  std::vector<void*> params;          // in it, one by one
};

class CudaModule : public LoadedModule {
 public:
  CudaModule(OwnedModule::Owner& device, const std::string& target)
      : module(device), reader({.target = target, .memory_bytes = 1 << 20}) {}

  OwnedModule module;
  vgpu::VirtualGpu reader;  // of the text: what the driver does not tell of parameters

  /// A kernel of the module, looked up at its first launch.
  struct Known {
    CUfunction function = nullptr;
    int64_t dynamic_shared_bytes = 48 * 1024;  // that it is allowed
  };
  std::mutex mutex;
  std::map<std::string, Known, std::less<>> known;
};

}  // namespace imbrex::runtime
