// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/driver/functions.h"

#include "cuda_host/abi/api_error.h"

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

// Functions with a stream exist once more for programs whose default stream is one per thread. Work runs when it is
// issued, whatever the stream, so that the second name is a jump to the first.
#if defined(__x86_64__)
#define JUMP "jmp "
#define PLT "@PLT"
#else
#define JUMP "b "
#define PLT ""
#endif
#define FUNCTION(symbol, base, since)
#define STREAM_FUNCTION(symbol, suffix, base, since)                           \
  asm(".pushsection .text\n.globl " #symbol #suffix "\n.type " #symbol #suffix \
      ", %function\n" #symbol #suffix ":\n" JUMP #symbol PLT "\n.popsection\n");
#define MISSING(symbol, base, since, reason)
#include "cuda_host/driver/api.def"
#undef FUNCTION
#undef STREAM_FUNCTION
#undef MISSING

namespace imbrex::cuda {

std::span<const DriverFunction> driver_functions() {
  static const DriverFunction functions[] = {
#define FUNCTION(symbol, base, since) {#symbol, base, since, reinterpret_cast<void*>(&symbol), nullptr},
#define STREAM_FUNCTION(symbol, suffix, base, since) \
  {#symbol, base, since, reinterpret_cast<void*>(&symbol), nullptr},
#define MISSING(symbol, base, since, reason) {#symbol, base, since, reinterpret_cast<void*>(&symbol), reason},
#include "cuda_host/driver/api.def"
#undef FUNCTION
#undef STREAM_FUNCTION
#undef MISSING
  };
  return functions;
}

}  // namespace imbrex::cuda
