// SPDX-License-Identifier: Apache-2.0
// Small text helpers that every layer needs.
#pragma once

#include <string>
#include <string_view>

#include "imbrex/nearest.h"

namespace imbrex {

/// A copy of `text` that lives as long as the program; equal texts give equal pointers. Thread-safe.
const char* intern(std::string_view text);

/// Line `line` (from 1) of a file, without its newline; empty when the file or the line cannot be read.
/// Cached.
std::string source_line(const char* file, int line);

}  // namespace imbrex
