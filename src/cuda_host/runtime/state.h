// SPDX-License-Identifier: Apache-2.0
// What a CUDA runtime keeps above the driver: the kernels and variables that the program's code registered, a device for
// each thread, and each thread's last error.
#pragma once

#include <string>

#include "cuda_host/abi/driver_functions.h"
#include "cuda_host/abi/runtime_types.h"
#include "cuda_host/abi/second_name.h"

namespace imbrex::cudart {

/// Keeps it as the thread's last error, unless it is none, and gives it back.
cudaError_t keep(CUresult error);
cudaError_t keep(int error);

/// The thread's last error, kept until cudaGetLastError takes it.
int last_error();

/// Makes the primary context of the thread's device current where the thread has none. Every call that needs a
/// context begins with it.
CUresult enter();
/// The thread's device.
int current_device();

/// `body`'s result, as the call's answer, with a context there.
template <class Body>
cudaError_t call(Body&& body) {
  const bool is_second = cuda::take_second_name();
  CUresult result = enter();
  if (is_second) imbrexNullIsOfThread(true);
  if (result == CUDA_SUCCESS) result = body();
  if (is_second) imbrexNullIsOfThread(false);
  return keep(result);
}

/// The kernel that stands behind the address of a `__global__` function, or behind a cudaKernel_t;
/// cudaErrorInvalidResourceHandle (400) where there is none, and cudaErrorInvalidDeviceFunction (98) for a null address.
CUresult find_kernel(const void* function, CUkernel* kernel);
/// Its function on the thread's device.
CUresult find_function(const void* function, CUfunction* out);
/// The address by which the program knows a function, or, where it has none, the function.
void* host_address(CUfunction function);
/// The device memory of a `__device__` variable; cudaErrorInvalidSymbol (13).
CUresult find_variable(const void* variable, CUdeviceptr* address, size_t* bytes);

inline CUdeviceptr address_of(const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); }

}  // namespace imbrex::cudart

#define CUDART_API extern "C" __attribute__((visibility("default"))) cudaError_t
