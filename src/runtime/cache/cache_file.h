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
#include <vector>

namespace imbrex::runtime {

/// The whole file.
std::string pack_cache_file(std::string_view key_text, std::string_view payload);

struct CacheFile {
  std::string key_text, payload;
};
/// What pack_cache_file() was given; nothing when a single bit is not as it was.
std::optional<CacheFile> unpack_cache_file(std::string_view file);

/// Reads a whole file; nothing when it cannot be read. With `touch`, it counts as used now.
std::optional<std::string> read_file(const std::string& path, bool touch = false);
/// Writes a file so that `path` has either its old or its whole new content: aside, then renamed. 0, or
/// errno.
int write_file_whole(const std::string& path, std::string_view content);
/// Creates a folder and those above it, for this user alone. 0, or errno.
int make_folders(const std::string& path);

/// Names in a folder, sorted, without "." and "..".
std::vector<std::string> names_in(const std::string& folder);

/// How the temporary files of write_file_whole begin.
inline constexpr const char* kTemporaryPrefix = ".writing-";

}  // namespace imbrex::runtime
