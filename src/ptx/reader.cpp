// SPDX-License-Identifier: Apache-2.0
// The module level of the reader. See parser.h.
#include "ptx/reader.h"

#include <fmt/format.h>

#include "core/text.h"
#include "ptx/insns.h"
#include "ptx/parser.h"

namespace imbrex::ptx {

Module read(std::string_view text, std::string_view source_name) { return Parser(text, source_name).parse(); }

Module read(std::string_view text, std::string_view source_name, UnreadBodies& unread) {
  return Parser(text, source_name, &unread).parse();
}

Parser::Parser(std::string_view text, std::string_view source_name, UnreadBodies* unread)
    : text_(text), source_name_(intern(source_name)), unread_(unread), lex_(text) {}

Module Parser::parse() {
  try {
    lex_.start();
    header();
  } catch (const SyntaxError& error) {
    report(error);
    throw_errors();
  }
  while (lex_.peek().kind != TokenKind::end && diagnostics_.size() < kMaxErrors) {
    try {
      statement();
    } catch (const SyntaxError& error) {
      report(error);
      lex_.skip_statement();
      try {
        if (lex_.accept('{'))
          lex_.raw_block();
        else
          lex_.accept('}');
      } catch (const SyntaxError&) {  // said already, or a consequence of it
      }
    }
  }
  if (!diagnostics_.empty()) throw_errors();
  return std::move(module_);
}

void Parser::throw_errors() { throw ParseError(std::move(diagnostics_), lacking_.front()); }

void Parser::report(const SyntaxError& error) {
  depth_ = 0;
  Diagnostic d;
  d.where = {source_name_, error.pos.line, ""};
  d.message = fmt::format("{} (column {})", error.message, error.pos.column);
  d.help = error.help;
  // Text that is no file on disk is quoted here; Diagnostic::format() quotes files.
  if (source_line(source_name_, static_cast<int>(error.pos.line)).empty() && error.pos.line != 0) {
    size_t start = 0;
    for (uint32_t line = 1; line < error.pos.line && start != std::string_view::npos; ++line) {
      start = text_.find('\n', start);
      if (start != std::string_view::npos) ++start;
    }
    if (start != std::string_view::npos)
      d.facts.push_back(fmt::format("{:3} | {}", error.pos.line,
                                    text_.substr(start, text_.find('\n', start) - start).substr(0, 200)));
  }
  diagnostics_.push_back(std::move(d));
  lacking_.emplace_back(error.lacking);
}

void Parser::header() {
  if (!lex_.accept_dot("version")) lex_.fail_expected("'.version'");
  Token version = lex_.next();
  std::string_view v = version.text;
  if (version.kind != TokenKind::number || v.size() != 3 || v[1] != '.' || v[0] > '9' || v[2] < '0' ||
      v[2] > '9')
    throw SyntaxError{
        version.pos, fmt::format("expected a PTX version such as 9.0, found '{}'", v.substr(0, 20)),
        v.size() == 4 && v[2] == '.' ? "if it is newer than 9.9, make it by an older CUDA toolkit" : ""};
  module_.version = (v[0] - '0') * 10 + (v[2] - '0');

  if (!lex_.accept_dot("target")) lex_.fail_expected("'.target'");
  SourcePos pos = lex_.peek().pos;
  module_.target = expect_word("a target such as sm_90a");
  if (!Target::parse(module_.target))
    throw SyntaxError{pos, fmt::format("unknown target '{}'", module_.target), ""};
  while (lex_.accept(',')) module_.target_options.emplace_back(expect_word("a target option"));
  if (lex_.accept_dot("address_size"))
    module_.address_size = static_cast<int>(constant_in(32, 64, "an address size"));
}

void Parser::statement() {
  Linkage linkage = accept_linkage();
  const Token t = lex_.peek();
  if (t.kind != TokenKind::dot_word) {
    if (linkage == Linkage::internal && lex_.accept(';')) return;
    lex_.fail_expected("a directive such as .entry, .func or .global");
  }
  lex_.next();
  if (t.text == "entry") return function(linkage, true);
  if (t.text == "func") return function(linkage, false);
  if (t.text == "global") return variables(Space::global, linkage, module_.variables);
  if (t.text == "const") return variables(Space::constant, linkage, module_.variables);
  if (t.text == "shared") return variables(Space::shared, linkage, module_.variables);
  if (t.text == "local") return variables(Space::local, linkage, module_.variables);
  if (linkage == Linkage::internal) {
    if (t.text == "file") return file_directive();
    if (t.text == "section") return section();
    if (t.text == "alias") return alias();
    if (t.text == "pragma") {
      module_.pragmas.push_back(expect_string());
      return expect(';');
    }
  }
  const std::vector<std::string> known = {"entry",   "func",   "global",  "const", "shared",
                                          "local",   "file",   "section", "alias", "pragma",
                                          "visible", "extern", "weak",    "common"};
  std::string nearest = nearest_word(t.text, known);
  throw SyntaxError{t.pos, fmt::format("unknown directive '.{}'", t.text),
                    nearest.empty() ? "" : fmt::format("did you mean '.{}'?", nearest)};
}

void Parser::file_directive() {
  File file;
  file.index = static_cast<uint32_t>(constant_in(0, 1 << 30, "a file index"));
  file.path = expect_string();
  if (lex_.accept(',')) {
    file.timestamp = constant();
    expect(',');
    file.size = constant();
  }
  module_.files.push_back(std::move(file));
}

void Parser::section() {
  Section s;
  if (lex_.peek().kind == TokenKind::dot_word) {
    s.name = "." + std::string(lex_.next().text);
  } else {
    s.name = expect_word("the name of a section");
  }
  expect('{');
  s.text = lex_.raw_block();
  module_.sections.push_back(std::move(s));
}

void Parser::alias() {
  uint32_t names[2];
  for (int i = 0; i < 2; ++i) {
    if (i == 1) expect(',');
    const Token t = lex_.peek();
    const SymbolRef* symbol = symbols_.find(expect_word("the name of a function"));
    if (symbol == nullptr || symbol->ref != Ref::function)
      throw SyntaxError{t.pos, fmt::format("'{}' is no function declared above", t.text), ""};
    names[i] = symbol->index;
  }
  module_.aliases.push_back({names[0], names[1]});
  expect(';');
}

void Parser::function(Linkage linkage, bool is_entry) {
  Function f;
  f.linkage = linkage;
  f.is_entry = is_entry;
  f.attributes = attributes();
  if (!is_entry && lex_.at('(')) f.return_params = parameters();
  const Token name = lex_.peek();
  f.pos = name.pos;
  f.name = expect_word(is_entry ? "the name of a kernel" : "the name of a function");
  if (lex_.at('(')) f.params = parameters();
  function_directives(f);
  if (lex_.accept(';')) {
    declare(std::move(f), name);
    return;
  }
  expect('{');
  f.has_body = true;
  uint32_t index = declare(std::move(f), name);  // before the body, which may refer to it
  const Function without_body = module_.functions[index];
  const size_t errors = diagnostics_.size();
  BodyParser(*this, module_.functions[index]).parse();
  // Where the limit was reached, the body has not been read to its end.
  if (unread_ == nullptr || diagnostics_.size() == errors || diagnostics_.size() >= kMaxErrors) return;
  const auto first = diagnostics_.begin() + static_cast<ptrdiff_t>(errors);
  unread_->insert_or_assign(
      index, ParseError(std::vector<Diagnostic>(first, diagnostics_.end()), std::move(lacking_[errors])));
  diagnostics_.erase(first, diagnostics_.end());
  lacking_.resize(errors);
  module_.functions[index] = without_body;
}

uint32_t Parser::declare(Function&& f, const Token& name) {
  SymbolRef& known = symbols_[name.text];
  if (known.ref == Ref::none) {
    known = {Ref::function, static_cast<uint32_t>(module_.functions.size())};
    module_.functions.push_back(std::move(f));
    return known.index;
  }
  if (known.ref != Ref::function)
    throw SyntaxError{name.pos, fmt::format("'{}' is a variable already", name.text), ""};
  Function& before = module_.functions[known.index];
  if (before.has_body && f.has_body)
    throw SyntaxError{name.pos,
                      fmt::format("'{}' has a body already, at line {}", name.text, before.pos.line), ""};
  if (before.params.size() != f.params.size() || before.return_params.size() != f.return_params.size() ||
      before.is_entry != f.is_entry)
    throw SyntaxError{
        name.pos,
        fmt::format("'{}' is declared with other parameters at line {}", name.text, before.pos.line), ""};
  if (f.has_body) {
    f.declared_early = true;
    before = std::move(f);
  }
  return known.index;
}

void Parser::function_directives(Function& f) {
  while (lex_.peek().kind == TokenKind::dot_word) {
    const Token t = lex_.next();
    constexpr int64_t kMax = int64_t{1} << 30;
    if (t.text == "maxntid")
      f.maxntid = triple();
    else if (t.text == "reqntid")
      f.reqntid = triple();
    else if (t.text == "reqnctapercluster")
      f.reqnctapercluster = triple();
    else if (t.text == "minnctapersm")
      f.minnctapersm = static_cast<int>(constant_in(0, kMax, "a count"));
    else if (t.text == "maxnctapersm")
      f.maxnctapersm = static_cast<int>(constant_in(0, kMax, "a count"));
    else if (t.text == "maxnreg")
      f.maxnreg = static_cast<int>(constant_in(0, kMax, "a count"));
    else if (t.text == "maxclusterrank")
      f.maxclusterrank = static_cast<int>(constant_in(0, kMax, "a count"));
    else if (t.text == "explicitcluster")
      f.explicitcluster = true;
    else if (t.text == "blocksareclusters")
      f.blocksareclusters = true;
    else if (t.text == "noreturn")
      f.noreturn = true;
    else if (t.text == "pragma") {
      f.pragmas.push_back(expect_string());
      expect(';');
    } else {
      throw SyntaxError{t.pos, fmt::format("unknown directive '.{}' of a function", t.text), ""};
    }
  }
}

}  // namespace imbrex::ptx
