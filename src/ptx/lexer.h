// SPDX-License-Identifier: Apache-2.0
// Splits PTX text into tokens. Internal to the reader.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

#include "ptx/ptx.h"

namespace imbrex::ptx {

enum class TokenKind : uint8_t {
  end,
  word,      ///< foo, $L_2, %r1, _
  dot_word,  ///< .global, .shared::cta, .2d; the text has no dot
  number,    ///< 12, 0xffU, 0f3F800000, 1.5e-3; also the version 9.0
  string,    ///< without its quotes
  punctuation,
};

struct Token {
  TokenKind kind = TokenKind::end;
  char punctuation = 0;  ///< for punctuation only
  std::string_view text;
  SourcePos pos;
};

/// Why the text cannot be read on. Caught by the reader, which goes on at the next statement.
struct SyntaxError {
  SourcePos pos;
  std::string message;
  std::string help;
  const char* lacking = "";  // what Imbrex does not have that the text asks for; "": the text is wrong
};

/// One token ahead of the reader.
class Lexer {
 public:
  /// start() must come before anything else; like every step it may throw SyntaxError.
  explicit Lexer(std::string_view text) : text_(text) {}
  void start() { advance(); }

  const Token& peek() const { return token_; }
  Token next() {
    Token t = token_;
    advance();
    return t;
  }
  bool at(char punctuation) const { return token_.punctuation == punctuation; }
  bool at_dot(std::string_view word) const {
    return token_.kind == TokenKind::dot_word && token_.text == word;
  }
  bool accept(char punctuation) {
    if (!at(punctuation)) return false;
    advance();
    return true;
  }
  bool accept_dot(std::string_view word) {
    if (!at_dot(word)) return false;
    advance();
    return true;
  }

  /// Everything up to the '}' that closes the '{' just taken, and takes that.
  std::string_view raw_block();
  /// Drops tokens up to and with the next ';', or to the next '{' or '}', which stays. Never throws.
  void skip_statement();
  /// "`;`", "'foo'", "the end of the text": the current token for messages.
  std::string describe() const;
  [[noreturn]] void fail(std::string message, std::string help = {}) const {
    throw SyntaxError{token_.pos, std::move(message), std::move(help)};
  }
  /// Fails with "expected WHAT, found ...".
  [[noreturn]] void fail_expected(std::string_view what) const;

  /// The text from the start of one token to the end of another.
  static std::string_view joined(const Token& first, const Token& last) {
    return {first.text.data(), static_cast<size_t>(last.text.data() + last.text.size() - first.text.data())};
  }

 private:
  void advance();
  void skip_space();
  [[noreturn]] void fail_lexing(SourcePos pos, const char* message);
  size_t word_end(size_t from) const;
  SourcePos here() const { return {line_, static_cast<uint32_t>(at_ - line_start_ + 1)}; }
  char peek_char(size_t offset = 0) const { return at_ + offset < text_.size() ? text_[at_ + offset] : '\0'; }

  std::string_view text_;
  size_t at_ = 0;
  size_t line_start_ = 0;
  uint32_t line_ = 1;
  Token token_;
};

}  // namespace imbrex::ptx
