// SPDX-License-Identifier: Apache-2.0
// How each function of the driver answers: CUDA_API name(...) { return answer("name", [&] { ... }); }
#pragma once

#include <algorithm>
#include <string_view>

#include "cuda_host/host/host.h"

namespace imbrex::cuda {

/// A function as calls are told of, and what its row in api.def says of it.
struct CallName {
  constexpr CallName(const char* name)
      : text(name), is_unsafe(std::ranges::find(kUnsafe, std::string_view(name)) != std::end(kUnsafe)) {}
  const char* text;
  bool is_unsafe;  // during a capture

 private:
  static constexpr std::string_view kUnsafe[] = {
#define FUNCTION(symbol, base, since)
#define UNSAFE_FUNCTION(symbol, base, since) base,
#define STREAM_FUNCTION(symbol, suffix, base, since)
#define MISSING(symbol, base, since, reason)
#include "cuda_host/driver/api.def"
#undef FUNCTION
#undef UNSAFE_FUNCTION
#undef STREAM_FUNCTION
#undef MISSING
  };
};

/// One call: holds the lock, and turns what is thrown into an error code and a line on stderr.
template <class Body>
CUresult answer(CallName function, Body&& body) {
  let_watch_speak();
  const std::lock_guard lock(Host::mutex());
  const NotedCall noted(function.text);
  const NullStream null_stream;
  try {
    expect_no_host_function(function.text);
    if (function.is_unsafe) expect_no_unsafe_capture();
    body();
    return CUDA_SUCCESS;
  } catch (...) {
    return explain_current_exception(function.text);
  }
}

}  // namespace imbrex::cuda

#define CUDA_API extern "C" __attribute__((visibility("default"))) CUresult
