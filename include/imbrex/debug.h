// SPDX-License-Identifier: Apache-2.0
// Printing from a running kernel.
#pragma once

#include "imbrex/tensor.h"

namespace imbrex {

namespace detail {
/// A scalar argument that may be left out.
struct PrintArg {
  PrintArg() : value(0), given(false) {}
  template <ScalarLike T>
  PrintArg(const T& value) : value(value), given(true) {}
  ScalarArg value;
  bool given;
};
}  // namespace detail

/// printf from every executing thread, with C's conversions %d %u %lld %llu %x %f %g %e %%; up to eight
/// arguments, whose number and kinds are checked here.
void printf(const char* format, detail::PrintArg a1 = {}, detail::PrintArg a2 = {}, detail::PrintArg a3 = {},
            detail::PrintArg a4 = {}, detail::PrintArg a5 = {}, detail::PrintArg a6 = {},
            detail::PrintArg a7 = {}, detail::PrintArg a8 = {},
            SourceLocation where = SourceLocation::current());

/// Prints a tensor's elements from one thread of CTA 0, after the header. Synchronises the thread group.
void print_tensor(const Tensor& t, const char* header = "", SourceLocation where = SourceLocation::current());

}  // namespace imbrex
