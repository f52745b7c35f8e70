// SPDX-License-Identifier: Apache-2.0
// One entry of the cache as a file:
//
//   imbrex cache 1
//   SHA-256 of everything below
//   BYTES OF KEY TEXT
//   the key text, then the payload
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace imbrex::runtime {

/// The whole file.
std::string pack_cache_file(std::string_view key_text, std::string_view payload);

struct CacheFile {
  std::string key_text, payload;
};
/// What pack_cache_file() was given; nothing when the file is not exactly as it was written.
std::optional<CacheFile> unpack_cache_file(std::string_view file);

}  // namespace imbrex::runtime
