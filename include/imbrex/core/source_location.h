// SPDX-License-Identifier: Apache-2.0
// Where in the user's C++ something was written. Captured by defaulted arguments, so it costs the caller
// nothing.
#pragma once

#include <cstdint>

namespace imbrex {

/// A line of C++ source. `file` and `function` point to strings that live as long as the program.
///
/// Our own type and not std::source_location, because Clang 14 cannot compile that one with libstdc++.
struct SourceLocation {
  const char* file = "";
  uint32_t line = 0;
  const char* function = "";

  static constexpr SourceLocation current(const char* file = __builtin_FILE(),
                                          uint32_t line = __builtin_LINE(),
                                          const char* function = __builtin_FUNCTION()) {
    return {file, line, function};
  }
  constexpr bool is_known() const { return line != 0; }
};

}  // namespace imbrex
