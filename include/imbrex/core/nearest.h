// SPDX-License-Identifier: Apache-2.0
// The word somebody probably meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace imbrex {

/// The candidate nearest to `word` by edit distance, or "" when none is close enough to be a slip of the
/// hand.
std::string nearest_word(std::string_view word, std::span<const std::string> candidates);

}  // namespace imbrex
