// SPDX-License-Identifier: Apache-2.0
#include "ir/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "core/text.h"
#include "imbrex/core/parse_error.h"

namespace imbrex::ir {
namespace {

bool is_word_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

Lexer::Lexer(std::string_view text, std::string_view file_name) : text_(text), file_name_(intern(file_name)) {
  token_ = scan(position_);
}

Token Lexer::next() {
  Token taken = std::move(token_);
  token_ = scan(position_);
  return taken;
}

Token Lexer::peek_second() const {
  size_t position = position_;
  return scan(position);
}

std::string_view Lexer::bracketed() {
  const size_t begin = token_.offset;
  int depth = 0;
  for (size_t i = begin; i < text_.size() && text_[i] != '\n'; ++i) {
    depth += (text_[i] == '[') - (text_[i] == ']');
    if (depth > 0) continue;
    position_ = i + 1;
    token_ = scan(position_);
    return text_.substr(begin, i + 1 - begin);
  }
  fail(begin, "'[' is not closed on this line");
}

void Lexer::fail(size_t offset, const std::string& message, const std::string& help) const {
  offset = std::min(offset, text_.size());
  const size_t previous = text_.substr(0, offset).rfind('\n');
  const size_t line_begin = previous == std::string_view::npos ? 0 : previous + 1;
  const size_t line_end = std::min(text_.find('\n', offset), text_.size());
  const size_t line = 1 + static_cast<size_t>(std::count(text_.begin(), text_.begin() + offset, '\n'));
  const size_t column = offset - line_begin + 1;
  Diagnostic diagnostic;
  diagnostic.where = {file_name_, static_cast<uint32_t>(line), ""};
  diagnostic.message = fmt::format("column {}: {}", column, message);
  diagnostic.facts = {std::string(text_.substr(line_begin, line_end - line_begin)),
                      std::string(column - 1, ' ') + "^"};
  diagnostic.help = help;
  throw ParseError(std::move(diagnostic));
}

Token Lexer::scan(size_t& position) const {
  size_t& i = position;
  const auto at = [&](size_t k) { return k < text_.size() ? text_[k] : '\0'; };
  while (i < text_.size()) {
    if (std::isspace(static_cast<unsigned char>(text_[i]))) {
      ++i;
    } else if (text_[i] == '/' && at(i + 1) == '/') {
      i = std::min(text_.find('\n', i), text_.size());
    } else {
      break;
    }
  }
  Token token;
  token.offset = i;
  if (i >= text_.size()) return token;
  const char c = text_[i];
  if (c == '%') {
    token.kind = TokenKind::kValue;
    for (++i; i < text_.size() && is_word_char(text_[i]); ++i) token.text += text_[i];
    if (token.text.empty()) fail(token.offset, "a name belongs after '%'");
  } else if (is_digit(c) || (c == '-' && is_digit(at(i + 1)))) {
    token.kind = TokenKind::kNumber;
    token.text += text_[i++];
    while (i < text_.size()) {
      const bool exponent_sign = (text_[i] == '-' || text_[i] == '+') && token.text.back() == 'e';
      if (!is_word_char(text_[i]) && !exponent_sign) break;
      token.text += text_[i++];
    }
  } else if (is_word_char(c) || (c == '-' && std::isalpha(static_cast<unsigned char>(at(i + 1))))) {
    token.kind = TokenKind::kWord;  // "-inf" is a word too
    do token.text += text_[i++];
    while (i < text_.size() && is_word_char(text_[i]));
  } else if (c == '"') {
    token.kind = TokenKind::kString;
    for (++i;; ++i) {
      if (i >= text_.size() || text_[i] == '\n') fail(token.offset, "the string is not closed on this line");
      if (text_[i] == '"') break;
      if (text_[i] != '\\') {
        token.text += text_[i];
        continue;
      }
      ++i;
      const int high = hex_digit(at(i + 1)), low = hex_digit(at(i + 2));
      if (at(i) == 'n') {
        token.text += '\n';
      } else if (at(i) == 't') {
        token.text += '\t';
      } else if (at(i) == '"' || at(i) == '\\') {
        token.text += at(i);
      } else if (at(i) == 'x' && high >= 0 && low >= 0) {
        token.text += static_cast<char>(high * 16 + low);
        i += 2;
      } else {
        fail(i - 1, "unknown escape in a string", "known are \\n \\t \\\" \\\\ and \\xNN");
      }
    }
    ++i;
  } else if (std::string_view("(){}[]<>,:=?@").find(c) != std::string_view::npos) {
    token.kind = TokenKind::kPunct;
    token.text = c;
    ++i;
  } else {
    fail(i, std::isprint(static_cast<unsigned char>(c))
                ? fmt::format("unexpected character '{}'", c)
                : fmt::format("unexpected byte 0x{:02x}", static_cast<unsigned char>(c)));
  }
  return token;
}

}  // namespace imbrex::ir
