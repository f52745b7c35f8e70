// SPDX-License-Identifier: Apache-2.0
#include "itself.h"

#include <unistd.h>

#include <utility>

namespace imbrex::command {
namespace {

std::vector<std::string> g_words;

/// By its name, since others may start it, whose /proc/self is another's.
std::string this_program() {
  char name[4096];
  const ssize_t length = readlink("/proc/self/exe", name, sizeof name);
  return std::string(name, length > 0 ? static_cast<size_t>(length) : 0);
}

}  // namespace

const std::vector<std::string>& itself() {
  if (g_words.empty()) g_words = {this_program()};
  return g_words;
}
void set_itself(std::vector<std::string> words) { g_words = std::move(words); }

}  // namespace imbrex::command
