// SPDX-License-Identifier: Apache-2.0
// The runtime functions of runtime/api.def that are not there.
#include <cstdio>

#include "cuda_host/abi/second_name.h"
#include "cuda_host/runtime/state.h"

IMBREX_DEFINE_LEAVE_WORD

namespace {

cudaError_t not_supported(bool& was_told, const char* function, const char* reason) {
  if (!was_told)
    std::fprintf(stderr, "imbrex: %s: the virtual GPU does not have this: %s (cudaErrorNotSupported)\n",
                 function, reason);
  was_told = true;
  return imbrex::cudart::keep(CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace

#define FUNCTION(symbol)
#define STREAM_FUNCTION(symbol, suffix)
#define MISSING(symbol, reason)                      \
  CUDART_API symbol() {                              \
    static bool was_told = false;                    \
    return not_supported(was_told, #symbol, reason); \
  }
#include "cuda_host/runtime/api.def"
#undef FUNCTION
#undef STREAM_FUNCTION
#undef MISSING

#define FUNCTION(symbol)
#define STREAM_FUNCTION(symbol, suffix) IMBREX_SECOND_NAME(symbol, suffix)
#define MISSING(symbol, reason)
#include "cuda_host/runtime/api.def"
#undef FUNCTION
#undef STREAM_FUNCTION
#undef MISSING
