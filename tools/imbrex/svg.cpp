// SPDX-License-Identifier: Apache-2.0
#include "svg.h"

#include <fmt/format.h>

#include <fstream>

#include "imbrex/core/error.h"

namespace imbrex::command {

std::string svg_escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '&') {
      out += "&amp;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

namespace {

std::string title_element(const std::string& title) {
  return title.empty() ? "" : fmt::format("<title>{}</title>", svg_escaped(title));
}

}  // namespace

void Svg::rect(double x, double y, double width, double height, const std::string& style,
               const std::string& title) {
  body_ += fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" style=\"{}\">{}</rect>\n", x, y,
      width, height, style, title_element(title));
}

void Svg::line(double x1, double y1, double x2, double y2, const std::string& style) {
  body_ += fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" style=\"{}\"/>\n", x1,
                       y1, x2, y2, style);
}

void Svg::circle(double x, double y, double radius, const std::string& style, const std::string& title) {
  body_ += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\" style=\"{}\">{}</circle>\n", x, y,
                       radius, style, title_element(title));
}

void Svg::polyline(const std::string& points, const std::string& style) {
  body_ += fmt::format("<polyline points=\"{}\" style=\"{}\"/>\n", points, style);
}

void Svg::text(double x, double y, const std::string& words, const std::string& anchor,
               const std::string& style) {
  body_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" style=\"{}\">{}</text>\n", x, y,
                       anchor, style, svg_escaped(words));
}

std::string Svg::str() const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
      "height=\"{1:.0f}\" "
      "font-family=\"Helvetica, Arial, sans-serif\" font-size=\"13\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{2}</svg>\n",
      width_, height_, body_);
}

void write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file)
    throw LaunchError(
        Diagnostic{{}, "cannot write " + path, {}, "check that its folder exists and can be written"});
}

}  // namespace imbrex::command
