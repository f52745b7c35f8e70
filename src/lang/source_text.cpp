// SPDX-License-Identifier: Apache-2.0
// A lexer for as much of C++ as finding blocks, names and jumps needs.
#include "lang/source_text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>

#include "core/text.h"

namespace imbrex::lang {

namespace {

constexpr int kMaxLines = 4000;  // of one block

struct Token {
  enum Kind : uint8_t { kWord, kPunctuation, kLiteral, kEnd } kind = kEnd;
  std::string text;
  int line = 0;
  bool is(std::string_view other) const { return text == other && kind != kLiteral; }
};

/// Tokens of a file from a line on. Comments, preprocessor lines and the contents of literals are left out.
class Lexer {
 public:
  Lexer(const char* file, int line) : file_(file), line_(line), last_(line + kMaxLines) { load(); }

  Token next() {
    skip_space();
    if (done_) return {};
    const int line = line_;
    const char c = peek();
    if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') {
      std::string word;
      while (std::isalnum(static_cast<unsigned char>(peek())) || peek() == '_') word += take();
      if (peek() == '"' && (word == "R" || word == "LR" || word == "uR" || word == "UR" || word == "u8R")) {
        raw_string();
        return {Token::kLiteral, "", line};
      }
      return {Token::kWord, std::move(word), line};
    }
    if (std::isdigit(static_cast<unsigned char>(c))) {
      std::string number;
      while (std::isalnum(static_cast<unsigned char>(peek())) || peek() == '.' || peek() == '\'')
        number += take();
      return {Token::kLiteral, std::move(number), line};
    }
    if (c == '"' || c == '\'') {
      quoted(c);
      return {Token::kLiteral, "", line};
    }
    std::string mark(1, take());
    if (c == ':' && peek() == ':') mark += take();
    return {Token::kPunctuation, std::move(mark), line};
  }

 private:
  void load() {
    text_ = source_line(file_, line_);
    at_ = 0;
  }
  char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  char take() { return text_[at_++]; }
  bool next_line() {
    // source_line gives "" both for an empty line and past the end: a long run of them ends the file.
    empty_lines_ = text_.empty() ? empty_lines_ + 1 : 0;
    if (++line_ >= last_ || empty_lines_ > 200) return !(done_ = true);
    load();
    return true;
  }
  void skip_space() {
    while (!done_) {
      if (at_ >= text_.size()) {
        if (!next_line()) return;
        const size_t first = text_.find_first_not_of(" \t");
        while (!done_ && first != std::string::npos && text_[first] == '#') {
          while (!done_ && !text_.empty() && text_.back() == '\\') next_line();
          if (!next_line()) return;
          break;
        }
      } else if (std::isspace(static_cast<unsigned char>(peek()))) {
        ++at_;
      } else if (peek() == '/' && peek(1) == '/') {
        at_ = text_.size();
      } else if (peek() == '/' && peek(1) == '*') {
        at_ += 2;
        while (!done_ && !(peek() == '*' && peek(1) == '/')) {
          if (at_ >= text_.size())
            next_line();
          else
            ++at_;
        }
        at_ += 2;
      } else {
        return;
      }
    }
  }
  void quoted(char quote) {
    take();
    while (at_ < text_.size() && peek() != quote) at_ += peek() == '\\' ? 2 : 1;
    if (at_ < text_.size()) take();
  }
  void raw_string() {
    take();  // the quote
    std::string end = ")";
    while (at_ < text_.size() && peek() != '(') end += take();
    end += '"';
    size_t found;
    while ((found = text_.find(end, at_)) == std::string::npos)
      if (!next_line()) return;
    at_ = found + end.size();
  }

  const char* file_;
  int line_, last_;
  std::string text_;
  size_t at_ = 0;
  int empty_lines_ = 0;
  bool done_ = false;
};

/// Consumes up to the bracket that closes the one just read; returns that one.
Token skip_brackets(Lexer& lexer, char open, char close) {
  int depth = 1;
  for (Token t = lexer.next(); t.kind != Token::kEnd; t = lexer.next()) {
    if (t.is(std::string_view(&open, 1))) ++depth;
    if (t.is(std::string_view(&close, 1)) && --depth == 0) return t;
  }
  return {};
}

bool is_loop_word(const Token& t) { return t.is("for") || t.is("while") || t.is("do") || t.is("switch"); }

/// Reads one statement or block and reports the first jump out of it. `in_loop`: break and continue are its
/// own.
class JumpFinder {
 public:
  explicit JumpFinder(Lexer& lexer) : lexer_(lexer) { advance(); }

