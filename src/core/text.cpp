// SPDX-License-Identifier: Apache-2.0
#include "core/text.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

namespace imbrex {

const char* intern(std::string_view text) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> strings;  // node-based: c_str() stays put
  std::lock_guard lock(mutex);
  auto found = strings.find(text);
  if (found == strings.end()) found = strings.emplace(text).first;
  return found->c_str();
}

std::string source_line(const char* file, int line) {
  static std::mutex mutex;
  static std::map<std::string, std::vector<std::string>> files;
  std::lock_guard lock(mutex);
  auto [entry, is_new] = files.try_emplace(file);
  if (is_new) {
    // A compiler may record paths relative to its own directory (ccache makes it): look from here upwards,
    // below the build folder's parents too.
    std::ifstream in;
    std::string path = file;
    while (path.starts_with("../")) {
      in.open(path);
      if (in) break;
      path.erase(0, 3);
    }
    for (int up = 0; !in.is_open() && up < 5; ++up) {
      in.open(path);
      if (in || path.starts_with('/')) break;
      path.insert(0, "../");
    }
    for (std::string text; std::getline(in, text);) entry->second.push_back(text);
  }
  const auto& lines = entry->second;
  return line >= 1 && line <= static_cast<int>(lines.size()) ? lines[line - 1] : std::string();
}

std::string nearest_word(std::string_view word, std::span<const std::string> candidates) {
  std::string best;
  // At least one character in two must be right.
  size_t best_distance = std::min(std::max<size_t>(2, word.size() / 3), word.size() / 2) + 1;
  for (const std::string& candidate : candidates) {
    // Rows of the table of distances: between the first i characters of `word` and the first j of the candidate.
    std::vector<size_t> before, last, row(candidate.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= word.size(); ++i) {
      before = std::exchange(last, row);
      row[0] = i;
      for (size_t j = 1; j <= candidate.size(); ++j) {
        row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (word[i - 1] != candidate[j - 1])});
        const bool are_swapped =
            i > 1 && j > 1 && word[i - 1] == candidate[j - 2] && word[i - 2] == candidate[j - 1];
        if (are_swapped) row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    if (row.back() < best_distance) best_distance = row.back(), best = candidate;
  }
  return best;
}

}  // namespace imbrex
