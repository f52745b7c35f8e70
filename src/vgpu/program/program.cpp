// SPDX-License-Identifier: Apache-2.0
#include "vgpu/program/program.h"

#include <fmt/format.h>

#include <algorithm>

namespace imbrex::vgpu {

namespace {

/// Of lists of registers only the first and the last: "{%f0, ... %f63}".
std::string shortened(const std::string& ptx) {
  std::string text;
  for (size_t at = 0; at < ptx.size();) {
    const size_t open = ptx.find('{', at), close = ptx.find('}', open);
    if (close == std::string::npos) return text + ptx.substr(at);
    const size_t first = ptx.find(',', open), last = ptx.rfind(',', close);
    const bool is_long = std::count(ptx.begin() + static_cast<ptrdiff_t>(open),
                                    ptx.begin() + static_cast<ptrdiff_t>(close), ',') > 3;
    text += ptx.substr(at, (is_long ? first + 1 : close) - at);
    if (is_long) text += " ..." + ptx.substr(last + 1, close - last - 1);
    at = close;
    text += ptx[at++];
  }
  return text;
}

}  // namespace

void Program::collect_uses() {
  for (const InstructionInfo& of : info) {
    DefinedUse& use = uses.emplace_back();
    use.first = static_cast<uint32_t>(use_numbers.size());
    use.reads = static_cast<uint16_t>(of.reads.size());
    use.all = static_cast<uint16_t>(of.reads.size() + of.writes.size());
    use.is_reported = of.flow == UndefinedFlow::kReported;
    use.is_loaded = of.flow == UndefinedFlow::kLoaded;
    use.stages = of.stages.load != 0;
    use.passes = !use.is_reported && !use.is_loaded && of.flow != UndefinedFlow::kShuffled &&
                 of.flow != UndefinedFlow::kStored;
    use_numbers.insert(use_numbers.end(), of.reads.begin(), of.reads.end());
    use_numbers.insert(use_numbers.end(), of.writes.begin(), of.writes.end());
  }
}

CodePlace Program::place(uint32_t index) const {
  CodePlace place;
  if (index >= info.size()) return place;
  const InstructionInfo& insn = info[index];
  place.file = insn.file;
  place.line = insn.line;
  place.ptx_line = insn.ptx_line;
  place.function = insn.function;
  place.object = insn.object;
  if (text != nullptr && insn.ptx_line > 0 && insn.ptx_line <= static_cast<int>(text->size())) {
    const std::string& line = (*text)[static_cast<size_t>(insn.ptx_line - 1)];
    const size_t from = line.find_first_not_of(" \t");
    if (from != std::string::npos)
      place.ptx = shortened(line.substr(from, line.find_last_not_of(" \t\r") + 1 - from));
  }
  return place;
}

std::string Program::place_text(uint32_t index) const {
  const CodePlace at = place(index);
  if (at.ptx_line == 0) return fmt::format("instruction {}", index);
  if (at.file.empty()) return fmt::format("PTX line {} ({})", at.ptx_line, at.ptx);
  return fmt::format("{}:{} (PTX line {}: {})", at.file, at.line, at.ptx_line, at.ptx);
}

}  // namespace imbrex::vgpu