  /// The statement at the current token; afterwards the current token is the one behind it.
  std::optional<EarlyExit> statement(bool in_loop, bool in_switch) {
    if (now_.is("{")) {
      advance();
      while (now_.kind != Token::kEnd && !now_.is("}"))
        if (auto exit = statement(in_loop, in_switch)) return exit;
      advance();
      return std::nullopt;
    }
    if (is_loop_word(now_)) {
      const bool is_do = now_.is("do"), is_switch = now_.is("switch");
      advance();
      if (!is_do) parentheses();
      auto exit = statement(in_loop || !is_switch, in_switch || is_switch);
      if (is_do && now_.is("while")) skip_to_semicolon();
      return exit;
    }
    if (now_.is("if")) {
      advance();
      if (now_.is("constexpr")) advance();
      parentheses();
      if (auto exit = statement(in_loop, in_switch)) return exit;
      if (!now_.is("else")) return std::nullopt;
      advance();
      return statement(in_loop, in_switch);
    }
    if (now_.is("try")) {
      advance();
      auto exit = statement(in_loop, in_switch);
      while (!exit && now_.is("catch")) {
        advance();
        parentheses();
        exit = statement(in_loop, in_switch);
      }
      return exit;
    }
    if (now_.is("struct") || now_.is("class") || now_.is("union")) {
      while (now_.kind != Token::kEnd && !now_.is("{") && !now_.is(";")) advance();
      if (now_.is("{")) {
        skip_brackets(lexer_, '{', '}');
        advance();
      }
      skip_to_semicolon();
      return std::nullopt;
    }
    if (now_.is("return") || now_.is("co_return") || now_.is("goto") || (now_.is("continue") && !in_loop) ||
        (now_.is("break") && !in_loop && !in_switch)) {
      static constexpr std::array<std::string_view, 5> kWords = {"return", "co_return", "goto", "continue",
                                                                 "break"};
      for (std::string_view word : kWords)
        if (now_.is(word)) return EarlyExit{now_.line, word};
    }
    skip_to_semicolon();
    return std::nullopt;
  }

  const Token& now() const { return now_; }

 private:
  void advance() { now_ = lexer_.next(); }
  void parentheses() {
    if (!now_.is("(")) return;
    skip_brackets(lexer_, '(', ')');
    advance();
  }
  /// Past the `;` of an expression statement; braces inside it (lambdas, lists) are skipped whole. Stops
  /// before a `}` that closes the enclosing block, and after the `:` of a label.
  void skip_to_semicolon() {
    while (now_.kind != Token::kEnd && !now_.is("}")) {
      if (now_.is("{"))
        skip_brackets(lexer_, '{', '}');
      else if (now_.is("("))
        skip_brackets(lexer_, '(', ')');
      const bool is_end = now_.is(";");
      const bool is_label = now_.is("case") || now_.is("default");
      advance();
      if (is_end) return;
      if (is_label) {
        while (now_.kind != Token::kEnd && !now_.is(":")) advance();
        advance();
        return;
      }
    }
  }

