// SPDX-License-Identifier: Apache-2.0
// Small text helpers that every layer needs.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "imbrex/core/nearest.h"
#include "imbrex/core/source_text.h"

namespace imbrex {

/// A copy of `text` that lives as long as the program; equal texts give equal pointers. Thread-safe.
const char* intern(std::string_view text);

/// Prints on stderr. Where that is closed or its disk is full nothing is said: fmt::print would throw, in whatever thread
/// has something to warn of.
template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  std::fputs(fmt::format(format, std::forward<Args>(args)...).c_str(), stderr);
}

}  // namespace imbrex
