// SPDX-License-Identifier: Apache-2.0
// The text behind a source location.
#pragma once

#include <string>

namespace imbrex {

/// Line `line` (from 1) of a file, without its newline; empty when the file or the line cannot be read. A
/// relative path is looked for from here upwards. Cached; thread-safe.
std::string source_line(const char* file, int line);
/// The same without the blanks around it.
std::string trimmed_line(const std::string& file, int line);
/// The variable that a declaration at this line introduces: "tma_warp" of `if (auto tma_warp = single_warp(0))`, or the
/// member of a constructor's `NAME(mbarrier::alloc(...))`; empty where there is none.
std::string declared_variable(const std::string& file, int line);

}  // namespace imbrex
