// SPDX-License-Identifier: Apache-2.0
// Printing from a running kernel.
#pragma once

#include "imbrex/lang/tensor.h"

namespace imbrex {

namespace detail {
/// An optional scalar argument.
struct PrintArg {
  PrintArg() : value(0), given(false) {}
  template <ScalarLike T>
  PrintArg(const T& value) : value(value), given(true) {}
  ScalarArg value;
  bool given;
};
/// A run-time scalar, by which this printf differs from the C library's.
struct FirstPrintArg {
  template <ScalarLike T>
  requires(!std::is_arithmetic_v<T>) FirstPrintArg(const T& value) : value(value) {}
  ScalarArg value;
};
}  // namespace detail

/// printf from every executing thread, with C's %d %u %x %c %f %e %g %% and %lld %llu %llx; one to eight
/// arguments, the first of which is a run-time scalar. CompileError where number or types do not fit the
/// format. Any thread.
/// [PTX: vprintf]
void printf(const char* format, detail::FirstPrintArg a1, detail::PrintArg a2 = {}, detail::PrintArg a3 = {},
            detail::PrintArg a4 = {}, detail::PrintArg a5 = {}, detail::PrintArg a6 = {},
            detail::PrintArg a7 = {}, detail::PrintArg a8 = {},
            SourceLocation where = SourceLocation::current());

/// Prints the header and the tensor's elements, from one thread of CTA 0. Synchronises the thread group, all
/// threads of which execute it.
void print_tensor(const Tensor& t, const char* header = "", SourceLocation where = SourceLocation::current());

}  // namespace imbrex
