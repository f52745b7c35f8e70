// SPDX-License-Identifier: Apache-2.0
// The text behind a source location.
#pragma once

#include <string>

namespace imbrex {

/// Line `line` (from 1) of a file, without its newline; empty when the file or the line cannot be read. A
/// relative path is looked for from here upwards. Cached; thread-safe.
std::string source_line(const char* file, int line);

}  // namespace imbrex
