// SPDX-License-Identifier: Apache-2.0
// cuGetProcAddress: functions by name, and by the CUDA version whose interface the program was compiled for.
#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "cuda_host/driver/answer.h"
#include "cuda_host/driver/functions.h"

using namespace imbrex::cuda;

namespace {

enum QueryResult : int { kFound = 0, kNotFound = 1, kVersionTooOld = 2 };
constexpr uint64_t kLegacyStream = 1, kThreadsStream = 2;  // else as the call itself was named

}  // namespace

CUDA_API cuGetProcAddress_v2(const char* symbol, void** function, int version, uint64_t flags, int* status) {
  return answer("cuGetProcAddress", [&] {
    const std::string_view wanted = &not_null(symbol, "symbol");
    const DriverFunction* best = nullptr;
    bool is_known = false;
    for (const DriverFunction& one : driver_functions()) {
      if (wanted != one.base) continue;
      is_known = true;
      if (one.since <= version && (best == nullptr || one.since > best->since)) best = &one;
    }
    const bool of_thread =
        (flags & kThreadsStream) != 0 || ((flags & kLegacyStream) == 0 && NullStream::is_of_thread());
    not_null(function, "function") = best == nullptr ? nullptr : of_thread ? best->second : best->address;
    if (status != nullptr) *status = best != nullptr ? kFound : is_known ? kVersionTooOld : kNotFound;
    if (best != nullptr) return;
    // How programs ask what there is: told only on demand.
    const bool is_told = std::getenv("IMBREX_TELL_LOOK_UPS") != nullptr;
    refuse(CUDA_ERROR_NOT_FOUND, is_told ? fmt::format("'{}' of CUDA {}", wanted, version) : "");
  });
}
CUDA_API cuGetProcAddress(const char* symbol, void** function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}
