// SPDX-License-Identifier: Apache-2.0
// Modules: PTX, fat binaries and files become kernels and variables.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>

#include "cuda_host/driver/answer.h"
#include "cuda_host/host/jit_options.h"
#include "cuda_host/image/image.h"

using namespace imbrex::cuda;

namespace {

const std::string& target() { return Host::get().settings.gpu.target; }

void load(CUmodule* module, std::string ptx) {
  Host& host = Host::get();
  const int device = host.usable().device;
  not_null(module, "module") = reinterpret_cast<CUmodule>(&host.modules.make(std::move(ptx), device));
}

}  // namespace

CUDA_API cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned count, int* options,
                            void** values) {
  return answer("cuModuleLoadDataEx", [&] {
    const JitLog log(count, options, values);
    log.keep_errors([&] { load(module, ptx_of_image(image, target())); });
  });
}
CUDA_API cuModuleLoadData(CUmodule* module, const void* image) {
  return answer("cuModuleLoadData", [&] { load(module, ptx_of_image(image, target())); });
}
CUDA_API cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  return answer("cuModuleLoadFatBinary", [&] { load(module, ptx_of_image(image, target())); });
}
CUDA_API cuModuleLoad(CUmodule* module, const char* file) {
  return answer("cuModuleLoad", [&] { load(module, ptx_of_bytes(read_image_file(file), target())); });
}
CUDA_API cuModuleUnload(CUmodule module) {
  return answer("cuModuleUnload", [&] {
    host_waits_for_backlog();
    Host::get().modules.destroy(module);
  });
}
CUDA_API cuModuleGetLoadingMode(int* mode) {
  return answer("cuModuleGetLoadingMode", [&] { not_null(mode, "mode") = 2; });  // lazy
}

namespace {

/// A module's handle, or that of a library's module.
ModuleObject& module_of(CUmodule handle) {
  Host& host = Host::get();
  if (ModuleObject* module = host.modules.find(handle); module != nullptr) return *module;
  for (const auto& [address, library] : host.libraries.all())
    for (int device = 0; device < host.settings.gpus; ++device)
      if (ModuleObject& module = library->on(device); reinterpret_cast<CUmodule>(&module) == handle)
        return module;
  return host.modules.get(handle);
}

}  // namespace

CUDA_API cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  return answer("cuModuleGetFunction", [&] {
    not_null(function, "function") =
        reinterpret_cast<CUfunction>(&module_of(module).function(&not_null(name, "name")));
  });
}
CUDA_API cuModuleGetFunctionCount(unsigned* count, CUmodule module) {
  return answer("cuModuleGetFunctionCount", [&] {
    not_null(count, "count") = static_cast<unsigned>(module_of(module).function_names().size());
  });
}
CUDA_API cuModuleEnumerateFunctions(CUfunction* functions, unsigned count, CUmodule module) {
  return answer("cuModuleEnumerateFunctions", [&] {
    ModuleObject& of = module_of(module);
    const std::vector<std::string> names = of.function_names();
    for (unsigned i = 0; i < count && i < names.size(); ++i)
      functions[i] = reinterpret_cast<CUfunction>(&of.function(names[i]));
  });
}
CUDA_API cuModuleGetGlobal_v2(CUdeviceptr* address, size_t* bytes, CUmodule module, const char* name) {
  return answer("cuModuleGetGlobal", [&] {
    const auto variable = module_of(module).global(&not_null(name, "name"));
    if (address != nullptr) *address = variable.address;
    if (bytes != nullptr) *bytes = static_cast<size_t>(variable.bytes);
  });
}

// ---- libraries: code that no context owns

CUDA_API cuLibraryLoadData(CUlibrary* library, const void* code, int* options, void** values, unsigned count,
                           int*, void**, unsigned) {
  return answer("cuLibraryLoadData", [&] {
    const JitLog log(count, options, values);
    log.keep_errors([&] {
      not_null(library, "library") =
          reinterpret_cast<CUlibrary>(&Host::get().libraries.make(ptx_of_image(code, target())));
    });
  });
}
CUDA_API cuLibraryLoadFromFile(CUlibrary* library, const char* file, int*, void**, unsigned, int*, void**,
                               unsigned) {
  return answer("cuLibraryLoadFromFile", [&] {
    not_null(library, "library") = reinterpret_cast<CUlibrary>(
        &Host::get().libraries.make(ptx_of_bytes(read_image_file(file), target())));
  });
}
CUDA_API cuLibraryUnload(CUlibrary library) {
  return answer("cuLibraryUnload", [&] {
    Host& host = Host::get();
    host_waits_for_backlog();
    for (const auto& [name, kernel] : host.libraries.get(library).kernels()) host.kernels.destroy(kernel);
    host.libraries.destroy(library);
  });
}
CUDA_API cuLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  return answer("cuLibraryGetKernel", [&] {
    not_null(kernel, "kernel") =
        reinterpret_cast<CUkernel>(&Host::get().libraries.get(library).kernel(&not_null(name, "name")));
  });
}
CUDA_API cuLibraryGetKernelCount(unsigned* count, CUlibrary library) {
  return answer("cuLibraryGetKernelCount", [&] {
    not_null(count, "count") =
        static_cast<unsigned>(Host::get().libraries.get(library).on(0).function_names().size());
  });
}
CUDA_API cuLibraryEnumerateKernels(CUkernel* kernels, unsigned count, CUlibrary library) {
  return answer("cuLibraryEnumerateKernels", [&] {
    Library& of = Host::get().libraries.get(library);
    const std::vector<std::string> names = of.on(0).function_names();
    for (unsigned i = 0; i < count && i < names.size(); ++i)
      kernels[i] = reinterpret_cast<CUkernel>(&of.kernel(names[i]));
  });
}
CUDA_API cuLibraryGetModule(CUmodule* module, CUlibrary library) {
  return answer("cuLibraryGetModule", [&] {
    Host& host = Host::get();
    not_null(module, "module") =
        reinterpret_cast<CUmodule>(&host.libraries.get(library).on(host.current().device));
  });
}
CUDA_API cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary library, const char* name) {
  return answer("cuLibraryGetGlobal", [&] {
    Host& host = Host::get();
    const auto variable =
        host.libraries.get(library).on(host.current().device).global(&not_null(name, "name"));
    if (address != nullptr) *address = variable.address;
    if (bytes != nullptr) *bytes = static_cast<size_t>(variable.bytes);
  });
}
CUDA_API cuLibraryGetManaged(CUdeviceptr* address, size_t* bytes, CUlibrary library, const char* name) {
  return answer("cuLibraryGetManaged", [&] {
    const auto variable = Host::get().libraries.get(library).managed(&not_null(name, "name"));
    if (address != nullptr) *address = variable.address;
    if (bytes != nullptr) *bytes = static_cast<size_t>(variable.bytes);
  });
}
CUDA_API cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  return answer("cuKernelGetFunction", [&] {
    Host& host = Host::get();
    not_null(function, "function") =
        reinterpret_cast<CUfunction>(&host.kernels.get(kernel).on(host.current().device));
  });
}
CUDA_API cuKernelGetLibrary(CUlibrary* library, CUkernel kernel) {
  return answer("cuKernelGetLibrary", [&] {
    not_null(library, "library") = reinterpret_cast<CUlibrary>(&Host::get().kernels.get(kernel).library);
  });
}
CUDA_API cuKernelGetName(const char** name, CUkernel kernel) {
  return answer("cuKernelGetName",
                [&] { not_null(name, "name") = Host::get().kernels.get(kernel).name.c_str(); });
}
