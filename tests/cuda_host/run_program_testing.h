// SPDX-License-Identifier: Apache-2.0
// Runs commands through the shell, as a user does.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace imbrex {

struct Ran {
  int exit_code = -1;
  std::string output;  // stdout and stderr
};

inline Ran run(const std::string& command) {
  Ran result;
  FILE* pipe = popen(("{ " + command + "\n} 2>&1").c_str(), "r");
  if (pipe == nullptr) return result;
  char buffer[4096];
  while (const size_t got = fread(buffer, 1, sizeof buffer, pipe)) result.output.append(buffer, got);
  const int status = pclose(pipe);
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

inline std::string contents(const std::string& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A name in a folder that this process has for itself, beside other checkouts' and other users' tests; it goes at exit.
inline std::string temporary(const std::string& name) {
  struct Folder {
    std::string path = testing::TempDir() + "imbrex-test-XXXXXX";
    Folder() {
      if (mkdtemp(path.data()) == nullptr) std::abort();
    }
    ~Folder() {
      std::error_code ignored;
      std::filesystem::remove_all(path, ignored);
    }
  };
  static const Folder folder;
  return folder.path + "/" + name;
}

inline const std::string kImbrex = IMBREX_BINARY_DIR "/imbrex";

}  // namespace imbrex
