// SPDX-License-Identifier: Apache-2.0
#include "imbrex/runtime/caller_line.h"

namespace imbrex {
namespace {

thread_local SourceLocation line_of_scope;

}  // namespace

CallerLine::CallerLine(SourceLocation where) : is_outermost_(!line_of_scope.is_known()) {
  if (is_outermost_) line_of_scope = where;
}
CallerLine::~CallerLine() {
  if (is_outermost_) line_of_scope = {};
}
SourceLocation CallerLine::or_else(SourceLocation own) {
  return line_of_scope.is_known() ? line_of_scope : own;
}

}  // namespace imbrex
