// SPDX-License-Identifier: Apache-2.0
#include "imbrex/core/source_text.h"

#include <regex>

namespace imbrex {

std::string trimmed_line(const std::string& file, int line) {
  const std::string text = source_line(file.c_str(), line);
  const size_t from = text.find_first_not_of(" \t");
  return from == std::string::npos ? "" : text.substr(from, text.find_last_not_of(" \t\r") + 1 - from);
}

std::string declared_variable(const std::string& file, int line) {
  // `auto NAME = ...`, or a member's `NAME(mbarrier::alloc(...` that began a line or two before.
  static const std::regex kDeclared(R"((?:auto|Barrier|BarrierArray)\s*&?\s*(\w+)\s*=)");
  static const std::regex kMember(R"((\w+)\s*\(\s*mbarrier::)");
  std::smatch match;
  const std::string here = trimmed_line(file, line);
  if (std::regex_search(here, match, kDeclared)) return match[1];
  const std::string before = trimmed_line(file, line - 2) + " " + trimmed_line(file, line - 1) + " " + here;
  std::string found;
  for (auto at = std::sregex_iterator(before.begin(), before.end(), kMember); at != std::sregex_iterator();
       ++at)
    found = (*at)[1];  // the last one begun
  return found;
}

}  // namespace imbrex
