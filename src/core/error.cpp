// SPDX-License-Identifier: Apache-2.0
#include "imbrex/core/error.h"

#include <fmt/format.h>

#include "core/text.h"

namespace imbrex {

std::string Diagnostic::format() const {
  std::string out;
  if (where.is_known()) out += fmt::format("{}:{}: ", where.file, where.line);
  out += "error: " + message;
  if (where.is_known()) {
    std::string quoted = source_line(where.file, static_cast<int>(where.line));
    if (!quoted.empty()) out += fmt::format("\n{:5} | {}", where.line, quoted);
  }
  for (const std::string& fact : facts) out += "\n  " + fact;
  if (!help.empty()) out += "\n  help: " + help;
  return out;
}

namespace {
std::string join(const std::vector<Diagnostic>& diagnostics) {
  std::string out;
  for (const Diagnostic& d : diagnostics) out += (out.empty() ? "" : "\n") + d.format();
  return out;
}
}  // namespace

Error::Error(Diagnostic diagnostic) : Error(std::vector<Diagnostic>{std::move(diagnostic)}) {}
Error::Error(std::vector<Diagnostic> diagnostics)
    : std::runtime_error(join(diagnostics)), diagnostics_(std::move(diagnostics)) {}

}  // namespace imbrex
