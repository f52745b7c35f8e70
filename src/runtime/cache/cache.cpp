// SPDX-License-Identifier: Apache-2.0
#include "imbrex/runtime/cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "core/cache_folder.h"
#include "core/sha256.h"
#include "core/text.h"
#include "runtime/cache/cache_file.h"
#include "runtime/host/files.h"

namespace imbrex {
namespace {

using runtime::names_in;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr time_t kAbandoned = 3600;  // a temporary file this old has no writer any more

int64_t default_bytes() {
  const char* chosen = std::getenv("IMBREX_CACHE_MB");
  if (chosen == nullptr) return 1024 * kMiB;
  int64_t value = 0;
  auto [end, error] = std::from_chars(chosen, chosen + std::strlen(chosen), value);
  if (error == std::errc() && *end == '\0' && value >= 1 && value < int64_t{1} << 30) return value * kMiB;
  say("imbrex: warning: IMBREX_CACHE_MB is '{}', not a number of MiB; 1024 is used\n", chosen);
  return 1024 * kMiB;
}

/// Newlines and backslashes would blur where a part ends.
std::string escaped(std::string_view text) {
  std::string out;
  for (char c : text) {
    if (c == '\n')
      out += "\\n";
    else if (c == '\\')
      out += "\\\\";
    else
      out += c;
  }
  return out;
}

std::string unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size())
      out += text[++i] == 'n' ? '\n' : text[i];
    else
      out += text[i];
  }
  return out;
}

CacheKey key_from_text(std::string kind, std::string group, std::string_view text) {
  CacheKey key{std::move(kind), std::move(group), {}};
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t equal = line.find('=');
    if (equal != std::string_view::npos)
      key.parts.emplace_back(line.substr(0, equal), unescaped(line.substr(equal + 1)));
  }
  return key;
}

struct FileFacts {
  std::string path;
  int64_t bytes;
  time_t used;
};

/// Calls visit(path, name, facts) for every file of kind/group/name below `directory`.
template <class Visit>
void each_file(const std::string& directory, const std::string& kind, const std::string& group, Visit visit) {
  for (const std::string& k : kind.empty() ? names_in(directory) : std::vector{kind})
    for (const std::string& g : group.empty() ? names_in(directory + "/" + k) : std::vector{group}) {
      const std::string folder = directory + "/" + k + "/" + g;
      for (const std::string& name : names_in(folder)) {
        struct stat status;
        const std::string path = folder + "/" + name;
        if (lstat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode))
          visit(k, g, name, FileFacts{path, status.st_size, status.st_mtime});
      }
    }
}

}  // namespace

std::string CacheKey::text() const {
  std::string text;
  for (const auto& [name, value] : parts) text += name + "=" + escaped(value) + "\n";
  return text;
}

std::string CacheKey::part(std::string_view name) const {
  for (const auto& [known, value] : parts)
    if (known == name) return value;
  return "";
}

Cache& Cache::shared() {
  static Cache cache(cache_folder(), default_bytes());
  return cache;
}

Cache::Cache(std::string directory, int64_t max_bytes)
    : warn([](const std::string& text) { say("imbrex: warning: {}\n", text); }),
      directory_(std::move(directory)),
      max_bytes_(max_bytes) {
  while (directory_.size() > 1 && directory_.back() == '/') directory_.pop_back();
}

std::string Cache::folder(const CacheKey& key) const { return directory_ + "/" + key.kind + "/" + key.group; }
std::string Cache::path(const CacheKey& key) const {
  return folder(key) + "/" + sha256(key.text()).substr(0, 40);
}

void Cache::complain(const std::string& what, int error_number) {
  const std::string reason = std::strerror(error_number);
  {
    std::lock_guard lock(mutex_);
    if (!complaints_.insert(reason).second) return;
  }
  std::string help = "set IMBREX_CACHE_DIR to a folder that can be written";
  if (error_number == ENOSPC || error_number == EDQUOT || error_number == EFBIG)
    help = "free some space (imbrex cache clear), or set IMBREX_CACHE_DIR";
  warn(fmt::format("cache: {}: {}; results are not kept; {}", what, reason, help));
}

std::optional<std::string> Cache::load(const CacheKey& key) {
  if (directory_.empty()) return std::nullopt;
  const std::string where = path(key);
  std::optional<std::string> content = runtime::read_file(where, true);
  if (!content) return std::nullopt;
  std::optional<runtime::CacheFile> file = runtime::unpack_cache_file(*content);
  if (!file) {
    unlink(where.c_str());
    return std::nullopt;
  }
  if (file->key_text != key.text()) return std::nullopt;  // two keys of one name: the later one stays
  return std::move(file->payload);
}

