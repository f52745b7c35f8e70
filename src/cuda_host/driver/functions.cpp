// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/driver/functions.h"

#include "cuda_host/abi/api_error.h"
#include "cuda_host/abi/second_name.h"

#define UNSAFE_FUNCTION FUNCTION

IMBREX_DEFINE_LEAVE_WORD

// The functions that are there are declared without their parameters: only their addresses are taken.
#define FUNCTION(symbol, base, since) extern "C" CUresult symbol();
#define STREAM_FUNCTION(symbol, suffix, base, since) \
  extern "C" CUresult symbol();                      \
  extern "C" CUresult symbol##suffix();
#define MISSING(symbol, base, since, reason)                            \
  extern "C" __attribute__((visibility("default"))) CUresult symbol() { \
    return imbrex::cuda::not_supported(#symbol, reason);                \
  }
#include "cuda_host/driver/api.def"
#undef FUNCTION
#undef STREAM_FUNCTION
#undef MISSING

#define FUNCTION(symbol, base, since)
#define STREAM_FUNCTION(symbol, suffix, base, since) IMBREX_SECOND_NAME(symbol, suffix)
#define MISSING(symbol, base, since, reason)
#include "cuda_host/driver/api.def"
#undef FUNCTION
#undef STREAM_FUNCTION
#undef MISSING

namespace imbrex::cuda {

std::span<const DriverFunction> driver_functions() {
  static const DriverFunction functions[] = {
#define ADDRESS(symbol) reinterpret_cast<void*>(&symbol)
#define FUNCTION(symbol, base, since) {#symbol, base, since, ADDRESS(symbol), ADDRESS(symbol), nullptr},
#define STREAM_FUNCTION(symbol, suffix, base, since) \
  {#symbol, base, since, ADDRESS(symbol), ADDRESS(symbol##suffix), nullptr},
#define MISSING(symbol, base, since, reason) {#symbol, base, since, ADDRESS(symbol), ADDRESS(symbol), reason},
#include "cuda_host/driver/api.def"
#undef FUNCTION
#undef STREAM_FUNCTION
#undef MISSING
#undef ADDRESS
  };
  return functions;
}

}  // namespace imbrex::cuda
