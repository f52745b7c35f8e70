// SPDX-License-Identifier: Apache-2.0
#include "imbrex/core/find_tool.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

namespace imbrex {

std::string find_program(const std::string& name, const std::vector<std::string>& folders) {
  std::vector<std::string> all;
  if (const char* path = std::getenv("PATH")) {
    std::string_view rest = path;
    while (!rest.empty()) {
      const std::string_view folder = rest.substr(0, rest.find(':'));
      rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
      if (!folder.empty()) all.emplace_back(folder);
    }
  }
  all.insert(all.end(), folders.begin(), folders.end());
  for (const std::string& folder : all) {
    std::string file = folder + "/" + name;
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

CudaTool find_cuda_tool(const std::string& name) {
  std::string variable = "IMBREX_" + name;
  std::transform(variable.begin(), variable.end(), variable.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (const char* named = std::getenv(variable.c_str())) {
    if (std::string_view(named) == "none")
      return {"", false, fmt::format("{}=none hides {}", variable, name)};
    return {named, true, ""};
  }
  std::vector<std::string> folders;
  for (const char* home : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* folder = std::getenv(home)) folders.push_back(std::string(folder) + "/bin");
  folders.push_back("/usr/local/cuda/bin");
  CudaTool tool{find_program(name, folders), false, ""};
  if (tool.path.empty())
    tool.why_not =
        fmt::format("{} is not installed (looked in PATH, $CUDA_HOME/bin, /usr/local/cuda/bin; {} names it)",
                    name, variable);
  return tool;
}

}  // namespace imbrex
