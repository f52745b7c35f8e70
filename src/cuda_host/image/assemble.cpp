// SPDX-License-Identifier: Apache-2.0
#include "cuda_host/image/assemble.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

extern char** environ;

namespace imbrex::cuda {
namespace {

namespace fs = std::filesystem;

/// A folder in the system's temporary one, removed with all that is in it.
class Folder {
 public:
  Folder() {
    std::error_code error;
    std::string name = (fs::temp_directory_path(error) / "imbrex-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  ~Folder() {
    std::error_code error;
    if (!path_.empty()) fs::remove_all(path_, error);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const char* name) const { return path_.empty() ? "" : path_ + "/" + name; }

 private:
  std::string path_;
};

/// Whether the program ran and was content; nothing that it prints is seen.
bool run(std::initializer_list<std::string> words) {
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    posix_spawn_file_actions_addopen(&actions, stream, "/dev/null", O_RDWR, 0);
  pid_t child = 0;
  const int failure = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) return false;
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return false;  // the program has taken the child's end itself
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

std::string assemble(const std::string& ptxas, const std::string& ptx, const std::string& target) {
  const Folder folder;
  const std::string source = folder.file("kernel.ptx"), result = folder.file("kernel.cubin");
  if (source.empty()) return "";
  std::ofstream(source) << ptx;
  if (!run({ptxas, "-lineinfo", "-arch=" + target, source, "-o", result})) return "";
  std::ostringstream cubin;
  cubin << std::ifstream(result, std::ios::binary).rdbuf();
  return cubin.str();
}

}  // namespace imbrex::cuda