bool Cache::store(const CacheKey& key, std::string_view payload) {
  if (directory_.empty()) return false;
  const std::string content = runtime::pack_cache_file(key.text(), payload);
  int failure = 0;
  // Twice: a `clear` in another process may remove the folder between making and using it.
  for (int attempt = 0; attempt < 2; ++attempt) {
    failure = runtime::make_folders(folder(key));
    if (failure == 0) failure = runtime::write_file_whole(path(key), content);
    if (failure != ENOENT) break;
  }
  if (failure != 0) {
    complain("cannot write to " + folder(key), failure);
    return false;
  }
  bool is_full;
  {
    std::lock_guard lock(mutex_);
    if (bytes_ < 0) {
      bytes_ = 0;
      each_file(directory_, "", "", [&](auto&, auto&, auto&, const FileFacts& f) { bytes_ += f.bytes; });
    } else {
      bytes_ += static_cast<int64_t>(content.size());
    }
    is_full = bytes_ > max_bytes_;
  }
  if (is_full) trim(max_bytes_ - max_bytes_ / 5);  // some way below, so that not every store trims
  return true;
}

void Cache::remove(const CacheKey& key) {
  if (!directory_.empty()) unlink(path(key).c_str());
}

std::vector<CacheEntry> Cache::list(const std::string& kind, const std::string& group) const {
  std::vector<CacheEntry> entries;
  if (directory_.empty()) return entries;
  each_file(directory_, kind, group,
            [&](const std::string& k, const std::string& g, const std::string&, const FileFacts& facts) {
              std::optional<std::string> content = runtime::read_file(facts.path);
              if (!content) return;
              std::optional<runtime::CacheFile> file = runtime::unpack_cache_file(*content);
              if (file)
                entries.push_back(
                    {key_from_text(k, g, file->key_text), std::move(file->payload), facts.bytes, facts.used});
            });
  std::stable_sort(entries.begin(), entries.end(),
                   [](const CacheEntry& a, const CacheEntry& b) { return a.used > b.used; });
  return entries;
}

std::vector<std::string> Cache::kinds() const {
  std::vector<std::string> kinds;
  for (const std::string& name : names_in(directory_))
    if (name[0] != '.') kinds.push_back(name);
  return kinds;
}

std::string Cache::explain(const CacheKey& key) const {
  if (directory_.empty()) return "nothing is kept: IMBREX_CACHE_DIR is set to nothing";
  if (std::optional<std::string> content = runtime::read_file(path(key))) {
    std::optional<runtime::CacheFile> file = runtime::unpack_cache_file(*content);
    if (!file) return fmt::format("not found: its file {} is damaged, and is rebuilt when needed", path(key));
    if (file->key_text == key.text()) return fmt::format("found: {}", path(key));
  }
  const CacheEntry* nearest = nullptr;
  size_t least = SIZE_MAX;
  const std::vector<CacheEntry> entries = list(key.kind);
  for (const CacheEntry& entry : entries) {
    size_t different = 0;
    for (const auto& [name, value] : key.parts) different += entry.key.part(name) != value;
    if (different < least) least = different, nearest = &entry;
  }
  if (nearest == nullptr) return fmt::format("not found: no {} has been stored in {}", key.kind, directory_);
  if (least * 2 > key.parts.size())
    return fmt::format("not found: none of the {} entries of this kind is like it", entries.size());
  std::string text = fmt::format("not found; the nearest of {} entries differs in", entries.size());
  for (const auto& [name, value] : key.parts)
    if (const std::string theirs = nearest->key.part(name); theirs != value)
      text += fmt::format("\n  {}: wanted '{}', kept '{}'", name, value, theirs);
  return text;
}

int64_t Cache::clear(const std::string& kind) {
  int64_t freed = 0;
  if (directory_.empty()) return freed;
  each_file(directory_, kind, "", [&](const auto& k, const auto& g, const auto&, const FileFacts& facts) {
    if (unlink(facts.path.c_str()) == 0) freed += facts.bytes;
    rmdir((directory_ + "/" + k + "/" + g).c_str());  // succeeds with the last file
  });
  std::lock_guard lock(mutex_);
  bytes_ = -1;
  return freed;
}

void Cache::trim(int64_t bytes) {
  if (directory_.empty()) return;
  // One process trims at a time; the others go on, their entries are counted by the next one.
  const int lock_file = open((directory_ + "/.trimming").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock_file >= 0 && flock(lock_file, LOCK_EX | LOCK_NB) != 0) {
    close(lock_file);
    return;
  }
  std::vector<FileFacts> files;
  int64_t total = 0;
  const time_t now = std::time(nullptr);
  each_file(directory_, "", "", [&](auto&, auto&, const std::string& name, const FileFacts& facts) {
    if (name.starts_with(runtime::kTemporaryPrefix)) {
      if (facts.used + kAbandoned < now) unlink(facts.path.c_str());
      return;
    }
    files.push_back(facts);
    total += facts.bytes;
  });
  std::sort(files.begin(), files.end(),
            [](const FileFacts& a, const FileFacts& b) { return a.used < b.used; });
  for (const FileFacts& file : files) {
    if (total <= bytes) break;
    if (unlink(file.path.c_str()) == 0) total -= file.bytes;
  }
  if (lock_file >= 0) close(lock_file);
  std::lock_guard lock(mutex_);
  bytes_ = total;
}

}  // namespace imbrex
