// SPDX-License-Identifier: Apache-2.0
// How an API call fails: by an error code for the program, and one line on stderr for who runs it.
#pragma once

#include <string>
#include <utility>

#include "cuda_host/abi/driver_types.h"

namespace imbrex::cuda {

/// Thrown inside a call. An empty message prints nothing: the code is an ordinary answer (not ready, not found).
struct ApiError {
  CUresult code;
  std::string message;
};

[[noreturn]] inline void refuse(CUresult code, std::string message = "") {
  throw ApiError{code, std::move(message)};
}

/// Throws CUDA_ERROR_INVALID_VALUE that names the argument when `pointer` is null.
template <class T>
T& not_null(T* pointer, const char* argument) {
  if (pointer == nullptr) refuse(CUDA_ERROR_INVALID_VALUE, std::string(argument) + " is null");
  return *pointer;
}

/// Hears of every call that failed and was told of, but for those that ask for what the virtual GPU does not have.
using FailureListener = void (*)(const char* function, CUresult code);
void set_failure_listener(FailureListener listener);

/// The code of the exception in flight, which is told on stderr as an error of `function`.
CUresult explain_current_exception(const char* function);

/// What a function of the table answers that the virtual GPU does not have: CUDA_ERROR_NOT_SUPPORTED, told once.
CUresult not_supported(const char* function, const char* reason);

/// "CUDA_ERROR_INVALID_VALUE" and "invalid argument"; null for a number that is none.
const char* error_name(int code);
const char* error_text(int code);

/// One line on stderr, "imbrex: ...", the same only once per process; none with IMBREX_QUIET=1.
void tell_once(const std::string& line);

}  // namespace imbrex::cuda