  Lexer& lexer_;
  Token now_;
};

std::optional<EarlyExit> find_early_exit(const char* file, int line, std::string_view callee) {
  // The call's line may be that of any token of the call: look for `if (auto x = ... callee (` from a little
  // above.
  for (int start = line; start > 0 && start > line - 4; --start) {
    Lexer lexer(file, start);
    Token before[2];  // the two tokens before `t`
    bool in_condition = false;
    for (Token t = lexer.next(); t.kind != Token::kEnd && t.line <= line; t = lexer.next()) {
      if (t.is("(") && (before[1].is("if") || before[1].is("constexpr"))) in_condition = true;
      if (in_condition && t.is(callee)) {
        if (t = lexer.next(); !t.is("(")) break;
        skip_brackets(lexer, '(', ')');               // the call
        if (t = lexer.next(); !t.is(")")) return {};  // more than the call in the condition
        JumpFinder finder(lexer);
        if (auto exit = finder.statement(false, false)) return exit;
        if (finder.now().is("else")) return EarlyExit{finder.now().line, "else"};
        return std::nullopt;
      }
      before[0] = std::exchange(before[1], std::move(t));
    }
  }
  return std::nullopt;
}

bool is_identifier_char(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// The identifier that ends before `end`, when something that may be a type stands before it.
std::string identifier_before(std::string_view text, size_t end) {
  while (end > 0 && std::isspace(static_cast<unsigned char>(text[end - 1]))) --end;
  size_t begin = end;
  while (begin > 0 && is_identifier_char(text[begin - 1])) --begin;
  if (begin == end || std::isdigit(static_cast<unsigned char>(text[begin]))) return "";
  size_t type = begin;
  while (type > 0 && std::isspace(static_cast<unsigned char>(text[type - 1]))) --type;
  if (type == 0 || !(is_identifier_char(text[type - 1]) || text[type - 1] == '>' || text[type - 1] == '&'))
    return "";
  return std::string(text.substr(begin, end - begin));
}

/// True where `callee(...)` stands at `from` and nothing but a semicolon follows it on this line.
bool is_whole_call(std::string_view text, size_t from, std::string_view callee) {
  if (text.substr(from, callee.size()) != callee) return false;
  size_t at = from + callee.size();
  if (at >= text.size() || text[at] != '(') return false;
  int depth = 0;
  for (; at < text.size(); ++at) {
    if (text[at] == '(') ++depth;
    if (text[at] == ')' && --depth == 0) return at + 1 == text.size() || text[at + 1] == ';';
  }
  return true;
}

/// True where another declarator follows: `, name =`.
bool declares_another(std::string_view text, size_t from) {
  for (size_t comma = text.find(',', from); comma != std::string_view::npos;
       comma = text.find(',', comma + 1)) {
    size_t at = comma + 1;
    while (at < text.size() && text[at] == ' ') ++at;
    const size_t name = at;
    while (at < text.size() && is_identifier_char(text[at])) ++at;
    const bool has_name = at > name;
    while (at < text.size() && text[at] == ' ') ++at;
    if (has_name && at < text.size() && text[at] == '=' && text.compare(at, 2, "==") != 0) return true;
  }
  return false;
}

/// The line that the statement around this one begins at, as far as the ends of the lines above tell.
int first_line_of_statement(SourceLocation where) {
  constexpr int kLongest = 12;
  int line = static_cast<int>(where.line);
  for (int left = kLongest; line > 1 && left > 0; --line, --left) {
    std::string above = source_line(where.file, line - 1);
    if (const size_t comment = above.find("//"); comment != std::string::npos) above.resize(comment);
    const size_t last = above.find_last_not_of(" \t");
    if (last == std::string::npos || std::string_view(";{}").find(above[last]) != std::string_view::npos)
      break;
  }
  return line;
}

struct Initialiser {
  int last_line = 0;
  bool is_by_callee = false;
};
/// Consumes an initialiser whose first token is `at`: to the bracket that closes it, or, after an =, to the comma or semicolon
/// behind it, which is the next `at` then.
Initialiser read_initialiser(Lexer& lexer, Token& at, std::string_view callee) {
  const bool is_copy = at.is("=");
  Initialiser made{at.line, false};
  bool is_first = true;  // only words and :: so far
  for (int depth = is_copy ? 0 : 1; (at = lexer.next()).kind != Token::kEnd;) {
    if (depth == 0 && (at.is(",") || at.is(";"))) break;
    made.last_line = at.line;
    if (is_first && at.is(callee)) made.is_by_callee = true;
    is_first &= at.kind == Token::kWord || at.is("::");
    if (at.is("(") || at.is("{")) ++depth;
    if ((at.is(")") || at.is("}")) && --depth == 0 && !is_copy) break;
  }
  return made;
}

/// The names in a parameter list whose tokens follow.
std::vector<std::string> read_parameter_names(Lexer& lexer) {
  std::vector<std::string> names;
  std::vector<Token> tokens;  // of the parameter at hand, up to a default argument
  bool is_default = false;
  auto finish = [&] {
    if (tokens.empty()) return;
    const Token& last = tokens.back();
    const bool has_name = tokens.size() > 1 && last.kind == Token::kWord &&
                          (tokens[tokens.size() - 2].kind == Token::kWord ||
                           tokens[tokens.size() - 2].is(">") || tokens[tokens.size() - 2].is("&"));
    names.push_back(has_name ? last.text : "");
    tokens.clear();
    is_default = false;
  };
  int depth = 0;
  for (Token t = lexer.next(); t.kind != Token::kEnd; t = lexer.next()) {
    if (t.is("(") || t.is("<") || t.is("{") || t.is("[")) ++depth;
    if (depth == 0 && t.is(")")) {
      finish();
      return names;
    }
    if (t.is(")") || t.is(">") || t.is("}") || t.is("]")) --depth;
    if (depth == 0 && t.is(",")) {
      finish();
      continue;
    }
    is_default |= depth == 0 && t.is("=");
    if (!is_default) tokens.push_back(std::move(t));
  }
  return {};
}

}  // namespace

std::string declared_name(SourceLocation where, std::string_view callee) {
  if (!where.is_known()) return "";
  // The recorded line is somewhere in the declaration; its first line is rarely more than two above.
  for (int line = static_cast<int>(where.line); line > 0 && line + 3 > static_cast<int>(where.line); --line) {
    const std::string text = source_line(where.file, line);
    const size_t last = text.find_last_not_of(" \t");
    const bool is_whole =
        last == std::string::npos || std::string_view(";{}").find(text[last]) != std::string_view::npos;
    if (is_whole && line != static_cast<int>(where.line)) return "";  // the statement began after it
    if (const size_t loop = text.find("for ("); loop != std::string::npos && callee.empty()) {
      size_t colon = text.find(':', loop);
      while (colon != std::string::npos && text.compare(colon, 2, "::") == 0)
        colon = text.find(':', colon + 2);
      if (colon != std::string::npos) return identifier_before(text, colon);
    }
    const size_t equal = text.find('=');
    if (equal != std::string::npos && equal > 0 && text.compare(equal, 2, "==") != 0 &&
        std::string_view("<>!+-*/%&|^").find(text[equal - 1]) == std::string_view::npos) {
      const size_t value = std::min(text.find_first_not_of(" \t", equal + 1), text.size());
      // A call that goes on, or begins, on another line is taken to be the whole initialiser.
      const bool is_call = callee.empty() || value == text.size() || is_whole_call(text, value, callee);
      if (!is_call || declares_another(text, equal)) return "";  // of `Int32 a = 0, b = 0`, which?
      return identifier_before(text, equal);
    }
  }
  return "";
}

std::vector<ConstructedName> constructed_names(SourceLocation where, std::string_view callee) {
  if (!where.is_known()) return {};
  const int wanted = static_cast<int>(where.line);
  std::vector<ConstructedName> names;
  Lexer lexer(where.file, first_line_of_statement(where));
  Token before[2], t = lexer.next();  // the two tokens before `t`
  bool in_list = false;               // a declarator, or a `:`, has been read: more may follow a comma
  while (t.kind != Token::kEnd && t.line <= wanted && !(t.is(";") && !names.empty())) {
    Token next = lexer.next();
    const bool after_type =
        (before[1].kind == Token::kWord && !before[1].is("return") && !before[1].is("new")) ||
        before[1].is(">") || before[1].is("&");
    const bool follows = in_list && (before[1].is(",") || before[1].is(":"));
    const bool is_method =
        (t.is("emplace") || t.is("emplace_back") || t.is("push_back")) && before[1].is(".");
    const std::string name = is_method                                           ? before[0].text
                             : t.kind == Token::kWord && (after_type || follows) ? t.text
                                                                                 : "";
    if (const bool is_copy = next.is("="); !name.empty() && (is_copy || next.is("(") || next.is("{"))) {
      const int first = t.line;
      const Initialiser made = read_initialiser(lexer, next, callee);
      if (first <= wanted && made.last_line >= wanted) names.push_back({name, made.is_by_callee});
      if (!is_copy) next = lexer.next();
      in_list = true;
    } else if (next.is("(") && (t.is("for") || t.is("if") || t.is("while") || t.is("switch"))) {
      skip_brackets(lexer, '(', ')');
      next = lexer.next();
    } else if (t.is(":")) {  // what came before were the constructor's parameters
      names.clear();
      in_list = true;
    }
    before[0] = std::exchange(before[1], std::move(t));
    t = std::move(next);
  }
  return names;
}

std::optional<ParameterNames> parameter_names(SourceLocation where) {
  static std::mutex mutex;
  static std::map<std::pair<const char*, uint32_t>, std::optional<ParameterNames>> known;
  std::lock_guard lock(mutex);
  auto [entry, is_new] = known.try_emplace({where.file, where.line});
  if (!is_new) return entry->second;
  for (int line = static_cast<int>(where.line); line > 0; --line) {
    const std::string text = source_line(where.file, line);
    const size_t found = text.find("operator()(");
    if (found == std::string::npos) continue;
    Lexer lexer(where.file, line);
    for (Token t = lexer.next(); t.kind != Token::kEnd && !t.is("operator"); t = lexer.next()) {
    }
    lexer.next(), lexer.next(), lexer.next();  // ( ) (
    ParameterNames names;
    names.where = {where.file, static_cast<uint32_t>(line), where.function};
    names.names = read_parameter_names(lexer);
    entry->second = std::move(names);
    break;
  }
  return entry->second;
}

std::optional<EarlyExit> early_exit(SourceLocation where, std::string_view callee) {
  static std::mutex mutex;
  static std::map<std::tuple<const char*, uint32_t, std::string_view>, std::optional<EarlyExit>> known;
  std::lock_guard lock(mutex);
  auto [entry, is_new] = known.try_emplace({where.file, where.line, callee});
  if (is_new) entry->second = find_early_exit(where.file, static_cast<int>(where.line), callee);
  return entry->second;
}

}  // namespace imbrex::lang
