// SPDX-License-Identifier: Apache-2.0
// Drawing: the few SVG elements our pictures are made of.
#pragma once

#include <string>

namespace imbrex::command {

class Svg {
 public:
  Svg(double width, double height) : width_(width), height_(height) {}

  /// Style of what is drawn: CSS declarations, "fill:none; stroke:#333".
  void rect(double x, double y, double width, double height, const std::string& style,
            const std::string& title = "");
  void line(double x1, double y1, double x2, double y2, const std::string& style);
  void circle(double x, double y, double radius, const std::string& style, const std::string& title = "");
  /// Through the points "x,y x,y ...".
  void polyline(const std::string& points, const std::string& style);
  /// `anchor`: start, middle or end.
  void text(double x, double y, const std::string& words, const std::string& anchor = "start",
            const std::string& style = "");
  std::string str() const;

 private:
  double width_, height_;
  std::string body_;
};

/// Text as it stands in an SVG.
std::string svg_escaped(const std::string& text);

/// Writes a file whole; LaunchError when that fails.
void write_file(const std::string& path, const std::string& text);

}  // namespace imbrex::command
