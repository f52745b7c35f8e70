// SPDX-License-Identifier: Apache-2.0
#include "itself.h"

#include <filesystem>
#include <utility>

namespace imbrex::command {
namespace {

std::vector<std::string> g_words;

}  // namespace

const std::vector<std::string>& itself() {
  // By the program's name, since others may start it, whose /proc/self is another's.
  if (g_words.empty()) g_words = {std::filesystem::read_symlink("/proc/self/exe").string()};
  return g_words;
}
void set_itself(std::vector<std::string> words) { g_words = std::move(words); }

}  // namespace imbrex::command
