// SPDX-License-Identifier: Apache-2.0
#include "runtime/package/template_text.h"

#include <fmt/format.h>

#include "imbrex/core/error.h"

namespace imbrex::runtime {

std::string filled(std::string_view text, const std::map<std::string_view, std::string>& values) {
  std::string out;
  size_t at = 0;
  for (;;) {
    const size_t open = text.find('@', at), close = text.find('@', open + 1);
    if (open == std::string_view::npos || close == std::string_view::npos) break;
    const std::string_view word = text.substr(open + 1, close - open - 1);
    const auto value = values.find(word);
    if (value == values.end()) throw InternalError(fmt::format("template: no value for '{}'", word));
    out += text.substr(at, open - at);
    out += value->second;
    at = close + 1;
    const bool begins_line = open == 0 || text[open - 1] == '\n';
    if (begins_line && at < text.size() && text[at] == '\n') ++at;
  }
  return out += text.substr(at);
}

}  // namespace imbrex::runtime
