// SPDX-License-Identifier: Apache-2.0
// Libraries of kernels: whose line a call on a stream is reported by.
#pragma once

#include "imbrex/core/source_location.h"

namespace imbrex {

/// For a scope, launches and copies of this thread are those of the caller's line in what the virtual GPU finds about the
/// order of calls. For a function that launches on somebody's behalf:
///
///   void scale(const DeviceTensor& x, SourceLocation where = SourceLocation::current()) {
///     const CallerLine caller(where);
///     ...
///
/// Where such functions call one another, the outermost's caller counts.
class CallerLine {
 public:
  explicit CallerLine(SourceLocation where);
  ~CallerLine();
  CallerLine(const CallerLine&) = delete;
  CallerLine& operator=(const CallerLine&) = delete;

  /// The line of the scope that this thread is in, outside of one `own`.
  static SourceLocation or_else(SourceLocation own);

 private:
  bool is_outermost_;
};

}  // namespace imbrex
