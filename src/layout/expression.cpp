// SPDX-License-Identifier: Apache-2.0
// Layouts by expressions: calls of the header's functions, products, methods, text forms. A recursive descent over
//
//   product = value { "*" value }      value = primary { "." method "(" arguments ")" }
//   primary = "[" text form "]" | "(" product ")" | function "(" arguments ")"
#include <algorithm>
#include <cctype>

#include "imbrex/core/parse_error.h"
#include "layout/layout_data.h"

namespace imbrex::layout {
namespace {

/// What stands between the parentheses of a call.
struct Arguments {
  std::vector<int64_t> numbers;
  std::vector<Layout> layouts;
  std::string word;             // a swizzle's name
  std::optional<int64_t> bits;  // "bits = 16"
};

class Evaluator {
 public:
  explicit Evaluator(std::string_view text) : text_(text) {}

  Layout whole() {
    Layout result = product();
    skip_space();
    if (at_ != text_.size()) refuse("the end, or *");
    return result;
  }

 private:
  Layout product() {
    constexpr int kDeepest = 100;
    if (++depth_ > kDeepest) refuse("less: this is nested too deep");
    Layout result = value();
    while (accept('*')) result = result * value();
    --depth_;
    return result;
  }

  Layout value() {
    Layout result = primary();
    while (accept('.')) {
      const size_t start = at_;
      const std::string name = word();
      result = method(name, result, arguments(), start);
    }
    return result;
  }

  Layout primary() {
    skip_space();
    if (at_ < text_.size() && text_[at_] == '[') {
      const size_t end = text_.find(']', at_);
      if (end == std::string_view::npos) refuse("a ] somewhere behind");
      const Layout result = Layout::parse(text_.substr(at_, end + 1 - at_));
      at_ = end + 1;
      return result;
    }
    if (accept('(')) {
      Layout result = product();
      if (!accept(')')) refuse(")");
      return result;
    }
    const size_t start = at_;
    const std::string name = word();
    return function(name, arguments(), start);
  }

  Layout function(const std::string& name, const Arguments& a, size_t start) {
    using Maker = Layout (*)(const Shape&);
    constexpr std::pair<std::string_view, Maker> kMakers[] = {{"spatial", spatial},
                                                              {"column_spatial", column_spatial},
                                                              {"local", local},
                                                              {"column_local", column_local}};
    for (const auto& [known, make] : kMakers)
      if (name == known) return make(shape_of(a, start));
    if (name == "row_major") return row_major(shape_of(a, start), static_cast<int>(a.bits.value_or(16)));
    if (name == "compose" || name == "concat" || name == "divide") {
      if (a.layouts.size() != 2) refuse_at(start, name + " of two layouts");
      return name == "compose"  ? a.layouts[0] * a.layouts[1]
             : name == "concat" ? concat(a.layouts[0], a.layouts[1])
                                : divide(a.layouts[0], a.layouts[1]);
    }
    refuse_at(start, "spatial, column_spatial, local, column_local, row_major, compose, concat or divide");
  }

  Layout method(const std::string& name, const Layout& of, const Arguments& a, size_t start) {
    const auto one = [&] {
      if (a.numbers.size() != 1) refuse_at(start, name + " of one number");
      return a.numbers[0];
    };
    const auto dimension = [&] {
      const int64_t dim = one();
      if (dim < 0 || dim >= of.rank()) refuse_at(start, fmt::format("a dimension, 0 to {}", of.rank() - 1));
      return static_cast<int>(dim);
    };
    if (name == "transpose") return of.transpose();
    if (name == "reshape") return of.reshape(shape_of(a, start));
    if (name == "reduce") return of.reduce(dimension());
    if (name == "squeeze") return of.squeeze(dimension());
    if (name == "replicate_to") return of.replicate_to(one());
    if (name == "permute") {
      std::vector<int> order(a.numbers.begin(), a.numbers.end());
      std::vector<int> sorted = order;
      std::sort(sorted.begin(), sorted.end());
      for (int d = 0; d < static_cast<int>(sorted.size()); ++d)
        if (sorted[static_cast<size_t>(d)] != d || static_cast<int>(sorted.size()) != of.rank())
          refuse_at(start, "every dimension once");
      return of.permute(order);
    }
    if (name == "with_swizzle") {
      const std::optional<Swizzle> swizzle = Swizzle::from_name(a.word);
      if (!swizzle) refuse_at(start, "with_swizzle of none, 32B, 64B or 128B");
      return of.with_swizzle(*swizzle);
    }
    refuse_at(start, "transpose, permute, reshape, squeeze, reduce, replicate_to or with_swizzle");
  }

  Arguments arguments() {
    Arguments a;
    if (!accept('(')) refuse("(");
    if (accept(')')) return a;
    do {
      skip_space();
      const char next = at_ < text_.size() ? text_[at_] : '\0';
      if (std::isdigit(static_cast<unsigned char>(next)) != 0) {
        take_number(a);
      } else if (text_.substr(at_).starts_with("bits")) {
        at_ += 4;
        if (!accept('=')) refuse("=");
        skip_space();
        Arguments number;
        take_number(number);
        if (number.numbers.empty() || number.numbers[0] > 64) refuse("a number of bits, at most 64");
        a.bits = number.numbers[0];
      } else if (text_.substr(at_).starts_with("none")) {
        at_ += 4;
        a.word = "none";
      } else {
        a.layouts.push_back(product());
      }
    } while (accept(','));
    if (!accept(')')) refuse(")");
    return a;
  }

  /// A number, or a word that begins with one: "128B/32B".
  void take_number(Arguments& a) {
    const size_t start = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 ||
                                  text_[at_] == '/' || text_[at_] == '+'))
      ++at_;
    const std::string_view token = text_.substr(start, at_ - start);
    constexpr size_t kMostDigits = 9;
    if (token.find_first_not_of("0123456789") != std::string_view::npos) {
      a.word = token;
    } else if (token.empty() || token.size() > kMostDigits) {
      refuse_at(start, "a number below a billion");
    } else {
      a.numbers.push_back(std::stoll(std::string(token)));
    }
  }

  Shape shape_of(const Arguments& a, size_t start) {
    constexpr int64_t kMostElements = int64_t{1} << 24;
    int64_t elements = 1;
    for (int64_t extent : a.numbers) {
      if (extent < 1) refuse_at(start, "extents of at least 1");
      elements = std::min(elements * extent, kMostElements + 1);
    }
    if (a.numbers.empty()) refuse_at(start, "extents");
    if (elements > kMostElements) refuse_at(start, fmt::format("at most {} elements", kMostElements));
    return a.numbers;
  }

  std::string word() {
    skip_space();
    const size_t start = at_;
    while (at_ < text_.size() &&
           (std::isalpha(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      ++at_;
    if (at_ == start) refuse("a layout: spatial(...), local(...), row_major(...), [...]");
    return std::string(text_.substr(start, at_ - start));
  }

  void skip_space() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  bool accept(char c) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  [[noreturn]] void refuse(const std::string& expected) { refuse_at(at_, expected); }
  [[noreturn]] void refuse_at(size_t at, const std::string& expected) {
    throw ParseError({Diagnostic{
        {}, fmt::format("layout '{}': character {}: expected {}", text_, at + 1, expected), {}, ""}});
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;  // of products
};

}  // namespace

Layout evaluate(std::string_view expression) { return Evaluator(expression).whole(); }

}  // namespace imbrex::layout
