// SPDX-License-Identifier: Apache-2.0
// The text form of a layout, and the table for people.
#include <algorithm>
#include <cctype>

#include "imbrex/core/parse_error.h"
#include "layout/layout_data.h"

namespace imbrex::layout {
namespace {

constexpr std::string_view kAxisLetters = "tralcx";

std::string mode_text(const Mode& mode) {
  return fmt::format("{}{}{}", mode.extent, kAxisLetters[static_cast<size_t>(mode.axis)], mode.stride);
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  Layout read() {
    Shape shape;
    std::vector<Modes> modes;
    Modes replicas;
    int bits = 0;
    Swizzle swizzle;
    expect('[');
    if (is_digit()) {
      do {
        shape.push_back(number());
        modes.push_back(accept(':') ? mode_list() : Modes{});
      } while (accept(','));
    }
    while (accept(';')) {
      std::string_view word = read_word();
      if (word == "rep") {
        replicas = mode_list();
      } else if (word == "bits") {
        bits = static_cast<int>(std::min<int64_t>(number(), 1 << 20));
      } else if (word == "swizzle") {
        skip_space();
        size_t end = std::min(text_.find_first_of(" ;]", at_), text_.size());
        std::optional<Swizzle> named = Swizzle::from_name(text_.substr(at_, end - at_));
        if (!named) fail_here("a swizzle (none, 32B, 64B, 128B, 128B/32B, 128B/32B+8B, 128B/64B)");
        swizzle = *named;
        at_ = end;
      } else {
        fail_here("rep, bits or swizzle");
      }
    }
    expect(']');
    skip_space();
    if (at_ != text_.size()) fail_here("the end");
    try {
      return Layout(std::move(shape), std::move(modes), std::move(replicas), bits, swizzle);
    } catch (const CompileError& error) {
      throw ParseError(error.diagnostics());
    }
  }

 private:
  [[noreturn]] void fail_here(std::string_view expected) const {
    throw ParseError(Diagnostic{
        {}, fmt::format("layout: expected {} at character {} of '{}'", expected, at_ + 1, text_), {}, ""});
  }
  void skip_space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  char peek() {
    skip_space();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool is_digit() { return std::isdigit(static_cast<unsigned char>(peek())) != 0; }
  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail_here(fmt::format("'{}'", c));
  }
  int64_t number() {
    if (!is_digit()) fail_here("a number");
    int64_t value = 0;
    for (; at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])); ++at_) {
      value = value * 10 + (text_[at_] - '0');
      if (value > int64_t{1} << 40) fail_here("a smaller number");
    }
    return value;
  }
  std::string_view read_word() {
    skip_space();
    size_t start = at_;
    while (at_ < text_.size() && std::isalpha(static_cast<unsigned char>(text_[at_]))) ++at_;
    return text_.substr(start, at_ - start);
  }
  Modes mode_list() {
    Modes modes;
    while (is_digit()) {
      Mode mode;
      mode.extent = number();
      size_t axis = at_ < text_.size() ? kAxisLetters.find(text_[at_]) : std::string_view::npos;
      if (axis == std::string_view::npos) fail_here("an axis letter (t, r, a, l, c, x)");
      mode.axis = static_cast<Axis>(axis);
      ++at_;
      mode.stride = number();
      modes.push_back(mode);
    }
    return modes;
  }

  std::string_view text_;
  size_t at_ = 0;
};

// "t3 r1", all copies of a place on one axis joined: "t0,4,8 r1".
std::string place_text(const Layout& layout, std::span<const int64_t> index) {
  std::vector<Coords> places = layout.places(index);
  std::string text;
  for (Axis axis : kAxes) {
    if (!layout.uses(axis)) continue;
    std::vector<int64_t> values;
    for (const Coords& place : places)
      if (std::find(values.begin(), values.end(), place[axis]) == values.end()) values.push_back(place[axis]);
    text += fmt::format("{}{}{}", text.empty() ? "" : " ", kAxisLetters[static_cast<size_t>(axis)],
                        fmt::join(values, ","));
  }
  return text.empty() ? "-" : text;
}

}  // namespace

std::string Layout::to_string() const {
  std::string text = "[";
  for (int d = 0; d < rank(); ++d) {
    text += fmt::format("{}{}", d == 0 ? "" : ", ", shape()[static_cast<size_t>(d)]);
    if (!modes(d).empty()) text += ':';
    for (const Mode& mode : modes(d)) text += " " + mode_text(mode);
  }
  if (!replicas().empty()) text += "; rep";
  for (const Mode& mode : replicas()) text += " " + mode_text(mode);
  if (element_bits() != 0) text += fmt::format("; bits {}", element_bits());
  if (swizzle()) text += fmt::format("; swizzle {}", swizzle().name());
  return text + "]";
}

Layout Layout::parse(std::string_view text) { return Reader(text).read(); }

std::string Layout::grid(int64_t max_rows, int64_t max_columns) const {
  Shape outer = shape();
  int64_t columns = 1, rows = 1;
  if (!outer.empty()) columns = outer.back(), outer.pop_back();
  if (!outer.empty()) rows = outer.back(), outer.pop_back();
  int64_t shown_rows = std::min(rows, max_rows), shown_columns = std::min(columns, max_columns);

  std::string text = to_string() + "\n";
  Index block(outer.size(), 0);
  do {
    if (!block.empty()) text += fmt::format("[{}]\n", fmt::join(block, ", "));
    std::vector<std::string> cells;
    size_t width = 1;
    for (int64_t i = 0; i < shown_rows; ++i)
      for (int64_t j = 0; j < shown_columns; ++j) {
        Index index = block;
        if (rank() >= 2) index.push_back(i);
        if (rank() >= 1) index.push_back(j);
        cells.push_back(place_text(*this, index));
        width = std::max(width, cells.back().size());
      }
    text += fmt::format("{:>5} ", "");
    for (int64_t j = 0; j < shown_columns; ++j) text += fmt::format(" {:<{}}", j, width);
    text += columns > shown_columns ? " ...\n" : "\n";
    for (int64_t i = 0; i < shown_rows; ++i) {
      text += fmt::format("{:>5}:", i);
      for (int64_t j = 0; j < shown_columns; ++j)
        text += fmt::format(" {:<{}}", cells[static_cast<size_t>(i * shown_columns + j)], width);
      text += "\n";
    }
    if (rows > shown_rows) text += "  ...\n";
  } while (next_index(block, outer));
  return text;
}

}  // namespace imbrex::layout
