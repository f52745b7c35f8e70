// SPDX-License-Identifier: Apache-2.0
#include "ptx/lexer.h"

#include <fmt/format.h>

#include <array>

namespace imbrex::ptx {
namespace {

enum : uint8_t { kWordChar = 1, kDigit = 2, kSpace = 4 };

constexpr std::array<uint8_t, 256> make_classes() {
  std::array<uint8_t, 256> c{};
  for (int i = 'a'; i <= 'z'; ++i) c[i] = c[i - 'a' + 'A'] = kWordChar;
  for (int i = '0'; i <= '9'; ++i) c[i] = kWordChar | kDigit;
  c['_'] = c['$'] = kWordChar;
  c[' '] = c['\t'] = c['\r'] = c['\f'] = c['\v'] = kSpace;
  return c;
}
constexpr std::array<uint8_t, 256> kClasses = make_classes();

bool is(char c, uint8_t what) { return (kClasses[static_cast<unsigned char>(c)] & what) != 0; }

}  // namespace

// Leaves a token that fits nowhere, so that a reader that continues after the error does not take the text
// for ended.
void Lexer::fail_lexing(SourcePos pos, const char* message) {
  token_ = Token{TokenKind::punctuation, '"', text_.substr(0, 0), pos};
  throw SyntaxError{pos, message, ""};
}

void Lexer::skip_space() {
  while (at_ < text_.size()) {
    char c = text_[at_];
    if (is(c, kSpace)) {
      ++at_;
    } else if (c == '\n') {
      ++at_;
      ++line_;
      line_start_ = at_;
    } else if (c == '/' && peek_char(1) == '/') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == '/' && peek_char(1) == '*') {
      SourcePos start = here();
      size_t end = text_.find("*/", at_ + 2);
      if (end == std::string_view::npos) {
        at_ = text_.size();
        fail_lexing(start, "comment is never closed");
      }
      for (; at_ < end; ++at_)
        if (text_[at_] == '\n') ++line_, line_start_ = at_ + 1;
      at_ = end + 2;
    } else if ((c == '#' && at_ == line_start_) || (c == '@' && peek_char(1) == '@')) {
      at_ = std::min(text_.find('\n', at_), text_.size());  // line marks of a preprocessor, old DWARF lines
    } else {
      return;
    }
  }
}

// The end of a run of word characters in which '::' may stand between two of them.
size_t Lexer::word_end(size_t from) const {
  size_t end = from;
  while (end < text_.size()) {
    if (is(text_[end], kWordChar)) {
      ++end;
    } else if (text_[end] == ':' && end + 2 < text_.size() && text_[end + 1] == ':' &&
               is(text_[end + 2], kWordChar)) {
      end += 2;
    } else {
      break;
    }
  }
  return end;
}

void Lexer::advance() {
  skip_space();
  token_ = Token{TokenKind::end, 0, text_.substr(std::min(at_, text_.size()), 0), here()};
  if (at_ >= text_.size()) return;
  size_t start = at_;
  char c = text_[at_];
  if (is(c, kDigit)) {
    token_.kind = TokenKind::number;
    bool hex = c == '0' && (peek_char(1) == 'x' || peek_char(1) == 'X' || peek_char(1) == 'f' ||
                            peek_char(1) == 'F' || peek_char(1) == 'd' || peek_char(1) == 'D');
    while (is(peek_char(), kWordChar) || peek_char() == '.' ||
           (!hex && (peek_char() == '+' || peek_char() == '-') &&
            (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E')))
      ++at_;
    token_.text = text_.substr(start, at_ - start);
  } else if (is(c, kWordChar) || (c == '%' && is(peek_char(1), kWordChar) && !is(peek_char(1), kDigit))) {
    token_.kind = TokenKind::word;
    ++at_;
    while (at_ < text_.size() && is(text_[at_], kWordChar)) ++at_;
    token_.text = text_.substr(start, at_ - start);
  } else if (c == '.' && is(peek_char(1), kWordChar)) {
    token_.kind = TokenKind::dot_word;
    at_ = word_end(at_ + 1);
    token_.text = text_.substr(start + 1, at_ - start - 1);
  } else if (c == '"') {
    token_.kind = TokenKind::string;
    size_t end = text_.find_first_of("\"\n", at_ + 1);
    if (end == std::string_view::npos || text_[end] == '\n') {
      at_ = std::min(end, text_.size());
      fail_lexing(token_.pos, "string is never closed");
    }
    token_.text = text_.substr(start + 1, end - start - 1);
    at_ = end + 1;
  } else {
    token_.kind = TokenKind::punctuation;
    token_.punctuation = c;
    token_.text = text_.substr(at_, 1);
    ++at_;
  }
}

std::string_view Lexer::raw_block() {
  // The current token is the first of the block.
  size_t start = static_cast<size_t>(token_.text.data() - text_.data());
  if (token_.kind == TokenKind::dot_word || token_.kind == TokenKind::string) --start;
  int depth = 1;
  for (;;) {
    if (token_.kind == TokenKind::end) fail("section is never closed");
    if (at('{')) ++depth;
    if (at('}') && --depth == 0) break;
    advance();
  }
  size_t end = static_cast<size_t>(token_.text.data() - text_.data());
  advance();
  return text_.substr(start, end - start);
}

void Lexer::skip_statement() {
  while (token_.kind != TokenKind::end && !at('{') && !at('}')) {
    bool last = at(';');
    try {
      advance();
    } catch (const SyntaxError&) {  // a broken string or comment; what follows it is still worth reading
    }
    if (last) return;
  }
}

std::string Lexer::describe() const {
  if (token_.kind == TokenKind::end) return "the end of the text";
  std::string_view dot = token_.kind == TokenKind::dot_word ? "." : "";
  unsigned char c = static_cast<unsigned char>(token_.text.empty() ? ' ' : token_.text[0]);
  if (token_.kind == TokenKind::punctuation && (c < 32 || c > 126)) return fmt::format("byte 0x{:02x}", c);
  return fmt::format("'{}{}'", dot, token_.text.substr(0, 60));
}

void Lexer::fail_expected(std::string_view what) const {
  fail(fmt::format("expected {}, found {}", what, describe()));
}

}  // namespace imbrex::ptx
