// SPDX-License-Identifier: Apache-2.0
// Libraries: code that the program loads itself.
#include "cuda_host/runtime/state.h"

using namespace imbrex::cudart;

CUDART_API cudaLibraryLoadData(CUlibrary* library, const void* code, int* options, void** values,
                               unsigned count, int* library_options, void** library_values,
                               unsigned library_count) {
  return call([&] {
    return cuLibraryLoadData(library, code, options, values, count, library_options, library_values,
                             library_count);
  });
}
CUDART_API cudaLibraryUnload(CUlibrary library) {
  return call([&] { return cuLibraryUnload(library); });
}
CUDART_API cudaLibraryGetKernel(CUkernel* kernel, CUlibrary library, const char* name) {
  return call([&] { return cuLibraryGetKernel(kernel, library, name); });
}
CUDART_API cudaLibraryGetGlobal(void** pointer, size_t* bytes, CUlibrary library, const char* name) {
  return call(
      [&] { return cuLibraryGetGlobal(reinterpret_cast<CUdeviceptr*>(pointer), bytes, library, name); });
}
CUDART_API cudaLibraryGetManaged(void** pointer, size_t* bytes, CUlibrary library, const char* name) {
  return call(
      [&] { return cuLibraryGetManaged(reinterpret_cast<CUdeviceptr*>(pointer), bytes, library, name); });
}
CUDART_API cudaLibraryGetKernelCount(unsigned* count, CUlibrary library) {
  return call([&] { return cuLibraryGetKernelCount(count, library); });
}
CUDART_API cudaLibraryEnumerateKernels(CUkernel* kernels, unsigned count, CUlibrary library) {
  return call([&] { return cuLibraryEnumerateKernels(kernels, count, library); });
}
