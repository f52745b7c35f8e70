// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4): names and checksums of what the cache keeps.
#pragma once

#include <string>
#include <string_view>

namespace imbrex {

/// The digest of `bytes` as 64 hexadecimal digits.
std::string sha256(std::string_view bytes);

}  // namespace imbrex
