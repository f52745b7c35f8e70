// SPDX-License-Identifier: Apache-2.0
// Printing from a running kernel.
#pragma once

#include "imbrex/lang/tensor.h"

namespace imbrex {

namespace detail {
template <class T>
concept PrintedTile = std::derived_from<T, RegisterBase>;
template <class T, class Argument>
constexpr int explain_printed_tile() {
  static_assert(
      kNever<T>,
      "printf() prints scalars: `print_tensor(t)` prints a tile, `t.item({i, j})` is one element and "
      "`sum(t)` a scalar");
  return 0;
}
/// An optional scalar argument.
struct PrintArg {
  PrintArg() : value(0), given(false) {}
  template <ScalarLike T>
  PrintArg(const T& value) : value(value), given(true) {}
  /// Does not compile.
  template <PrintedTile T>
  PrintArg(const T&) : value(explain_printed_tile<T, PrintArg>()), given(true) {}
  ScalarArg value;
  bool given;
};
/// A run-time scalar, by which this printf differs from the C library's.
struct FirstPrintArg {
  template <ScalarLike T>
  requires(!std::is_arithmetic_v<T>) FirstPrintArg(const T& value) : value(value) {}
  /// Does not compile. (Without it the C library's printf would be called, while tracing.)
  template <PrintedTile T>
  FirstPrintArg(const T&) : value(explain_printed_tile<T, FirstPrintArg>()) {}
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
