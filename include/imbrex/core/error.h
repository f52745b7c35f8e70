// SPDX-License-Identifier: Apache-2.0
// What Imbrex throws. Two families, never mixed: your kernel or your call is wrong (Error and its children),
// or Imbrex itself is (InternalError).
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "imbrex/core/source_location.h"

namespace imbrex {

/// One thing to tell the user: where, what, the facts that belong to it, and the remedy.
///
/// `message` is "op: fact with both sides and their values", lower case, no full stop. `facts` are printed
/// one per line below the quoted source line; `help` says what to do and may be empty.
struct Diagnostic {
  SourceLocation where;
  std::string message;
  std::vector<std::string> facts;
  std::string help;

  /// "file:line: error: message", the quoted source line where the file can be read, facts, help.
  std::string format() const;
};

/// Base of all errors that the caller can correct. what() is the formatted diagnostics.
class Error : public std::runtime_error {
 public:
  explicit Error(Diagnostic diagnostic);
  explicit Error(std::vector<Diagnostic> diagnostics);
  const std::vector<Diagnostic>& diagnostics() const { return diagnostics_; }

 private:
  std::vector<Diagnostic> diagnostics_;
};

/// A kernel that cannot be compiled: shapes, layouts, thread groups, targets, scopes.
class CompileError : public Error {
  using Error::Error;
};

/// A call that cannot be carried out: an argument is missing or wrong; a buffer is null, freed, too small or
/// misaligned.
class LaunchError : public Error {
  using Error::Error;
};

/// The device failed, or the virtual GPU stopped a kernel (deadlock, fault, budget).
class DeviceError : public Error {
  using Error::Error;
};

/// A bug in Imbrex. Please report it with the text.
class InternalError : public std::logic_error {
 public:
  explicit InternalError(const std::string& what) : std::logic_error("imbrex: internal error: " + what) {}
};

}  // namespace imbrex
