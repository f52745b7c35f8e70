// SPDX-License-Identifier: Apache-2.0
// What nvcc's host code calls before main(): the program's fat binaries, kernels and variables. A binary is loaded when
// something of it is first wanted, so that one which the GPU does not run hurts only who uses it.
#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "cuda_host/runtime/state.h"

namespace imbrex::cudart {
namespace {

struct ManagedVariable {
  void** pointer;  // the host's pointer to it
  std::string name;
};
struct Binary {
  const void* image;
  CUlibrary library = nullptr;
  std::vector<ManagedVariable> managed;
};
struct Registered {
  Binary* binary;
  std::string name;
};
struct Registry {
  std::mutex mutex;
  std::vector<std::unique_ptr<Binary>> binaries;
  std::map<const void*, Registered> functions, variables;
  std::map<const void*, CUkernel> kernels;  // those looked up
};
Registry& registry() {
  static auto* all = new Registry;  // programs unregister when static objects are gone already
  return *all;
}

thread_local int t_device = 0;
thread_local int t_last_error = 0;

/// A library function's answers that the runtime has numbers of its own for.
constexpr auto kInvalidDeviceFunction = static_cast<CUresult>(98), kInvalidSymbol = static_cast<CUresult>(13);

CUresult load(Binary& binary) {
  if (binary.library != nullptr) return CUDA_SUCCESS;
  if (const CUresult error =
          cuLibraryLoadData(&binary.library, binary.image, nullptr, nullptr, 0, nullptr, nullptr, 0);
      error != CUDA_SUCCESS)
    return error;
  for (const ManagedVariable& variable : binary.managed) {
    CUdeviceptr address = 0;
    if (cuLibraryGetManaged(&address, nullptr, binary.library, variable.name.c_str()) == CUDA_SUCCESS)
      *variable.pointer = reinterpret_cast<void*>(address);
  }
  return CUDA_SUCCESS;
}

}  // namespace

cudaError_t keep(int error) {
  if (error != 0) t_last_error = error;
  return static_cast<cudaError_t>(error);
}
cudaError_t keep(CUresult error) { return keep(static_cast<int>(error)); }

int last_error() { return t_last_error; }
int current_device() { return t_device; }

CUresult enter() {
  CUcontext context = nullptr;
  if (const CUresult error = cuInit(0); error != CUDA_SUCCESS) return error;
  if (const CUresult error = cuCtxGetCurrent(&context); error != CUDA_SUCCESS) return error;
  if (context != nullptr) return CUDA_SUCCESS;
  if (const CUresult error = cuDevicePrimaryCtxRetain(&context, t_device); error != CUDA_SUCCESS)
    return error;
  return cuCtxSetCurrent(context);
}

CUresult find_kernel(const void* function, CUkernel* kernel) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (const auto known = all.kernels.find(function); known != all.kernels.end()) {
    *kernel = known->second;
    return CUDA_SUCCESS;
  }
  const auto at = all.functions.find(function);
  if (at == all.functions.end()) {
    // A cudaKernel_t may stand where a function's address does.
    for (const auto& [address, made] : all.kernels)
      if (made == function) {
        *kernel = made;
        return CUDA_SUCCESS;
      }
    const char* name = nullptr;
    const auto handle = reinterpret_cast<CUkernel>(const_cast<void*>(function));
    if (function == nullptr) return kInvalidDeviceFunction;
    if (const CUresult error = cuKernelGetName(&name, handle); error != CUDA_SUCCESS)
      return error;  // as on a chip
    *kernel = handle;
    return CUDA_SUCCESS;
  }
  if (const CUresult error = load(*at->second.binary); error != CUDA_SUCCESS) return error;
  const CUresult error = cuLibraryGetKernel(kernel, at->second.binary->library, at->second.name.c_str());
  if (error != CUDA_SUCCESS) return error == CUDA_ERROR_NOT_FOUND ? kInvalidDeviceFunction : error;
  all.kernels[function] = *kernel;
  return CUDA_SUCCESS;
}

CUresult find_function(const void* function, CUfunction* out) {
  CUkernel kernel = nullptr;
  if (const CUresult error = find_kernel(function, &kernel); error != CUDA_SUCCESS) return error;
  return cuKernelGetFunction(out, kernel);
}

void* host_address(CUfunction function) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  for (const auto& [address, kernel] : all.kernels) {
    CUfunction of = nullptr;
    if (cuKernelGetFunction(&of, kernel) == CUDA_SUCCESS && of == function) return const_cast<void*>(address);
  }
  return reinterpret_cast<void*>(function);
}

