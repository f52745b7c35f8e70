// SPDX-License-Identifier: Apache-2.0
// Modules, libraries and the functions in them.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cuda_host/abi/driver_types.h"
#include "imbrex/vgpu/virtual_gpu.h"

namespace imbrex::cuda {

class ModuleObject;
class Library;

/// What programs set on a function before they launch it as before CUDA 4.
struct PreparedLaunch {
  std::array<unsigned, 3> block = {1, 1, 1};
  unsigned shared_bytes = 0;
  std::vector<std::byte> parameters;
};

/// A kernel on one device.
struct FunctionObject {
  FunctionObject(ModuleObject& of, vgpu::Function function_there)
      : module(of), function(std::move(function_there)) {}
  ModuleObject& module;
  vgpu::Function function;
  std::map<int, int> attributes;  // those that the program set and that only keep their value
  PreparedLaunch prepared;

  /// A CUfunction_attribute. CUDA_ERROR_INVALID_VALUE for a number that is none.
  int attribute(int which) const;
  void set_attribute(int which, int value);
};

/// PTX loaded on a device.
class ModuleObject {
 public:
  /// Loads PTX. `is_listed` modules are the program's own handles; a library's are not.
  ModuleObject(const std::string& ptx, int device);
  ~ModuleObject();
  ModuleObject(const ModuleObject&) = delete;
  ModuleObject& operator=(const ModuleObject&) = delete;

  int device() const { return device_; }
  const std::string& name() const { return name_; }
  std::vector<std::string> function_names() const { return module_.function_names(); }
  /// CUDA_ERROR_NOT_FOUND where there is none of that name.
  FunctionObject& function(const std::string& name);
  vgpu::GlobalVariable global(const std::string& name);
  /// Names of the variables that the host may touch as well.
  const std::set<std::string>& managed() const { return managed_; }
  /// There are variables of the device's own.
  bool has_device_variables() const { return has_device_variables_; }
  int ptx_version() const { return ptx_version_; }

 private:
  std::string name_;
  int device_ = 0, ptx_version_ = 0;
  vgpu::Module module_;
  std::set<std::string> managed_;
  bool has_device_variables_ = false;
  std::map<std::string, FunctionObject*> functions_;
  std::vector<uint64_t> adopted_;  // addresses of variables that queries know
};

/// A kernel of a library, on whichever device it is wanted.
struct LibraryKernel {
  LibraryKernel(Library& of, std::string kernel_name) : library(of), name(std::move(kernel_name)) {}
  Library& library;
  std::string name;
  FunctionObject& on(int device);
};

/// Code that is loaded on each device when first wanted there.
class Library {
 public:
  explicit Library(std::string ptx) : ptx_(std::move(ptx)) {}
  ModuleObject& on(int device);
  /// A managed variable, of which all devices have the same. CUDA_ERROR_NOT_FOUND where there is none of that name.
  vgpu::GlobalVariable managed(const std::string& name);
  LibraryKernel& kernel(const std::string& name);
  std::map<std::string, LibraryKernel*>& kernels() { return kernels_; }

 private:
  std::string ptx_;
  std::map<int, std::unique_ptr<ModuleObject>> modules_;
  std::map<std::string, LibraryKernel*> kernels_;
};

}  // namespace imbrex::cuda
