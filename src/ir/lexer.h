// SPDX-License-Identifier: Apache-2.0
// The tokens of IR text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace imbrex::ir {

enum class TokenKind : uint8_t {
  kEnd,
  kWord,    // mnemonic, keyword, attribute name
  kValue,   // %name; text is without the %
  kNumber,  // with its sign
  kString,  // text is the decoded contents
  kPunct,   // one of ( ) { } [ ] < > , : = ? @
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;
  size_t offset = 0;  // of its first character

  bool is(char punct) const { return kind == TokenKind::kPunct && text[0] == punct; }
  bool is_word(std::string_view word) const { return kind == TokenKind::kWord && text == word; }
};

/// Splits IR text; `//` starts a comment. Errors are ParseError with line, column and the quoted line.
class Lexer {
 public:
  Lexer(std::string_view text, std::string_view file_name);

  const Token& peek() const { return token_; }
  /// The token after peek().
  Token peek_second() const;
  Token next();
  /// The text from the current token, which must be '[', to its matching ']', both included.
  std::string_view bracketed();
  [[noreturn]] void fail(size_t offset, const std::string& message, const std::string& help = "") const;

 private:
  Token scan(size_t& position) const;

  std::string_view text_;
  const char* file_name_;
  size_t position_ = 0;  // after token_
  Token token_;
};

}  // namespace imbrex::ir
