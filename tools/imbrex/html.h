// SPDX-License-Identifier: Apache-2.0
// Writing HTML: text collected piece by piece, tables by rows.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <utility>

namespace imbrex::command {

class Html {
 public:
  template <class... Args>
  void add(fmt::format_string<Args...> form, Args&&... args) {
    text_ += fmt::format(form, std::forward<Args>(args)...);
  }

  /// A table that scrolls sideways where it is too wide. Columns: their headings; "<" in front of words.
  void open_table(std::initializer_list<const char*> headings) {
    text_ += "<div class=\"scroll\"><table><tr>";
    for (const char* heading : headings)
      add("<th{}>{}</th>", heading[0] == '<' ? " class=\"word\"" : "", heading + (heading[0] == '<' ? 1 : 0));
    text_ += "</tr>\n";
  }
  /// A cell: its HTML and its classes.
  struct Cell {
    std::string html;
    const char* classes = "";
  };
  void row(std::initializer_list<Cell> cells, const char* classes = "") {
    add("<tr class=\"{}\">", classes);
    for (const Cell& cell : cells) add("<td class=\"{}\">{}</td>", cell.classes, cell.html);
    text_ += "</tr>\n";
  }
  void close_table() { text_ += "</table></div>\n"; }

  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace imbrex::command
