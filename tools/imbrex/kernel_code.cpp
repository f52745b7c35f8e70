// SPDX-License-Identifier: Apache-2.0
#include "kernel_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "imbrex/core/source_text.h"

namespace imbrex::command {

namespace {

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

int number_at(const std::string& text, size_t at) {
  int number = 0;
  if (at < text.size()) std::from_chars(text.data() + at, text.data() + text.size(), number);
  return number;
}

struct Note {
  std::string path;  // "" for the kernel's own file
  int line = 0;      // 0: none
};

/// The last " @47" or " @"path":47" of a line of IR.
Note note_of(const std::string& text) {
  const size_t at = text.rfind(" @");
  if (at == std::string::npos) return {};
  if (text[at + 2] != '"') return {"", number_at(text, at + 2)};
  const size_t end = text.find('"', at + 3);
  if (end == std::string::npos) return {};
  return {text.substr(at + 3, end - at - 3), number_at(text, end + 2)};
}

/// `from "path":18` of a kernel's first line: its operator().
Note origin_of(const std::string& text) {
  constexpr std::string_view kFrom = " from \"";
  const size_t at = text.rfind(kFrom);
  if (at == std::string::npos) return {};
  const size_t begin = at + kFrom.size(), end = text.find('"', begin);
  if (end == std::string::npos) return {};
  return {text.substr(begin, end - begin), number_at(text, end + 2)};
}

std::string key_text(size_t file, int line) { return fmt::format("{}-{}", file, line); }

/// Lines of a helper's file are shown with so much around them; the kernel's own from its struct to its end.
constexpr int kAround = 1, kAfterKernel = 3;

/// The line where the struct begins that `line` is in; `line` where it is not found.
int struct_line(const std::string& path, int line) {
  constexpr int kFarthest = 120;
  for (int at = line; at > 0 && at > line - kFarthest; --at)
    if (source_line(path.c_str(), at).starts_with("struct ")) return at;
  return line;
}

}  // namespace

std::string KernelCode::key(const std::string& path, int64_t line) const {
  const auto file = files_.find(path);
  if (file == files_.end() || !used_.contains({file->second, static_cast<int>(line)})) return "";
  return key_text(file->second, static_cast<int>(line));
}

KernelCode kernel_code(const std::string& ir, const std::string& ptx) {
  KernelCode code;
  const Note kernel = origin_of(ir.substr(0, ir.find('\n')));
  code.files_[kernel.path] = 0;
  std::vector<std::string> paths = {kernel.path};
  const auto note = [&](const std::string& path, int line) -> std::string {
    if (line <= 0) return "";
    const auto [file, is_new] = code.files_.try_emplace(path, paths.size());
    if (is_new) paths.push_back(path);
    code.used_[{file->second, line}] = true;
    return key_text(file->second, line);
  };

  for (const std::string& text : split_lines(ir)) {
    const Note at = note_of(text);
    code.ir.push_back({text, note(at.path.empty() ? kernel.path : at.path, at.line)});
  }
  std::map<int, std::string> ptx_files;
  std::string key;
  for (const std::string& text : split_lines(ptx)) {
    if (text.starts_with(".file ")) {
      const size_t quote = text.find('"');
      if (quote != std::string::npos)
        ptx_files[number_at(text, 6)] = text.substr(quote + 1, text.rfind('"') - quote - 1);
      continue;
    }
    if (const size_t loc = text.find(".loc ");
        loc != std::string::npos && text.find_first_not_of(" \t") == loc) {
      const size_t line = text.find(' ', loc + 5);
      key = note(ptx_files[number_at(text, loc + 5)],
                 line == std::string::npos ? 0 : number_at(text, line + 1));
      continue;
    }
    const bool is_code = text.starts_with("\t") && !text.starts_with("\t.");
    code.ptx.push_back({text, is_code ? key : ""});
  }

  for (size_t file = 0; file < paths.size(); ++file) {
    int first = 0, last = 0;
    for (const auto& [place, used] : code.used_)
      if (place.first == file) {
        first = first == 0 ? place.second : std::min(first, place.second);
        last = std::max(last, place.second);
      }
    if (last == 0) continue;
    if (file == 0)
      first = struct_line(paths[0], std::min(first, kernel.line));
    else
      first = std::max(1, first - kAround);
    last += file == 0 ? kAfterKernel : kAround;
    SourcePart part{paths[file], first, {}};
    for (int line = first; line <= last; ++line)
      part.lines.push_back({source_line(paths[file].c_str(), line), code.key(paths[file], line)});
    while (!part.lines.empty() && part.lines.back().text.empty() && part.lines.back().key.empty())
      part.lines.pop_back();
    code.sources.push_back(std::move(part));
  }
  return code;
}

}  // namespace imbrex::command
