// SPDX-License-Identifier: Apache-2.0
// The page's listings: source, IR and PTX, each line with the key of the source line it comes from.
#include <algorithm>
#include <set>

#include "explain_page.h"
#include "svg.h"

namespace imbrex::command {

std::map<std::string, std::string> ExplanationPage::notes() const {
  std::map<std::string, int64_t> bytes;
  for (const KernelMove& move : e_.traffic.moves)
    bytes[e_.code.key(move.where.file, move.where.line)] += move.bytes;
  std::map<std::string, std::string> notes;
  for (const auto& [key, count] : bytes)
    notes[key] = fmt::format("<span class=\"note\">{}</span>", bytes_text(static_cast<double>(count)));
  for (const LineBanks& b : banks_by_line(e_.run.report.banks))
    if (b.degree > 1)
      notes[e_.code.key(b.file, b.line)] +=
          fmt::format("<span class=\"note bad\">{}-way bank conflict</span>", b.degree);
  notes.erase("");
  return notes;
}

void ExplanationPage::listing(const char* id, const std::string& title, const std::vector<CodeLine>& lines,
                              int first) {
  const bool is_source = first > 0;
  const std::map<std::string, std::string> note = is_source ? notes() : std::map<std::string, std::string>();
  html_.add("<h4>{}</h4><pre>", svg_escaped(title));
  std::set<std::string> seen;  // the first line of each has an anchor
  for (size_t i = 0; i < lines.size(); ++i) {
    const CodeLine& line = lines[i];
    const std::string number =
        is_source ? fmt::format("<span class=\"no\">{}</span>", first + static_cast<int>(i)) : "";
    const auto found = note.find(line.key);
    const std::string text = number + svg_escaped(line.text) + (found == note.end() ? "" : found->second);
    if (line.key.empty()) {
      html_.add("<span class=\"cl\">{}</span>", text);
      continue;
    }
    const std::string anchor = seen.insert(line.key).second ? fmt::format(" id=\"{}-{}\"", id, line.key) : "";
    const bool has_ir = is_source && std::any_of(e_.code.ir.begin(), e_.code.ir.end(),
                                                 [&](const CodeLine& l) { return l.key == line.key; });
    if (is_source)
      html_.add("<a class=\"cl\" href=\"#{}-{}\" data-k=\"{}\"{}>{}</a>", has_ir ? "ir" : "ptx", line.key,
                line.key, anchor, text);
    else
      html_.add("<span class=\"cl\" data-k=\"{}\"{}>{}</span>", line.key, anchor, text);
  }
  html_.add("</pre>");
}

void ExplanationPage::code() {
  open("code", "Source, IR and PTX",
       "Choose a line in any of the three, and what belongs to it is marked in the others.");
  html_.add("<div class=\"panes\">\n<div class=\"pane source\"><h3>Source</h3><div class=\"listing\">");
  for (const SourcePart& part : e_.code.sources)
    listing("source", part.path.substr(part.path.find_first_not_of("./")), part.lines, part.first);
  html_.add("</div></div>\n<div class=\"pane\"><h3>IR</h3><div class=\"listing\">");
  listing("ir", fmt::format("after every pass, {} lines", e_.code.ir.size()), e_.code.ir, 0);
  html_.add("</div></div>\n<div class=\"pane\"><h3>PTX</h3><div class=\"listing\">");
  listing("ptx", fmt::format("{}, {} lines", e_.resources.target, e_.code.ptx.size()), e_.code.ptx, 0);
  html_.add("</div></div>\n</div>\n");
  close();
}

}  // namespace imbrex::command
