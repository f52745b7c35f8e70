// SPDX-License-Identifier: Apache-2.0
// What is thrown for text that does not parse. (With error.h, which nearly every file includes, a change here would compile
// nearly every file anew.)
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "imbrex/core/error.h"

namespace imbrex {

/// PTX or IR text that does not parse. The diagnostic's location is a line of that text.
class ParseError : public Error {
 public:
  explicit ParseError(Diagnostic diagnostic) : Error(std::move(diagnostic)) {}
  /// `lacking`: see lacking().
  explicit ParseError(std::vector<Diagnostic> diagnostics, std::string lacking = {})
      : Error(std::move(diagnostics)), lacking_(std::move(lacking)) {}
  /// What the first diagnostic is about, where that is something Imbrex does not have: "textures", "surfaces". Empty where the text
  /// is wrong.
  const std::string& lacking() const { return lacking_; }

 private:
  std::string lacking_;
};

}  // namespace imbrex
