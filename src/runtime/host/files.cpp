// SPDX-License-Identifier: Apache-2.0
#include "runtime/host/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "imbrex/core/error.h"

namespace imbrex::runtime {

std::optional<std::string> read_file(const std::string& path, bool touch) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  std::string content;
  struct stat status;
  if (fstat(file, &status) == 0 && S_ISREG(status.st_mode)) content.reserve(status.st_size);
  char buffer[64 << 10];
  ssize_t got;
  while ((got = read(file, buffer, sizeof buffer)) != 0) {
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    content.append(buffer, static_cast<size_t>(got));
  }
  if (touch) futimens(file, nullptr);  // a read-only cache stays as it is
  close(file);
  if (got < 0) return std::nullopt;
  return content;
}

int write_file_whole(const std::string& path, std::string_view content) {
  std::string aside = path.substr(0, path.rfind('/') + 1) + kTemporaryPrefix + "XXXXXX";
  const int file = mkostemp(aside.data(), O_CLOEXEC);
  if (file < 0) return errno;
  int failure = 0;
  while (!content.empty() && failure == 0) {
    const ssize_t written = write(file, content.data(), content.size());
    if (written < 0)
      failure = errno == EINTR ? 0 : errno;
    else
      content.remove_prefix(static_cast<size_t>(written));
  }
  if (close(file) != 0 && failure == 0) failure = errno;
  if (failure == 0 && rename(aside.c_str(), path.c_str()) != 0) failure = errno;
  if (failure != 0) unlink(aside.c_str());
  return failure;
}

int make_folders(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    if (mkdir(path.substr(0, slash).c_str(), 0700) != 0 && errno != EEXIST) return errno;
    if (slash == std::string::npos) return 0;
  }
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  DIR* directory = opendir(folder.c_str());
  if (directory == nullptr) return names;
  while (const dirent* entry = readdir(directory)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(directory);
  std::sort(names.begin(), names.end());
  return names;
}

TemporaryFolder::TemporaryFolder() {
  const char* parent = std::getenv("TMPDIR");
  path_ = fmt::format("{}/imbrex-XXXXXX", parent != nullptr && *parent != '\0' ? parent : "/tmp");
  if (mkdtemp(path_.data()) == nullptr)
    throw DeviceError(Diagnostic{{},
                                 fmt::format("temporary folder {}: {}", path_, std::strerror(errno)),
                                 {},
                                 "set TMPDIR to a folder that can be written"});
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace imbrex::runtime
