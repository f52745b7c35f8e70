// SPDX-License-Identifier: Apache-2.0
// The driver API as a list: driver/api.def with the functions' addresses.
#pragma once

#include <span>

namespace imbrex::cuda {

struct DriverFunction {
  const char* symbol;  // as it is exported
  const char* base;    // as cuGetProcAddress is asked for it
  int since;           // CUDA version of this interface, 12000 for 12.0
  void* address;
  void* second;         // of its second name, for programs with a default stream per thread; else the same
  const char* missing;  // why it is answered CUDA_ERROR_NOT_SUPPORTED; null where it is there
};

std::span<const DriverFunction> driver_functions();

}  // namespace imbrex::cuda
