// SPDX-License-Identifier: Apache-2.0
// Small text helpers that every layer needs.
#pragma once

#include <string>
#include <string_view>

#include "imbrex/core/nearest.h"
#include "imbrex/core/source_text.h"

namespace imbrex {

/// A copy of `text` that lives as long as the program; equal texts give equal pointers. Thread-safe.
const char* intern(std::string_view text);

}  // namespace imbrex
