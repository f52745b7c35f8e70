// SPDX-License-Identifier: Apache-2.0
// The CUDA tools, for tests that they take what we write; those that find none skip.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "imbrex/core/find_tool.h"
#include "skip.h"

namespace imbrex {

/// What ptxas says of PTX, given options that name the target: "" when it takes it and has nothing to add,
/// text that begins with "failed" when it refuses. The cubin goes where `cubin` says. A test calls it once it
/// knows that there is a ptxas.
inline std::string ptxas_says(const std::string& ptx, const std::string& options,
                              const std::string& cubin = "/dev/null") {
  static std::atomic<int> count = 0;  // tests run in parallel, as processes and as threads
  const std::string stem = (std::filesystem::temp_directory_path() /
                            ("imbrex_ptxas_" + std::to_string(getpid()) + "_" + std::to_string(++count)))
                               .string();
  std::ofstream(stem + ".ptx") << ptx;
  const std::string command = find_cuda_tool("ptxas").path + " " + options + " -o '" + cubin + "' '" + stem +
                              ".ptx' > '" + stem + ".log' 2>&1";
  const int result = std::system(command.c_str());
  std::stringstream said;
  said << std::ifstream(stem + ".log").rdbuf();
  for (const char* suffix : {".ptx", ".log"}) std::filesystem::remove(stem + suffix);
  return result == 0 ? said.str() : "failed: " + said.str();
}

}  // namespace imbrex

/// Leaves the test where there is no ptxas.
#define IMBREX_NEEDS_PTXAS() \
  if (::imbrex::find_cuda_tool("ptxas").path.empty()) IMBREX_SKIP(ptxas)