CUresult find_variable(const void* variable, CUdeviceptr* address, size_t* bytes) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  auto at = all.variables.find(variable);
  // A managed variable's name stands for where it is, and not for the pointer that was registered.
  for (const std::unique_ptr<Binary>& binary : all.binaries)
    for (const ManagedVariable& managed : binary->managed)
      if (variable != nullptr && *managed.pointer == variable) at = all.variables.find(managed.pointer);
  if (at == all.variables.end()) return kInvalidSymbol;
  if (const CUresult error = load(*at->second.binary); error != CUDA_SUCCESS) return error;
  const CUresult error =
      cuLibraryGetGlobal(address, bytes, at->second.binary->library, at->second.name.c_str());
  return error == CUDA_ERROR_NOT_FOUND ? kInvalidSymbol : error;
}

}  // namespace imbrex::cudart

using namespace imbrex::cudart;

#define REGISTRATION(result) extern "C" __attribute__((visibility("default"))) result

REGISTRATION(void**) __cudaRegisterFatBinary(void* image) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.binaries.push_back(std::make_unique<Binary>());
  all.binaries.back()->image = image;
  return reinterpret_cast<void**>(all.binaries.back().get());
}
REGISTRATION(void) __cudaRegisterFatBinaryEnd(void**) {}
REGISTRATION(void) __cudaUnregisterFatBinary(void** handle) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto* binary = reinterpret_cast<Binary*>(handle);
  std::erase_if(all.kernels, [&](const auto& kernel) {
    const auto at = all.functions.find(kernel.first);
    return at != all.functions.end() && at->second.binary == binary;
  });
  std::erase_if(all.functions, [&](const auto& function) { return function.second.binary == binary; });
  std::erase_if(all.variables, [&](const auto& variable) { return variable.second.binary == binary; });
  std::erase_if(all.binaries, [&](const auto& one) { return one.get() == binary; });
}
REGISTRATION(void)
__cudaRegisterFunction(void** handle, const char* function, char*, const char* name, int, void*, void*, void*,
                       void*, int*) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.functions[function] = {reinterpret_cast<Binary*>(handle), name};
}
REGISTRATION(void)
__cudaRegisterVar(void** handle, char* variable, char*, const char* name, int, size_t, int, int) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.variables[variable] = {reinterpret_cast<Binary*>(handle), name};
}
REGISTRATION(void)
__cudaRegisterManagedVar(void** handle, void** pointer, char*, const char* name, int, size_t, int, int) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  auto* binary = reinterpret_cast<Binary*>(handle);
  binary->managed.push_back({pointer, name});
  all.variables[pointer] = {binary, name};
}
REGISTRATION(void) __cudaRegisterTexture(void**, const void*, const void**, const char*, int, int, int) {}
REGISTRATION(void) __cudaRegisterSurface(void**, const void*, const void**, const char*, int, int) {}

/// Called before host code first touches a `__managed__` variable, whose pointer load() sets. Why that failed has been said.
REGISTRATION(char) __cudaInitModule(void** handle) {
  if (keep(enter()) != 0) return 0;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  return keep(load(*reinterpret_cast<Binary*>(handle))) == 0 ? 1 : 0;
}

// ---- each thread's device and errors

CUDART_API cudaSetDevice(int device) {
  int count = 0;
  if (const CUresult error = cuDeviceGetCount(&count); error != CUDA_SUCCESS) return keep(error);
  if (device < 0 || device >= count) return keep(CUDA_ERROR_INVALID_DEVICE);
  t_device = device;
  CUcontext context = nullptr;
  if (const CUresult error = cuDevicePrimaryCtxRetain(&context, device); error != CUDA_SUCCESS)
    return keep(error);
  return keep(cuCtxSetCurrent(context));
}
CUDART_API cudaGetDevice(int* device) {
  if (device == nullptr) return keep(CUDA_ERROR_INVALID_VALUE);
  CUcontext context = nullptr;
  cuCtxGetCurrent(&context);
  if (context != nullptr) return keep(cuCtxGetDevice(device));
  *device = t_device;
  return keep(CUDA_SUCCESS);
}
CUDART_API cudaGetLastError() {
  const int last = t_last_error;
  t_last_error = 0;
  return static_cast<cudaError_t>(last);
}
CUDART_API cudaPeekAtLastError() { return static_cast<cudaError_t>(t_last_error); }
