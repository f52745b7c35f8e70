// SPDX-License-Identifier: Apache-2.0
// The word that was probably meant.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace imbrex {

/// The candidate nearest to `word`, counting characters inserted, left out, replaced, and neighbours that are
/// swapped; "" when none is near enough to be a typing error.
std::string nearest_word(std::string_view word, std::span<const std::string> candidates);

}  // namespace imbrex
