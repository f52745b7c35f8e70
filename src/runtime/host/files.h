// SPDX-License-Identifier: Apache-2.0
// Whole files, folders, and temporary ones.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace imbrex::runtime {

/// Reads a whole file; nothing when it cannot be read. With `touch`, its time stamps become now, which is how
/// the cache knows what was used last.
std::optional<std::string> read_file(const std::string& path, bool touch = false);
/// Writes a file so that `path` has either its old or its whole new content: a temporary file beside it,
/// then renamed. Returns 0, or errno.
int write_file_whole(const std::string& path, std::string_view content);
/// How the names of write_file_whole()'s temporary files begin.
inline constexpr const char* kTemporaryPrefix = ".writing-";

/// Creates a folder and those above it, for this user alone. Returns 0, or errno.
int make_folders(const std::string& path);
/// The names in a folder, sorted, without "." and "..". Empty when it cannot be read.
std::vector<std::string> names_in(const std::string& folder);

/// A fresh folder in $TMPDIR or /tmp, removed with everything in it. Throws DeviceError when none
/// can be made.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace imbrex::runtime
