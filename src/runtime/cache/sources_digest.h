// SPDX-License-Identifier: Apache-2.0
// What this build of Imbrex compiles kernels by.
#pragma once

#include <string_view>

namespace imbrex::runtime {

/// SHA-256 of the sources that decide what becomes of a kernel of the library: the library's own, the front end, the
/// passes, code generation and the runtime. Written where Imbrex is built, by cmake/digest_sources.cmake.
extern const std::string_view sources_digest;

}  // namespace imbrex::runtime
