// SPDX-License-Identifier: Apache-2.0
#include "core/cache_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

namespace imbrex {

std::string cache_folder() {
  if (const char* chosen = std::getenv("IMBREX_CACHE_DIR")) return chosen;
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && *xdg == '/')
    return std::string(xdg) + "/imbrex";
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/')
    return std::string(home) + "/.cache/imbrex";
  return fmt::format("/tmp/imbrex-cache-{}", getuid());
}

}  // namespace imbrex
