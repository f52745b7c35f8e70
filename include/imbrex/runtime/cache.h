// SPDX-License-Identifier: Apache-2.0
// What Imbrex keeps between runs: assembled kernels and tuning results, one file per entry in one directory.
//
//   $IMBREX_CACHE_DIR, else $XDG_CACHE_HOME/imbrex, else ~/.cache/imbrex    where (set but empty: nowhere)
//   $IMBREX_CACHE_MB                                                        how much; 1024 unless set
//
// Any number of processes may use one directory at once. An entry appears whole or not at all (written aside,
// then renamed), carries its key in full and a checksum over everything, and is rebuilt when either does not
// fit: whatever happens to the files, a look-up gives what was stored under exactly this key, or nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace imbrex {

/// What an entry is found by.
struct CacheKey {
  std::string kind;   ///< "cubin", "tuning", ...: a folder of the cache, of letters, digits, - and _
  std::string group;  ///< entries that are listed together: a folder of the kind; the same alphabet
  /// Everything the entry depends on, by name.
  std::vector<std::pair<std::string, std::string>> parts;

  /// The parts as text, one "name=value" per line.
  std::string text() const;
  /// The value of the part of this name, "" when there is none.
  std::string part(std::string_view name) const;
};

struct CacheEntry {
  CacheKey key;
  std::string payload;
  int64_t bytes = 0;  ///< of the file
  int64_t used = 0;   ///< last stored or looked up, in seconds since 1970
};

/// A cache directory. Thread-safe. Nothing here throws for what is wrong with the disk: what cannot be kept
/// is not kept, and `warn` is told once for each reason.
class Cache {
 public:
  /// The cache of this process, where the environment says (see above).
  static Cache& shared();
  /// A cache in `directory`, which need not exist yet, of at most `max_bytes`. An empty
  /// `directory` keeps nothing.
  Cache(std::string directory, int64_t max_bytes);

  /// "" when nothing is kept.
  const std::string& directory() const { return directory_; }
  int64_t max_bytes() const { return max_bytes_; }

  /// What was stored under `key`. A damaged entry is removed and not found.
  std::optional<std::string> load(const CacheKey& key);
  /// Stores, over what was there. False when it cannot be kept (disk full, read-only, ...).
  bool store(const CacheKey& key, std::string_view payload);
  /// Removes the entry, if there is one.
  void remove(const CacheKey& key);

  /// Every sound entry of a kind, or of one group of it; the most recently used first.
  std::vector<CacheEntry> list(const std::string& kind, const std::string& group = "") const;
  /// The kinds of which there are entries.
  std::vector<std::string> kinds() const;
  /// Why `key` is or is not found: "found", or how the nearest entries of its kind differ.
  std::string explain(const CacheKey& key) const;

  /// Removes every entry of a kind ("" for all); returns the bytes freed.
  int64_t clear(const std::string& kind = "");
  /// Removes the least recently used entries until at most `bytes` are left, and what crashed writers left.
  void trim(int64_t bytes);

  /// Told what went wrong, once for each reason; prints to stderr unless replaced.
  std::function<void(const std::string&)> warn;

 private:
  std::string folder(const CacheKey& key) const;
  std::string path(const CacheKey& key) const;
  void complain(const std::string& what, int error_number);

  std::string directory_;
  int64_t max_bytes_;
  std::mutex mutex_;
  int64_t bytes_ = -1;  // kept, as far as this process knows; -1: not counted yet
  std::set<std::string> complaints_;
};

}  // namespace imbrex
