// SPDX-License-Identifier: Apache-2.0
// A kernel's source, IR and PTX, line by line, with what belongs together.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace imbrex::command {

/// One line. `key` names the source line it comes from, "0-47": line 47 of the first file; "" for none.
struct CodeLine {
  std::string text;
  std::string key;
};
/// The part of a source file that a kernel is made of.
struct SourcePart {
  std::string path;
  int first = 0;  // number of lines[0]
  std::vector<CodeLine> lines;
};

struct KernelCode {
  std::vector<SourcePart> sources;  // the kernel's own file first
  std::vector<CodeLine> ir, ptx;

  /// The key of a source line; "" when nothing of the kernel comes from there.
  std::string key(const std::string& path, int64_t line) const;

 private:
  friend KernelCode kernel_code(const std::string& ir, const std::string& ptx);
  std::map<std::string, size_t> files_;  // by path
  std::map<std::pair<size_t, int>, bool> used_;
};

/// Reads the line notes of IR text (`@47`, `@"file.h":3`, and where the kernel is `from`) and of PTX (.loc).
KernelCode kernel_code(const std::string& ir, const std::string& ptx);

}  // namespace imbrex::command
