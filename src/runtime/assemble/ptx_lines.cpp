// SPDX-License-Identifier: Apache-2.0
#include "runtime/assemble/ptx_lines.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <map>

#include "core/text.h"

namespace imbrex::runtime {
namespace {

std::string_view next_line(std::string_view& text) {
  size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  return line;
}

std::string_view trimmed(std::string_view line) {
  size_t begin = line.find_first_not_of(" \t");
  return begin == std::string_view::npos ? std::string_view() : line.substr(begin);
}

}  // namespace

SourceLocation kernel_line(std::string_view ptx, int ptx_line) {
  std::map<int, std::string> files;
  int file = 0, line = 0, current = 0;
  for (std::string_view rest = ptx; !rest.empty();) {
    std::string text(trimmed(next_line(rest)));
    ++current;
    int index = 0, number = 0;
    if (std::sscanf(text.c_str(), ".file %d", &index) == 1) {
      size_t open = text.find('"'), close = text.rfind('"');
      if (open < close) files[index] = text.substr(open + 1, close - open - 1);
    } else if (current <= ptx_line && std::sscanf(text.c_str(), ".loc %d %d", &index, &number) == 2) {
      file = index, line = number;
    }
  }
  if (line == 0 || !files.contains(file)) return {};
  return {intern(files[file]), static_cast<uint32_t>(line), ""};
}

CompileError assembly_error(const codegen::CompiledKernel& kernel, std::string_view log,
                            const std::string& fallback) {
  std::vector<Diagnostic> diagnostics;
  for (std::string_view rest = log; !rest.empty();) {
    std::string line(next_line(rest));
    if (line.empty() || line[0] == '\0') continue;
    // "ptxas application ptx input, line 42; error   : ..."
    size_t at = line.find("line ");
    SourceLocation where = kernel.where;
    if (at != std::string::npos && line.find("error") != std::string::npos)
      if (SourceLocation found = kernel_line(kernel.ptx, std::atoi(line.c_str() + at + 5)); found.is_known())
        where = found;
    diagnostics.push_back({where, "assembling " + kernel.name + ": " + line, {}, ""});
    if (diagnostics.size() == 8) break;
  }
  if (diagnostics.empty())
    diagnostics.push_back({kernel.where, "assembling " + kernel.name + ": " + fallback, {}, ""});
  return CompileError(std::move(diagnostics));
}

}  // namespace imbrex::runtime
